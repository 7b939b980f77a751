//! The credit and the cancellation of a running task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Controls a running task.
#[derive(Debug, Default)]
pub(super) struct TaskControl {
    credit: Mutex<u32>,
    /// The most credit that it may have; credit beyond this number is ignored.
    most: u32,
    changed: Condvar,
    cancelled: AtomicBool,
    /// `true` if it was cancelled because its reader gave no credit.
    untaken: AtomicBool,
}

impl TaskControl {
    pub(super) fn with_credit(credit: u32, most: u32) -> Arc<TaskControl> {
        Arc::new(TaskControl {
            credit: Mutex::new(credit.min(most)),
            most,
            ..TaskControl::default()
        })
    }

    pub(super) fn add_credit(&self, more: u32) {
        let mut credit = self.credit.lock();
        *credit = credit.saturating_add(more).min(self.most);
        self.changed.notify_one();
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        // A thread that is about to wait holds the lock until it waits.
        drop(self.credit.lock());
        self.changed.notify_one();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Waits for credit up to `patience`, and takes one. Returns `false` if no more batches are
    /// wanted.
    pub(super) fn take(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut credit = self.credit.lock();
        while *credit == 0 && !self.is_cancelled() {
            let waited = self.changed.wait_until(&mut credit, deadline);
            if waited.timed_out() && *credit == 0 && !self.is_cancelled() {
                self.untaken.store(true, Ordering::Release);
                // An incomplete result must not be taken for a complete one.
                self.cancelled.store(true, Ordering::Release);
            }
        }
        *credit = credit.saturating_sub(1);
        !self.is_cancelled()
    }

    /// Returns `true` if the task was cancelled because its reader gave no credit.
    pub(super) fn is_untaken(&self) -> bool {
        self.untaken.load(Ordering::Acquire)
    }

    /// Returns the number of batches that the task may send.
    #[cfg(test)]
    pub(super) fn credit(&self) -> u32 {
        *self.credit.lock()
    }
}
