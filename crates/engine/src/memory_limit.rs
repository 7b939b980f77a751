//! The bound on memory, which is checked where transactions that need some begin. Under a policy that evicts
//! (module `eviction`) it is the ceiling: the memory that waits to be freed counts, as all other.
//!
//! A worker checks the engine's memory when it has added some since its last check, and before each
//! operation that adds much: so that the bound is exceeded by at most [`UNCHECKED`] for each worker.

use std::sync::atomic::Ordering;

use base::Abort;

use crate::engine::Engine;
use crate::transaction_error::TransactionError;

/// Bytes that a worker may add without a check.
const UNCHECKED: usize = 64 * 1024;

/// A worker's knowledge of the bound.
#[derive(Default)]
pub(crate) struct MemoryCheck {
    /// Bytes that it has added since its last check.
    unchecked: usize,
    /// `true` if the limit was exceeded at the last check.
    is_full: bool,
}

impl Engine {
    /// Returns `true` if more memory is used than what needs some is admitted with.
    #[must_use]
    pub fn exceeds_memory(&self) -> bool {
        let limit = self.memory_limit.load(Ordering::Relaxed);
        limit != 0 && self.memory_bytes() > self.eviction.ceiling(limit)
    }
}

impl MemoryCheck {
    /// Refuses an operation that needs `bytes` more memory than there is; its transaction has
    /// allocated `allocated` bytes, which the engine does not count yet.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        engine: &Engine,
        allocated: usize,
        bytes: usize,
    ) -> Result<(), TransactionError> {
        let limit = engine.memory_limit.load(Ordering::Relaxed);
        if limit == 0 {
            return Ok(());
        }
        self.unchecked = self.unchecked.saturating_add(bytes);
        if self.unchecked < UNCHECKED && !self.is_full {
            return Ok(());
        }
        self.unchecked = 0;
        let needed = allocated.saturating_add(bytes) as u64;
        let ceiling = engine.eviction.ceiling(limit);
        self.is_full = engine.memory_bytes().saturating_add(needed) > ceiling;
        if self.is_full {
            return Err(TransactionError::Abort(Abort::OutOfMemory));
        }
        Ok(())
    }
}
