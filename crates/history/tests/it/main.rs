//! Tests of the checkers: known anomalies, simulated executions, workloads.

mod anomalies;
mod atomic;
mod atomic_executions;
mod executions;
mod support;
mod workloads;
