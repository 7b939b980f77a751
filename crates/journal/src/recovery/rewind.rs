//! Rewinding: everything after an epoch becomes void, as if the last run before it had ended there.
//!
//! Segments of runs that began later are removed; the caller then begins a run whose base is the epoch, which
//! makes later entries of the runs before it void (rule 3 of the file formats).

use std::path::Path;

use ::base::Epoch;
use disk::Disk;

use super::base_checkpoint::BaseCheckpoint;
use super::layout::LogDirectory;
use super::recovered::{Progress, Recovered};
use super::settle::settle;
use crate::error::{RecoverError, RewindError};
use crate::newest_segment;

/// Removes the segments of runs that began after `epoch`. Returns the basis of the run that makes the rest void.
pub(crate) fn rewind(
    disk: &dyn Disk,
    dir: &Path,
    threads: usize,
    epoch: Epoch,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Recovered, RewindError> {
    let mut contents = super::read(disk, dir, threads, &|_| {}, progress)?;
    let checkpoint = contents.base.as_ref().map(BaseCheckpoint::epoch);
    let first = checkpoint.unwrap_or_default();
    if epoch < first {
        let wanted = epoch;
        return Err(RewindError::NoSuchEpoch { wanted, first });
    }
    // A journal of one log does not record that epochs have ended in which nothing was written.
    let epoch = epoch.min(contents.recovered.durable);
    settle(disk, dir, &contents)?;
    let segments = contents.logs.iter().flat_map(|log| &log.segments);
    let later = segments.map(|segment| segment.header);
    let later = later.filter(|header| header.start >= epoch);
    let first_later = later.min_by_key(|header| header.run);
    let mut recovered = contents.recovered;
    recovered.durable = epoch;
    if let Some(first_later) = first_later {
        // They name segments that are removed.
        for log in 0..contents.logs.len() {
            newest_segment::remove(disk, dir, log)?;
        }
        // Epochs between the base of a run and its start count for nothing.
        recovered.durable = epoch.min(first_later.base);
        recovered.run = first_later.run - 1;
        for log in &mut contents.logs {
            remove_later(disk, log, first_later.run)?;
        }
        let next = contents.logs.iter().map(LogDirectory::next_segment);
        recovered.next_segments = next.collect();
    }
    Ok(recovered)
}

/// Removes the segments of run `run` and later ones, the newest first: no gap is left if that stops halfway.
fn remove_later(disk: &dyn Disk, log: &mut LogDirectory, run: u32) -> Result<(), RecoverError> {
    while let Some(last) = log.segments.pop_if(|last| last.header.run >= run) {
        disk.remove(&last.path)
            .map_err(RecoverError::io("remove", &last.path))?;
    }
    disk.sync_dir(&log.dir)
        .map_err(RecoverError::io("sync", &log.dir))
}
