//! Background work of the member, on a thread of its own.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::shared::Shared;
use crate::snapshot::SnapshotError;

/// The place where the result of a [`Job`] appears.
pub(super) type Outcome<T> = Arc<Mutex<Option<Result<T, Undone>>>>;

/// The reason why a job has no result.
pub(super) enum Undone {
    Failed(SnapshotError),
    /// The job's thread has panicked, or could not be started.
    Ended,
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undone::Failed(error) => error.fmt(f),
            Undone::Ended => f.write_str("its thread has panicked, or could not be started"),
        }
    }
}

impl Undone {
    /// Returns `true` if the disk has no space.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Undone::Failed(error) if error.is_full())
    }
}

/// Work that always produces an outcome, even if it never begins.
pub(super) struct Job<T> {
    outcome: Outcome<T>,
    shared: Arc<Shared>,
}

impl<T> Job<T> {
    pub(super) fn new(outcome: Outcome<T>, shared: Arc<Shared>) -> Job<T> {
        Job { outcome, shared }
    }

    pub(super) fn run(self, work: impl FnOnce() -> Result<T, SnapshotError>) {
        if let Ok(done) = catch_unwind(AssertUnwindSafe(work)) {
            *self.outcome.lock() = Some(done.map_err(Undone::Failed));
        }
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        self.outcome.lock().get_or_insert(Err(Undone::Ended));
        self.shared.wake();
    }
}
