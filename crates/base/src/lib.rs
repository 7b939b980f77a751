//! Types that every part of Kumiki shares.
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | transactions: ids, operations, replies, aborts, versions, and the traits of what executes them |
//! | [`codec`] | integers, operations, replies and aborts as bytes |
//! | [`clock`] | time as a parameter |
//! | [`affinity`] | places of threads, and the processors of this machine |
//! | [`memory`] | memory that peers read and write |
//! | [`numa`] | where this process's memory lies |
//! | [`text`] | numbers, sizes and times as texts |
//! | [`private`] | files with secrets |
//! | [`glob`] | patterns of keys and of channels |
//! | [`log_limit`] | the rate of log lines |
//! | [`passwords`] | the comparison of passwords, and the delay of the answer to a wrong one |
//! | [`planted`] | bugs that tests plant |
//!
//! It holds no behaviour on which two crates could disagree, and depends on no other crate of the
//! workspace.
//!
//! Decisions that bind this crate: `docs/decisions/0021-versions-carry-their-origin.md`,
//! `docs/decisions/0070-time-goes-on-evenly.md`, `docs/decisions/0087-databases-are-prefixes-of-keys.md`.

#![deny(unsafe_code)]

pub mod affinity;
pub mod clock;
pub mod codec;
pub mod glob;
pub mod log_limit;
pub mod memory;
pub mod model;
pub mod numa;
pub mod passwords;
pub mod planted;
pub mod private;
pub mod text;

pub use affinity::cpus;
pub use clock::steady_clock;
pub use model::change::{Change, Origin};
pub use model::ids::{Epoch, NodeId, PartitionId, Tid, Timestamp, TransactionId, Version};
pub use model::transaction::{Abort, Op, OpError, Reply, Transaction};
pub use model::{
    change, database, epochs, eviction, ids, key_event, limits, nested, participant, partition,
    transaction, versions,
};
pub use text::{double, number, size, utc};
