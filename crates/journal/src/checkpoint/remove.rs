//! Removes files that are not needed any more.
//!
//! No removal is synced: it makes no difference which of them survive a crash. A failed sync would
//! matter, since no later one of that directory could be trusted.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use disk::Disk;

use super::file_name::{CheckpointFile, directory};
use super::manifest::Manifest;
use crate::error::CheckpointError;
use crate::file_pins::{FilePins, PinnedFiles};
use crate::format::{log_name, segment_number};

/// Removes the segments before those that `manifest` names, and the checkpoints before it, which is
/// durable; but none that is pinned. Goes on after an error. Returns the number of segments removed, and the first error.
pub(super) fn outdated(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
    pins: &FilePins,
) -> (u64, Option<CheckpointError>) {
    // No file is pinned while this lasts.
    let pinned = pins.lock();
    let (mut removed, mut failed) = (0, None);
    for (log, start) in manifest.logs.iter().enumerate() {
        let log_dir = dir.join(log_name(log));
        let before = pinned.least_segment(log, start.segment);
        match remove_segments(disk, &log_dir, before) {
            Ok(n) => removed += n,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if let Err(error) = remove_checkpoints(disk, dir, manifest, &pinned) {
        failed = failed.or(Some(error));
    }
    (removed, failed)
}

fn remove_segments(disk: &dyn Disk, log_dir: &Path, before: u32) -> Result<u64, CheckpointError> {
    let entries = disk
        .list(log_dir)
        .map_err(CheckpointError::io("list", log_dir))?;
    let old = entries.iter().filter(|entry| {
        let number = entry.name.to_str().and_then(segment_number);
        !entry.is_dir && number.is_some_and(|number| number < before)
    });
    remove_files(disk, old.map(|entry| log_dir.join(&entry.name)))
}

fn remove_checkpoints(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
    pinned: &PinnedFiles<'_>,
) -> Result<(), CheckpointError> {
    let directory = directory(dir);
    let entries = disk
        .list(&directory)
        .map_err(CheckpointError::io("list", &directory))?;
    let names = entries.iter().filter(|entry| !entry.is_dir);
    let names = names.filter_map(|entry| CheckpointFile::parse(entry.name.to_str()?));
    let mut old: Vec<CheckpointFile> = names
        .filter(|name| name.epoch() < manifest.view.epoch && !pinned.has_checkpoint(name.epoch()))
        .collect();
    // Manifests first: if the removal stops halfway, no manifest is left without its parts.
    old.sort_by_key(|name| !matches!(name, CheckpointFile::Manifest(_)));
    let paths = old.iter().map(|name| directory.join(name.to_string()));
    remove_files(disk, paths).map(|_| ())
}

/// Removes files, as far as they exist. Returns how many existed.
pub(crate) fn remove_files(
    disk: &dyn Disk,
    paths: impl Iterator<Item = PathBuf>,
) -> Result<u64, CheckpointError> {
    let mut removed = 0;
    for path in paths {
        match disk.remove(&path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(CheckpointError::io("remove", &path)(error)),
        }
    }
    Ok(removed)
}
