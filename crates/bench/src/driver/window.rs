//! The time in which transactions count. Times are nanoseconds since an origin.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The interval at which a long sleep checks if it should end.
const LOOK: Duration = Duration::from_millis(20);
/// The interval at which a window that waits for its first transaction is looked at, in nanoseconds.
const LATE_LOOK: u64 = 1_000_000;
/// How long after its end a window waits for its first transaction.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

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

/// The window of clients that wait for their answers. If no transaction begins before its end, it
/// ends one length after the beginning of the first one: a stall of a disk may last longer than a
/// short window.
pub(super) struct ExtensibleWindow {
    first: MeasurementWindow,
    /// Known from the first transaction on.
    end: OnceLock<u64>,
}

impl ExtensibleWindow {
    /// Returns a window that is extended if no transaction begins in it.
    pub(super) fn new(first: MeasurementWindow) -> ExtensibleWindow {
        let end = OnceLock::new();
        ExtensibleWindow { first, end }
    }

    /// Returns a window that is never extended.
    pub(super) fn fixed(first: MeasurementWindow) -> ExtensibleWindow {
        let end = OnceLock::from(first.end);
        ExtensibleWindow { first, end }
    }

    /// Returns `true` if a client begins another transaction at this moment.
    pub(super) fn admits(&self, now: u64) -> bool {
        if now < self.first.begin {
            return true;
        }
        let end = match self.end.get() {
            None if now >= self.gives_up_at() => return false,
            None => *self.end.get_or_init(|| match now < self.first.end {
                true => self.first.end,
                false => now + self.first.length(),
            }),
            Some(&end) => end,
        };
        now < end
    }

    /// Returns the window, as far as its end is known.
    pub(super) fn current(&self) -> MeasurementWindow {
        MeasurementWindow {
            end: *self.end.get().unwrap_or(&self.first.end),
            ..self.first
        }
    }

    /// Returns the time from now until the next look at the window's end, `None` if it has ended.
    pub(super) fn until_end(&self) -> Option<Duration> {
        let now = self.first.now();
        let next = match self.end.get() {
            Some(&end) => end,
            None if now >= self.gives_up_at() => return None,
            None => self.first.end.max(now + LATE_LOOK),
        };
        let left = next.checked_sub(now).filter(|&left| left > 0)?;
        Some(Duration::from_nanos(left).min(LOOK))
    }

    fn gives_up_at(&self) -> u64 {
        self.first.end + LONGEST_WAIT.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> MeasurementWindow {
        let time = Duration::from_millis(100);
        MeasurementWindow::after(Duration::from_millis(10), time, Instant::now())
    }

    #[test]
    fn a_window_is_as_long_as_planned_if_a_transaction_begins_in_it() {
        let window = ExtensibleWindow::new(first());
        let first = window.first;
        assert!(window.admits(first.begin - 1) && window.admits(first.end - 1));
        assert!(!window.admits(first.end));
        assert_eq!(window.current().end, first.end);
    }

    #[test]
    fn a_window_without_a_transaction_lasts_a_length_longer_than_until_its_first_one() {
        let window = ExtensibleWindow::new(first());
        let late = window.first.end + 5_000_000;
        assert!(window.admits(late) && window.current().contains(late));
        assert_eq!(window.current().end, late + window.first.length());
        assert!(window.admits(late + 1) && !window.admits(window.current().end));
    }

    #[test]
    fn a_window_waits_for_its_first_transaction_only_so_long() {
        let closed = ExtensibleWindow::new(first());
        assert!(!closed.admits(closed.gives_up_at()));
        assert_eq!(closed.current().end, closed.first.end);
        let open = ExtensibleWindow::fixed(first());
        assert!(!open.admits(open.first.end));
        std::thread::sleep(Duration::from_millis(120));
        assert_eq!(open.until_end(), None);
        assert!(closed.until_end().is_some());
    }
}
