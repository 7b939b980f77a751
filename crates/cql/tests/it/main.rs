//! Tests of the native protocol: recorded responses, a second implementation as judge, mutated bytes.

mod fuzz;
mod judge;
mod seen;
