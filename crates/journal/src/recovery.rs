//! Recovery: reads the files of all runs and finds the entries that count.
//!
//! 0. [`base_checkpoint`]: the newest checkpoint; a damaged one is passed over if the logs still hold all.
//! 1. [`layout`]: the files; none may be missing between them.
//! 2. [`scan`]: block headers, and the payloads where a write may be unfinished.
//! 3. [`plan`]: the durable epoch of each run; damage is distinguished from unfinished writes.
//! 4. [`replay`]: payloads are verified and their entries applied, in parallel.
//! 5. [`settle`]: only then torn tails are cut, the recovered data is made durable, and files that
//!    are not needed beside the checkpoint are removed.
//!
//! Invariants:
//! 1. Entries of a run count up to the epoch that the next run's headers name as their base; of the
//!    last run, up to its durable epoch. Entries above are void for ever.
//! 2. Malformed bytes are cut off only at the end of a log, and only if every epoch that any block
//!    or header knows to be durable is complete without them.
//! 3. A recovery that dies at any point leaves files from which the next one finds the same.
//! 4. The files on which the recovered data rests are durable when `recover` returns. A process
//!    that died may have left them in the page cache alone, perhaps after a sync that failed: so
//!    data that no block proves to be durable is written again before it is synced.

mod base_checkpoint;
mod contents;
mod layout;
mod plan;
mod recovered;
mod replay;
mod rewind;
mod scan;
mod settle;
mod walk;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ::base::{Change, Epoch, Tid};
use disk::Disk;

use crate::checkpoint::read::{self, CheckpointCandidate};
use crate::entry::Entry;
use crate::error::RecoverError;
use crate::format::LogSegmentHeader;
use base_checkpoint::BaseCheckpoint;
use contents::LogContents;
use layout::LogDirectory;
use plan::SegmentPiece;
pub use recovered::{Progress, Recovered, TornTail, UsedCheckpoint};
pub(crate) use rewind::rewind;

/// Recovers. See [`Journal::recover`](crate::Journal::recover).
pub(crate) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    threads: usize,
    apply: &(dyn Fn(Entry<'_>) + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Recovered, RecoverError> {
    let read = read(disk, dir, threads, apply, progress)?;
    settle::settle(disk, dir, &read)?;
    Ok(read.recovered)
}

/// Checks. See [`Journal::check`](crate::Journal::check).
pub(crate) fn check(
    disk: &dyn Disk,
    dir: &Path,
    threads: usize,
    apply: &(dyn Fn(Entry<'_>) + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Recovered, RecoverError> {
    Ok(read(disk, dir, threads, apply, progress)?.recovered)
}

/// Finds an epoch. See [`Journal::epoch_at`](crate::Journal::epoch_at).
pub(crate) fn epoch_at(
    disk: &dyn Disk,
    dir: &Path,
    threads: usize,
    stamp_ms: u64,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Epoch, u64), RecoverError> {
    let newest = AtomicU64::new(0);
    let apply = |entry: Entry<'_>| {
        if entry.stamp_ms <= stamp_ms {
            newest.fetch_max(entry.tid.epoch().0, Ordering::Relaxed);
        }
    };
    let contents = read(disk, dir, threads, &apply, progress)?;
    let view = contents.base.map(|base| base.manifest.view);
    let view = view.unwrap_or_default();
    Ok((view.epoch.max(Epoch(newest.into_inner())), view.stamp_ms))
}

/// The state that all attempts at one directory share.
struct RecoveryAttempt<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    threads: usize,
    apply: &'a (dyn Fn(Entry<'_>) + Sync),
    progress: &'a (dyn Fn(Progress) + Sync),
    /// Epochs that were durable according to damaged checkpoints, each with its run.
    known: Vec<(u32, Epoch)>,
    warnings: Vec<String>,
}

