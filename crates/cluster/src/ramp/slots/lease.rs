//! Until when a region may be believed: clocks of two machines.
//!
//! A leader that was stopped does not know that it leads no longer, and its memory is read as before.
//! So memory says itself how long it may be believed, by its owner's clock, and a reader has to know
//! an upper bound of what that clock shows.
//!
//! Both clocks count the time for which a machine is suspended (`CLOCK_BOOTTIME`), and none of them
//! is ever set; how fast they run may differ by [`DRIFT_PPM`].

/// How much faster or slower than another a clock may run, in parts per million. Clocks that are
/// disciplined differ from true time by 500 at most.
pub const DRIFT_PPM: u64 = 1000;

/// What is known of the clock of a region's owner, from an exchange of messages. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnersClock {
    /// What it showed when the owner answered.
    pub at_owner: u64,
    /// What the reader's clock showed before it asked.
    pub at_mine: u64,
}

impl OwnersClock {
    /// The owner's clock shows at most this when the reader's shows `mine`.
    #[must_use]
    pub fn at_most(self, mine: u64) -> u64 {
        // A clock that runs backwards bounds nothing.
        mine.checked_sub(self.at_mine).map_or(u64::MAX, |passed| {
            self.at_owner.saturating_add(stretched(passed))
        })
    }
}

/// A new incarnation that was begun at `begun` may acknowledge writes from this time on, by the same
/// clock: by then no reader believes an earlier one, whose leases were never for longer than `lease`
/// ahead. All in nanoseconds.
#[must_use]
pub fn waits_until(begun: u64, lease: u64) -> u64 {
    begun.saturating_add(stretched(lease))
}

/// What another clock may have counted meanwhile.
pub(super) fn stretched(passed: u64) -> u64 {
    let more = u128::from(passed) * u128::from(DRIFT_PPM) / 1_000_000 + 1;
    passed.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owners_clock_is_never_underestimated() {
        let clock = OwnersClock {
            at_owner: 5_000,
            at_mine: 100,
        };
        assert_eq!(clock.at_most(100), 5_001);
        assert_eq!(clock.at_most(1_000_100), 5_000 + 1_000_000 + 1_000 + 1);
        assert_eq!(clock.at_most(99), u64::MAX, "time ran backwards");
        assert_eq!(clock.at_most(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_new_incarnation_outwaits_slower_clocks() {
        assert_eq!(waits_until(10, 1_000_000), 10 + 1_001_001);
        assert_eq!(waits_until(10, u64::MAX), u64::MAX);
    }
}
