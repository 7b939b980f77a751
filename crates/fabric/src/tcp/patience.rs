//! How long somebody looks for what comes before it sleeps: as long as that has paid lately.
//!
//! A look costs little and a sleep costs two system calls and a change of threads, on both sides.
//! But a processor that looks in vain is one that somebody else lacks, often the very one that is
//! waited for. So looking is bounded, and who has looked in vain looks half as long the next time.
//! Whoever is called soon after it has gone to sleep would have done better to look, and looks
//! longer again.
//!
//! The bound is one of time, not of looks: where others want the processor, giving way to them
//! takes long, and then sleeping is better, because the system lets sleepers run as soon as they
//! are called.

use std::time::Duration;

/// How long it is looked, at most.
const MOST: Duration = Duration::from_micros(100);
/// How long, at least, once looking has begun to pay.
const FEW: Duration = Duration::from_micros(10);
/// Less than this is not worth beginning.
const NONE: Duration = Duration::from_micros(1);

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    bound: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { bound: MOST }
    }
}

impl Patience {
    /// Something has come after it was looked for this long.
    #[inline]
    pub(super) fn came(&mut self, after: Duration) {
        self.bound = if after <= MOST {
            self.longer()
        } else {
            self.shorter()
        };
    }

    /// Whether it was looked for long enough.
    #[inline]
    pub(super) fn is_over(&self, looked: Duration) -> bool {
        looked >= self.bound
    }

    /// It has gone to sleep.
    pub(super) fn slept(&mut self) {
        self.bound = self.shorter();
    }

    /// It was called after it had slept this long.
    pub(super) fn called(&mut self, after: Duration) {
        if after <= MOST {
            self.bound = self.longer();
        }
    }

    fn longer(&self) -> Duration {
        (self.bound * 4).clamp(FEW, MOST)
    }

    fn shorter(&self) -> Duration {
        let half = self.bound / 2;
        if half < NONE { Duration::ZERO } else { half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn who_looks_in_vain_looks_less_and_in_the_end_not_at_all() {
        let mut patience = Patience::default();
        assert!(!patience.is_over(micros(99)) && patience.is_over(MOST));
        patience.slept();
        assert!(!patience.is_over(micros(49)) && patience.is_over(micros(50)));
        for _ in 0..9 {
            patience.slept();
        }
        assert!(patience.is_over(Duration::ZERO));
        patience.called(micros(1000));
        assert!(patience.is_over(Duration::ZERO), "it came late");
    }

    #[test]
    fn who_is_called_soon_looks_again() {
        let mut patience = Patience::default();
        for _ in 0..9 {
            patience.slept();
        }
        patience.called(micros(20));
        assert!(!patience.is_over(micros(9)) && patience.is_over(FEW));
        patience.came(micros(5));
        assert!(!patience.is_over(micros(39)));
        // What takes longer than that is no looking: others had the processor.
        patience.came(micros(3000));
        assert!(patience.is_over(micros(20)));
    }
}
