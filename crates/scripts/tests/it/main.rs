//! Tests of scripts against values of Redis 7.0.15.

mod attacks;
mod errors;
mod functions;
mod host;
mod results;
mod sandbox;
mod slices;
mod transcripts;
