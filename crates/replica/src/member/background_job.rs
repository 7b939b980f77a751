//! Background work of the member, on a thread of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::shared::MemberShared;
use crate::snapshot::SnapshotError;

/// The slot in which the result of a [`BackgroundJob`] appears.
pub(super) type JobResult<T> = Arc<Mutex<Option<Result<T, JobError>>>>;

/// The reason why a job has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    #[error(transparent)]
    Failed(SnapshotError),
    /// The job's thread has panicked, or could not be started.
    #[error("its thread has panicked, or could not be started")]
    Ended,
}

impl JobError {
    /// Returns `true` if the disk has no space.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, JobError::Failed(error) if error.is_full())
    }
}

/// Work that always produces a result, even if it never begins.
pub(super) struct BackgroundJob<T> {
    result: JobResult<T>,
    shared: Arc<MemberShared>,
}

impl<T> BackgroundJob<T> {
    pub(super) fn new(result: JobResult<T>, shared: Arc<MemberShared>) -> BackgroundJob<T> {
        BackgroundJob { result, shared }
    }

    pub(super) fn run(self, work: impl FnOnce() -> Result<T, SnapshotError>) {
        if let Ok(done) = catch_unwind(AssertUnwindSafe(work)) {
            *self.result.lock() = Some(done.map_err(JobError::Failed));
        }
    }
}

impl<T> Drop for BackgroundJob<T> {
    fn drop(&mut self) {
        self.result.lock().get_or_insert(Err(JobError::Ended));
        self.shared.wake();
    }
}
