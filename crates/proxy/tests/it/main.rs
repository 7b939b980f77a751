//! The proxy in this process: before real Redis servers, before simulated Cassandra nodes, and past the kernel.

mod cassandra;
mod past_the_kernel;
mod redis;
