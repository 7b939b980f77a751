//! The proxy in front of real Redis servers and a real Redis Cluster.
//!
//! `redis-server` is a peer of the group `redis`: see `testkit::peers`.

mod admin;
mod blocks;
mod caching;
mod clusters;
mod commands;
mod crossed;
mod failures;
mod hostile;
mod locks;
mod messages;
mod overload;
mod packs;
mod scripted;
mod support;
mod tls;
