//! Time, as a member needs it: what passes also while the machine sleeps, and what people read.

use std::time::Duration;

use base::clock::Clock;
use base::steady_clock::SteadyClock;
use rustix::time::{ClockId, clock_gettime};

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Since a fixed moment of this machine; suspended time counts, so that a lease ends while its
    /// holder sleeps.
    pub since: Duration,
    /// The wall clock, milliseconds since the Unix epoch. It may step back.
    pub wall_ms: u64,
}

/// Where moments come from. Tests and simulations have their own.
pub trait Time: Send + Sync {
    /// This moment.
    fn now(&self) -> Now;

    /// Lets the wall clock go on from `wall_ms` if it shows less. One that cannot be set does nothing.
    fn not_before(&self, wall_ms: u64) {
        let _ = wall_ms;
    }

    /// Returns how often the machine's wall clock was seen to have been set.
    fn steps(&self) -> u64 {
        0
    }
}

/// The machine's clocks, of which the wall clock goes on evenly.
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
