//! The read-atomic keys of an engine: their prefixes, the listener of their writes, and the ids that were drawn
//! for them (module [`crate::read_atomic`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::versions::{ReadAtomic, Watcher};
use base::{Timestamp, TransactionId};

/// An engine's knowledge of its read-atomic keys.
#[derive(Default)]
pub(crate) struct ReadAtomicKeys {
    keys: OnceLock<ReadAtomic>,
    watcher: OnceLock<Arc<dyn Watcher>>,
    /// The greatest timestamp of versions that have left memory, or were met in the log.
    left: AtomicU64,
    /// The number of ids that were drawn below prepared ones.
    below: AtomicU64,
}

impl ReadAtomicKeys {
    /// Sets the keys.
    ///
    /// # Panics
    /// Panics if other keys were declared before.
    pub(crate) fn declare(&self, keys: ReadAtomic) {
        let declared = self.keys.get_or_init(|| keys.clone());
        assert!(*declared == keys, "other keys were declared before");
    }

    /// Sets the watcher of writes.
    ///
    /// # Panics
    /// Panics if a watcher was set before.
    pub(crate) fn watch(&self, watcher: Arc<dyn Watcher>) {
        let set = self.watcher.set(watcher);
        assert!(set.is_ok(), "a watcher was set before");
    }

    /// Returns the watcher of writes.
    #[inline]
    pub(crate) fn watcher(&self) -> Option<&dyn Watcher> {
        self.watcher.get().map(|watcher| &**watcher)
    }

    /// Returns `true` if a key is read atomic.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.keys.get().is_some_and(|keys| keys.covers(key))
    }

    /// Returns `true` if any key is read atomic.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.keys.get().is_some_and(|keys| !keys.is_empty())
    }

    /// Notes an id whose versions may have left memory.
    pub(crate) fn note_left(&self, id: TransactionId) {
        self.left.fetch_max(id.timestamp.0, Ordering::SeqCst);
    }

    /// Returns the greatest timestamp of versions that may have left memory.
    pub(crate) fn left(&self) -> Timestamp {
        Timestamp(self.left.load(Ordering::SeqCst))
    }

    /// Returns a number that no other id below a prepared one has.
    pub(crate) fn next_below(&self) -> u64 {
        self.below.fetch_add(1, Ordering::Relaxed)
    }
}
