//! The pace of a logger's cycles, and the distance that its workers may run ahead of it: the
//! controller behind [`EpochTime::Adaptive`](crate::EpochTime::Adaptive).
//!
//! A cycle costs processor time however little it carries, so that under load few large cycles
//! leave more to the transactions than many small ones; a latency target determines how few. Two
//! quantities are controlled, each by the results of the last cycles:
//!
//! | quantity | meaning | steered |
//! |---|---|---|
//! | period | time from the beginning of a cycle to that of the next | so that the mean latency is the target |
//! | limit | bytes that the workers may have in their buffers | when the device is the bottleneck: so that the mean latency is the target |
//!
//! Periods that are longer than the device needs are useless: when its sync takes a small part of
//! the period ([`AFFORDABLE`], [`FREQUENT`]), fewer syncs would save nothing, and latency stays
//! below the target.
//!
//! With transactions that come evenly the mean latency is half the period and one cycle. Each cycle
//! moves the period by a part of the difference to the target ([`GAIN`]); half of such a step shows
//! in the latency, so that the loop settles within some cycles and does not oscillate.
//!
//! When the period has shrunk to nothing and latency is still above the target, the device is
//! slower than the workers. The logger is never idle then; the contents of the buffers are only
//! waiting. Letting the workers wait instead costs no throughput as long as a cycle carries enough
//! to use the device well. Where it would not (a sync alone takes longer than the target allows),
//! the limit is at least the number of bytes that the device writes in the time of a sync
//! ([`Device`]): the target is missed rather than the device wasted.
//!
//! Waiting gains nothing when no transaction would join: a logger whose last cycles saw no
//! transaction arrive ([`ALONE`]) works at once, and one that sees none arrive for a moment begins
//! early. The moment is longer when transactions kept coming before the last cycle: the system may
//! have taken the processor from them.

use std::time::{Duration, Instant};

/// Part of the difference between target and latency by which a cycle moves the period.
const GAIN: f64 = 0.5;
/// Factors by which a cycle moves the limit: the ratio of target and latency, within these bounds.
const LOWER: (f64, f64) = (0.5, 0.98);
const RAISE: (f64, f64) = (1.02, 1.5);
/// The limit holds back workers that have logged this part of it.
const HELD: f64 = 0.9;
/// The period is at most this many targets: mean latency is half of it.
const LONGEST: f64 = 2.0;
/// The period is at most this many times the cost of a cycle without its bytes.
const AFFORDABLE: f64 = 40.0;
/// A period of up to so many seconds is never too long by that rule: threads must wake, too.
const FREQUENT: f64 = 1e-3;
/// After so many cycles that no transaction joined none is put off. One cycle is no evidence: a
/// cycle of a fast device is shorter than a transaction.
const ALONE: u32 = 3;
/// Weight of the newest cycle in the model of the device.
const NEWEST: f64 = 0.05;
/// Cycles must differ in size by this part, so that cost and rate can be distinguished.
const DIFFERENT: f64 = 0.02;
/// A cycle that takes more than so many times the expected time, or less than that part of it, is
/// strange. So many strange cycles in a row are accepted as the new normal.
const STRANGE: f64 = 2.0;
const CONVINCED: i32 = 3;
/// If no transaction comes for this time, none is expected.
const LULL: Duration = Duration::from_micros(50);
/// The same, as a part of the period, if transactions kept coming through the last one.
const STEADY_LULL: f64 = 0.25;
/// The limit is at least this many bytes: with fewer in a cycle the sync takes most of the time.
/// Cycles of one size say nothing about the device, and must not reduce the limit to nothing.
const LEAST: f64 = 16.0 * 1024.0;
/// Above this many bytes the limit is removed.
const UNLIMITED: f64 = 1e9;

/// The measurements of one cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub(crate) began: Instant,
    /// The time from `began` until the log was synced.
    pub(crate) took: Duration,
    pub(crate) bytes: u64,
    /// The mean time of its transactions from commit to the end of the cycle.
    pub(crate) latency: Duration,
    /// The mean time after that until an epoch is durable in all logs.
    pub(crate) notification: Duration,
    /// `true` if transactions came while it ran.
    pub(crate) joined: bool,
}

#[derive(Debug)]
pub(crate) struct Pacer {
    /// In seconds, as all times here.
    target: f64,
    period: f64,
    /// Bytes; infinite when the workers are not held.
    limit: f64,
    device: Device,
    last_began: Instant,
    /// Cycles in a row that no transaction joined.
    alone: u32,
    /// `true` if transactions kept coming until the last cycle was due.
    steady: bool,
}

impl Pacer {
    pub(crate) fn new(target: Duration) -> Pacer {
        let target = target.as_secs_f64();
        Pacer {
            target,
            period: target,
            limit: f64::INFINITY,
            device: Device::default(),
            last_began: Instant::now(),
            alone: ALONE,
            steady: false,
        }
    }

