//! The bound on memory, where transactions that need some begin.
//!
//! A worker asks for the engine's memory when it has brought some since it last asked, and before each
//! operation that brings much: so that the bound is passed by at most [`UNASKED`] for each worker.

use std::sync::atomic::Ordering;

use base::{Abort, Op};

use crate::log::RedoLog;
use crate::worker::{Stop, Worker};

/// Bytes that a worker may bring without asking.
const UNASKED: usize = 64 * 1024;

/// What a worker knows of the bound.
#[derive(Default)]
pub(crate) struct MemoryCheck {
    /// Bytes that it has brought since it last asked.
    unasked: usize,
    /// The limit was exceeded at the last check.
    is_full: bool,
}

impl<L: RedoLog> Worker<L> {
    /// Refuses an operation that needs memory which is not there. Replicas that execute the same
    /// operations must not decide by themselves: there nothing is refused.
    #[inline]
    pub(crate) fn admit_memory(&mut self, op: &Op<'_>) -> Result<(), Stop> {
        match op.brings() {
            0 => Ok(()),
            bytes => self.admit_bytes(bytes),
        }
    }

    /// As [`Worker::admit_memory`], of so many bytes.
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
