//! The time in which transactions count. Times are nanoseconds since an origin.

use std::time::{Duration, Instant};

/// The interval at which a long sleep checks if it should end.
const LOOK: Duration = Duration::from_millis(20);

/// The time in which transactions count.
#[derive(Clone, Copy, Debug)]
pub struct MeasurementWindow {
    origin: Instant,
    /// When the warm-up began.
    pub start: u64,
    /// The first moment that counts.
    pub begin: u64,
    /// The first moment that does not count any more.
    pub end: u64,
}

impl MeasurementWindow {
    /// Returns a window of `time` that begins after `warm_up` from now.
    #[must_use]
    pub fn after(warm_up: Duration, time: Duration, origin: Instant) -> MeasurementWindow {
        let start = origin.elapsed().as_nanos() as u64;
        let begin = start + warm_up.as_nanos() as u64;
        MeasurementWindow {
            origin,
            start,
            begin,
            end: begin + time.as_nanos() as u64,
        }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Returns `true` if a transaction that begins at this moment counts.
    #[must_use]
    pub fn contains(&self, moment: u64) -> bool {
        (self.begin..self.end).contains(&moment)
    }

    /// Returns the nanoseconds from begin to end.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.end - self.begin
    }

    /// Sleeps until `when`, or until `give_up` returns `true`.
    pub(super) fn sleep_until(&self, when: u64, give_up: impl Fn() -> bool) {
        while !give_up() {
            let left = Duration::from_nanos(when.saturating_sub(self.now()));
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Sleeps until `margin` before `when`, and yields to other threads for the rest.
    pub(super) fn sleep_precisely(&self, when: u64, margin: Duration) {
        let left = Duration::from_nanos(when.saturating_sub(self.now()));
        if left > margin {
            std::thread::sleep(left - margin);
        }
        while self.now() < when {
            std::thread::yield_now();
        }
    }
}