/// Performs steps 0 to 4; the cuts are not made yet. Begins with the newest checkpoint; if it is
/// damaged, with the next one or with the logs alone, but only if these hold everything.
fn read(
    disk: &dyn Disk,
    dir: &Path,
    threads: usize,
    apply: &(dyn Fn(Entry<'_>) + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LogContents, RecoverError> {
    let found = read::find(disk, dir)?;
    let newest = found.published.first().map(|newest| newest.epoch);
    let mut attempt = RecoveryAttempt {
        disk,
        dir,
        threads,
        apply,
        progress,
        known: Vec::new(),
        warnings: Vec::new(),
    };
    let mut damaged = None;
    let candidates = found.published.into_iter().map(Some).chain([None]);
    for candidate in candidates {
        match attempt.read(candidate) {
            Ok(mut read) => {
                // New epochs begin above it, even if it is too damaged to be used.
                read.recovered.newest = read.recovered.newest.max(newest.unwrap_or_default());
                return Ok(read);
            }
            Err(CheckpointRefusal::Checkpoint(error)) => {
                attempt.warnings.push(format!("passed over: {error}"));
                damaged.get_or_insert(error);
            }
            Err(CheckpointRefusal::Logs(error)) => return Err(damaged.unwrap_or(error)),
        }
    }
    unreachable!("the logs alone are no checkpoint that could be refused")
}

/// The reason why nothing can be recovered from a checkpoint.
enum CheckpointRefusal {
    /// It is damaged itself: another checkpoint, or the logs alone, may do.
    Checkpoint(RecoverError),
    /// The logs are damaged, or a file cannot be read.
    Logs(RecoverError),
}

impl RecoveryAttempt<'_> {
    /// Reads `candidate`, or no checkpoint, and the logs behind it.
    fn read(
        &mut self,
        candidate: Option<CheckpointCandidate>,
    ) -> Result<LogContents, CheckpointRefusal> {
        let base = candidate
            .map(|candidate| self.open(candidate))
            .transpose()?;
        let known = base.as_ref().map(|base| (base.manifest.run, base.epoch()));
        self.known.extend(known);
        let is_in_checkpoint = |error: &RecoverError| {
            let path = match error {
                RecoverError::Corrupt { path, .. } | RecoverError::Missing { path, .. } => path,
                _ => return false,
            };
            path.starts_with(crate::checkpoint::file_name::directory(self.dir))
        };
        self.read_from(base).map_err(|error| {
            if is_in_checkpoint(&error) {
                CheckpointRefusal::Checkpoint(error)
            } else {
                CheckpointRefusal::Logs(error)
            }
        })
    }

    fn open(
        &mut self,
        candidate: CheckpointCandidate,
    ) -> Result<BaseCheckpoint, CheckpointRefusal> {
        let manifest = candidate.manifest.map_err(CheckpointRefusal::Checkpoint)?;
        let parts = read::open_parts(self.disk, self.dir, &manifest);
        let parts = parts.map_err(|error| {
            self.known.push((manifest.run, manifest.view.epoch));
            match error {
                RecoverError::Io { .. } => CheckpointRefusal::Logs(error),
                _ => CheckpointRefusal::Checkpoint(error),
            }
        })?;
        Ok(BaseCheckpoint {
            path: candidate.path,
            manifest,
            parts,
        })
    }

    fn read_from(&self, base: Option<BaseCheckpoint>) -> Result<LogContents, RecoverError> {
        let logs = layout::discover(self.disk, self.dir, base.as_ref())?;
        let segments: Vec<_> = logs.iter().flat_map(|log| &log.segments).collect();
        let summaries = scan::scan(&segments, self.threads)?;
        let is_start = |header: &LogSegmentHeader| {
            let starts = base.iter().flat_map(|base| &base.manifest.logs);
            let start = starts.zip(0..).find(|(_, log)| *log == header.log);
            start.is_some_and(|(start, _)| start.segment == header.segment)
        };
        let pieces = segments.into_iter().zip(summaries);
        let mut pieces: Vec<_> = pieces
            .map(|(segment, summary)| SegmentPiece {
                segment,
                summary,
                limit: Epoch::ZERO,
                is_start: is_start(&segment.header),
            })
            .collect();
        let plan = plan::plan(self.dir, &logs, &self.known, &mut pieces)?;
        let view = base.as_ref().map(|base| base.manifest.view);
        if let Some(view) = view.filter(|view| view.generation_tid > Tid::ZERO) {
            let (generation, stamp_ms) = (view.generation, view.stamp_ms);
            (self.apply)(Entry {
                tid: view.generation_tid,
                stamp_ms,
                change: Change::Flush { generation },
            });
        }
        let replayed = replay::replay(
            base.as_ref(),
            &pieces,
            self.threads,
            self.apply,
            self.progress,
        )?;
        let view = view.unwrap_or_default();
        let durable = plan.durable.max(view.epoch);
        let recovered = Recovered {
            durable,
            newest: plan.newest.max(durable),
            stamp_ms: plan.stamp_ms.max(view.stamp_ms),
            entries: replayed.entries,
            bytes: replayed.bytes,
            segments: pieces.len() as u64,
            checkpoint: base.as_ref().map(used),
            cuts: cuts(&logs, &pieces),
            warnings: self.warnings.clone(),
            run: plan.run,
            next_segments: logs.iter().map(LogDirectory::next_segment).collect(),
        };
        let last = pieces.iter().filter(|piece| piece.segment.is_last);
        let ends = last.map(|piece| piece.summary).collect();
        drop(pieces);
        Ok(LogContents {
            recovered,
            base,
            logs,
            ends,
        })
    }
}

fn used(base: &BaseCheckpoint) -> UsedCheckpoint {
    UsedCheckpoint {
        file: base.path.clone(),
        epoch: base.epoch(),
        entries: base.manifest.entries(),
        bytes: base.manifest.part_bytes(),
        parts: base.parts.len(),
        finished_ms: base.manifest.finished_ms,
    }
}

fn cuts(logs: &[LogDirectory], pieces: &[SegmentPiece<'_>]) -> Vec<TornTail> {
    let torn = pieces
        .iter()
        .filter(|piece| piece.summary.data_end > piece.summary.end);
    let tails = torn.map(|piece| TornTail {
        file: piece.segment.path.clone(),
        offset: piece.summary.end,
        bytes: piece.summary.data_end - piece.summary.end,
    });
    let unstarted = logs.iter().filter_map(|log| log.unstarted.as_ref());
    let files = unstarted.map(|file| TornTail {
        file: file.path.clone(),
        offset: 0,
        bytes: file.size,
    });
    tails.chain(files).collect()
}
