//! The costs of each command and the counts of each kind of error: the sections `commandstats`,
//! `latencystats` and `errorstats` of `INFO`.
//!
//! Each runtime counts in memory of its own, with plain stores; a report adds the counts of all.
//! The time of a command is measured in one call out of eight of each runtime, the first one among
//! them: reading the clock twice would cost more than many commands. `usec` is the measured mean
//! times the number of calls. It is the time of execution: the time for which a command waits for
//! other transactions, or for durability, is not measured. Commands in a block are counted and not
//! measured.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// One call out of this number is measured.
const MEASURED: u64 = 8;
/// Classes of times: four for each doubling, from 512 ns to half a minute.
const CLASSES: usize = 104;
/// Binary digits of the times of the first class.
const FIRST_DIGITS: u32 = 10;
/// The percentiles that `latencystats` shows: the defaults of Redis.
const PERCENTILES: [(&str, f64); 3] = [("50", 0.5), ("99", 0.99), ("99.9", 0.999)];

/// The counts of one command in one runtime, or their sum over all.
struct CallCounters<C> {
    /// Calls that were executed.
    calls: C,
    /// Calls that were refused before execution.
    rejected: C,
    /// Executed calls whose reply was an error.
    failed: C,
    /// Executed calls that were measured, and the nanoseconds that they took.
    measured: C,
    nanos: C,
    classes: [C; CLASSES],
}

/// The counters of one runtime, by number of command.
#[derive(Clone)]
pub(crate) struct CommandRecorder(Arc<[CallCounters<AtomicU64>]>);

/// See the module's description.
pub(crate) struct CommandStatistics {
    /// The names of the commands, by number.
    commands: Vec<&'static str>,
    runtimes: Vec<CommandRecorder>,
    /// The counts at the last `CONFIG RESETSTAT`.
    base: Mutex<Vec<CallCounters<u64>>>,
    /// Error replies by their first word.
    errors: Mutex<BTreeMap<Box<str>, u64>>,
}

impl<C> CallCounters<C> {
    fn of(mut counter: impl FnMut() -> C) -> CallCounters<C> {
        CallCounters {
            calls: counter(),
            rejected: counter(),
            failed: counter(),
            measured: counter(),
            nanos: counter(),
            classes: std::array::from_fn(|_| counter()),
        }
    }

    /// Returns all counters, in one order.
    fn all(&self) -> impl Iterator<Item = &C> {
        let CallCounters {
            calls,
            rejected,
            failed,
            measured,
            nanos,
            classes,
        } = self;
        [calls, rejected, failed, measured, nanos]
            .into_iter()
            .chain(classes)
    }
}

impl CallCounters<u64> {
    /// Returns each counter put together with one of `others`, which are in the order of
    /// [`CallCounters::all`].
    fn with(
        &self,
        others: impl Iterator<Item = u64>,
        together: impl Fn(u64, u64) -> u64,
    ) -> CallCounters<u64> {
        let mut pairs = self.all().zip(others);
        CallCounters::of(|| {
            let (one, other) = pairs.next().expect("as many counters");
            together(*one, other)
        })
    }

    /// Returns the time of all calls in microseconds, if some were measured.
    fn microseconds(&self) -> f64 {
        match self.measured {
            0 => 0.0,
            measured => self.nanos as f64 / measured as f64 * self.calls as f64 / 1e3,
        }
    }

    /// Returns the time in microseconds that this part of the measured calls did not exceed.
    fn percentile(&self, part: f64) -> f64 {
        let rank = (self.measured as f64 * part).ceil() as u64;
        let mut below = 0;
        let class = self.classes.iter().position(|count| {
            below += count;
            below >= rank
        });
        end_of(class.unwrap_or(CLASSES - 1)) as f64 / 1e3
    }
}

