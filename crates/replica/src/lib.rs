//! A replicated partition: Raft's log is the redo log of an engine without a journal (paper 5).
//!
//! The leader takes locks and executes before consensus; what many clients' transactions write
//! goes through one append, one sync and one transfer.

#![forbid(unsafe_code)]

pub mod log;
pub mod snapshot;
mod wire;
