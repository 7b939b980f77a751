//! The validity of a region: how the clocks of two machines are compared.
//!
//! A leader whose process was stopped does not know that it no longer leads, and its memory is read as
//! before. So the memory itself says how long it is valid, by its owner's clock, and a reader has to
//! know an upper bound of that clock's time.
//!
//! Both clocks count the time for which a machine is suspended (`CLOCK_BOOTTIME`), and neither is ever
//! set; their speeds may differ by [`DRIFT_PPM`].

/// How much faster or slower than another one a clock may run, in parts per million. Clocks that are
/// disciplined differ from true time by 500 at most.
pub const DRIFT_PPM: u64 = 1000;

/// Times of an exchange of messages with the owner of a region. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnersClock {
    /// The time of the owner's clock when the owner answered.
    pub at_owner: u64,
    /// The time of the reader's clock before it asked.
    pub at_mine: u64,
}

impl OwnersClock {
    /// Returns the latest time that the owner's clock can show when the reader's shows `mine`.
    #[must_use]
    pub fn at_most(self, mine: u64) -> u64 {
        // A clock that runs backwards gives no bound.
        mine.checked_sub(self.at_mine).map_or(u64::MAX, |passed| {
            self.at_owner.saturating_add(stretched(passed))
        })
    }
}

/// Returns the time from which a new incarnation that was begun at `begun` may acknowledge writes, by
/// the same clock: by then no reader trusts an earlier one, whose leases were never longer than `lease`.
/// All in nanoseconds.
#[must_use]
pub fn waits_until(begun: u64, lease: u64) -> u64 {
    begun.saturating_add(stretched(lease))
}

/// Returns the longest time that another clock may have counted meanwhile.
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
