//! Outcomes of checkpoints: reports, the status, and the errors.

use std::time::Duration;

use base::Epoch;

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

/// The reason why there is no new checkpoint. The logs and the checkpoint before it are as they were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The database is ephemeral: there is nothing to write.
    #[error("the database is in memory only")]
    Ephemeral,
    /// The database is closed, or is being closed.
    #[error("no checkpoint was made: the database is closed")]
    Closed,
    /// The thread that made it panicked: this is a bug.
    #[error("no checkpoint was made: it panicked")]
    Panicked,
    /// Its files or the logs could not be written.
    #[error("no checkpoint was made: {0}")]
    Failed(String),
}

impl CheckpointError {
    /// Returns what happened, without the news that there is no checkpoint.
    pub(crate) fn reason(&self) -> String {
        match self {
            CheckpointError::Ephemeral => "the database is in memory only".to_owned(),
            CheckpointError::Closed => "the database is closed".to_owned(),
            CheckpointError::Panicked => "it panicked".to_owned(),
            CheckpointError::Failed(reason) => reason.clone(),
        }
    }
}

impl From<journal::CheckpointError> for CheckpointError {
    fn from(source: journal::CheckpointError) -> CheckpointError {
        CheckpointError::Failed(source.to_string())
    }
}
