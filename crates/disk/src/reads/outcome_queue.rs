//! A queue in which threads deliver outcomes to the owner.
//!
//! Thread-safety contract: one thread is the owner, which arms, waits and takes; any thread may
//! deliver. The bell is rung, and silenced, under the lock, so that `rung` always agrees with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};

use super::read_job::ReadOutcome;

/// See the [module](self).
pub(super) struct OutcomeQueue {
    state: CachePadded<Mutex<State>>,
    /// `true` if there may be outcomes; a hint for a polling owner, exact under the lock.
    some: CachePadded<AtomicBool>,
    came: Condvar,
    bell: OwnedFd,
}

#[derive(Default)]
struct State {
    outcomes: Vec<ReadOutcome>,
    /// The owner sleeps, or is about to, until the bell rings.
    armed: bool,
    rung: bool,
    /// The owner sleeps until it is notified.
    waiting: bool,
}

impl OutcomeQueue {
    /// Returns room for `depth` outcomes, before it must grow.
    pub(super) fn new(depth: usize) -> io::Result<OutcomeQueue> {
        let state = State {
            outcomes: Vec::with_capacity(depth),
            ..State::default()
        };
        Ok(OutcomeQueue {
            state: CachePadded::new(Mutex::new(state)),
            some: CachePadded::default(),
            came: Condvar::new(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Hands over outcomes, and wakes the owner if it sleeps.
    pub(super) fn deliver(&self, outcomes: &mut Vec<ReadOutcome>) {
        let mut state = self.state.lock();
        state.outcomes.append(outcomes);
        self.some.store(true, Ordering::Relaxed);
        if std::mem::take(&mut state.armed) && !state.rung {
            state.rung = true;
            // A counter of 64 bits does not overflow.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        if waiting {
            self.came.notify_one();
        }
    }

    /// Returns `true` if there is an outcome to take, which this thread may not have seen yet.
    pub(super) fn has_some(&self) -> bool {
        self.some.load(Ordering::Relaxed)
    }

    /// Swaps `into`, which is empty, for all outcomes.
    pub(super) fn take(&self, into: &mut Vec<ReadOutcome>) {
        if !self.has_some() {
            return;
        }
        let mut state = self.state.lock();
        self.some.store(false, Ordering::Relaxed);
        std::mem::swap(&mut state.outcomes, into);
        self.quiet(&mut state);
    }

    fn quiet(&self, state: &mut State) {
        state.armed = false;
        if std::mem::take(&mut state.rung) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Makes the bell ring with the next outcome. Returns `false` if there is one already.
    pub(super) fn arm(&self) -> bool {
        let mut state = self.state.lock();
        if !state.outcomes.is_empty() {
            return false;
        }
        self.quiet(&mut state);
        state.armed = true;
        true
    }

    /// Sleeps until there are outcomes or the time has come.
    pub(super) fn wait(&self, until: Option<Instant>) {
        let mut state = self.state.lock();
        while state.outcomes.is_empty() {
            state.waiting = true;
            match until {
                None => self.came.wait(&mut state),
                Some(until) => {
                    if self.came.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
            }
        }
        state.waiting = false;
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
