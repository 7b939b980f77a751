//! Keys that will expire, by the time at which the janitor looks at them again.
//!
//! The janitor puts records here and takes them out; workers take samples. A record that is here is in the index
//! (invariant 1 of module [`crate::janitor`]), so that a worker that has it from here may use it while it stays in
//! its epoch.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parking_lot::Mutex;

use crate::record::RecordRef;

/// See the module's description.
#[derive(Default)]
pub(crate) struct ExpiringKeys(Mutex<BinaryHeap<Reverse<(u64, RecordRef)>>>);

impl ExpiringKeys {
    /// Keeps a record until this time.
    pub(crate) fn put(&self, due_ms: u64, record: RecordRef) {
        self.0.lock().push(Reverse((due_ms, record)));
    }

    /// Takes a record whose time has come.
    pub(crate) fn take_due(&self, now_ms: u64) -> Option<RecordRef> {
        let mut heap = self.0.lock();
        let Reverse((due_ms, _)) = heap.peek()?;
        if *due_ms > now_ms {
            return None;
        }
        heap.pop().map(|Reverse((_, record))| record)
    }

    /// Takes all records.
    pub(crate) fn take_all(&self) -> Vec<RecordRef> {
        let mut heap = self.0.lock();
        heap.drain().map(|Reverse((_, record))| record).collect()
    }

    /// Returns the time at which the first record is due.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.0.lock().peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    /// Adds `count` random records to `sample`; one of them may come twice.
    pub(crate) fn sample(
        &self,
        random: &mut fastrand::Rng,
        count: usize,
        sample: &mut Vec<RecordRef>,
    ) {
        let heap = self.0.lock();
        let records = heap.as_slice();
        if !records.is_empty() {
            let some = (0..count).map(|_| records[random.usize(..records.len())].0.1);
            sample.extend(some);
        }
    }
}
