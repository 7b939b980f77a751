//! Recovery: fills an engine from a directory. The logs are read in parallel, and the greatest TID of
//! each key wins.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Engine, RestoreError, Restorer};
use journal::{Entry, Journal, Recovered};
use parking_lot::Mutex;

use crate::checkpoint_report::CheckpointReport;
use crate::error::OpenError;
use crate::options::{Options, RecoveryProgress};

/// The outcome of a recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// Changes applied, those of the checkpoint included.
    pub entries: u64,
    /// Bytes of log read.
    pub bytes: u64,
    /// The checkpoint that was used, if there was one; the time that it took is not known any more.
    pub checkpoint: Option<CheckpointReport>,
    /// Keys that are there now; expired ones may be among them.
    pub keys: u64,
    /// Transactions over several partitions that are prepared here and wait for the outcome.
    pub prepared: u64,
    /// Everything up to this epoch was recovered, nothing later.
    pub durable_epoch: base::Epoch,
    /// The time that the recovery took.
    pub elapsed: Duration,
    /// Torn tails that were cut off, as text.
    pub cuts: Vec<String>,
    /// Warnings for the operator, such as a damaged checkpoint that was not needed.
    pub warnings: Vec<String>,
}

/// Fills `engine` from the logs in `dir`.
pub(crate) fn recover(
    options: &Options,
    dir: &Path,
    engine: &Arc<Engine>,
) -> Result<(Recovered, RecoveryReport), OpenError> {
    let start = Instant::now();
    let threads = options.recovery_threads();
    let restorers: Vec<Mutex<Restorer>> = (0..threads)
        .filter_map(|_| engine.restorer())
        .map(Mutex::new)
        .collect();
    let apply = |entry: Entry<'_>| {
        take(&restorers).apply(entry.tid, &entry.change);
    };
    let progress = |p: journal::Progress| {
        (options.progress)(&RecoveryProgress {
            bytes_read: p.bytes_read,
            bytes_total: p.bytes_total,
            entries: p.entries,
            elapsed: start.elapsed(),
        });
    };
    let recovered =
        Journal::recover(&options.disk, dir, threads, &apply, &progress).map_err(|source| {
            OpenError::Recover {
                dir: dir.to_owned(),
                source,
            }
        })?;
    let restorers = restorers.into_iter().map(Mutex::into_inner).collect();
    let prepared = engine
        .finish_restore(restorers, recovered.newest, recovered.stamp_ms)
        .and_then(|()| engine.restore_prepared())
        .map_err(|reason| match reason {
            RestoreError::Exchanged => OpenError::Option(reason.to_string()),
            reason => OpenError::Damaged {
                dir: dir.to_owned(),
                reason,
            },
        })?;
    let report = RecoveryReport {
        entries: recovered.entries,
        bytes: recovered.bytes,
        keys: engine.stats().keys,
        prepared: prepared as u64,
        durable_epoch: recovered.durable,
        elapsed: start.elapsed(),
        checkpoint: recovered.checkpoint.as_ref().map(report_of),
        warnings: recovered.warnings.clone(),
        cuts: recovered.cuts.iter().map(ToString::to_string).collect(),
    };
    Ok((recovered, report))
}

/// Returns a restorer that no other thread uses now: there are as many as threads.
fn take(restorers: &[Mutex<Restorer>]) -> parking_lot::MutexGuard<'_, Restorer> {
    let free = restorers.iter().find_map(Mutex::try_lock);
    free.unwrap_or_else(|| restorers[0].lock())
}

/// Returns the report of the checkpoint that a recovery used.
pub(crate) fn report_of(used: &journal::UsedCheckpoint) -> CheckpointReport {
    CheckpointReport {
        epoch: used.epoch,
        entries: used.entries,
        bytes: used.bytes,
        finished_ms: used.finished_ms,
        ..CheckpointReport::default()
    }
}
