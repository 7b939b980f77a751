//! Tests of replicated partitions: groups of members, logs, snapshots, faults.

mod log;
mod log_crash;
mod log_document;
mod partition;
mod simulation;
mod snapshot;
mod support;
mod trouble;
