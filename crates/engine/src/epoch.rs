//! Epochs: the global counter, the workers' slots in it, and the time stamps.
//!
//! | what | where |
//! |---|---|
//! | current epoch and phase of the grace period | one atomic (`Moment`), read by every transaction, written when an epoch or a grace period ends |
//! | a worker's moment | one cache line each; `IDLE` while it runs no transaction |
//! | number of the grace period | one atomic, read with replaced memory |
//! | stamps | a ring of the last epochs' times in milliseconds |
//!
//! Epochs order commits and can be long. *Grace periods* decide when replaced memory is freed, and end
//! as soon as enough of it waits, so that it is used again while it is in the processor's cache.
//!
//! Invariants:
//! 1. The current epoch passes from *e* to *e* + 1 only when no worker is active before *e*; an
//!    active worker is therefore at the current epoch or one behind.
//! 2. Idle workers hold nothing back.
//! 3. Stamps do not decrease, even if the clock does.
//! 4. A grace period passes from *g* to *g* + 1 only when no worker is active before *g*.
//! 5. Memory that an active worker took out of shared structures, and for which it then read *g* as the
//!    grace period, can be freed once `Epochs::ended_grace_period` > *g*: while this worker is active,
//!    which it is in *g* or *g* − 1, no other can enter *g* + 2; when it has left, no other finds the
//!    memory. So the last that could have seen it is in *g* + 1 or before.
//!
//! The epochs of a *driven* engine (module [`crate::apply`]) are the indexes of a log: the applier
//! alone moves them, one with each entry, and the only clocks are the log's stamps and
//! [`crate::Engine::set_time_ms`]. The applier waits for no reader, so that invariant 1 does not
//! hold there. It is not needed: no other worker commits, memory is freed by invariant 5, and a
//! reader that is far behind finds the stamp of a later epoch, which is not too early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use base::Epoch;
use base::clock::Clock;
use base::epochs::EpochClock;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

const IDLE: u64 = u64::MAX;

/// An epoch, and the lowest bit of a grace period's number, in one word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment(u64);

impl Moment {
    fn new(epoch: u64, phase: u64) -> Moment {
        Moment(epoch << 1 | phase)
    }

    fn epoch(self) -> u64 {
        self.0 >> 1
    }

    fn phase(self) -> u64 {
        self.0 & 1
    }
}

/// The length of the ring: more than the two epochs whose stamps are ever needed.
const STAMPS: usize = 8;

/// The epochs of one engine.
pub struct Epochs {
    /// The current [`Moment`]. Written under `advancing`.
    now: CachePadded<AtomicU64>,
    /// The number of the current grace period. Written under `advancing`, before `now` is.
    grace_period: AtomicU64,
    stamps: [AtomicU64; STAMPS],
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Places in use have an index below this.
    used: AtomicU64,
    advancing: Mutex<()>,
    clock: Arc<dyn Clock>,
    /// The time by which the current epoch's stamp may be behind the clock.
    slack_ms: AtomicU64,
    driven: bool,
    /// The newest stamp of an applied entry: the time on which all replicas agree.
    logged_ms: AtomicU64,
}

impl Epochs {
    /// Returns epochs for at most `slots` workers, beginning at epoch 1.
    pub(crate) fn new(slots: usize, clock: Arc<dyn Clock>, driven: bool) -> Epochs {
        let now = if driven { 0 } else { clock.now_ms() };
        Epochs {
            now: CachePadded::new(AtomicU64::new(Moment::new(1, 0).0)),
            grace_period: AtomicU64::new(2),
            stamps: std::array::from_fn(|_| AtomicU64::new(now)),
            slots: (0..slots)
                .map(|_| CachePadded::new(AtomicU64::new(IDLE)))
                .collect(),
            used: AtomicU64::new(0),
            advancing: Mutex::new(()),
            clock,
            slack_ms: AtomicU64::new(0),
            driven,
            logged_ms: AtomicU64::new(0),
        }
    }

    /// Returns `true` if the applier alone moves the epoch.
    #[inline]
    pub(crate) fn is_driven(&self) -> bool {
        self.driven
    }

