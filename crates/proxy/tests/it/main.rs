//! The proxy in this process: before real Redis servers, before simulated Cassandra nodes, and its
//! networks.

mod cassandra;
mod network;
mod redis;
