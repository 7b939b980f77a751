//! A hybrid clock: it follows the machine's time, never goes back, and never falls behind the points
//! that it has received from other nodes.
//!
//! Invariants:
//! 1. Each point that [`HybridClock::next`] gives is above all points given or witnessed before.
//! 2. Witnessed points take the clock at most [`BOUND_MS`] ahead of the machine's time, so that one node
//!    whose clock is wrong does not take the whole cluster into the future.

use base::Timestamp;

/// How far ahead of this machine's time other nodes may take the clock, in milliseconds.
pub const BOUND_MS: u64 = 10_000;

/// A clock of one node.
#[derive(Clone, Debug, Default)]
pub struct HybridClock {
    /// The greatest point that was given or witnessed.
    last: Timestamp,
    /// The last witness was too far ahead, so that the warning is logged once for each time it begins.
    has_warned: bool,
}

/// A point was not taken over: it lies further ahead than [`BOUND_MS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a peer's clock is {ahead_ms} ms ahead of this machine's, which is more than {BOUND_MS} ms: \
     check the time on both"
)]
pub struct TooFarAhead {
    /// How far ahead it is, in milliseconds.
    pub ahead_ms: u64,
}

impl HybridClock {
    /// Returns a clock that goes on from `last`, such as the greatest point known before a restart.
    #[must_use]
    pub fn after(last: Timestamp) -> HybridClock {
        HybridClock {
            last,
            has_warned: false,
        }
    }

    /// Returns the next point; `physical_ms` is the machine's time in milliseconds since the Unix epoch.
    pub fn next(&mut self, physical_ms: u64) -> Timestamp {
        self.last = Timestamp::at_ms(physical_ms).max(self.last.next());
        self.last
    }

    /// Returns the greatest point that was given or witnessed.
    #[must_use]
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// Takes over a point that another node gave.
    ///
    /// # Errors
    /// [`TooFarAhead`]: the clock is unchanged. The error is logged once, until a point is taken over
    /// again.
    pub fn witness(&mut self, other: Timestamp, physical_ms: u64) -> Result<(), TooFarAhead> {
        let ahead_ms = other.ms().saturating_sub(physical_ms);
        if ahead_ms > BOUND_MS {
            let error = TooFarAhead { ahead_ms };
            if !std::mem::replace(&mut self.has_warned, true) {
                tracing::warn!("{error}");
            }
            return Err(error);
        }
        self.has_warned = false;
        self.last = self.last.max(other);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_only_grow_also_if_the_machine_s_clock_goes_back() {
        let mut clock = HybridClock::default();
        let times = [1000, 1000, 1001, 5, 5, 1001, 1002, 0];
        let points: Vec<_> = times.iter().map(|&ms| clock.next(ms)).collect();
        assert!(points.is_sorted_by(|a, b| a < b), "{points:?}");
        assert_eq!(points[0], Timestamp::at_ms(1000));
        assert_eq!(points[1], Timestamp::at_ms(1000).next());
        assert_eq!(points[6], Timestamp::at_ms(1002));
        assert_eq!(clock.last(), points[7]);
    }

    #[test]
    fn more_points_than_a_counter_holds_go_into_the_next_millisecond() {
        let mut clock = HybridClock::default();
        let first = clock.next(7);
        for _ in 0..1 << Timestamp::COUNTER_BITS {
            clock.next(7);
        }
        assert_eq!((first.ms(), clock.last().ms()), (7, 8));
    }

    #[test]
    fn what_was_witnessed_is_passed() {
        let mut clock = HybridClock::default();
        let far = Timestamp::at_ms(1000 + BOUND_MS);
        assert_eq!(clock.witness(far, 1000), Ok(()));
        assert_eq!(clock.next(1000), far.next());
        let old = Timestamp::at_ms(3);
        assert_eq!(clock.witness(old, 1000), Ok(()));
        assert_eq!(clock.next(1000), far.next().next());
    }

    #[test]
    fn a_peer_in_the_far_future_is_ignored() {
        let mut clock = HybridClock::after(Timestamp::at_ms(999));
        let wild = Timestamp::at_ms(1001 + BOUND_MS);
        let ahead_ms = BOUND_MS + 1;
        assert_eq!(clock.witness(wild, 1000), Err(TooFarAhead { ahead_ms }));
        assert_eq!(clock.next(1000), Timestamp::at_ms(1000));
        assert_eq!(clock.witness(wild, 2000), Ok(()));
        assert_eq!(clock.next(2000), wild.next());
    }
}
