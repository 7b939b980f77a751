//! Types that every part of Kumiki shares.
//!
//! This crate holds no behaviour on which two crates could disagree: ids, the [`Transaction`] and its
//! replies, the [`Partition`](partition::Partition) that executes it, the
//! [`Participant`](participant::Participant) of transactions over several partitions, the encoding of
//! both as bytes ([`codec`]), limits, the outside world as parameters ([`clock`], [`steady_clock`],
//! [`memory`]), places of threads ([`affinity`], [`cpus`]), files with secrets ([`private`]), and the
//! rate of log lines ([`log_limit`]). It depends on no other crate of the workspace.
//!
//! Decisions that bind this crate: `docs/decisions/0021-versions-carry-their-origin.md`,
//! `docs/decisions/0070-time-goes-on-evenly.md`.

#![forbid(unsafe_code)]

pub mod affinity;
pub mod change;
pub mod clock;
pub mod codec;
pub mod cpus;
pub mod epochs;
pub mod ids;
pub mod limits;
pub mod log_limit;
pub mod memory;
pub mod number;
pub mod participant;
pub mod partition;
pub mod planted;
pub mod private;
pub mod size;
pub mod steady_clock;
pub mod transaction;
pub mod versions;

pub use change::{Change, Origin};
pub use ids::{Epoch, NodeId, PartitionId, Tid, Timestamp, TransactionId, Version};
pub use transaction::{Abort, Op, OpError, Reply, Transaction};
