//! What the tests of the real binary share: servers as child processes, and a client that keeps
//! every byte of a reply.

// Each test binary uses its own part of this.
#![allow(dead_code)]

pub(crate) mod cassandra;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod cql;
pub(crate) mod drivers;
pub(crate) mod frame;
pub(crate) mod process;
pub(crate) mod replicas;
pub(crate) mod words;