    /// Moves a driven engine to a later epoch, whose time is `stamp_ms`, or the present time if
    /// that is later.
    pub(crate) fn drive(&self, next: Epoch, stamp_ms: u64) {
        let _one = self.advancing.lock();
        let now = self.current();
        assert!(self.driven && next >= now, "the applier goes on");
        let stamp = self.stamp_ms(now).max(stamp_ms);
        self.stamps[next.0 as usize % STAMPS].store(stamp, Ordering::SeqCst);
        self.set_epoch(next);
        // Last: keys that expire by this time, and are removed, were read in an earlier epoch by
        // readers that saw them alive, and these look at the stamps again.
        self.logged_ms.fetch_max(stamp_ms, Ordering::SeqCst);
    }

    /// Sets the time to at least `now_ms` for transactions that begin from now on.
    pub(crate) fn set_time_ms(&self, now_ms: u64) {
        let _one = self.advancing.lock();
        let slot = self.current().0 as usize % STAMPS;
        self.stamps[slot].fetch_max(now_ms, Ordering::SeqCst);
    }

    /// Returns the time now: the current epoch's stamp.
    pub(crate) fn time_ms(&self) -> u64 {
        loop {
            let epoch = self.current();
            let stamp = self.stamp_ms(epoch);
            // Stamps are kept for the last epochs only.
            if self.current() == epoch {
                return stamp;
            }
        }
    }

    /// Returns the clock's time in milliseconds since the Unix epoch.
    pub(crate) fn clock_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Returns how often the machine's clock was seen to have been set.
    pub(crate) fn clock_steps(&self) -> u64 {
        self.clock.steps()
    }

    /// Returns the newest stamp of an applied entry.
    pub(crate) fn logged_ms(&self) -> u64 {
        self.logged_ms.load(Ordering::SeqCst)
    }

    /// Returns the time up to which expired versions may be removed for good, in `epoch`, the
    /// current one: replicas must agree on it.
    pub(crate) fn expired_ms(&self, epoch: Epoch) -> u64 {
        if self.driven {
            self.logged_ms()
        } else {
            self.stamp_ms(epoch)
        }
    }

    /// Continues from a recovered state: the current epoch becomes `epoch`, and no stamp will be
    /// below `stamp_ms`. Only while no worker is active.
    pub(crate) fn resume(&self, epoch: Epoch, stamp_ms: u64) {
        let _one = self.advancing.lock();
        if !self.driven {
            // Otherwise time would stand still until the clock has come so far.
            self.clock.not_before(stamp_ms);
        }
        let now = if self.driven { 0 } else { self.clock.now_ms() };
        let stamp = now.max(stamp_ms);
        for slot in &self.stamps {
            slot.store(stamp, Ordering::SeqCst);
        }
        self.set_epoch(epoch);
        self.logged_ms.fetch_max(stamp_ms, Ordering::SeqCst);
    }

    /// Notes that the worker of `slot` exists.
    pub(crate) fn occupy(&self, slot: usize) {
        self.used.fetch_max(slot as u64 + 1, Ordering::SeqCst);
    }

    /// Enters the current epoch, which is returned. Not nested.
    #[inline]
    pub(crate) fn pin(&self, slot: usize) -> Epoch {
        let slot = &self.slots[slot];
        debug_assert_eq!(slot.load(Ordering::Relaxed), IDLE, "pinned twice");
        let mut moment = self.now.load(Ordering::Acquire);
        loop {
            // The swap is also a full fence: the announcement is seen before anything is read.
            slot.swap(moment, Ordering::SeqCst);
            let now = self.now.load(Ordering::SeqCst);
            if now == moment {
                return Epoch(Moment(moment).epoch());
            }
            moment = now;
        }
    }

    /// Leaves the epoch.
    #[inline]
    pub(crate) fn unpin(&self, slot: usize) {
        self.slots[slot].store(IDLE, Ordering::Release);
    }

    /// Returns the epoch at the commit point of Silo's protocol, which orders the locks taken before
    /// it against this epoch.
    #[inline]
    pub(crate) fn commit_epoch(&self) -> Epoch {
        fence(Ordering::SeqCst);
        self.current()
    }