/// Returns the class of a time.
fn class_of(nanos: u64) -> usize {
    let digits = u64::BITS - nanos.leading_zeros();
    if digits < FIRST_DIGITS {
        return 0;
    }
    let quarter = (nanos >> (digits - 3)) & 3;
    let class = (digits - FIRST_DIGITS) as usize * 4 + quarter as usize;
    class.min(CLASSES - 1)
}

/// Returns the greatest time of a class, in nanoseconds.
fn end_of(class: usize) -> u64 {
    let (doubling, quarter) = (class / 4, class as u64 % 4);
    ((5 + quarter) << (doubling as u32 + FIRST_DIGITS - 3)) - 1
}

impl CommandRecorder {
    fn new(commands: usize) -> CommandRecorder {
        CommandRecorder(
            (0..commands)
                .map(|_| CallCounters::of(AtomicU64::default))
                .collect(),
        )
    }

    /// Adds to a counter that only this runtime writes.
    fn add(counter: &AtomicU64, by: u64) -> u64 {
        let before = counter.load(Ordering::Relaxed);
        counter.store(before + by, Ordering::Relaxed);
        before
    }

    /// Counts a call that is about to be executed. Returns its start time, if it must be measured.
    #[inline]
    pub(crate) fn begin(&self, command: usize) -> Option<Instant> {
        let before = Self::add(&self.0[command].calls, 1);
        before.is_multiple_of(MEASURED).then(Instant::now)
    }

    /// Records the time that a measured call took.
    pub(crate) fn end(&self, command: usize, took: Duration) {
        let nanos = took.as_nanos() as u64;
        let calls = &self.0[command];
        Self::add(&calls.measured, 1);
        Self::add(&calls.nanos, nanos);
        Self::add(&calls.classes[class_of(nanos)], 1);
    }

    /// Counts a call of a block.
    pub(crate) fn count(&self, command: usize) {
        Self::add(&self.0[command].calls, 1);
    }

    pub(crate) fn count_failed(&self, command: usize) {
        Self::add(&self.0[command].failed, 1);
    }

    pub(crate) fn count_rejected(&self, command: usize) {
        Self::add(&self.0[command].rejected, 1);
    }
}

impl CommandStatistics {
    /// Creates the counters of so many runtimes for the commands of these names, which are in the order
    /// of the commands' numbers.
    pub(crate) fn new(runtimes: usize, commands: Vec<&'static str>) -> CommandStatistics {
        CommandStatistics {
            runtimes: (0..runtimes)
                .map(|_| CommandRecorder::new(commands.len()))
                .collect(),
            base: Mutex::new(commands.iter().map(|_| CallCounters::of(|| 0)).collect()),
            errors: Mutex::default(),
            commands,
        }
    }

    /// Returns the counters of a runtime.
    pub(crate) fn recorder(&self, runtime: usize) -> CommandRecorder {
        self.runtimes[runtime].clone()
    }

    /// Adds error replies by their first word.
    pub(crate) fn add_errors(&self, errors: &mut Vec<(Box<str>, u64)>) {
        let mut all = self.errors.lock();
        for (word, count) in errors.drain(..) {
            *all.entry(word).or_default() += count;
        }
    }

    /// Starts counting anew.
    pub(crate) fn reset(&self) {
        *self.base.lock() = self.sums();
        self.errors.lock().clear();
    }

    /// Returns the counts of all runtimes since they started, by number of command.
    fn sums(&self) -> Vec<CallCounters<u64>> {
        let of = |number: usize| {
            let mut sum = CallCounters::of(|| 0);
            for runtime in &self.runtimes {
                let counters = runtime.0[number].all();
                let counters = counters.map(|counter| counter.load(Ordering::Relaxed));
                sum = sum.with(counters, u64::wrapping_add);
            }
            sum
        };
        (0..self.commands.len()).map(of).collect()
    }

