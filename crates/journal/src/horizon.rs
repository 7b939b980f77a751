//! The durable epoch, its waiters, and the failure that ends its advance.
//!
//! Each logger closes epochs in its own log; an epoch that is closed in all logs is durable
//! (paper 2: the persistent epoch is the least of the loggers' epochs).
//!
//! Invariants:
//! 1. `durable` is at most every logger's `closed`, and grows monotonically.
//! 2. A transaction's time from commit to durability ends with the advance of `durable` that covers
//!    its epoch, whichever logger caused it.
//! 3. After a failure `durable` stands still, and every waiter for a later epoch gets the failure.
//! 4. While a logger has no room for its log, every waiter for a later epoch gets an error that says
//!    so. Its epoch may become durable later.
//! 5. While a hold lasts, `durable` stands still, also when loggers close epochs: nothing that waits for
//!    durability leaves this process. What they closed meanwhile is published when the hold ends.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::Epoch;
use base::planted::{self, Bug};
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::error::JournalFailure;
use crate::notify::Notifications;

type Notify = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Horizon {
    /// For each logger: the newest epoch that is complete and synced in its log.
    closed: Vec<CachePadded<AtomicU64>>,
    durable: CachePadded<AtomicU64>,
    /// The hold that lasts. Its lock is held while `durable` grows.
    hold: Mutex<HoldState>,
    /// The number of holds that there have been.
    holds: AtomicU64,
    /// The newest epoch that was requested.
    requested: CachePadded<AtomicU64>,
    failed: OnceLock<JournalFailure>,
    /// For each logger: the reason why it cannot go on for now.
    stalled: Mutex<Vec<Option<JournalFailure>>>,
    /// The number of loggers that cannot go on for now.
    stalls: AtomicUsize,
    notifications: Notifications,
    /// The number of workers that wait for a logger to close an epoch.
    throttled: AtomicUsize,
    /// `true` once the journal was closed: nothing becomes durable any more, without any failure.
    ended: AtomicBool,
    waiters: Mutex<()>,
    changed: Condvar,
    subscribers: RwLock<Vec<Notify>>,
}

/// The hold of the durable epoch.
#[derive(Default)]
struct HoldState {
    lasting: Option<DurabilityHold>,
    /// `true` once the journal closes.
    is_refused: bool,
}

/// A hold of the durable epoch.
struct DurabilityHold {
    number: u64,
    until: Instant,
}

impl Horizon {
    pub(crate) fn new(loggers: usize, start: Epoch) -> Horizon {
        let epoch = || CachePadded::new(AtomicU64::new(start.0));
        Horizon {
            closed: (0..loggers).map(|_| epoch()).collect(),
            durable: epoch(),
            hold: Mutex::default(),
            holds: AtomicU64::new(0),
            requested: epoch(),
            failed: OnceLock::new(),
            stalled: Mutex::new(vec![None; loggers]),
            stalls: AtomicUsize::new(0),
            notifications: Notifications::default(),
            throttled: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            waiters: Mutex::new(()),
            changed: Condvar::new(),
            subscribers: RwLock::default(),
        }
    }

    pub(crate) fn durable(&self) -> Epoch {
        Epoch(self.durable.load(Ordering::Acquire))
    }

    pub(crate) fn closed(&self, logger: usize) -> Epoch {
        Epoch(self.closed[logger].load(Ordering::Acquire))
    }

    /// Returns the newest epoch that is closed in any log.
    pub(crate) fn most_closed(&self) -> Epoch {
        let closed = self.closed.iter();
        let newest = closed.map(|closed| closed.load(Ordering::Acquire)).max();
        Epoch(newest.expect("a journal has a logger"))
    }

    pub(crate) fn requested(&self) -> Epoch {
        Epoch(self.requested.load(Ordering::Acquire))
    }

    /// Notes a request for `epoch`; returns `true` if no earlier request was for as new an epoch.
    pub(crate) fn request(&self, epoch: Epoch) -> bool {
        // Most calls of a busy server ask for an epoch that is requested already.
        self.requested.load(Ordering::Acquire) < epoch.0
            && self.requested.fetch_max(epoch.0, Ordering::AcqRel) < epoch.0
    }

    pub(crate) fn failed(&self) -> Option<&JournalFailure> {
        self.failed.get()
    }

    /// Returns the reason why no later epoch becomes durable, for ever or for now: the failure, or
    /// that a logger has no room.
    pub(crate) fn trouble(&self) -> Option<JournalFailure> {
        let stalled = || {
            let is_stalled = self.stalls.load(Ordering::SeqCst) > 0;
            is_stalled.then(|| self.stalled.lock().iter().flatten().next().cloned())?
        };
        self.failed().cloned().or_else(stalled)
    }

