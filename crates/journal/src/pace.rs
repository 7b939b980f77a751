//! How often a logger works, and how far its workers may run ahead of it: the controller behind
//! [`EpochTime::Adaptive`](crate::EpochTime::Adaptive).
//!
//! A cycle costs processor time whatever it carries, so that under load few large cycles leave more
//! to the transactions than many small ones; a latency target says how few. Two quantities are
//! steered, each by what the last cycles brought:
//!
//! | quantity | meaning | steered |
//! |---|---|---|
//! | period | time from the beginning of a cycle to that of the next | so that the mean latency is the target |
//! | limit | bytes that the workers may have in their buffers | when the device is the bottleneck: so that the mean latency is the target |
//!
//! Longer periods than the device is worth are of no use: when its sync takes a small part of the
//! period ([`AFFORDABLE`], [`FREQUENT`]), fewer of them would spare nothing, and latency stays
//! below the target.
//!
//! With transactions that come evenly the mean latency is half the period and one cycle. Each
//! cycle moves the period by a part of the difference to the target ([`GAIN`]); half of such a
//! step shows in the latency, so that the loop settles within some cycles and does not swing.
//!
//! When the period has shrunk to nothing and latency is still above the target, the device is
//! slower than the workers. The logger is never idle then; what is in the buffers is only waiting.
//! Letting the workers wait instead costs no throughput as long as a cycle carries enough to use
//! the device well. Where it would not (a sync alone takes longer than the target allows), the
//! limit goes no lower than what the device writes in the time that a sync costs it ([`Device`]):
//! the target is missed rather than the device wasted.
//!
//! Nothing is gained by waiting when nobody would join: a logger whose last cycles saw no
//! transaction arrive ([`ALONE`]) works at once, and one that sees none arrive for a moment begins
//! early. The moment is longer when transactions kept coming before the last cycle: the system may
//! have taken the processor from them.

use std::time::{Duration, Instant};

/// Part of the difference between target and latency by which a cycle moves the period.
const GAIN: f64 = 0.5;
/// Factors by which a cycle moves the limit: as far as latency is from the target, within these.
const LOWER: (f64, f64) = (0.5, 0.98);
const RAISE: (f64, f64) = (1.02, 1.5);
/// Workers that have logged this part of the limit are held by it.
const HELD: f64 = 0.9;
/// The period is at most this many targets: mean latency is half of it.
const LONGEST: f64 = 2.0;
/// The period is at most this many times what a cycle costs without its bytes.
const AFFORDABLE: f64 = 40.0;
/// A period of so many seconds is never too long for that reason: threads must wake, too.
const FREQUENT: f64 = 1e-3;
/// After so many cycles that nobody joined none is put off. One says little: a cycle of a fast
/// device is shorter than a transaction.
const ALONE: u32 = 3;
/// Weight of the newest cycle in what is known of the device.
const NEWEST: f64 = 0.05;
/// Cycles must differ in size by this part, so that cost and rate can be told apart.
const DIFFERENT: f64 = 0.02;
/// A cycle that takes so many times what was expected, or that part of it, is strange; so many of
/// them are believed.
const STRANGE: f64 = 2.0;
const CONVINCED: i32 = 3;
/// When no transaction comes for this time, none is expected.
const LULL: Duration = Duration::from_micros(50);
/// The same, as a part of the period, when they kept coming through the last one.
const STEADY_LULL: f64 = 0.25;
/// The limit is at least this many bytes: with less in a cycle its sync is what takes the time. Cycles
/// that are all of one size say nothing about the device, which must not leave the workers nothing.
const LEAST: f64 = 16.0 * 1024.0;
/// The limit is lifted beyond this many bytes.
const UNLIMITED: f64 = 1e9;

/// What a logger did in one cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub(crate) began: Instant,
    /// From `began` until the log was synced.
    pub(crate) took: Duration,
    pub(crate) bytes: u64,
    /// Mean time of its transactions from commit to the end of the cycle.
    pub(crate) latency: Duration,
    /// Mean time after that until an epoch is durable in all logs.
    pub(crate) notification: Duration,
    /// Whether transactions came while it ran.
    pub(crate) joined: bool,
}

#[derive(Debug)]
pub(crate) struct Pacer {
    /// Seconds, as everything here.
    target: f64,
    period: f64,
    /// Bytes; infinite when the workers are not held.
    limit: f64,
    device: Device,
    last_began: Instant,
    /// Cycles in a row that nobody joined.
    alone: u32,
    /// Transactions kept coming until the last cycle was due.
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

    /// How long no transaction must come before the next cycle begins early.
    pub(crate) fn lull(&self) -> Duration {
        let longer = Duration::from_secs_f64(STEADY_LULL * self.period);
        if self.steady { LULL.max(longer) } else { LULL }
    }

    /// When the next cycle should begin if transactions keep coming; `None`: at once.
    pub(crate) fn next(&self) -> Option<Instant> {
        let period = Duration::from_secs_f64(self.period);
        (self.alone < ALONE).then(|| self.last_began + period)
    }

    /// Bytes that all workers of the logger together may hold back.
    pub(crate) fn limit(&self) -> usize {
        // Saturates.
        self.limit as usize
    }

    /// Learns from a cycle that carried something. `gathered`: it began when it should, and not
    /// before.
    pub(crate) fn observe(&mut self, cycle: &Cycle, gathered: bool) {
        self.last_began = cycle.began;
        self.alone = match cycle.joined || gathered {
            true => 0,
            false => self.alone.saturating_add(1),
        };
        self.steady = gathered;
        // Other loggers' slowness is for them to mend, but leaves less time to this one.
        let rest = self.target - cycle.notification.as_secs_f64().min(self.target / 2.0);
        let excess = cycle.latency.as_secs_f64() - rest;
        if !cycle.joined {
            return;
        }
        let bytes = cycle.bytes as f64;
        self.device.observe(bytes, cycle.took.as_secs_f64());
        // A cycle that began early says nothing about longer periods, and while the workers are held
        // these would only make them wait.
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
            // What is being written and what gathers meanwhile are of one size.
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

/// The log's device as the cycles show it: each costs a certain time, and each byte some more.
/// The line through size and time of the cycles is fitted by least squares, in which older cycles
/// count less and less. When several in a row lie far from the line, the device is not the one that
/// it was, and all is learned anew.
#[derive(Debug, Default)]
struct Device {
    bytes: f64,
    time: f64,
    variance: f64,
    covariance: f64,
    seconds_per_byte: f64,
    /// How many of the last cycles in a row lay far above the line; below zero: below it.
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

    /// What a cycle costs without its bytes. A part of the whole at least: the line is drawn
    /// through a cloud.
    fn sync(&self) -> f64 {
        let sync = self.time - self.bytes * self.seconds_per_byte;
        sync.max(self.time / 20.0)
    }

    /// Bytes in a cycle with which the device is writing half of the time.
    fn worthwhile(&self) -> f64 {
        // The rate may be beyond measuring.
        self.sync() / self.seconds_per_byte.max(1e-12)
    }
}

#[cfg(test)]
mod figure;
#[cfg(test)]
mod tests;
