//! The time that a thread looks for an event before it sleeps.
//!
//! A look costs little; a sleep costs two system calls and a change of threads, on both sides. So a
//! waiting thread looks first, for up to [`MOST`], if that has paid recently: if enough of the last
//! waits were over by then. Waits during which the thread slept count as well, so that a thread
//! that has ceased to look begins again when it would pay.
//!
//! Between looks a thread gives way to others. Often the threads for which it waits run then. If a
//! wait was over when the thread had its turn again, this has cost nothing. But a thread with much
//! other work may take the processor for milliseconds. A thread that sleeps gets the processor back
//! earlier, because the system soon runs threads that are woken. So a thread that got the processor
//! back this late sleeps at once in the next waits, and in twice as many as the last time if it
//! happens again.

use std::time::{Duration, Instant};

/// The greatest time for looking.
const MOST: Duration = Duration::from_micros(200);
/// The time without the processor after which the processor counts as crowded.
const CROWDED: Duration = Duration::from_millis(1);
/// The number of waits without a look after that: at first, and at most.
const RESTS: std::ops::RangeInclusive<u32> = 16..=8192;
/// The share of waits that must have been short lately for looks to pay, in parts of [`WHOLE`].
const ENOUGH: u32 = 64;
const WHOLE: u32 = 256;
/// The weight of the last wait in the share: one part in this many.
const LAST: u32 = 8;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpinPolicy {
    /// The share of waits that were short, the last ones counting most.
    short: u32,
    /// The number of waits that begin with a sleep.
    rest: u32,
    /// The next such number if other threads keep the processor again.
    next_rest: u32,
}

impl Default for SpinPolicy {
    fn default() -> SpinPolicy {
        SpinPolicy {
            short: WHOLE,
            rest: 0,
            next_rest: *RESTS.start(),
        }
    }
}

impl SpinPolicy {
    /// Notes that looking has found something.
    #[inline]
    pub(super) fn saw_event(&mut self) {
        self.next_rest = (self.next_rest - 1).max(*RESTS.start());
        self.note(true);
    }

    /// Lets other threads have the processor.
    pub(super) fn give_way(&mut self) {
        let begun = Instant::now();
        std::thread::yield_now();
        self.gave_way(begun.elapsed());
    }

    /// Notes that other threads had the processor for this time.
    #[inline]
    fn gave_way(&mut self, to_others: Duration) {
        if to_others > CROWDED {
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(*RESTS.end());
        }
    }

    /// Notes a wake-up from sleep, with the time since the last event.
    pub(super) fn called(&mut self, after: Duration) {
        self.note(after <= MOST);
    }

    /// Returns `true` if the thread has looked for long enough.
    #[inline]
    pub(super) fn is_over(&self, looked: Duration) -> bool {
        looked >= MOST || self.short < ENOUGH || self.rest > 0
    }

    #[inline]
    fn note(&mut self, short: bool) {
        self.rest = self.rest.saturating_sub(1);
        self.short -= self.short / LAST;
        if short {
            self.short += WHOLE / LAST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Returns a patience after so many waits that were too long that the thread looks no more.
    fn impatient() -> SpinPolicy {
        let mut spin_policy = SpinPolicy::default();
        let mut waits = 0;
        while !spin_policy.is_over(Duration::ZERO) {
            spin_policy.called(micros(10_000));
            waits += 1;
        }
        assert!((5..20).contains(&waits), "{waits}");
        spin_policy
    }

    #[test]
    fn looks_are_bounded_and_end_when_they_do_not_pay() {
        let mut spin_policy = SpinPolicy::default();
        assert!(!spin_policy.is_over(micros(199)) && spin_policy.is_over(MOST));
        for _ in 0..1000 {
            spin_policy.saw_event();
            assert!(!spin_policy.is_over(micros(199)) && spin_policy.is_over(MOST));
        }
        let mut spin_policy = impatient();
        for _ in 0..1000 {
            spin_policy.called(micros(10_000));
        }
        assert!(spin_policy.is_over(Duration::ZERO));
    }

    #[test]
    fn who_is_called_soon_looks_again() {
        let mut spin_policy = impatient();
        for _ in 0..5 {
            spin_policy.called(micros(150));
        }
        assert!(!spin_policy.is_over(micros(199)));
    }

    #[test]
    fn who_is_kept_from_the_processor_sleeps_more_and_more() {
        let mut spin_policy = SpinPolicy::default();
        let rests = |spin_policy: &mut SpinPolicy| {
            spin_policy.gave_way(micros(3000));
            let mut waits = 0;
            while spin_policy.is_over(Duration::ZERO) {
                spin_policy.called(micros(50));
                waits += 1;
            }
            waits
        };
        assert_eq!([(); 3].map(|()| rests(&mut spin_policy)), [16, 32, 64]);
        for _ in 0..20 {
            rests(&mut spin_policy);
        }
        assert_eq!(rests(&mut spin_policy), 8192);
        for _ in 0..10_000 {
            spin_policy.saw_event();
        }
        assert_eq!(rests(&mut spin_policy), 16, "it is long ago");
        // Other threads for which it waits may take a while.
        for _ in 0..20 {
            spin_policy.gave_way(micros(900));
        }
        assert!(!spin_policy.is_over(micros(199)));
    }
}