    /// Returns the time for which no transaction must come for the next cycle to begin early.
    pub(crate) fn lull(&self) -> Duration {
        let longer = Duration::from_secs_f64(STEADY_LULL * self.period);
        if self.steady { LULL.max(longer) } else { LULL }
    }

    /// Returns the moment at which the next cycle should begin if transactions keep coming; `None`:
    /// at once.
    pub(crate) fn next(&self) -> Option<Instant> {
        let period = Duration::from_secs_f64(self.period);
        (self.alone < ALONE).then(|| self.last_began + period)
    }

    /// Returns the bytes that all workers of the logger together may hold back.
    pub(crate) fn limit(&self) -> usize {
        // The conversion saturates.
        self.limit as usize
    }

    /// Learns from a cycle that carried something. `gathered`: it began when it was due, and not
    /// before.
    pub(crate) fn observe(&mut self, cycle: &Cycle, gathered: bool) {
        self.last_began = cycle.began;
        self.alone = match cycle.joined || gathered {
            true => 0,
            false => self.alone.saturating_add(1),
        };
        self.steady = gathered;
        // Other loggers' slowness is theirs to correct, but leaves less time to this one.
        let rest = self.target - cycle.notification.as_secs_f64().min(self.target / 2.0);
        let excess = cycle.latency.as_secs_f64() - rest;
        if !cycle.joined {
            return;
        }
        let bytes = cycle.bytes as f64;
        self.device.observe(bytes, cycle.took.as_secs_f64());
        // A cycle that began early says nothing about longer periods, and while the workers are held
        // longer periods would only make them wait.
        let held = bytes >= HELD * self.limit;
        if excess > 0.0 || gathered && !held {
            let longest = (AFFORDABLE * self.device.sync()).max(FREQUENT);
            let longest = longest.min(LONGEST * self.target);
            self.period = (self.period - GAIN * excess).clamp(0.0, longest);
        }
        self.hold(rest, cycle.latency.as_secs_f64(), bytes);
    }

    fn hold(&mut self, target: f64, latency: f64, bytes: f64) {
        if self.period == 0.0 && latency > target {
            let factor = (target / latency).clamp(LOWER.0, LOWER.1);
            // The buffers that are being written and those that fill meanwhile are of one size.
            let lower = self.limit.min(bytes) * factor;
            self.limit = lower.max(self.device.worthwhile()).max(LEAST);
        } else if self.limit.is_finite() && latency < target {
            self.limit *= (target / latency).clamp(RAISE.0, RAISE.1);
        }
        if self.limit > UNLIMITED {
            self.limit = f64::INFINITY;
        }
    }
}

/// The log's device as the cycles show it: each costs a certain time, and each byte some more. The
/// line through size and time of the cycles is fitted by least squares, in which older cycles count
/// less and less. When several in a row lie far from the line, the device has changed, and
/// everything is learned anew.
#[derive(Debug, Default)]
struct Device {
    bytes: f64,
    time: f64,
    variance: f64,
    covariance: f64,
    seconds_per_byte: f64,
    /// The number of last cycles in a row that lay far above the line; below zero: below it.
    strange: i32,
}

impl Device {
    fn observe(&mut self, bytes: f64, time: f64) {
        let expected = self.sync() + bytes * self.seconds_per_byte;
        self.strange = match time / expected {
            far if far > STRANGE => self.strange.max(0) + 1,
            far if far < 1.0 / STRANGE => self.strange.min(0) - 1,
            _ => 0,
        };
        if self.time == 0.0 || self.strange.abs() >= CONVINCED {
            *self = Device {
                bytes,
                time,
                seconds_per_byte: time / bytes,
                ..Device::default()
            };
        }
        let (x, y) = (bytes - self.bytes, time - self.time);
        self.bytes += NEWEST * x;
        self.time += NEWEST * y;
        self.variance = (1.0 - NEWEST) * (self.variance + NEWEST * x * x);
        self.covariance = (1.0 - NEWEST) * (self.covariance + NEWEST * x * y);
        if self.variance > (DIFFERENT * self.bytes).powi(2) {
            let most = self.time / self.bytes;
            self.seconds_per_byte = (self.covariance / self.variance).clamp(0.0, most);
        }
    }

    /// Returns the cost of a cycle without its bytes: a part of the whole at least, because the
    /// line is drawn through a cloud.
    fn sync(&self) -> f64 {
        let sync = self.time - self.bytes * self.seconds_per_byte;
        sync.max(self.time / 20.0)
    }

    /// Returns the bytes in a cycle with which the device writes half of the time.
    fn worthwhile(&self) -> f64 {
        // The rate may be too high to measure.
        self.sync() / self.seconds_per_byte.max(1e-12)
    }
}

#[cfg(test)]
mod figure;
#[cfg(test)]
mod tests;
