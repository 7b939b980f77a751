//! Several partitions as one store.
//!
//! | module | concept |
//! |---|---|
//! | [`message`] | what nodes and clients say to each other |
//!
//! It knows neither RESP nor how a partition keeps its data.

#![forbid(unsafe_code)]

pub mod message;
