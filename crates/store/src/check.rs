//! Verification of a data directory without opening it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Epoch;
use disk::Disk;
use journal::{Journal, Progress, Recovered};

use crate::checkpoint_report::CheckpointReport;
use crate::error::OpenError;
use crate::options::RecoveryProgress;
use crate::recovery::report_of;

/// The outcome that a recovery would have.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The checkpoint that it would begin from, and its manifest.
    pub checkpoint: Option<(PathBuf, CheckpointReport)>,
    /// The number of logs. A recovery would read `segments` of their segments.
    pub logs: usize,
    /// The number of segments that it would read.
    pub segments: u64,
    /// The number of times that a database was opened in the directory.
    pub runs: u32,
    /// Bytes of log that it would read.
    pub log_bytes: u64,
    /// Changes that it would apply, those of the checkpoint included.
    pub entries: u64,
    /// It would recover everything up to this epoch, and nothing later.
    pub durable_epoch: Epoch,
    /// The newest epoch that left any trace.
    pub newest_epoch: Epoch,
    /// The greatest time stamp, milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    /// Unfinished writes that it would cut off: file, offset and bytes.
    pub cuts: Vec<(PathBuf, u64, u64)>,
    /// Warnings for the operator, as text.
    pub warnings: Vec<String>,
    /// The time that the verification took.
    pub elapsed: Duration,
}

/// Reads and verifies everything that a recovery of `dir` would read, with `threads` threads, and
/// changes nothing. The caller makes sure that no database is open there.
///
/// # Errors
/// Returns [`OpenError::Recover`] if a recovery would refuse: with the file, the offset, and what
/// to do.
pub fn check(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    threads: usize,
    progress: &(dyn Fn(&RecoveryProgress) + Sync),
) -> Result<CheckReport, OpenError> {
    let start = Instant::now();
    let report_progress = |p: Progress| {
        progress(&RecoveryProgress {
            bytes_read: p.bytes_read,
            bytes_total: p.bytes_total,
            entries: p.entries,
            elapsed: start.elapsed(),
        });
    };
    let found = Journal::check(disk, dir, threads, &report_progress).map_err(|source| {
        OpenError::Recover {
            dir: dir.to_owned(),
            source,
        }
    })?;
    Ok(report(&found, start.elapsed()))
}

fn report(found: &Recovered, elapsed: Duration) -> CheckReport {
    let cuts = found.cuts.iter();
    let checkpoint = found.checkpoint.as_ref();
    CheckReport {
        checkpoint: checkpoint.map(|used| (used.file.clone(), report_of(used))),
        logs: found.logs(),
        segments: found.segments,
        runs: found.runs(),
        log_bytes: found.bytes,
        entries: found.entries,
        durable_epoch: found.durable,
        newest_epoch: found.newest,
        stamp_ms: found.stamp_ms,
        cuts: cuts
            .map(|cut| (cut.file.clone(), cut.offset, cut.bytes))
            .collect(),
        warnings: found.warnings.clone(),
        elapsed,
    }
}
