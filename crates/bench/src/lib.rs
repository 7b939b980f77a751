//! Benchmarks.
#![forbid(unsafe_code)]
