//! Callers that wait until a prepared transaction gives its holds back.
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

use parking_lot::{Condvar, Mutex};

/// The callers that wait for holds.
#[derive(Default)]
pub(crate) struct HoldWaiters {
    /// Tasks, and when their time is over.
    tasks: Mutex<Vec<(Instant, Waker)>>,
    released: Condvar,
    /// The number of waits so far.
    count: AtomicU64,
}

impl HoldWaiters {
    /// Returns how many waits there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Wakes all waiters after holds have been given back, which is counted already.
    pub(crate) fn wake_all(&self) {
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

    /// Blocks until holds have been given back more often than `seen` times, as `releases` counts them.
    /// Returns `true` if that was before `until`.
    pub(crate) fn wait(&self, releases: impl Fn() -> u64, seen: u64, until: Instant) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut tasks = self.tasks.lock();
        while releases() == seen {
            if self.released.wait_until(&mut tasks, until).timed_out() {
                return releases() != seen;
            }
        }
        true
    }

    /// Waits as [`HoldWaiters::wait`], for a task.
    pub(crate) async fn wait_async(
        &self,
        releases: impl Fn() -> u64,
        seen: u64,
        until: Instant,
    ) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed);
        poll_fn(|context| {
            let mut tasks = self.tasks.lock();
            if releases() != seen {
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
