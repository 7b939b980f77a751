//! How long somebody looks for what comes before it sleeps.
//!
//! A look costs little; a sleep costs two system calls and a change of threads, on both sides. So
//! whoever waits looks first, for up to [`MOST`], if that has paid lately: if of the last waits
//! enough were over by then. Waits that were slept through count as well, so that who has ceased to
//! look begins again when it would pay.
//!
//! Between looks a thread gives way to others. Those it waits for often run then, and a wait that
//! was over when the thread had its turn again has cost nobody anything. But it may be one who has
//! much else to do that takes the processor, for milliseconds; who sleeps gets it back earlier,
//! because the system lets those run soon who are called. So whoever got the processor back so late
//! sleeps in the next waits at once, in twice as many as the last time if it happens again.

use std::time::{Duration, Instant};

/// How long it is looked, at most.
const MOST: Duration = Duration::from_micros(200);
/// Who gives way for so long has found the processor in the hands of others.
const CROWDED: Duration = Duration::from_millis(1);
/// Waits without a look after that: at first, and at most.
const RESTS: std::ops::RangeInclusive<u32> = 16..=8192;
/// The share of waits that must have been short lately for looks to pay, in parts of [`WHOLE`].
const ENOUGH: u32 = 64;
const WHOLE: u32 = 256;
/// How much of the share is about the last wait: one part of this.
const LAST: u32 = 8;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The share of waits that were short, the last ones counting most.
    short: u32,
    /// So many waits are slept through.
    rest: u32,
    /// And so many when it happens again that others keep the processor.
    next_rest: u32,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            short: WHOLE,
            rest: 0,
            next_rest: *RESTS.start(),
        }
    }
}

impl Patience {
    /// Something was found by looking.
    #[inline]
    pub(super) fn came(&mut self) {
        self.next_rest = (self.next_rest - 1).max(*RESTS.start());
        self.note(true);
    }

    /// Lets others have the processor.
    pub(super) fn give_way(&mut self) {
        let begun = Instant::now();
        std::thread::yield_now();
        self.gave_way(begun.elapsed());
    }

    /// Others had the processor for this time.
    #[inline]
    fn gave_way(&mut self, to_others: Duration) {
        if to_others > CROWDED {
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(*RESTS.end());
        }
    }

    /// It was called out of its sleep, so long after something had come last.
    pub(super) fn called(&mut self, after: Duration) {
        self.note(after <= MOST);
    }

    /// Whether it was looked for long enough.
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

    /// After so many waits that were too long nobody looks any more.
    fn impatient() -> Patience {
        let mut patience = Patience::default();
        let mut waits = 0;
        while !patience.is_over(Duration::ZERO) {
            patience.called(micros(10_000));
            waits += 1;
        }
        assert!((5..20).contains(&waits), "{waits}");
        patience
    }

    #[test]
    fn looks_are_bounded_and_end_when_they_do_not_pay() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(micros(199)) && patience.is_over(MOST));
        for _ in 0..1000 {
            patience.came();
            assert!(!patience.is_over(micros(199)) && patience.is_over(MOST));
        }
        let mut patience = impatient();
        for _ in 0..1000 {
            patience.called(micros(10_000));
        }
        assert!(patience.is_over(Duration::ZERO));
    }

    #[test]
    fn who_is_called_soon_looks_again() {
        let mut patience = impatient();
        for _ in 0..5 {
            patience.called(micros(150));
        }
        assert!(!patience.is_over(micros(199)));
    }

    #[test]
    fn who_is_kept_from_the_processor_sleeps_more_and_more() {
        let mut patience = Patience::default();
        let rests = |patience: &mut Patience| {
            patience.gave_way(micros(3000));
            let mut waits = 0;
            while patience.is_over(Duration::ZERO) {
                patience.called(micros(50));
                waits += 1;
            }
            waits
        };
        assert_eq!([(); 3].map(|()| rests(&mut patience)), [16, 32, 64]);
        for _ in 0..20 {
            rests(&mut patience);
        }
        assert_eq!(rests(&mut patience), 8192);
        for _ in 0..10_000 {
            patience.came();
        }
        assert_eq!(rests(&mut patience), 16, "it is long ago");
        // Others that are waited for may take a while.
        for _ in 0..20 {
            patience.gave_way(micros(900));
        }
        assert!(!patience.is_over(micros(199)));
    }
}
