//! The memory for a command: whether there is enough, and the eviction of keys before that.

use std::sync::atomic::Ordering;

use super::executor::Executor;
use crate::eviction_pace::{EvictionPace, SLICE};

impl Executor {
    /// Returns `true` if a command that brings `bytes` must be refused for lack of memory. Keys are evicted before,
    /// if the policy says so.
    #[inline]
    pub(super) fn is_full(&mut self, bytes: usize) -> bool {
        let shared = &self.context.shared;
        if shared.memory.evicts.load(Ordering::Relaxed) && !self.make_room(bytes) {
            return true;
        }
        let shared = &self.context.shared;
        shared
            .memory
            .is_full(&shared.partition, self.context.now, bytes)
    }

    /// Evicts keys if there is no room for a command with `bytes`. Returns `true` if it may be executed.
    fn make_room(&mut self, bytes: usize) -> bool {
        let limit = self.context.shared.memory.limit.load(Ordering::Relaxed);
        if limit == 0 || self.eviction.takes(bytes) {
            return true;
        }
        let outcome = self.worker.evict(EvictionPace::wanted(bytes, limit), SLICE);
        if let Err(reason) = &outcome {
            tracing::debug!(%reason, "no keys were evicted");
        }
        self.eviction.note(&outcome, limit)
            // What was wanted ahead is not needed.
            || !self.context.shared.partition.must_evict(bytes as u64)
    }

    /// Evicts keys for a while if they need more memory than the limit.
    pub(crate) fn evict(&mut self) {
        let limit = self.context.shared.memory.limit.load(Ordering::Relaxed);
        let outcome = self.worker.evict(0, SLICE);
        self.eviction.note(&outcome, limit);
    }
}
