//! Tests of the Redis protocol: mutated bytes.

mod fuzz;
