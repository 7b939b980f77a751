//! Options of a store.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::affinity::Affinity;
use base::clock::Clock;
use base::limits::Limits;
use base::steady_clock::SteadyClock;
use base::versions::ReadAtomic;

pub use journal::EpochTime;

use crate::error::OpenError;

/// Options of a [`crate::Db`]. `Options::default()` is an ephemeral database; give it a `dir`.
#[derive(Clone)]
pub struct Options {
    /// The data directory; `None`: the data is in memory only, and gone with the process.
    pub dir: Option<PathBuf>,
    /// The most workers (threads that run transactions) that there can be at once.
    pub workers: usize,
    /// Log threads, each with a log of its own in `log<n>/`.
    pub loggers: usize,
    /// Log buffers for each worker (paper 2: N_B).
    pub log_buffers: usize,
    /// Bytes in a log buffer.
    pub log_buffer_size: usize,
    /// Bytes after which a log continues in a new file.
    pub segment_size: u64,
    /// `true` if log files are written once, with zeros, before they are used (paper 2: warm-up).
    pub log_warm_up: bool,
    /// The rule by which epochs advance.
    pub epoch_time: EpochTime,
    /// With [`EpochTime::Adaptive`]: the mean durability latency that is held under load.
    pub durability_target: Duration,
    /// The number of epochs that a worker may be ahead of its logger (paper 2); `None`: any number.
    pub max_epoch_diff: Option<NonZeroU64>,
    /// The processors of loggers and workers. It also determines how many loggers there are and
    /// which workers each of them serves.
    pub affinity: Option<Affinity>,
    /// `true` if the parts of the durability latency are measured exactly; each transaction then
    /// reads the clock.
    pub measure_latency: bool,
    /// Options of checkpoints.
    pub checkpoint: CheckpointOptions,
    /// The time that a transaction waits for keys that a prepared transaction holds, before it is
    /// refused.
    pub hold_timeout: Duration,
    /// The time after which writes are durable for which no client waits.
    pub idle_flush: Duration,
    /// The read-atomic keys: their replaced versions are kept for a while, and transactions over
    /// several partitions can write them without holds.
    pub read_atomic: ReadAtomic,
    /// Threads that read the logs when the database is opened; 0: one for each processor.
    pub recovery_threads: usize,
    /// Sizes that clients control.
    pub limits: Limits,
    /// The clock behind expiry.
    pub clock: Arc<dyn Clock>,
    /// The file layer.
    pub disk: Arc<dyn disk::Disk>,
    /// Called with progress while recovering, a few times a second.
    pub progress: Arc<dyn Fn(&RecoveryProgress) + Send + Sync>,
}

impl Default for Options {
    fn default() -> Options {
        let journal = journal::Options::default();
        Options {
            dir: None,
            workers: journal.workers,
            loggers: journal.loggers,
            log_buffers: journal.log_buffers,
            log_buffer_size: journal.log_buffer_size,
            segment_size: journal.segment_size,
            log_warm_up: journal.warm_up,
            epoch_time: journal.epoch_time,
            durability_target: journal.durability_target,
            max_epoch_diff: journal.max_epoch_diff,
            affinity: None,
            measure_latency: journal.measure_latency,
            checkpoint: CheckpointOptions::default(),
            hold_timeout: Duration::from_secs(10),
            idle_flush: journal.idle_flush,
            read_atomic: ReadAtomic::default(),
            recovery_threads: 0,
            limits: Limits::default(),
            clock: Arc::new(SteadyClock::new(|step| tracing::warn!("{step}"))),
            disk: Arc::new(disk::RealDisk),
            progress: Arc::new(|_| {}),
        }
    }
}

impl Options {
    /// Returns the options of a durable database in `dir`.
    #[must_use]
    pub fn in_dir(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: Some(dir.into()),
            ..Options::default()
        }
    }

    /// Refuses options that are out of range.
    ///
    /// # Errors
    /// Returns [`OpenError::Option`].
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let refuse = |what: &str| Err(OpenError::Option(what.to_owned()));
        if self.workers == 0 {
            return refuse("a database needs at least one worker");
        }
        if self.loggers == 0 || self.log_buffers == 0 {
            return refuse(
                "a database needs at least one logger and one log buffer for each worker",
            );
        }
        if !(4096..=1 << 30).contains(&self.log_buffer_size) {
            return refuse("a log buffer has between 4 KiB and 1 GiB");
        }
        let limits = &self.limits;
        if limits.key > Limits::MAX_KEY || limits.value > Limits::MAX_VALUE {
            return refuse("keys are limited to 64 KiB and values to 512 MiB");
        }
        Ok(())
    }

    pub(crate) fn journal(&self) -> journal::Options {
        journal::Options {
            loggers: self.loggers,
            workers: self.workers,
            log_buffers: self.log_buffers,
            log_buffer_size: self.log_buffer_size,
            segment_size: self.segment_size,
            warm_up: self.log_warm_up,
            epoch_time: self.epoch_time,
            durability_target: self.durability_target,
            max_epoch_diff: self.max_epoch_diff,
            affinity: self.affinity.clone(),
            measure_latency: self.measure_latency,
            idle_flush: self.idle_flush,
            ..journal::Options::default()
        }
    }

    pub(crate) fn recovery_threads(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.recovery_threads == 0 {
            machine()
        } else {
            self.recovery_threads
        };
        threads.min(self.workers).max(1)
    }
}

/// Options of checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointOptions {
    /// A checkpoint begins when the logs have grown by this many bytes since the last one; 0:
    /// only when asked for.
    pub log_size: u64,
    /// Threads that write a checkpoint.
    pub threads: usize,
    /// The share of a processor that each of them may use while transactions run, from 0 to 1.
    pub share: f64,
}

impl Default for CheckpointOptions {
    fn default() -> CheckpointOptions {
        CheckpointOptions {
            log_size: 1 << 30,
            threads: 1,
            share: 0.1,
        }
    }
}

/// The progress of a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryProgress {
    /// Bytes of checkpoint and log read so far.
    pub bytes_read: u64,
    /// Bytes of checkpoint and log in all.
    pub bytes_total: u64,
    /// Changes applied so far.
    pub entries: u64,
    /// Time since the recovery began.
    pub elapsed: Duration,
}