    /// Lets epochs last for `slack_ms` before `refresh` ends them: the caller makes sure that they
    /// end at fixed intervals. Time is then as coarse as epochs are long.
    pub fn set_slack_ms(&self, slack_ms: u64) {
        self.slack_ms.store(slack_ms, Ordering::Relaxed);
    }

    /// Moves on if the clock has passed the current epoch's stamp by more than the slack, so that a
    /// transaction that begins now has the present time.
    #[inline]
    pub(crate) fn refresh(&self) {
        if self.driven {
            return;
        }
        let epoch = self.current();
        let slack = self.slack_ms.load(Ordering::Relaxed);
        if self.clock.now_ms() > self.stamp_ms(epoch) + slack {
            self.advance(epoch);
        }
    }

    /// Moves on because deleted or flushed keys wait for it, unless epochs have a length of their own.
    pub(crate) fn hurry(&self) {
        if self.slack_ms.load(Ordering::Relaxed) == 0 {
            self.advance(self.current());
        } else {
            self.refresh();
        }
    }

    /// Returns `true` if the worker of `slot` is in an epoch at this moment.
    pub(crate) fn is_pinned(&self, slot: usize) -> bool {
        self.slots[slot].load(Ordering::Relaxed) != IDLE
    }

    /// Returns the number of slots that are, or were, in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst) as usize
    }

    /// Returns the moments of the active workers.
    fn active(&self) -> impl Iterator<Item = Moment> {
        let slots = self.slots[..self.used()].iter();
        slots
            .map(|slot| slot.load(Ordering::SeqCst))
            .filter(|&moment| moment != IDLE)
            .map(Moment)
    }

    /// Returns the smallest epoch in which a worker is active, or the current one.
    fn oldest_active(&self, current: u64) -> u64 {
        self.active().map(Moment::epoch).fold(current, u64::min)
    }

    fn moment(&self) -> Moment {
        Moment(self.now.load(Ordering::SeqCst))
    }

    /// Changes the current epoch; the caller has `advancing` locked.
    fn set_epoch(&self, epoch: Epoch) {
        let moment = Moment::new(epoch.0, self.moment().phase());
        self.now.store(moment.0, Ordering::SeqCst);
    }

    /// Returns the number of the current grace period.
    #[inline]
    pub(crate) fn grace_period(&self) -> u64 {
        self.grace_period.load(Ordering::SeqCst)
    }

    /// Returns the newest grace period that every worker which is active now has outlived: it
    /// entered a later one.
    pub(crate) fn ended_grace_period(&self) -> u64 {
        // Active workers are in the current grace period or in the one before it. This number was
        // the current one, or still is: those that it takes for late may be early.
        let current = self.grace_period();
        let is_late = |moment: Moment| moment.phase() != current & 1;
        current - 1 - u64::from(self.active().any(is_late))
    }

    /// Begins the next grace period if no worker is active in the one before the current one.
    pub(crate) fn end_grace_period(&self) {
        let Some(_one) = self.advancing.try_lock() else {
            return;
        };
        let current = self.grace_period();
        let moment = self.moment();
        if self.active().all(|active| active.phase() == current & 1) {
            self.grace_period.store(current + 1, Ordering::SeqCst);
            let next = Moment::new(moment.epoch(), moment.phase() ^ 1);
            self.now.store(next.0, Ordering::SeqCst);
        }
    }
}

impl EpochClock for Epochs {
    #[inline]
    fn current(&self) -> Epoch {
        Epoch(self.moment().epoch())
    }

    fn advance(&self, from: Epoch) -> Epoch {
        if !self.driven
            && let Some(_one) = self.advancing.try_lock()
            && self.current() == from
            && self.oldest_active(from.0) >= from.0
        {
            let stamp = self.stamp_ms(from).max(self.clock.now_ms());
            let next = from.next();
            self.stamps[next.0 as usize % STAMPS].store(stamp, Ordering::SeqCst);
            self.set_epoch(next);
            return next;
        }
        self.current()
    }

