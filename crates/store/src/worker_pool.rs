//! The workers of the embedded interface, lent for one transaction at a time.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::worker::Worker;

/// The time after which a caller that waits asks for a new worker: workers that threads keep for
/// themselves come back without notice.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Workers that are not lent.
#[derive(Default)]
pub(crate) struct WorkerPool {
    idle: Mutex<Vec<Worker>>,
    returned: Condvar,
}

impl WorkerPool {
    /// Returns an idle worker, or one that `new` returns; waits while there is none.
    pub(crate) fn take(&self, new: impl Fn() -> Option<Worker>) -> Worker {
        let mut idle = self.idle.lock();
        loop {
            if let Some(worker) = idle.pop().or_else(&new) {
                return worker;
            }
            self.returned.wait_for(&mut idle, LOOK_AGAIN);
        }
    }

    /// Takes a worker back.
    pub(crate) fn put(&self, worker: Worker) {
        self.idle.lock().push(worker);
        self.returned.notify_one();
    }
}
