//! How a store is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::limits::Limits;

pub use journal::EpochTime;

/// Options of a [`crate::Db`]. `Options::default()` is an ephemeral database; give it a `dir`.
#[derive(Clone)]
pub struct Options {
    /// Where data lies; `None`: in memory only, and gone with the process.
    pub dir: Option<PathBuf>,
    /// How many workers (threads that run transactions) there can be at once.
    pub workers: usize,
    /// Log threads, each with a log of its own in `log<n>/`.
    pub loggers: usize,
    /// Log buffers for each worker (paper 2: N_B).
    pub log_buffers: usize,
    /// Bytes in a log buffer.
    pub log_buffer_size: usize,
    /// Bytes after which a log goes on in a new file.
    pub segment_size: u64,
    /// When epochs advance.
    pub epoch_time: EpochTime,
    /// What nobody waits for is durable after this time.
    pub idle_flush: Duration,
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
            epoch_time: journal.epoch_time,
            idle_flush: journal.idle_flush,
            recovery_threads: 0,
            limits: Limits::default(),
            clock: Arc::new(SystemClock),
            disk: Arc::new(disk::RealDisk),
            progress: Arc::new(|_| {}),
        }
    }
}

impl Options {
    /// A durable database in `dir`.
    #[must_use]
    pub fn in_dir(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: Some(dir.into()),
            ..Options::default()
        }
    }

    pub(crate) fn journal(&self) -> journal::Options {
        journal::Options {
            loggers: self.loggers,
            workers: self.workers,
            log_buffers: self.log_buffers,
            log_buffer_size: self.log_buffer_size,
            segment_size: self.segment_size,
            epoch_time: self.epoch_time,
            idle_flush: self.idle_flush,
            ..journal::Options::default()
        }
    }

    pub(crate) fn recovery_threads(&self) -> usize {
        let machine = || std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = if self.recovery_threads == 0 {
            machine()
        } else {
            self.recovery_threads
        };
        wanted.min(self.workers).max(1)
    }
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryProgress {
    /// Bytes of log read so far.
    pub bytes_read: u64,
    /// Bytes of log in all.
    pub bytes_total: u64,
    /// Changes applied so far.
    pub entries: u64,
    /// Time since the recovery began.
    pub elapsed: Duration,
}

/// What a recovery found.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Changes applied.
    pub entries: u64,
    /// Bytes of log read.
    pub bytes: u64,
    /// Keys that are there now; expired ones may be among them.
    pub keys: u64,
    /// Everything up to this epoch was recovered, nothing later.
    pub durable_epoch: base::Epoch,
    /// How long it took.
    pub elapsed: Duration,
    /// Torn tails that were cut off, said for people.
    pub cuts: Vec<String>,
}
