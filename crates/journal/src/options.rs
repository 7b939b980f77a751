//! Options of a journal.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::time::Duration;

use base::affinity::Affinity;

/// Parameters of a journal. The defaults suit a machine of a few cores with one device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Log threads, each with a log of its own (paper 2: one or more for each device).
    pub loggers: usize,
    /// The number of workers.
    pub workers: usize,
    /// Buffers of each worker (the paper's `N_B`). They are made when first needed.
    pub log_buffers: usize,
    /// Bytes of a buffer. A transaction that is larger gets a buffer of its own.
    pub log_buffer_size: usize,
    /// Bytes after which a log continues in a new segment.
    pub segment_size: u64,
    /// Bytes by which a segment grows ahead of the writes, so that most syncs need not record a new
    /// file size; 0: it grows with each write.
    pub preallocate: u64,
    /// `true` if segments are written once, with zeros, before they are used (paper 2, section 5.2:
    /// warm-up), so that later syncs have only the data to write. A start then takes as long as
    /// writing a segment for each logger; later segments are written concurrently.
    pub warm_up: bool,
    /// The rule by which epochs advance.
    pub epoch_time: EpochTime,
    /// With [`EpochTime::Adaptive`]: the mean time from commit to durability that is held while
    /// there is more to log than fits into less.
    pub durability_target: Duration,
    /// The number of epochs that a worker may be ahead of the last epoch that its logger has
    /// closed, before it waits (paper 2, section 4: `max_epoch_diff`); `None`: any number.
    pub max_epoch_diff: Option<NonZeroU64>,
    /// The processors of loggers and workers, and the workers that each logger serves. `None`: the
    /// operating system chooses the processors, and worker *i* is served by logger *i* mod
    /// `loggers`.
    pub affinity: Option<Affinity>,
    /// `true` if [`JournalStats::latency`](crate::JournalStats::latency) is measured exactly; each transaction
    /// then reads the clock.
    pub measure_latency: bool,
    /// The time after which writes are durable for which no caller waits.
    pub idle_flush: Duration,
    /// The way in which the loggers run.
    pub drive: Drive,
    /// A number that clients cannot guess. Checksums depend on it, so that bytes which a client
    /// stored can never pass for a block of the log.
    pub salt: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            loggers: 1,
            workers: 64,
            log_buffers: 4,
            log_buffer_size: 512 * 1024,
            segment_size: 256 * 1024 * 1024,
            preallocate: 4 * 1024 * 1024,
            warm_up: false,
            epoch_time: EpochTime::Adaptive,
            durability_target: Duration::from_millis(3),
            max_epoch_diff: None,
            affinity: None,
            measure_latency: false,
            idle_flush: Duration::from_millis(50),
            drive: Drive::Threads,
            salt: RandomState::new().hash_one("kumiki journal"),
        }
    }
}

/// The rule by which epochs advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochTime {
    /// As soon as a logger is idle and a caller waits; under more load as often as
    /// [`Options::durability_target`] asks for.
    Adaptive,
    /// At this interval, as long as there is something to log.
    Fixed(Duration),
}

/// The way in which the loggers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// A thread runs each logger.
    Threads,
    /// Only [`Journal::cycle`](crate::Journal::cycle) runs them: for simulations.
    Manual,
}
