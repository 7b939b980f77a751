//! Evicts keys in the turns of the runtime: what other nodes have written was not checked before, the limit may have been
//! lowered, and a single eviction is short.

use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::Network;

use super::Runtime;
use crate::eviction_pace::LOOK;

impl<N: Network> Runtime<N> {
    /// Returns the time, since the server's start, at which memory must be looked at.
    pub(super) fn eviction_due(&self) -> Option<Duration> {
        self.executor.eviction.due
    }

    /// Evicts keys for a while, if that is due. Memory is looked at again after a turn in which `woken` or anything
    /// was executed.
    pub(super) fn evict(&mut self, was_active: bool) {
        let executor = &mut self.executor;
        let memory = &executor.context.shared.memory;
        let evicts = memory.evicts.load(Ordering::Relaxed);
        if !evicts || memory.limit.load(Ordering::Relaxed) == 0 {
            executor.eviction.due = None;
            return;
        }
        let now = executor.context.now;
        if was_active {
            executor.eviction.due.get_or_insert(now + LOOK);
        }
        let is_due = executor.eviction.due.is_some_and(|due| due <= now);
        if !is_due && !executor.eviction.is_behind {
            return;
        }
        executor.evict();
        executor.eviction.due = if executor.eviction.is_behind {
            Some(now)
        } else {
            executor.worker.awaits_evictions().then_some(now + LOOK)
        };
    }
}
