//! Developers' commands: what `cargo xtask …` runs itself, and what the harnesses (crate `torture`) use of
//! it.
//!
//! This crate is compiled before the first check can run, so it depends on little. The harnesses, which
//! link large parts of the workspace, are a program of their own that it builds and starts.

#![forbid(unsafe_code)]

pub mod arch;
pub mod build;
pub mod ci;
pub mod interrupt;
mod links;
pub mod lints;
pub mod nightly;
pub mod pairs;
pub mod peers;
pub mod process;
pub mod rdma;
pub mod redis_suite;
pub mod workspace;
