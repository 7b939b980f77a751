//! The way from a directory to an engine: the logs are read in parallel, and the greatest TID of
//! each key wins.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use engine::{Engine, Restorer};
use journal::{Entry, Journal, Recovered};
use parking_lot::Mutex;

use crate::checkpoint::CheckpointReport;
use crate::error::OpenError;
use crate::options::{Options, RecoveryProgress, RecoveryReport};

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
    engine
        .finish_restore(restorers, recovered.newest, recovered.stamp_ms)
        .map_err(|reason| OpenError::Damaged {
            dir: dir.to_owned(),
            reason,
        })?;
    let prepared = engine
        .restore_prepared()
        .map_err(|reason| OpenError::Damaged {
            dir: dir.to_owned(),
            reason,
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
