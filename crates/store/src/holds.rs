//! Waiting until a prepared transaction gives its holds back.
//!
//! Invariants:
//! 1. A caller that waits is in no epoch and holds nothing.
//! 2. A caller that waits has read the number of releases before it met the hold. A release first
//!    counts and then notifies, under the lock under which waiters look: none is missed.
//! 3. The housekeeping thread wakes the waiters whose time is over, so that a task needs no timer.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Instant;

use base::Abort;
use parking_lot::{Condvar, Mutex};

use crate::db::Shared;

/// The callers that wait for holds.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Tasks, and when their time is over.
    tasks: Mutex<Vec<(Instant, Waker)>>,
    released: Condvar,
    /// The number of waits so far.
    count: AtomicU64,
}

impl Waiting {
    /// Returns how many waits there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Wakes all waiters after holds have been given back, which is counted already.
    pub(crate) fn tell(&self) {
        let tasks = {
            let mut tasks = self.tasks.lock();
            self.released.notify_all();
            std::mem::take(&mut *tasks)
        };
        tasks.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Wakes the tasks whose time is over.
    pub(crate) fn sweep(&self) {
        let over: Vec<_> = {
            let mut tasks = self.tasks.lock();
            if tasks.is_empty() {
                return;
            }
            let now = Instant::now();
            tasks.extract_if(.., |(until, _)| *until <= now).collect()
        };
        over.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Shared {
    /// Returns how often holds have been given back.
    pub(crate) fn releases(&self) -> u64 {
        self.engine.releases()
    }

    /// Returns the moment at which a caller that begins to wait for a hold now gives up.
    pub(crate) fn hold_limit(&self) -> Instant {
        Instant::now() + self.hold_timeout
    }

    /// Runs `attempt`, and runs it again whenever a prepared transaction that was in the way has
    /// ended.
    ///
    /// # Errors
    /// Those of `attempt`; [`Abort::Held`] if the wait takes longer than it may.
    pub(crate) fn until_free<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Abort>,
    ) -> Result<T, Abort> {
        let mut until = None;
        loop {
            let seen = self.releases();
            let outcome = attempt();
            if !matches!(outcome, Err(Abort::Held { .. })) {
                return outcome;
            }
            let until = *until.get_or_insert_with(|| self.hold_limit());
            if !self.wait_released(seen, until) {
                return outcome;
            }
        }
    }

    /// Blocks until holds have been given back more often than `seen` times. Returns `true` if that
    /// was before `until`.
    pub(crate) fn wait_released(&self, seen: u64, until: Instant) -> bool {
        let waiting = &self.waiting;
        waiting.count.fetch_add(1, Ordering::Relaxed);
        let mut tasks = waiting.tasks.lock();
        while self.releases() == seen {
            if waiting.released.wait_until(&mut tasks, until).timed_out() {
                return self.releases() != seen;
            }
        }
        true
    }

    /// Waits as [`Shared::wait_released`], for a task.
    pub(crate) async fn until_released(&self, seen: u64, until: Instant) -> bool {
        let waiting = &self.waiting;
        waiting.count.fetch_add(1, Ordering::Relaxed);
        poll_fn(|context| {
            let mut tasks = waiting.tasks.lock();
            if self.releases() != seen {
                Poll::Ready(true)
            } else if Instant::now() >= until {
                Poll::Ready(false)
            } else {
                tasks.push((until, context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}
