//! Reads a log back.
//!
//! Segments are read in their order, from the first one behind the last gap of numbers. Segments
//! before a gap come from a removal that a crash has undone. If they do not, the segments behind
//! the gap are not enough, which the floor shows. What a crash has torn is cut off from the last
//! segment.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use disk::{Access, DiskFile};

use super::error::{LogError, is_full};
use super::files::{CurrentSegment, LogLocation, SegmentFiles, remove_leftover};
use super::format::{self, DRAFT};
use super::replay::{LogReplay, SegmentTail};
use super::state::LogState;

/// The number of bytes that are read at once.
const PIECE: usize = 1 << 20;

/// A log that was found.
pub(super) struct RecoveredLog {
    pub(super) raft_id: u64,
    pub(super) state: LogState,
    pub(super) files: SegmentFiles,
}

/// Reads the log of a place, if there is one.
pub(super) fn recover(
    location: &LogLocation,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<RecoveredLog>, LogError> {
    let (disk, dir) = (&*location.disk, &location.dir);
    disk.create_dir_all(dir)
        .map_err(LogError::io("create", dir))?;
    let (before, run) = segments(location)?;
    let mut replay = LogReplay::default();
    let all = (&*run, Access::ReadWrite);
    let Some(last) = read_all(location, all, &mut replay, progress)? else {
        remove_leftover(disk, &dir.join(DRAFT))?;
        return Ok(None);
    };
    replay.finish(dir, &last.path)?;
    let current = settle(location, last, replay.max)?;
    for path in before.iter().map(|&segment| location.path(segment)) {
        disk.remove(&path).map_err(LogError::io("remove", &path))?;
    }
    remove_leftover(disk, &dir.join(DRAFT))?;
    Ok(Some(RecoveredLog {
        raft_id: replay.raft_id,
        state: replay.state,
        files: SegmentFiles::resume(location, replay.older, current, replay.sequence),
    }))
}

/// The last segment.
pub(super) struct LastSegment {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn DiskFile>,
    pub(super) tail: SegmentTail,
    frame: Vec<u8>,
}

/// Reads the consecutive segments of `run`, and returns the last one.
pub(super) fn read_all(
    location: &LogLocation,
    (run, access): (&[u64], Access),
    replay: &mut LogReplay,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<LastSegment>, LogError> {
    let mut opened = Vec::new();
    for path in run.iter().map(|&segment| location.path(segment)) {
        let file = location.disk.open(&path, access);
        let file = file.map_err(LogError::io("open", &path))?;
        let size = file.size().map_err(LogError::io("read", &path))?;
        opened.push((path, file, size));
    }
    let total = opened.iter().map(|(_, _, size)| size).sum();
    let (mut done, mut last) = (0, None);
    for (&segment, (path, file, size)) in run.iter().zip(opened) {
        let mut read_so_far = |read| progress(done + read, total);
        let bytes = read(&*file, &path, size, &mut read_so_far)?;
        done += size;
        let is_last = Some(&segment) == run.last();
        let tail = replay.segment(&path, segment, &bytes, is_last)?;
        if is_last {
            let frame = bytes[tail.last..bytes.len().min(tail.end)].to_vec();
            last = Some(LastSegment {
                path,
                file,
                tail,
                frame,
            });
        }
    }
    Ok(last)
}

/// Returns the numbers of the segments before the last gap, and of those behind it.
pub(super) fn segments(location: &LogLocation) -> Result<(Vec<u64>, Vec<u64>), LogError> {
    let listed = location.disk.list(&location.dir);
    let listed = listed.map_err(LogError::io("list", &location.dir))?;
    let mut found: Vec<u64> = listed
        .iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| format::parse(entry.name.to_str()?))
        .collect();
    found.sort_unstable();
    let gap = (1..found.len()).rfind(|&at| found[at] != found[at - 1] + 1);
    let run = found.split_off(gap.unwrap_or(0));
    Ok((found, run))
}

fn read(
    file: &(dyn DiskFile + 'static),
    path: &Path,
    size: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<u8>, LogError> {
    let mut bytes = vec![0; size as usize];
    let mut done = 0;
    for piece in bytes.chunks_mut(PIECE) {
        file.read_exact_at(piece, done)
            .map_err(LogError::io("read", path))?;
        done += piece.len() as u64;
        progress(done);
    }
    Ok(bytes)
}

/// Makes durable what was found in the last segment, and removes the rest.
fn settle(location: &LogLocation, last: LastSegment, max: u64) -> Result<CurrentSegment, LogError> {
    let (path, file, tail) = (&last.path, last.file, &last.tail);
    let end = tail.end as u64;
    if tail.torn {
        file.set_size(end).map_err(LogError::io("cut", path))?;
    }
    // The process may have ended between a write and its sync, or after a sync that failed. What is
    // read now is certain to be on the device only if it is written again.
    file.write_and_sync(&[IoSlice::new(&last.frame)], tail.last as u64)
        .map_err(LogError::io("write and sync", path))?;
    location
        .disk
        .sync_dir(&location.dir)
        .map_err(LogError::io("sync", &location.dir))?;
    let target_size = location.options.segment_bytes.max(end);
    let size = match file.allocate(target_size) {
        Ok(()) => target_size,
        // The space that was set aside when the segment was made is still there.
        Err(error) if is_full(&error) => file.size().map_err(LogError::io("read", path))?,
        Err(error) => return Err(LogError::io("set space aside for", path)(error)),
    };
    // Without space, or on a device with larger units than the segment was made for, the next frame
    // begins a segment. If there is no space for that either, the member waits for some.
    let fits = file.alignment() <= tail.header.align as usize;
    Ok(CurrentSegment {
        size: if fits { size } else { end },
        file,
        header: tail.header,
        end,
        max,
    })
}
