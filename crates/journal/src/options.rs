//! How a journal is set up.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Parameters of a journal. The defaults suit a machine of a few cores with one device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Log threads, each with a log of its own (paper 2: one or more for each device).
    pub loggers: usize,
    /// Workers. Worker *i* is served by logger *i* mod `loggers`.
    pub workers: usize,
    /// Buffers of each worker (the paper's `N_B`). They are made when first needed.
    pub log_buffers: usize,
    /// Bytes of a buffer. A transaction that is larger gets a buffer of its own.
    pub log_buffer_size: usize,
    /// Bytes after which a log goes on in a new segment.
    pub segment_size: u64,
    /// Bytes by which a segment grows ahead of what is written, so that most syncs need not
    /// record a new file size; 0: it grows by what is written.
    pub preallocate: u64,
    /// When epochs advance.
    pub epoch_time: EpochTime,
    /// What nobody waits for is durable after this time.
    pub idle_flush: Duration,
    /// Who runs the loggers.
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
            epoch_time: EpochTime::Adaptive,
            idle_flush: Duration::from_millis(50),
            drive: Drive::Threads,
            salt: RandomState::new().hash_one("kumiki journal"),
        }
    }
}

/// When epochs advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochTime {
    /// As soon as a logger is idle and someone waits.
    Adaptive,
    /// At this interval, as long as there is something to log.
    Fixed(Duration),
}

/// Who runs the loggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// A thread for each.
    Threads,
    /// Nobody but [`Journal::cycle`](crate::Journal::cycle): for simulations.
    Manual,
}
