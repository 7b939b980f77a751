//! The outcome and the progress of a recovery.

use std::path::PathBuf;

use ::base::Epoch;

/// The outcome of a recovery. [`Journal::start`](crate::Journal::start) continues from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Everything up to this epoch was recovered; nothing of later epochs was.
    pub durable: Epoch,
    /// The newest epoch that left any trace, void ones included. New epochs begin above it.
    pub newest: Epoch,
    /// The greatest time stamp in the logs, milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    /// Entries applied, those of the checkpoint included.
    pub entries: u64,
    /// Bytes of log read.
    pub bytes: u64,
    /// Log segments read.
    pub segments: u64,
    /// The checkpoint that was used.
    pub checkpoint: Option<UsedCheckpoint>,
    /// Torn tails that were cut off.
    pub cuts: Vec<TornTail>,
    /// Warnings for the operator, as text.
    pub warnings: Vec<String>,
    /// The number of the last run.
    pub(crate) run: u32,
    /// For each log: the number of its next segment.
    pub(crate) next_segments: Vec<u32>,
}

impl Recovered {
    /// Returns the number of runs of the journal so far.
    #[must_use]
    pub fn runs(&self) -> u32 {
        self.run
    }

    /// Returns the number of logs.
    #[must_use]
    pub fn logs(&self) -> usize {
        self.next_segments.len()
    }
}

/// A checkpoint that a recovery used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedCheckpoint {
    /// Its manifest.
    pub file: PathBuf,
    /// It holds everything up to this epoch.
    pub epoch: Epoch,
    /// Entries in it.
    pub entries: u64,
    /// Bytes of its parts.
    pub bytes: u64,
    /// The number of its parts.
    pub parts: usize,
    /// The time at which it was made, milliseconds since the Unix epoch.
    pub finished_ms: u64,
}

/// A torn tail: bytes that were being written when the process or the machine stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: PathBuf,
    /// The offset at which it was cut.
    pub offset: u64,
    /// The number of bytes that were cut off.
    pub bytes: u64,
}

impl std::fmt::Display for TornTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TornTail {
            file,
            offset,
            bytes,
        } = self;
        write!(
            f,
            "{}: cut {bytes} bytes of an unfinished write at byte {offset}",
            file.display()
        )
    }
}

/// The progress of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of checkpoint and log read.
    pub bytes_read: u64,
    /// Bytes of checkpoint and log in all.
    pub bytes_total: u64,
    /// Entries applied.
    pub entries: u64,
}
