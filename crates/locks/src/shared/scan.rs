//! Scans of all records: what clients wait for, and how far the sweep is.

use crate::lock::Ticket;
use crate::moment::MonotonicTime;

/// A listing that a client waits for.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) ticket: Ticket,
    pub(super) prefix: Vec<u8>,
    pub(super) at_most: usize,
    /// The latest time for its answer.
    pub(super) limit: MonotonicTime,
}

/// Progress of the sweep.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) at: MonotonicTime,
    /// Where the next slice begins; at the first record if `None`.
    pub(super) from: Option<Vec<u8>>,
    pub(super) is_flying: bool,
}

impl Sweep {
    pub(super) fn new(at: MonotonicTime) -> Sweep {
        Sweep {
            at,
            from: None,
            is_flying: false,
        }
    }

    pub(super) fn next_due(&self) -> Option<MonotonicTime> {
        (!self.is_flying).then_some(self.at)
    }
}
