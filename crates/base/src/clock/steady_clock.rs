//! A wall clock without steps.
//!
//! The machine's wall clock is set by people and by programs, sometimes wrongly and for a moment. Deadlines must
//! neither pass at once because it was ahead for a moment, nor stand still because it is set back. So time passes as
//! on the machine's steady clock, which is never set, and follows the wall clock slowly:
//!
//! | the wall clock is | what [`SteadyClock`] does |
//! |---|---|
//! | up to a second away | comes nearer by a thousandth of the time that passes |
//! | further ahead | goes on evenly; after [`LASTING`] it steps forward to the wall clock |
//! | further behind | comes nearer by a twentieth of the time that passes, and never steps back |
//!
//! Each of the last two is reported once. Time runs backwards by 5 ms at most, when it comes
//! nearer to a wall clock that is behind.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use super::Clock;

/// The time for which a wall clock must be further ahead before time follows it.
pub const LASTING: Duration = Duration::from_secs(60);
/// The interval at which the wall clock is looked at.
const CHECK: Duration = Duration::from_millis(100);
/// The difference that clocks have without having been set.
const SMALL_NS: i64 = 1_000_000_000;
/// Of the time that passes, the part by which a small difference becomes less: one over this.
const SMALL_PART: i64 = 1000;
/// The same for a wall clock that is far behind.
const BEHIND_PART: i64 = 20;
const NS_PER_MS: i64 = 1_000_000;

/// The machine's clocks, or a test's, in nanoseconds.
pub trait Clocks: Send + Sync {
    /// Returns the nanoseconds of the steady clock since some moment. It is never set, and it counts
    /// the time for which the machine is suspended.
    fn steady_ns(&self) -> i64;

    /// Returns the nanoseconds of the wall clock since the Unix epoch.
    fn wall_ns(&self) -> i64;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClocks;

impl Clocks for MachineClocks {
    fn steady_ns(&self) -> i64 {
        let time = clock_gettime(ClockId::Boottime);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    fn wall_ns(&self) -> i64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        wall.map_or(0, |since| {
            i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
        })
    }
}

/// An event of the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It is ahead by so much.
    Ahead(Duration),
    /// It was ahead for [`LASTING`], by so much, and is followed.
    Followed(Duration),
    /// It is behind by so much.
    Behind(Duration),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Ahead(by) => write!(
                f,
                "the machine's clock is {by:.1?} ahead of the time by which keys expire; it is followed if that \
                 lasts for {LASTING:?}"
            ),
            Step::Followed(by) => write!(
                f,
                "the machine's clock was {by:.1?} ahead for {LASTING:?}: keys expire by it from now on"
            ),
            Step::Behind(by) => write!(
                f,
                "the machine's clock is {by:.1?} behind the time by which keys expire; that goes on evenly, and a \
                 little slower until both agree"
            ),
        }
    }
}

/// See the module's page.
pub struct SteadyClock<C = MachineClocks> {
    clocks: C,
    /// The difference between this clock and the steady clock, in nanoseconds.
    offset: AtomicI64,
    /// The moment at which the wall clock was looked at last, by the steady clock.
    checked: AtomicI64,
    /// The number of times that the wall clock was seen to have been set.
    steps: AtomicU64,
    seen: Mutex<Seen>,
    tell: fn(Step),
}

#[derive(Default)]
struct Seen {
    /// The moment since which the wall clock is ahead, by the steady clock.
    ahead: Option<i64>,
    is_behind: bool,
}

impl SteadyClock {
    /// Returns a clock that begins at the time of the machine's wall clock. `tell` is called when that
    /// is set.
    #[must_use]
    pub fn new(tell: fn(Step)) -> SteadyClock {
        SteadyClock::of(MachineClocks, tell)
    }
}

