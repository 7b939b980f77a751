//! Recovery: reads the files of all runs and finds the entries that count.
//!
//! 0. [`base`]: the newest checkpoint; a damaged one is passed over if the logs still hold all.
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

mod base;
mod layout;
mod plan;
mod replay;
mod scan;
mod settle;
mod walk;

use std::path::{Path, PathBuf};

use ::base::{Change, Epoch, Tid};
use disk::Disk;

use crate::checkpoint::read::{self, Candidate};
use crate::entry::Entry;
use crate::error::RecoverError;
use crate::format::SegmentHeader;
use base::Base;
use layout::Log;
use plan::Piece;
use scan::Summary;

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
    pub checkpoint: Option<Used>,
    /// Torn tails that were cut off.
    pub cuts: Vec<Cut>,
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
pub struct Used {
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
pub struct Cut {
    /// The file.
    pub file: PathBuf,
    /// The offset at which it was cut.
    pub offset: u64,
    /// The number of bytes that were cut off.
    pub bytes: u64,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cut {
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

/// The data that was read and is not settled yet.
struct Read {
    recovered: Recovered,
    base: Option<Base>,
    logs: Vec<Log>,
    /// The ends of the segments that are the last of their logs.
    ends: Vec<Summary>,
}

/// The state that all attempts at one directory share.
struct Attempt<'a> {
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
) -> Result<Read, RecoverError> {
    let found = read::find(disk, dir)?;
    let newest = found.published.first().map(|newest| newest.epoch);
    let mut attempt = Attempt {
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
            Err(Refused::Checkpoint(error)) => {
                attempt.warnings.push(format!("passed over: {error}"));
                damaged.get_or_insert(error);
            }
            Err(Refused::Logs(error)) => return Err(damaged.unwrap_or(error)),
        }
    }
    unreachable!("the logs alone are no checkpoint that could be refused")
}

/// The reason why nothing can be recovered from a checkpoint.
enum Refused {
    /// It is damaged itself: another checkpoint, or the logs alone, may do.
    Checkpoint(RecoverError),
    /// The logs are damaged, or a file cannot be read.
    Logs(RecoverError),
}

impl Attempt<'_> {
    /// Reads `candidate`, or no checkpoint, and the logs behind it.
    fn read(&mut self, candidate: Option<Candidate>) -> Result<Read, Refused> {
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
            path.starts_with(crate::checkpoint::directory(self.dir))
        };
        self.read_from(base).map_err(|error| {
            if is_in_checkpoint(&error) {
                Refused::Checkpoint(error)
            } else {
                Refused::Logs(error)
            }
        })
    }

    fn open(&mut self, candidate: Candidate) -> Result<Base, Refused> {
        let manifest = candidate.manifest.map_err(Refused::Checkpoint)?;
        let parts = read::open_parts(self.disk, self.dir, &manifest);
        let parts = parts.map_err(|error| {
            self.known.push((manifest.run, manifest.view.epoch));
            match error {
                RecoverError::Io { .. } => Refused::Logs(error),
                _ => Refused::Checkpoint(error),
            }
        })?;
        Ok(Base {
            path: candidate.path,
            manifest,
            parts,
        })
    }

    fn read_from(&self, base: Option<Base>) -> Result<Read, RecoverError> {
        let logs = layout::discover(self.disk, self.dir, base.as_ref())?;
        let segments: Vec<_> = logs.iter().flat_map(|log| &log.segments).collect();
        let summaries = scan::scan(&segments, self.threads)?;
        let is_start = |header: &SegmentHeader| {
            let starts = base.iter().flat_map(|base| &base.manifest.logs);
            let start = starts.zip(0..).find(|(_, log)| *log == header.log);
            start.is_some_and(|(start, _)| start.segment == header.segment)
        };
        let pieces = segments.into_iter().zip(summaries);
        let mut pieces: Vec<_> = pieces
            .map(|(segment, summary)| Piece {
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
            next_segments: logs.iter().map(Log::next_segment).collect(),
        };
        let last = pieces.iter().filter(|piece| piece.segment.is_last);
        let ends = last.map(|piece| piece.summary).collect();
        drop(pieces);
        Ok(Read {
            recovered,
            base,
            logs,
            ends,
        })
    }
}

fn used(base: &Base) -> Used {
    Used {
        file: base.path.clone(),
        epoch: base.epoch(),
        entries: base.manifest.entries(),
        bytes: base.manifest.part_bytes(),
        parts: base.parts.len(),
        finished_ms: base.manifest.finished_ms,
    }
}

fn cuts(logs: &[Log], pieces: &[Piece<'_>]) -> Vec<Cut> {
    let torn = pieces
        .iter()
        .filter(|piece| piece.summary.data_end > piece.summary.end);
    let tails = torn.map(|piece| Cut {
        file: piece.segment.path.clone(),
        offset: piece.summary.end,
        bytes: piece.summary.data_end - piece.summary.end,
    });
    let unborn = logs.iter().filter_map(|log| log.unborn.as_ref());
    let files = unborn.map(|file| Cut {
        file: file.path.clone(),
        offset: 0,
        bytes: file.size,
    });
    tails.chain(files).collect()
}
