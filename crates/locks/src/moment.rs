//! Points in time, as a monotonic clock tells them.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point on a monotonic clock that goes on while the machine is suspended (`CLOCK_BOOTTIME` on
/// Linux), in microseconds since a beginning that the caller chooses. Points of different machines
/// cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MonotonicTime(u64);

impl MonotonicTime {
    /// Returns the point that many microseconds after the beginning.
    #[must_use]
    pub const fn from_us(us: u64) -> MonotonicTime {
        MonotonicTime(us)
    }

    /// Returns the microseconds since the beginning.
    #[must_use]
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this point; zero if it is not later.
    #[must_use]
    pub fn since(self, earlier: MonotonicTime) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Returns how long to wait until `time` has passed by every clock: a thirty-first part more. Our
/// clock may run a sixty-fourth too fast while another one runs a sixty-fourth too slow, so that
/// 65/63 of the time have to pass; 32/31 is a little more.
pub(crate) fn by_every_clock(time: Duration) -> Duration {
    time + time / 31
}

/// Returns the least time for which [`by_every_clock`] is `time` or more: waiting until it has
/// passed by every clock takes `time`. A lease that is prolonged by less than what is left of it
/// must not lose the margin that it has had.
pub(crate) fn by_one_clock(time: Duration) -> Duration {
    let ns = (time.as_nanos() * 31).div_ceil(32);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

impl Add<Duration> for MonotonicTime {
    type Output = MonotonicTime;

    /// Returns the end of the clock if the sum is beyond it.
    fn add(self, by: Duration) -> MonotonicTime {
        let us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        MonotonicTime(self.0.saturating_add(us))
    }
}

impl fmt::Display for MonotonicTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_survives_being_taken_off_and_put_on_again() {
        for us in (0..5_000).chain([1 << 20, (1 << 40) + 1, 1 << 50]) {
            let time = Duration::from_micros(us);
            let again = by_every_clock(by_one_clock(time));
            assert!(
                again >= time && again <= time + Duration::from_nanos(1),
                "{us}"
            );
        }
    }

    #[test]
    fn a_margin_is_enough_for_the_slowest_clock_beside_the_fastest() {
        for ms in [1, 2, 3, 10, 1_000, 86_400_000] {
            let time = Duration::from_millis(ms);
            // In real time: ours is fast, the other one is slow.
            let (here, there) = (65.0 / 64.0, 63.0 / 64.0);
            let begin = MonotonicTime::default();
            let waited = (begin + by_every_clock(time)).since(begin);
            assert!(waited.as_secs_f64() / here >= time.as_secs_f64() / there);
            // The time that passes on the slowest clock while this passes on the fastest.
            let passed = by_one_clock(time).as_secs_f64();
            assert!(passed <= time.as_secs_f64() / here * there, "{ms}");
        }
    }

    #[test]
    fn moments_do_not_leave_the_clock() {
        let end = MonotonicTime::from_us(u64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(
            MonotonicTime::from_us(3).since(MonotonicTime::from_us(5)),
            Duration::ZERO
        );
    }
}
