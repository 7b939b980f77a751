//! Checkpoints: when a checkpoint is made, by which thread, and its status.
//!
//! A thread of its own waits until the logs have grown enough or a caller asks. It makes one
//! checkpoint at a time and reports how each of them ended.
//!
//! Invariants:
//! 1. Checkpoints are numbered in the order in which they begin; one that is asked for begins
//!    after it was asked for.
//! 2. A checkpoint that fails changes nothing that a recovery uses: the logs stay, and so does the
//!    checkpoint before it.

mod board;
mod maker;
mod pace;
mod walk;

use std::time::Duration;

use base::Epoch;

use crate::db::Db;

pub(crate) use board::Board;
pub(crate) use maker::{Maker, start};

/// A checkpoint that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// It holds everything up to this epoch and nothing later.
    pub epoch: Epoch,
    /// Keys in it.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// The time that it took.
    pub elapsed: Duration,
    /// The time at which it was finished, milliseconds since the Unix epoch.
    pub finished_ms: u64,
    /// The number of log files that were removed with it.
    pub segments_removed: u64,
}

/// The status of checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// `true` while a checkpoint is being made, or about to begin.
    pub running: bool,
    /// The time at which that one began, milliseconds since the Unix epoch.
    pub started_ms: Option<u64>,
    /// Keys of it that are written.
    pub entries_written: u64,
    /// The number of checkpoints made since the database was opened.
    pub completed: u64,
    /// The number of checkpoints that failed since then.
    pub failed: u64,
    /// The last checkpoint that was made: since the database was opened, or before that, as far as
    /// its recovery knows.
    pub last: Option<CheckpointReport>,
    /// The reason why the last attempt failed, if it did.
    pub last_error: Option<String>,
    /// The approximate number of bytes of log that a recovery would have to read: those written
    /// since the last checkpoint.
    pub log_bytes_since: u64,
}

/// The reason why no checkpoint begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointRefused {
    /// One is being made.
    #[error("a checkpoint is being made")]
    AlreadyRunning,
    /// The database is ephemeral: there is nothing to write.
    #[error("the database is in memory only")]
    Ephemeral,
    /// The log has failed, or the database is closed.
    #[error("{0}")]
    Failed(String),
}

/// The reason why there is no new checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The database is ephemeral: there is nothing to write.
    #[error("the database is in memory only")]
    Ephemeral,
    /// It could not be made. The logs and the checkpoint before it are as they were.
    #[error("no checkpoint was made: {0}")]
    Failed(String),
}

impl Db {
    /// Begins a checkpoint in the background.
    ///
    /// # Errors
    /// Returns a [`CheckpointRefused`] that says why none begins.
    pub fn request_checkpoint(&self) -> Result<(), CheckpointRefused> {
        let shared = self.shared();
        let Some(journal) = &shared.journal else {
            return Err(CheckpointRefused::Ephemeral);
        };
        if let Some(failed) = journal.failed() {
            return Err(CheckpointRefused::Failed(failed.to_string()));
        }
        shared.checkpoints.request()
    }

    /// Makes a checkpoint that begins after this call, and waits for it.
    ///
    /// # Errors
    /// Returns a [`CheckpointError`] that says why there is none.
    pub fn checkpoint(&self) -> Result<CheckpointReport, CheckpointError> {
        let shared = self.shared();
        if shared.journal.is_none() {
            return Err(CheckpointError::Ephemeral);
        }
        shared.checkpoints.make().map_err(CheckpointError::Failed)
    }

    /// Returns the status of checkpoints.
    #[must_use]
    pub fn checkpoint_status(&self) -> CheckpointStatus {
        let shared = self.shared();
        shared.checkpoints.status(shared.log_bytes())
    }
}