    /// Notes the reason why logger `logger` cannot go on for now, or with `None` that it can.
    pub(crate) fn stall(&self, logger: usize, why: Option<JournalFailure>) {
        let mut stalled = self.stalled.lock();
        stalled[logger] = why;
        let now = stalled.iter().flatten().count();
        let before = self.stalls.swap(now, Ordering::SeqCst);
        drop(stalled);
        if (before == 0) != (now == 0) {
            self.notify();
        }
    }

    /// Returns the reason why no later epoch becomes durable: the trouble, or that the journal was
    /// closed.
    pub(crate) fn over(&self) -> Option<JournalFailure> {
        let ended = self.ended.load(Ordering::Acquire);
        let closed = ended.then(|| JournalFailure::new("it is closed"));
        self.trouble().or(closed)
    }

    /// Notes that logger `logger` has completed and synced everything up to `epoch`.
    pub(crate) fn publish(&self, logger: usize, epoch: Epoch) {
        // Sequentially consistent, so that of two loggers that publish at once one sees both.
        self.closed[logger].store(epoch.0, Ordering::SeqCst);
        if self.failed().is_some() {
            return;
        }
        if !self.advance() && self.throttled.load(Ordering::SeqCst) > 0 {
            self.wake_waiters();
        }
    }

    /// Moves `durable` to the least epoch that the loggers have closed, unless a hold lasts. Returns
    /// `true` if it has moved.
    fn advance(&self) -> bool {
        let mut hold = self.hold.lock();
        if let Some(lasting) = &hold.lasting {
            let is_over = lasting.until <= Instant::now();
            if !is_over && !planted::is(Bug::ForgottenHold) {
                return false;
            }
            hold.lasting.take_if(|_| is_over);
        }
        let closed = self.closed.iter();
        let least = closed.map(|closed| closed.load(Ordering::SeqCst)).min();
        let least = least.expect("a journal has a logger");
        let has_moved = self.durable.fetch_max(least, Ordering::AcqRel) < least;
        drop(hold);
        if has_moved {
            self.notifications.release(Epoch(least));
            self.notify();
        }
        has_moved
    }

    /// Holds `durable` where it is, for `time` at most. Returns the hold's number and that epoch;
    /// `None` if another hold lasts, or the journal closes.
    pub(crate) fn hold(&self, time: Duration) -> Option<(u64, Epoch)> {
        let now = Instant::now();
        let mut hold = self.hold.lock();
        let lasting = hold.lasting.as_ref();
        if hold.is_refused || lasting.is_some_and(|lasting| now < lasting.until) {
            return None;
        }
        let number = self.holds.fetch_add(1, Ordering::Relaxed);
        let until = now + time;
        hold.lasting = Some(DurabilityHold { number, until });
        Some((number, self.durable()))
    }

    /// Ends hold `number`. Returns `true` if it has lasted until now.
    pub(crate) fn release(&self, number: u64) -> bool {
        let is_it = |hold: &mut DurabilityHold| hold.number == number;
        let ended = self.hold.lock().lasting.take_if(is_it);
        let has_lasted = ended.is_some_and(|hold| Instant::now() < hold.until);
        self.publish_closed();
        has_lasted
    }

    /// Ends a hold whose time is over.
    pub(crate) fn end_overdue_hold(&self) {
        let is_overdue = |hold: &mut DurabilityHold| hold.until <= Instant::now();
        if self.hold.lock().lasting.take_if(is_overdue).is_some() {
            self.publish_closed();
        }
    }

    /// Ends any hold, and allows no other one: the journal closes.
    pub(crate) fn end_holds(&self) {
        let mut hold = self.hold.lock();
        hold.is_refused = true;
        let was_lasting = hold.lasting.take().is_some();
        drop(hold);
        if was_lasting {
            self.publish_closed();
        }
    }

    /// Publishes what the loggers have closed during a hold.
    fn publish_closed(&self) {
        if self.failed().is_none() {
            self.advance();
        }
    }