impl<C: Clocks> SteadyClock<C> {
    /// Returns a clock that uses other clocks than the machine's.
    pub fn of(clocks: C, tell: fn(Step)) -> SteadyClock<C> {
        let steady = clocks.steady_ns();
        SteadyClock {
            offset: AtomicI64::new(clocks.wall_ns() - steady),
            checked: AtomicI64::new(steady),
            clocks,
            steps: AtomicU64::new(0),
            seen: Mutex::default(),
            tell,
        }
    }

    #[cold]
    fn check(&self, steady: i64) {
        // It is enough if another thread looks at it.
        let Ok(mut seen) = self.seen.try_lock() else {
            return;
        };
        // Another thread that came later may have been here before.
        let before = self.checked.fetch_max(steady, Ordering::Relaxed);
        let passed = (steady - before).max(0);
        let ahead = self.clocks.wall_ns() - steady - self.offset.load(Ordering::Relaxed);
        let by = Duration::from_nanos(ahead.unsigned_abs());
        let mut told = None;
        let change = if ahead > SMALL_NS {
            seen.is_behind = false;
            let since = *seen.ahead.get_or_insert_with(|| {
                told = Some(Step::Ahead(by));
                steady
            });
            let lasts = u128::from((steady - since).unsigned_abs()) >= LASTING.as_nanos();
            if lasts {
                seen.ahead = None;
                told = Some(Step::Followed(by));
            }
            if lasts { ahead } else { 0 }
        } else if ahead >= -SMALL_NS {
            *seen = Seen::default();
            let most = passed / SMALL_PART;
            ahead.clamp(-most, most)
        } else {
            seen.ahead = None;
            if !std::mem::replace(&mut seen.is_behind, true) {
                told = Some(Step::Behind(by));
            }
            ahead.max(-passed / BEHIND_PART)
        };
        drop(seen);
        self.offset.fetch_add(change, Ordering::Relaxed);
        if let Some(step) = told {
            self.steps.fetch_add(1, Ordering::Relaxed);
            (self.tell)(step);
        }
    }
}

impl<C: Clocks> Clock for SteadyClock<C> {
    fn now_ms(&self) -> u64 {
        let steady = self.clocks.steady_ns();
        if steady - self.checked.load(Ordering::Relaxed) >= CHECK.as_nanos() as i64 {
            self.check(steady);
        }
        let now = steady + self.offset.load(Ordering::Relaxed);
        u64::try_from(now / NS_PER_MS).unwrap_or(0)
    }

    fn not_before(&self, now_ms: u64) {
        let missing = i64::try_from(now_ms).map_or(0, |wanted| {
            let now = self.clocks.steady_ns() + self.offset.load(Ordering::Relaxed);
            wanted.saturating_mul(NS_PER_MS).saturating_sub(now)
        });
        if missing > 0 {
            self.offset.fetch_add(missing, Ordering::Relaxed);
        }
    }

    fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Milliseconds of both clocks.
    #[derive(Default)]
    struct Hands {
        steady: AtomicI64,
        wall: AtomicI64,
    }

    impl Clocks for Arc<Hands> {
        fn steady_ns(&self) -> i64 {
            self.steady.load(Ordering::Relaxed) * NS_PER_MS
        }

        fn wall_ns(&self) -> i64 {
            self.wall.load(Ordering::Relaxed) * NS_PER_MS
        }
    }

    struct Stage {
        hands: Arc<Hands>,
        clock: SteadyClock<Arc<Hands>>,
    }

    impl Stage {
        fn new() -> Stage {
            let hands = Arc::new(Hands::default());
            hands.wall.store(1_000_000, Ordering::Relaxed);
            Stage {
                clock: SteadyClock::of(Arc::clone(&hands), |_| {}),
                hands,
            }
        }

        fn set_wall_by(&self, by_ms: i64) {
            self.hands.wall.fetch_add(by_ms, Ordering::Relaxed);
        }

