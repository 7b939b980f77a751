//! The proxy in front of simulated Cassandra nodes, which do what real ones do seldom or never: they
//! keep replies back, or send them late.

mod client;
mod hostile;
mod node;
mod silence;
mod users;
