//! The end of a recovery: the files are changed to what was found in them.
//!
//! Invariants:
//! 1. The files on which the recovered data rests are durable before anything is removed.
//! 2. A crash between any two steps leaves files in which the next recovery finds the same.

use std::io::IoSlice;
use std::path::Path;

use disk::{Access, Disk};

use super::base_checkpoint::BaseCheckpoint;
use super::contents::LogContents;
use super::layout::SegmentFile;
use super::scan::SegmentSummary;
use crate::checkpoint::file_name::{CheckpointFile, directory};
use crate::checkpoint::read::find;
use crate::error::RecoverError;

/// Bytes of a log that are written again at once.
const PIECE: u64 = 1024 * 1024;

/// Cuts the logs where they end, makes everything that was found durable, and removes what is not
/// needed beside the checkpoint.
pub(super) fn settle(disk: &dyn Disk, dir: &Path, read: &LogContents) -> Result<(), RecoverError> {
    let directory = directory(dir);
    if read.base.is_some() {
        // The process that published it may have died before its name was durable.
        disk.sync_dir(&directory)
            .map_err(RecoverError::io("sync", &directory))?;
    }
    let mut ends = read.ends.iter();
    for log in &read.logs {
        if let Some(last) = log.segments.last().filter(|last| last.is_last) {
            let summary = ends.next().expect("one for each last segment");
            settle_segment(disk, last, summary)?;
        }
        let unstarted = log.unstarted.iter().map(|unstarted| &unstarted.path);
        for path in unstarted.chain(&log.outdated) {
            disk.remove(path)
                .map_err(RecoverError::io("remove", path))?;
        }
        disk.sync_dir(&log.dir)
            .map_err(RecoverError::io("sync", &log.dir))?;
    }
    remove_checkpoints(disk, dir, read)
}

/// Removes the checkpoints before the one that was used, and the files of unfinished ones. A
/// checkpoint that was passed over because it is damaged stays until the next one is made.
fn remove_checkpoints(disk: &dyn Disk, dir: &Path, read: &LogContents) -> Result<(), RecoverError> {
    let found = find(disk, dir)?;
    let used = read.base.as_ref().map(BaseCheckpoint::epoch);
    let published: Vec<_> = found.published.iter().map(|one| one.epoch).collect();
    let is_needed = |name: &CheckpointFile| {
        used.is_none_or(|used| name.epoch() >= used)
            && published.contains(&name.epoch())
            && !matches!(name, CheckpointFile::Draft(_))
    };
    let mut old: Vec<_> = found.names.iter().filter(|name| !is_needed(name)).collect();
    if old.is_empty() {
        return Ok(());
    }
    // Manifests first: if the removal stops halfway, no manifest is left without its parts.
    old.sort_by_key(|name| !matches!(name, CheckpointFile::Manifest(_)));
    let directory = directory(dir);
    for name in old {
        let path = directory.join(name.to_string());
        disk.remove(&path)
            .map_err(RecoverError::io("remove", &path))?;
    }
    disk.sync_dir(&directory)
        .map_err(RecoverError::io("sync", &directory))
}

fn settle_segment(
    disk: &dyn Disk,
    last: &SegmentFile,
    summary: &SegmentSummary,
) -> Result<(), RecoverError> {
    let path = &last.path;
    let file = disk
        .open(path, Access::ReadWrite)
        .map_err(RecoverError::io("open", path))?;
    // Room that was set aside is cut off too: this file is not written to again.
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
