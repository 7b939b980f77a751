//! Tests of the store: databases on disk, participants, checkpoints, histories.

mod checkpoints;
mod database;
mod edits;
mod field_deadlines;
mod guards;
mod histories;
mod participant;
mod read_atomic;
mod sliced;
mod support;