    /// Returns the transactions that are synced and wait for their epoch to be durable.
    pub(crate) fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Waits until logger `logger` has closed `epoch`. `ask` is called once before sleeping.
    pub(crate) fn wait_closed(
        &self,
        logger: usize,
        epoch: Epoch,
        ask: impl FnOnce(),
    ) -> Result<(), JournalFailure> {
        if self.closed(logger) >= epoch {
            return Ok(());
        }
        self.throttled.fetch_add(1, Ordering::SeqCst);
        ask();
        let mut guard = self.waiters.lock();
        let result = loop {
            if self.closed[logger].load(Ordering::SeqCst) >= epoch.0 {
                break Ok(());
            }
            if let Err(failed) = self.reached(epoch) {
                break Err(failed);
            }
            self.changed.wait(&mut guard);
        };
        drop(guard);
        self.throttled.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Notes a failure. The first failure is the one that is reported.
    pub(crate) fn fail(&self, failed: JournalFailure) {
        if self.failed.set(failed).is_ok() {
            self.notify();
        }
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.notify();
    }

    pub(crate) fn subscribe(&self, notify: Notify) {
        self.subscribers.write().push(notify);
    }

    fn wake_waiters(&self) {
        // With the lock held for a moment, no waiter is between its last look and its sleep.
        drop(self.waiters.lock());
        self.changed.notify_all();
    }

    fn notify(&self) {
        self.wake_waiters();
        for notify in self.subscribers.read().iter() {
            notify();
        }
    }

    /// Waits until `epoch` is durable. `ask` is called before each sleep, to make that happen.
    pub(crate) fn wait(&self, epoch: Epoch, ask: impl Fn()) -> Result<(), JournalFailure> {
        while !self.reached(epoch)? {
            // Read before asking: the answer may be there before this thread sleeps.
            let seen = self.durable();
            ask();
            let mut guard = self.waiters.lock();
            while self.durable() == seen && !self.reached(epoch)? {
                self.changed.wait(&mut guard);
            }
        }
        Ok(())
    }

    fn reached(&self, epoch: Epoch) -> Result<bool, JournalFailure> {
        if self.durable() >= epoch {
            return Ok(true);
        }
        self.over().map_or(Ok(false), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn durable_is_the_least_of_the_loggers() {
        let horizon = Horizon::new(3, Epoch(5));
        let notified = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&notified);
        horizon.subscribe(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        horizon.publish(0, Epoch(9));
        horizon.publish(1, Epoch(7));
        assert_eq!(
            (horizon.durable(), notified.load(Ordering::SeqCst)),
            (Epoch(5), 0)
        );
        horizon.publish(2, Epoch(8));
        assert_eq!(
            (horizon.durable(), notified.load(Ordering::SeqCst)),
            (Epoch(7), 1)
        );
    }

    #[test]
    fn a_hold_keeps_the_durable_epoch_and_publishes_it_when_it_ends() {
        let horizon = Horizon::new(1, Epoch(5));
        let long = Duration::from_secs(3600);
        let (number, epoch) = horizon.hold(long).unwrap();
        assert_eq!(epoch, Epoch(5));
        assert_eq!(horizon.hold(long), None, "one lasts");
        horizon.publish(0, Epoch(9));
        assert_eq!((horizon.durable(), horizon.closed(0)), (Epoch(5), Epoch(9)));
        assert!(!horizon.release(number + 1), "it is another one");
        assert_eq!(horizon.durable(), Epoch(5));
        assert!(horizon.release(number));
        assert_eq!(horizon.durable(), Epoch(9));
        assert!(!horizon.release(number), "it has ended");
        // One whose time is over does not count, whichever call finds that.
        let (number, epoch) = horizon.hold(Duration::ZERO).unwrap();
        assert_eq!(epoch, Epoch(9));
        horizon.publish(0, Epoch(11));
        assert_eq!(horizon.durable(), Epoch(11));
        assert!(!horizon.release(number));
        let (number, _) = horizon.hold(Duration::ZERO).unwrap();
        horizon.end_overdue_hold();
        assert!(!horizon.release(number));
        let (number, _) = horizon.hold(long).unwrap();
        horizon.publish(0, Epoch(12));
        horizon.end_overdue_hold();
        assert_eq!(horizon.durable(), Epoch(11));
        horizon.end_holds();
        assert_eq!(horizon.durable(), Epoch(12));
        assert!(!horizon.release(number));
        assert_eq!(horizon.hold(long), None, "it closes");
    }

    #[test]
    fn a_failure_reaches_waiters_and_stops_the_advance() {
        let horizon = Horizon::new(1, Epoch(5));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| horizon.wait(Epoch(6), || {}));
            horizon.fail(JournalFailure::new("broken"));
            horizon.fail(JournalFailure::new("broken again"));
            assert_eq!(waiter.join().unwrap(), Err(JournalFailure::new("broken")));
        });
        horizon.publish(0, Epoch(9));
        assert_eq!(horizon.durable(), Epoch(5));
        assert_eq!(horizon.wait(Epoch(5), || {}), Ok(()));
    }

    #[test]
    fn a_waiter_asks_again_after_each_advance() {
        let horizon = Horizon::new(1, Epoch(0));
        let ask = || {
            let next = horizon.durable().next();
            horizon.publish(0, next);
        };
        assert_eq!(horizon.wait(Epoch(4), ask), Ok(()));
    }
}
