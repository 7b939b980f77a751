//! The bound on memory, which is checked where transactions that need some begin.
//!
//! A worker checks the engine's memory when it has added some since its last check, and before each
//! operation that adds much: so that the bound is exceeded by at most [`UNASKED`] for each worker.

use std::sync::atomic::Ordering;

use base::{Abort, Op};

use crate::log::RedoLog;
use crate::worker::{Stop, Worker};

/// Bytes that a worker may add without a check.
const UNASKED: usize = 64 * 1024;

/// A worker's knowledge of the bound.
#[derive(Default)]
pub(crate) struct MemoryCheck {
    /// Bytes that it has added since its last check.
    unasked: usize,
    /// `true` if the limit was exceeded at the last check.
    is_full: bool,
}

impl<L: RedoLog> Worker<L> {
    /// Refuses an operation that needs more memory than there is. Replicas that execute the same
    /// operations must not decide by themselves: there nothing is refused.
    #[inline]
    pub(crate) fn admit_memory(&mut self, op: &Op<'_>) -> Result<(), Stop> {
        match op.brings() {
            0 => Ok(()),
            bytes => self.admit_bytes(bytes),
        }
    }

    /// Refuses as [`Worker::admit_memory`], for so many bytes.
    #[inline]
    pub(crate) fn admit_bytes(&mut self, bytes: usize) -> Result<(), Stop> {
        let limit = self.engine.memory_limit.load(Ordering::Relaxed);
        if limit == 0 || self.state.exact {
            return Ok(());
        }
        let check = &mut self.memory;
        check.unasked = check.unasked.saturating_add(bytes);
        if check.unasked < UNASKED && !check.is_full {
            return Ok(());
        }
        check.unasked = 0;
        let wanted = self.state.made.saturating_add(bytes) as u64;
        check.is_full = self.engine.memory_bytes().saturating_add(wanted) > limit;
        if check.is_full {
            return Err(Stop::Abort(Abort::OutOfMemory));
        }
        Ok(())
    }
}
