//! The proxy in this process: before real Redis servers, before simulated Cassandra nodes, and past the kernel; and
//! before real Cassandra nodes, with proxies in processes of their own.

mod cassandra;
mod past_the_kernel;
mod read_atomic_cassandra;
mod redis;
