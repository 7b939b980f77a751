//! Time as a parameter.
//!
//! [`steady_clock`] has a clock that goes on evenly when the machine's is set.

pub mod steady_clock;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Wall-clock time. Implementations may step backwards, as real clocks do;
/// [`EpochClock::stamp_ms`](crate::epochs::EpochClock::stamp_ms) makes a monotone stamp of it.
pub trait Clock: Send + Sync {
    /// Returns the milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;

    /// Moves the clock forward to `now_ms` if it shows less. A clock that cannot be set does
    /// nothing.
    fn not_before(&self, now_ms: u64) {
        let _ = now_ms;
    }

    /// Returns how often the machine's clock was seen to have been set.
    fn steps(&self) -> u64 {
        0
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        // A clock set before 1970 reads as 1970; there is no better value.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as u64)
    }
}

/// A clock that stands still until it is set or advanced, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Returns a clock that shows `now_ms`.
    #[must_use]
    pub fn new(now_ms: u64) -> ManualClock {
        ManualClock(AtomicU64::new(now_ms))
    }

    /// Sets the clock, possibly backwards.
    pub fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    /// Moves the clock forward.
    pub fn advance(&self, by_ms: u64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
