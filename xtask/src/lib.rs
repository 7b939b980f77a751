//! Developers' commands: what `cargo xtask …` runs, and what its tests run.
//!
//! The harnesses here look at the server from outside. They speak RESP over their own small
//! [`client`], keep their own books of what was acknowledged, and share no code with what they
//! judge; so a misunderstanding inside the server cannot hide itself in its test.

#![forbid(unsafe_code)]

pub mod arch;
pub mod bench;
pub mod build;
pub mod cassandra;
pub mod chaos;
pub mod ci;
pub mod client;
pub mod cluster;
pub mod crash;
pub mod failover;
pub mod fuzz;
pub mod interrupt;
pub mod peers;
pub mod process;
pub mod rdma;
pub mod server;
pub mod sim;
pub mod smoke;
pub mod spread;
pub mod status;
pub mod trace;

/// The examples in the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
