//! Time as a member needs it: a clock that goes on while the machine sleeps, and the wall clock.

use std::time::Duration;

use base::clock::Clock;
use base::steady_clock::SteadyClock;
use rustix::time::{ClockId, clock_gettime};

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The time since a fixed moment of this machine. Suspended time counts, so that a lease ends
    /// while its holder sleeps.
    pub since: Duration,
    /// The wall clock, in milliseconds since the Unix epoch. It may step back.
    pub wall_ms: u64,
}

/// The source of time. Tests and simulations have their own.
pub trait Time: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Now;

    /// Makes the wall clock go on from `wall_ms` if it shows less. A clock that cannot be set does
    /// nothing.
    fn not_before(&self, wall_ms: u64) {
        let _ = wall_ms;
    }

    /// Returns how often the machine's wall clock was seen to have been set.
    fn steps(&self) -> u64 {
        0
    }
}

/// The machine's clocks; its wall clock advances evenly.
pub struct SystemTime(SteadyClock);

impl Default for SystemTime {
    fn default() -> SystemTime {
        SystemTime(SteadyClock::new(|step| tracing::warn!("{step}")))
    }
}

impl Time for SystemTime {
    fn now(&self) -> Now {
        let since = clock_gettime(ClockId::Boottime);
        Now {
            since: Duration::new(since.tv_sec as u64, since.tv_nsec as u32),
            wall_ms: self.0.now_ms(),
        }
    }

    fn not_before(&self, wall_ms: u64) {
        self.0.not_before(wall_ms);
    }

    fn steps(&self) -> u64 {
        self.0.steps()
    }
}