    fn finished(&self) -> Epoch {
        let current = self.current();
        Epoch(self.oldest_active(current.0)).prev()
    }

    #[inline]
    fn stamp_ms(&self, epoch: Epoch) -> u64 {
        self.stamps[epoch.0 as usize % STAMPS].load(Ordering::SeqCst)
    }
}

/// Keeps a slot in the current epoch until it is dropped, also on a panic.
pub(crate) struct EpochGuard<'e> {
    epochs: &'e Epochs,
    slot: usize,
}

impl<'e> EpochGuard<'e> {
    /// Enters the current epoch. Guards of one slot are not nested.
    pub(crate) fn new(epochs: &'e Epochs, slot: usize) -> EpochGuard<'e> {
        epochs.pin(slot);
        EpochGuard { epochs, slot }
    }
}

impl Drop for EpochGuard<'_> {
    fn drop(&mut self) {
        self.epochs.unpin(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::ManualClock;

    fn epochs(clock: &Arc<ManualClock>) -> Epochs {
        let epochs = Epochs::new(4, Arc::clone(clock) as Arc<dyn Clock>, false);
        (0..2).for_each(|slot| epochs.occupy(slot));
        epochs
    }

    #[test]
    fn an_active_worker_lets_the_epoch_go_one_ahead() {
        let epochs = epochs(&Arc::default());
        let first = epochs.pin(0);
        assert_eq!(epochs.advance(first), first.next());
        assert_eq!(
            epochs.advance(first.next()),
            first.next(),
            "held back by the worker"
        );
        assert_eq!(epochs.finished(), first.prev());
        epochs.unpin(0);
        assert_eq!(epochs.finished(), first);
        assert_eq!(epochs.advance(first.next()), first.next().next());
    }

    #[test]
    fn a_grace_period_lasts_until_the_workers_of_the_one_before_have_left() {
        let epochs = epochs(&Arc::default());
        let epoch = epochs.pin(0);
        let first = epochs.grace_period();
        epochs.end_grace_period();
        assert_eq!(epochs.grace_period(), first + 1);
        epochs.pin(1);
        epochs.end_grace_period();
        assert_eq!(epochs.grace_period(), first + 1, "slot 0 is in the first");
        assert_eq!(epochs.ended_grace_period(), first - 1);
        epochs.unpin(0);
        assert_eq!(epochs.ended_grace_period(), first, "slot 1 is in the next");
        epochs.end_grace_period();
        assert_eq!(epochs.grace_period(), first + 2);
        assert_eq!(epochs.ended_grace_period(), first, "slot 1 still is");
        epochs.unpin(1);
        assert_eq!(epochs.ended_grace_period(), first + 1);
        assert_eq!(epochs.pin(0), epoch, "epochs do not end with grace periods");
        assert_eq!(epochs.advance(epoch), epoch.next());
        assert_eq!(epochs.ended_grace_period(), first + 1, "nor the reverse");
    }

    #[test]
    fn a_stale_advance_does_nothing() {
        let epochs = epochs(&Arc::default());
        let now = epochs.advance(epochs.current());
        assert_eq!(epochs.advance(now.prev()), now);
    }

    #[test]
    fn slack_lets_an_epoch_last() {
        let clock = Arc::new(ManualClock::new(1000));
        let epochs = epochs(&clock);
        epochs.set_slack_ms(40);
        let first = epochs.current();
        clock.set(1040);
        epochs.refresh();
        epochs.hurry();
        assert_eq!(epochs.current(), first);
        clock.set(1041);
        epochs.refresh();
        assert_eq!(epochs.current(), first.next());
    }

    #[test]
    fn stamps_do_not_follow_a_clock_that_steps_back() {
        let clock = Arc::new(ManualClock::new(1000));
        let epochs = epochs(&clock);
        clock.set(1500);
        epochs.refresh();
        assert_eq!(epochs.stamp_ms(epochs.current()), 1500);
        clock.set(900);
        let next = epochs.advance(epochs.current());
        assert_eq!(epochs.stamp_ms(next), 1500);
        epochs.refresh();
        assert_eq!(epochs.current(), next, "no time has passed");
    }
}