    /// Returns the counts of each command since the last reset, without those that were not called.
    fn called(&self) -> Vec<(&'static str, CallCounters<u64>)> {
        let mut sums = self.sums();
        for (sum, base) in sums.iter_mut().zip(&*self.base.lock()) {
            *sum = sum.with(base.all().copied(), u64::saturating_sub);
        }
        let of = self.commands.iter().copied().zip(sums);
        of.filter(|(_, calls)| calls.calls > 0 || calls.rejected > 0)
            .collect()
    }
}

/// How long the calls of a command took.
pub(crate) struct CallHistogram {
    pub(crate) name: &'static str,
    pub(crate) calls: u64,
    /// Times in microseconds, powers of two, and how many calls took no longer: those that were measured,
    /// scaled to all calls. Times without a call are left out.
    pub(crate) up_to: Vec<(u64, u64)>,
}

impl CommandStatistics {
    /// Returns how long the calls of each command took of which some were measured.
    pub(crate) fn histograms(&self) -> Vec<CallHistogram> {
        let called = self.called().into_iter();
        let measured = called.filter(|(_, calls)| calls.measured > 0);
        let histogram = |(name, calls): (&'static str, CallCounters<u64>)| {
            let (mut below, mut up_to) = (0, Vec::new());
            for (doubling, classes) in calls.classes.chunks(4).enumerate() {
                let count: u64 = classes.iter().sum();
                below += count;
                if count > 0 {
                    let scaled = u128::from(below) * u128::from(calls.calls);
                    up_to.push((1 << doubling, (scaled / u128::from(calls.measured)) as u64));
                }
            }
            CallHistogram {
                name,
                calls: calls.calls,
                up_to,
            }
        };
        measured.map(histogram).collect()
    }
}

/// Writes `commandstats`.
pub(crate) fn write_commands(statistics: &CommandStatistics, out: &mut String) {
    for (command, calls) in statistics.called() {
        let microseconds = calls.microseconds();
        let each = match calls.calls {
            0 => 0.0,
            count => microseconds / count as f64,
        };
        write!(
            out,
            "cmdstat_{}:calls={},usec={microseconds:.0},usec_per_call={each:.2},rejected_calls={},\
             failed_calls={}\r\n",
            command, calls.calls, calls.rejected, calls.failed
        )
        .expect("a String takes any text");
    }
}

/// Writes `latencystats`.
pub(crate) fn write_latencies(statistics: &CommandStatistics, out: &mut String) {
    let commands = statistics.called();
    for (command, calls) in commands.iter().filter(|(_, calls)| calls.measured > 0) {
        let times =
            PERCENTILES.map(|(name, part)| format!("p{name}={:.3}", calls.percentile(part)));
        let times = times.join(",");
        write!(out, "latency_percentiles_usec_{command}:{times}\r\n").expect("as above");
    }
}

/// Writes `errorstats`.
pub(crate) fn write_errors(statistics: &CommandStatistics, out: &mut String) {
    for (word, count) in &*statistics.errors.lock() {
        write!(out, "errorstat_{word}:count={count}\r\n").expect("as above");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_lies_in_its_class() {
        for nanos in (0..40).flat_map(|digit| [1 << digit, (1 << digit) * 3 / 2, (2 << digit) - 1])
        {
            let class = class_of(nanos);
            assert!(nanos <= end_of(class) || class == CLASSES - 1, "{nanos}");
            assert!(class == 0 || nanos > end_of(class - 1), "{nanos}");
        }
    }

    #[test]
    fn percentiles_are_ends_of_classes() {
        let mut calls = CallCounters::of(|| 0);
        for nanos in [600, 600, 600, 5_000] {
            calls.measured += 1;
            calls.classes[class_of(nanos)] += 1;
        }
        assert_eq!(calls.percentile(0.5), end_of(class_of(600)) as f64 / 1e3);
        assert_eq!(
            calls.percentile(0.999),
            end_of(class_of(5_000)) as f64 / 1e3
        );
    }
}