        /// Lets time pass, in steps in which the clock is read; returns how much passes on the
        /// clock.
        fn pass(&self, ms: i64) -> i64 {
            let begin = self.clock.now_ms();
            for _ in 0..ms / 100 {
                self.hands.steady.fetch_add(100, Ordering::Relaxed);
                self.hands.wall.fetch_add(100, Ordering::Relaxed);
                self.clock.now_ms();
            }
            self.clock.now_ms() as i64 - begin as i64
        }

        fn ahead_of_wall(&self) -> i64 {
            self.clock.now_ms() as i64 - self.hands.wall.load(Ordering::Relaxed)
        }
    }

    const DAY: i64 = 86_400_000;

    /// Several threads look at the clock; one may be held up between looking and checking.
    #[test]
    fn a_thread_that_comes_late_changes_nothing() {
        let stage = Stage::new();
        let late = stage.clock.clocks.steady_ns();
        stage.pass(5_000);
        let now = stage.clock.now_ms();
        for by_ms in [50, -100, 3 * DAY, -6 * DAY] {
            stage.set_wall_by(by_ms);
            stage.clock.check(late);
            assert_eq!(stage.clock.now_ms(), now, "{by_ms} ms");
        }
    }

    #[test]
    fn a_clock_that_is_ahead_for_a_moment_changes_nothing() {
        let stage = Stage::new();
        assert_eq!(stage.clock.now_ms(), 1_000_000);
        stage.set_wall_by(DAY);
        assert_eq!(stage.pass(300), 300);
        stage.set_wall_by(-DAY);
        assert_eq!(stage.pass(1000), 1000);
        assert_eq!((stage.ahead_of_wall(), stage.clock.steps()), (0, 1));
        // Another moment does not add to the first.
        stage.set_wall_by(DAY);
        stage.pass(59_000);
        stage.set_wall_by(-DAY);
        stage.pass(1000);
        stage.set_wall_by(DAY);
        assert_eq!(stage.pass(59_000), 59_000);
    }

    #[test]
    fn a_clock_that_stays_ahead_is_followed_after_a_minute() {
        let stage = Stage::new();
        stage.set_wall_by(DAY);
        assert_eq!(stage.pass(60_000), 60_000);
        assert_eq!(stage.pass(1000), DAY + 1000);
        assert_eq!((stage.ahead_of_wall(), stage.clock.steps()), (0, 2));
    }

    #[test]
    fn a_clock_that_is_set_back_lets_time_go_on() {
        let stage = Stage::new();
        stage.set_wall_by(-60_000);
        // A deadline in a second passes in little more than a second.
        let passed = stage.pass(1000);
        assert!((950..=1000).contains(&passed), "{passed}");
        assert_eq!(stage.clock.steps(), 1);
        // After twenty times the difference both agree, but for a small difference.
        stage.pass(1_200_000);
        assert!((0..=1000).contains(&stage.ahead_of_wall()));
        stage.pass(1_000_000);
        assert!((0..=1).contains(&stage.ahead_of_wall()));
        assert_eq!(stage.clock.steps(), 1);
    }

    #[test]
    fn small_differences_vanish_slowly() {
        for by in [-900, 900] {
            let stage = Stage::new();
            stage.set_wall_by(by);
            let passed = stage.pass(10_000);
            assert!((passed - 10_000).abs() <= 10, "{passed}");
            stage.pass(1_000_000);
            assert!(stage.ahead_of_wall().abs() <= 1);
            assert_eq!(stage.clock.steps(), 0);
        }
    }

    #[test]
    fn time_goes_on_from_what_was_recovered() {
        let stage = Stage::new();
        stage.clock.not_before(1_000_000 + DAY as u64);
        assert_eq!(stage.ahead_of_wall(), DAY);
        let passed = stage.pass(1000);
        assert!((950..=1000).contains(&passed), "{passed}");
        // A time that has passed already changes nothing.
        let now = stage.clock.now_ms();
        stage.clock.not_before(5);
        assert_eq!(stage.clock.now_ms(), now);
    }
}
