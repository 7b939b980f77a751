//! Transactions that are under way: what each has, and what it writes.

use std::sync::Arc;

use super::entry::Over;
use super::scan::Listing;
use crate::lock::{Answer, LockLease};
use crate::moment::MonotonicTime;
use crate::record::RecordWriteId;

/// A transaction that is under way.
#[derive(Debug)]
pub(super) struct InFlightTransaction {
    pub(super) sent: MonotonicTime,
    pub(super) freight: TransactionContent,
}

/// Content of a transaction.
#[derive(Debug)]
pub(super) enum TransactionContent {
    /// Opens the era of this number.
    Era(u64),
    Keys {
        /// The first operation requires an era.
        needs_era: bool,
        items: Vec<KeyInTransaction>,
    },
    Listing(Listing),
    Sweep,
}

/// A key in a transaction.
#[derive(Debug)]
pub(super) struct KeyInTransaction {
    pub(super) key: Arc<[u8]>,
    /// Requests with this arrival number or a smaller one are answered by the result.
    pub(super) before: u64,
    /// What it writes, if it writes.
    pub(super) writes: Option<RecordWrite>,
}

/// A write of a transaction.
#[derive(Clone, Debug)]
pub(super) struct RecordWrite {
    pub(super) arrival: u64,
    pub(super) over: Over,
    pub(super) id: RecordWriteId,
    /// It grants a lock that was free.
    pub(super) is_new: bool,
    /// The lease of a held record; `None` for a released one.
    pub(super) lease: Option<LockLease>,
    pub(super) answer: Option<Answer>,
}

impl KeyInTransaction {
    /// Returns how many replies the partition gives for it.
    pub(super) fn replies(&self) -> usize {
        match self.writes.as_ref().map(|written| written.over) {
            None | Some(Over::Version(..)) => 2,
            Some(Over::Absent) => 3,
        }
    }
}
