//! Events that commits cause, from the commit until they are durable.
//!
//! Invariant: an event is queued while its worker is in the epoch of its transaction, so that all events
//! of an epoch are here once that is durable.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{Epoch, Tid};
use parking_lot::Mutex;

/// See the module's description.
pub(crate) struct DurableQueue<T> {
    queue: Mutex<Vec<(Tid, T)>>,
    /// One more than the newest epoch of a queued event; 0: there is none. Written with the queue locked.
    newest: AtomicU64,
}

impl<T> Default for DurableQueue<T> {
    fn default() -> DurableQueue<T> {
        DurableQueue {
            queue: Mutex::default(),
            newest: AtomicU64::new(0),
        }
    }
}

impl<T> DurableQueue<T> {
    /// Queues an event of a transaction. Returns `true` if the queue was empty: its reader is to be woken.
    pub(crate) fn push(&self, tid: Tid, event: T) -> bool {
        let mut queue = self.queue.lock();
        queue.push((tid, event));
        self.newest.fetch_max(tid.epoch().0 + 1, Ordering::SeqCst) == 0
    }

    /// Returns the newest epoch of a queued event.
    pub(crate) fn waits_for(&self) -> Option<Epoch> {
        let newest = self.newest.load(Ordering::SeqCst);
        newest.checked_sub(1).map(Epoch)
    }

    /// Removes the events of epochs up to `durable`, in the order of their transactions; those of one
    /// transaction in the order in which they came.
    pub(crate) fn release(&self, durable: Epoch) -> Vec<T> {
        if self.waits_for().is_none() {
            return Vec::new();
        }
        let mut due: Vec<(Tid, T)> = {
            let mut queue = self.queue.lock();
            let due = queue.extract_if(.., |(tid, _)| tid.epoch() <= durable);
            let due = due.collect();
            let left = queue.iter().map(|(tid, _)| tid.epoch().0 + 1).max();
            self.newest.store(left.unwrap_or(0), Ordering::SeqCst);
            due
        };
        due.sort_by_key(|(tid, _)| *tid);
        due.into_iter().map(|(_, event)| event).collect()
    }
}
