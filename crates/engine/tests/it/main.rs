//! Tests of the engine: transactions, holds, snapshots, replicas.

mod collection_models;
mod collections;
mod databases;
mod driven;
mod driven_threads;
mod edits;
mod events;
mod field_deadlines;
mod guards;
mod holds;
mod ignored_holds;
mod libraries;
mod memory;
mod operation_lists;
mod prepare;
mod prepared_restart;
mod read_atomic;
mod read_atomic_threads;
mod replicas;
mod snapshots;
mod staged;
mod staged_chains;
mod streams;
mod support;
mod transactions;
mod writer_marks;
