//! The signal that wakes the thread which keeps the knowledge of the nodes up to date.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct RefreshSignal {
    requested: Mutex<bool>,
    woken: Condvar,
    stopping: AtomicBool,
}

impl RefreshSignal {
    /// Wakes the thread: something shows that the knowledge is old.
    pub(crate) fn request(&self) {
        let mut requested = self.requested.lock();
        if !std::mem::replace(&mut *requested, true) {
            self.woken.notify_one();
        }
    }

    /// Sleeps until there is a request, or the time has passed.
    pub(crate) fn wait(&self, at_most: Duration) {
        let mut requested = self.requested.lock();
        if !*requested {
            self.woken.wait_for(&mut requested, at_most);
        }
        *requested = false;
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.request();
    }

    /// Returns `true` if the thread must end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}
