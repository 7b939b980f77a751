//! The proxy in this process: before real Redis servers, before simulated Cassandra nodes, and past the kernel.

mod cassandra;
mod past_the_kernel;
//! The proxy in this process: before real Redis servers, before simulated Cassandra nodes, and before real
//! ones with proxies in processes of their own.

mod cassandra;
mod read_atomic_cassandra;
mod redis;
