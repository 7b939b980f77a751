//! Time: the true time, and each node's own clocks, which differ from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::time::{Now, Time};

/// The true time at the start of a run, in milliseconds since the Unix epoch.
const BEGIN_MS: i64 = 1_700_000_000_000;
/// The value of a clock at the start of a run.
const SINCE: Duration = Duration::from_secs(1000);

/// The true time since the start of the run, shared by all.
#[derive(Clone, Default)]
pub(super) struct TrueTime(Arc<AtomicU64>);

impl TrueTime {
    pub(super) fn set(&self, now: Duration) {
        self.0.store(now.as_nanos() as u64, Ordering::SeqCst);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A node's clocks: one that is too fast or too slow, and one that people set.
pub(super) struct NodeClock {
    truth: TrueTime,
    /// The rate of the clock, in millionths.
    rate: u64,
    /// The milliseconds by which the wall clock is ahead.
    ahead_ms: AtomicI64,
}

impl NodeClock {
    pub(super) fn new(truth: &TrueTime, rate: u64, ahead_ms: i64) -> NodeClock {
        NodeClock {
            truth: truth.clone(),
            rate,
            ahead_ms: AtomicI64::new(ahead_ms),
        }
    }

    pub(super) fn set_ahead(&self, ms: i64) {
        self.ahead_ms.store(ms, Ordering::SeqCst);
    }

    /// Returns the true time that passes until this clock shows `due`.
    pub(super) fn until(&self, due: Duration) -> Duration {
        let left = due.saturating_sub(self.now().since).as_nanos() as u64;
        Duration::from_nanos((left * 1_000_000).div_ceil(self.rate))
    }
}

impl Time for NodeClock {
    fn now(&self) -> Now {
        let truth = self.truth.get();
        let passed = (u128::from(truth) * u128::from(self.rate) / 1_000_000) as u64;
        let wall = BEGIN_MS + (truth / 1_000_000) as i64 + self.ahead_ms.load(Ordering::SeqCst);
        Now {
            since: SINCE + Duration::from_nanos(passed),
            wall_ms: wall as u64,
        }
    }
}
