//! The proxy in this process: before real Redis servers, and before simulated Cassandra nodes.

mod cassandra;
mod redis;
