//! The check that the store does not use more memory than it should. Asking the store has a cost, so that its answer
//! is used for a few milliseconds, or until much has been written.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::partition::Partition;

/// See the module's description.
pub(crate) struct MemoryWatch {
    /// The limit in bytes; 0: none.
    pub(crate) limit: AtomicU64,
    /// `true` if keys are evicted when it is reached.
    pub(crate) evicts: AtomicBool,
    is_exceeded: AtomicBool,
    /// Bytes of commands since the store was asked.
    written: AtomicU64,
    /// Milliseconds from the server's start to when the store was asked.
    asked_ms: AtomicU64,
}

/// The time for which an answer is used, and the bytes after which it is not.
const MEMORY_AGE: Duration = Duration::from_millis(10);
const MEMORY_WRITTEN: u64 = 1 << 20;

impl MemoryWatch {
    pub(crate) fn new(limit: u64) -> MemoryWatch {
        MemoryWatch {
            limit: AtomicU64::new(limit),
            evicts: AtomicBool::new(false),
            is_exceeded: AtomicBool::new(false),
            written: AtomicU64::new(0),
            asked_ms: AtomicU64::new(0),
        }
    }

    /// Has the store asked at the next command: the limit has changed, or what happens when it is reached.
    pub(crate) fn ask_again(&self) {
        self.written.store(MEMORY_WRITTEN, Ordering::Relaxed);
    }

    /// Returns `true` if a command that brings `bytes` must be refused. `now` is the time since the
    /// server's start.
    #[inline]
    pub(crate) fn is_full(&self, partition: &Partition, now: Duration, bytes: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit != 0 && self.exceeds(partition, now, bytes)
    }

    fn exceeds(&self, partition: &Partition, now: Duration, bytes: usize) -> bool {
        let now = now.as_millis() as u64;
        let written = self.written.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let age = now.saturating_sub(self.asked_ms.load(Ordering::Relaxed));
        if age >= MEMORY_AGE.as_millis() as u64 || written >= MEMORY_WRITTEN {
            self.asked_ms.store(now, Ordering::Relaxed);
            self.written.store(0, Ordering::Relaxed);
            let exceeds = partition.exceeds_memory();
            self.is_exceeded.store(exceeds, Ordering::Relaxed);
        }
        self.is_exceeded.load(Ordering::Relaxed)
    }
}
