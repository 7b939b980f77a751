//! Time, as a member needs it: what passes also while the machine sleeps, and what people read.

use std::time::Duration;

use base::clock::{Clock, SystemClock};
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
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemTime;

impl Time for SystemTime {
    fn now(&self) -> Now {
        let since = clock_gettime(ClockId::Boottime);
        Now {
            since: Duration::new(since.tv_sec as u64, since.tv_nsec as u32),
            wall_ms: SystemClock.now_ms(),
        }
    }
}
