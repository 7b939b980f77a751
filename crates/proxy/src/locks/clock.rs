//! The clocks that leases are measured by.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::locks::MonotonicTime;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time of a clock that goes on while the host is suspended and that cannot be set.
pub(crate) fn now() -> MonotonicTime {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1000;
    MonotonicTime::from_us(seconds * 1_000_000 + micros)
}

/// Returns the time of day in milliseconds since the Unix epoch. Tokens begin there; nothing else
/// depends on it.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes() {
        let before = now();
        std::thread::sleep(Duration::from_millis(20));
        let passed = now().since(before);
        assert!(passed >= Duration::from_millis(20), "{passed:?}");
        assert!(passed < Duration::from_secs(20), "{passed:?}");
    }
}
