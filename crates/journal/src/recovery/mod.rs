//! Recovery: from the files of all runs to the entries that count.
//!
//! 1. [`layout`]: which files there are; nothing may be missing between them.
//! 2. [`scan`]: block headers, and the payloads where a write may be unfinished.
//! 3. [`plan`]: the durable epoch of each run; damage is told from unfinished writes.
//! 4. [`replay`]: payloads are verified and their entries applied, in parallel.
//! 5. Only then: torn tails are cut, and what was found is made durable.
//!
//! Invariants:
//! 1. Entries of a run count up to the epoch that the next run's headers name as their base; of
//!    the last run, up to its durable epoch. What is above is void for ever.
//! 2. Bytes that do not make sense are cut off only at the end of a log, and only if every epoch
//!    that any block or header knows to be durable is complete without them.
//! 3. A recovery that dies at any point leaves files from which the next one finds the same.
//! 4. What the recovered data rests on is durable when `recover` returns. A process that died may
//!    have left it in the page cache alone, perhaps after a sync that failed: so that what no
//!    block proves to be durable is written again before it is synced.

mod layout;
mod plan;
mod replay;
mod scan;
mod walk;

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use base::Epoch;
use disk::{Access, Disk};

use crate::entry::Entry;
use crate::error::RecoverError;
use layout::{Log, Segment};
use plan::Piece;
use scan::Summary;

/// How much of a log is written again at once.
const PIECE: u64 = 1024 * 1024;

/// What a recovery found. [`Journal::start`](crate::Journal::start) goes on from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Everything up to this epoch was recovered; nothing of later epochs was.
    pub durable: Epoch,
    /// The newest epoch that left any trace, void ones included. New epochs begin above it.
    pub newest: Epoch,
    /// The greatest time stamp in the logs, milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    /// Entries applied.
    pub entries: u64,
    /// Bytes of log read.
    pub bytes: u64,
    /// Torn tails that were cut off.
    pub cuts: Vec<Cut>,
    /// The number of the last run.
    pub(crate) run: u32,
    /// For each log: the number of its next segment.
    pub(crate) next_segments: Vec<u32>,
}

/// A torn tail: bytes that were being written when the process or the machine stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: PathBuf,
    /// Where it was cut.
    pub offset: u64,
    /// How many bytes were cut off.
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

/// How far a recovery is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of log read.
    pub bytes_read: u64,
    /// Bytes of log in all.
    pub bytes_total: u64,
    /// Entries applied.
    pub entries: u64,
}

/// See [`Journal::recover`](crate::Journal::recover).
pub(crate) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    threads: usize,
    apply: &(dyn Fn(Entry<'_>) + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Recovered, RecoverError> {
    let (recovered, logs, ends) = read(disk, dir, threads, apply, progress)?;
    settle(disk, &logs, &ends)?;
    Ok(recovered)
}

/// See [`Journal::check`](crate::Journal::check).
pub(crate) fn check(
    disk: &dyn Disk,
    dir: &Path,
    threads: usize,
    apply: &(dyn Fn(Entry<'_>) + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Recovered, RecoverError> {
    Ok(read(disk, dir, threads, apply, progress)?.0)
}

/// Steps 1 to 4. The cuts are yet to be made.
fn read(
    disk: &dyn Disk,
    dir: &Path,
    threads: usize,
    apply: &(dyn Fn(Entry<'_>) + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Recovered, Vec<Log>, Vec<Summary>), RecoverError> {
    let logs = layout::discover(disk, dir)?;
    let segments: Vec<_> = logs.iter().flat_map(|log| &log.segments).collect();
    let summaries = scan::scan(&segments, threads)?;
    let piece = |(segment, summary)| Piece {
        segment,
        summary,
        limit: Epoch::ZERO,
    };
    let mut pieces: Vec<_> = segments.into_iter().zip(summaries).map(piece).collect();
    let plan = plan::plan(dir, &logs, &mut pieces)?;
    let replayed = replay::replay(&pieces, threads, apply, progress)?;
    let recovered = Recovered {
        durable: plan.durable,
        newest: plan.newest.max(plan.durable),
        stamp_ms: plan.stamp_ms,
        entries: replayed.entries,
        bytes: replayed.bytes,
        cuts: cuts(&logs, &pieces),
        run: plan.run,
        next_segments: logs.iter().map(|log| log.segments.len() as u32).collect(),
    };
    let last = pieces.iter().filter(|piece| piece.segment.is_last);
    let ends = last.map(|piece| piece.summary).collect();
    drop(pieces);
    Ok((recovered, logs, ends))
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

/// Cuts the logs where they end, and makes everything that was found durable. `ends` describes
/// the segments that are the last of their logs.
fn settle(disk: &dyn Disk, logs: &[Log], ends: &[Summary]) -> Result<(), RecoverError> {
    let mut ends = ends.iter();
    for log in logs {
        if let Some(last) = log.segments.last().filter(|last| last.is_last) {
            let summary = ends.next().expect("one for each last segment");
            settle_segment(disk, last, summary)?;
        }
        if let Some(unborn) = &log.unborn {
            let path = &unborn.path;
            disk.remove(path)
                .map_err(RecoverError::io("remove", path))?;
        }
        disk.sync_dir(&log.dir)
            .map_err(RecoverError::io("sync", &log.dir))?;
    }
    Ok(())
}

fn settle_segment(disk: &dyn Disk, last: &Segment, summary: &Summary) -> Result<(), RecoverError> {
    let path = &last.path;
    let file = disk
        .open(path, Access::ReadWrite)
        .map_err(RecoverError::io("open", path))?;
    // Room set aside goes too: nothing will be written to this file again.
    file.set_size(summary.end)
        .map_err(RecoverError::io("cut", path))?;
    let mut at = summary.proven;
    let mut piece = Vec::new();
    while at < summary.end {
        piece.resize((summary.end - at).min(PIECE) as usize, 0);
        file.read_exact_at(&mut piece, at)
            .map_err(RecoverError::io("read", path))?;
        file.write_all_at(&[IoSlice::new(&piece)], at)
            .map_err(RecoverError::io("write", path))?;
        at += piece.len() as u64;
    }
    file.sync_data().map_err(RecoverError::io("sync", path))
}
