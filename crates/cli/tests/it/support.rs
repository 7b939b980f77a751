//! Shared by the tests of the real binary: the binary as a child process, clusters of it, and the
//! drivers of Cassandra.

pub(crate) mod cassandra;
pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod cql;
pub(crate) mod drivers;
pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod process;
pub(crate) mod replicas;
pub(crate) mod transfers;
pub(crate) mod words;
