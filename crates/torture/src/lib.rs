//! The harnesses: they start the real binary, hurt it, and judge what its clients saw.
//!
//! They look at the server from outside. They speak RESP over the small client of `testkit`, keep
//! their own books of what was acknowledged, and share no code with the server that they judge; so
//! a mistake inside the server cannot hide itself in its test.

#![forbid(unsafe_code)]

pub mod bench;
pub mod cassandra;
pub mod chaos;
pub mod cluster;
pub mod crash;
pub mod failover;
pub mod fuzz;
pub mod headline;
pub mod percentiles;
pub mod server;
pub mod sim;
pub mod smoke;
pub mod status;
pub mod trace;
