//! The Rust client of a cluster.

#![forbid(unsafe_code)]
