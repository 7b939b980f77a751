//! The proxy in front of pretended Cassandra nodes, which do what real ones do seldom or never: they
//! keep a reply to themselves, or give it late.

mod client;
mod hostile;
mod node;
mod silence;
mod users;
