//! A signal that makes a thread stop, and that it can sleep on.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Tells a thread to stop.
#[derive(Default)]
pub(crate) struct StopSignal {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps for `time`, or until the thread is stopped. Returns `true` if it was stopped.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.changed.wait_for(&mut stopped, time);
        }
        *stopped
    }
}
