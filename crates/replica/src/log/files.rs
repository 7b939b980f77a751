//! The segments: writes them, goes on in the next one, and removes old ones.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, DiskFile};

use super::error::LogError;
use super::format::{self, ALIGN, DRAFT, FRAME_HEADER, ReplicaSegmentHeader, name};
use super::options::LogOptions;
use super::record::{self, SegmentStart};

/// The place of a log.
pub(super) struct LogLocation {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) options: LogOptions,
}

impl LogLocation {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions) -> LogLocation {
        let dir = dir.to_owned();
        LogLocation { disk, dir, options }
    }

    pub(super) fn path(&self, segment: u64) -> PathBuf {
        self.dir.join(name(segment))
    }
}

/// The reason why a frame was not written.
pub(super) enum WriteError {
    /// The log is unchanged; the write may be tried again.
    Again(LogError),
    /// The state of the log on disk is not known.
    Final(LogError),
}

/// Returns a frame that has only space for its header.
pub(super) fn empty_frame() -> Vec<u8> {
    vec![0; FRAME_HEADER]
}

/// Does the same in memory that was used before, unless that is much.
pub(super) fn empty_frame_in(mut frame: Vec<u8>) -> Vec<u8> {
    frame.clear();
    frame.shrink_to(4 << 20);
    frame.resize(FRAME_HEADER, 0);
    frame
}

/// A segment that is not written any more.
pub(super) struct OlderSegment {
    pub(super) segment: u64,
    /// The greatest index of its entries.
    pub(super) max: u64,
    pub(super) bytes: u64,
}

/// The part of the current segment that a frame may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentSpace {
    /// All but [`RESERVED`].
    Ordinary,
    /// All of it. This is for the short frames after which older segments can be removed. They can
    /// still be written when the disk has no space for another segment, and the space that they
    /// free can hold one.
    Reserved,
}

/// Bytes that each segment keeps for frames of [`SegmentSpace::Reserved`].
const RESERVED: usize = 256;

/// The segment that is written.
pub(super) struct CurrentSegment {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) header: ReplicaSegmentHeader,
    /// The place of the next frame.
    pub(super) end: u64,
    /// The limit for frames.
    pub(super) size: u64,
    pub(super) max: u64,
}

/// All segments of a log.
pub(super) struct SegmentFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: LogOptions,
    older: VecDeque<OlderSegment>,
    current: CurrentSegment,
    /// Number of the next frame.
    sequence: u64,
    pub(super) syncs: u64,
    pub(super) written: u64,
}

impl SegmentFiles {
    /// Goes on behind the recovered frames.
    pub(super) fn resume(
        location: &LogLocation,
        older: VecDeque<OlderSegment>,
        current: CurrentSegment,
        sequence: u64,
    ) -> SegmentFiles {
        SegmentFiles {
            disk: Arc::clone(&location.disk),
            dir: location.dir.clone(),
            options: location.options.clone(),
            older,
            current,
            sequence,
            syncs: 0,
            written: 0,
        }
    }

    /// Makes the first segment.
    pub(super) fn found(
        location: &LogLocation,
        raft_id: u64,
        start: &SegmentStart,
    ) -> Result<SegmentFiles, WriteError> {
        let header = ReplicaSegmentHeader {
            align: alignment(&*location.disk),
            segment: 1,
            raft_id,
            salt: location.options.salt,
            sequence: 1,
        };
        let current = begin(location, header, start, 0)?;
        Ok(SegmentFiles::resume(location, VecDeque::new(), current, 2))
    }

    /// Writes a frame, whose payload lies behind space for its header, and makes it durable. `max`
    /// is the greatest index of its entries; `start` is the state of the log without it.
    pub(super) fn write(
        &mut self,
        frame: &mut Vec<u8>,
        max: u64,
        start: &SegmentStart,
        space: SegmentSpace,
    ) -> Result<(), WriteError> {
        let align = self.current.header.align as usize;
        let behind = match space {
            SegmentSpace::Ordinary => behind_frames(align),
            SegmentSpace::Reserved => behind_frames(align) - RESERVED.next_multiple_of(align),
        };
        let needed = frame.len().next_multiple_of(align) + behind;
        if self.current.end + needed as u64 > self.current.size {
            self.next_segment(start, frame.len())?;
        }
        let current = &mut self.current;
        let align = current.header.align as usize;
        format::seal(frame, self.sequence, current.header.seed(), align);
        current
            .file
            .write_and_sync(&[IoSlice::new(frame)], current.end)
            .map_err(|error| WriteError::Final(self.error("write and sync", error)))?;
        let current = &mut self.current;
        current.end += frame.len() as u64;
        current.max = current.max.max(max);
        self.sequence += 1;
        self.syncs += 1;
        self.written += frame.len() as u64;
        Ok(())
    }

    fn next_segment(&mut self, start: &SegmentStart, length: usize) -> Result<(), WriteError> {
        let location = LogLocation::new(Arc::clone(&self.disk), &self.dir, self.options.clone());
        let header = ReplicaSegmentHeader {
            align: alignment(&*self.disk),
            segment: self.current.header.segment + 1,
            sequence: self.sequence,
            salt: self.options.salt,
            ..self.current.header
        };
        let next = begin(&location, header, start, length)?;
        self.end_segment()?;
        let last = std::mem::replace(&mut self.current, next);
        self.older.push_back(OlderSegment {
            segment: last.header.segment,
            max: last.max,
            bytes: last.end,
        });
        self.sequence += 1;
        Ok(())
    }

    /// Writes to the current segment that the log goes on in the next one, which exists already.
    fn end_segment(&mut self) -> Result<(), WriteError> {
        let current = &mut self.current;
        let mut frame = empty_frame();
        record::put_end(&mut frame);
        let align = current.header.align as usize;
        format::seal(&mut frame, self.sequence, current.header.seed(), align);
        let written = current
            .file
            .write_and_sync(&[IoSlice::new(&frame)], current.end);
        current.end += frame.len() as u64;
        // Space that is left over reads as the end, even if it cannot be removed.
        let _ = current.file.set_size(current.end);
        written.map_err(|error| WriteError::Final(self.error("write and sync", error)))
    }

    /// Notes that no record in the older segments counts any more.
    pub(super) fn forget_older(&mut self) {
        self.older.iter_mut().for_each(|older| older.max = 0);
    }

    /// Returns `true` if a segment can be removed when the entries up to `floor` have been removed.
    pub(super) fn has_below(&self, floor: u64) -> bool {
        self.older.front().is_some_and(|older| older.max <= floor)
    }

    /// Removes the segments that are not needed. Those that come back after a crash do no harm.
    pub(super) fn remove_below(&mut self, floor: u64) -> Result<(), WriteError> {
        while self.has_below(floor) {
            let path = self.dir.join(name(self.older[0].segment));
            self.disk
                .remove(&path)
                .map_err(|error| WriteError::Again(LogError::io("remove", &path)(error)))?;
            self.older.pop_front();
        }
        Ok(())
    }

    /// Returns the bytes of all segments, without the space set aside.
    pub(super) fn bytes(&self) -> u64 {
        self.older.iter().map(|older| older.bytes).sum::<u64>() + self.current.end
    }

    fn error(&self, action: &'static str, error: io::Error) -> LogError {
        LogError::io(action, &self.dir.join(name(self.current.header.segment)))(error)
    }
}

/// Returns the bytes that a segment needs behind its ordinary frames: those that are reserved, and
/// its end.
fn behind_frames(align: usize) -> usize {
    RESERVED.next_multiple_of(align) + (FRAME_HEADER + 1).next_multiple_of(align)
}

/// Returns the alignment of frames in new segments.
fn alignment(disk: &dyn Disk) -> u32 {
    disk.alignment().max(ALIGN) as u32
}

/// Makes a segment with space for a frame of at least `length` bytes. The log is unchanged until
/// the segment has its name.
fn begin(
    location: &LogLocation,
    header: ReplicaSegmentHeader,
    start: &SegmentStart,
    length: usize,
) -> Result<CurrentSegment, WriteError> {
    let draft = location.dir.join(DRAFT);
    let current = draft_segment(location, &draft, header, start, length).map_err(|error| {
        // A draft that cannot be removed is removed before the next one is made, or at the next
        // start.
        let _ = location.disk.remove(&draft);
        WriteError::Again(error)
    })?;
    let path = location.path(header.segment);
    let named = location.disk.rename(&draft, &path);
    named.map_err(|error| WriteError::Final(LogError::io("rename", &draft)(error)))?;
    let synced = location.disk.sync_dir(&location.dir);
    synced.map_err(|error| WriteError::Final(LogError::io("sync", &location.dir)(error)))?;
    Ok(current)
}

fn draft_segment(
    location: &LogLocation,
    draft: &Path,
    header: ReplicaSegmentHeader,
    start: &SegmentStart,
    length: usize,
) -> Result<CurrentSegment, LogError> {
    remove_leftover(&*location.disk, draft)?;
    let mut frame = empty_frame();
    record::put_start(&mut frame, start);
    let align = header.align as usize;
    format::seal(&mut frame, header.sequence, header.seed(), align);
    let mut bytes = header.encode().to_vec();
    bytes.resize(header.first(), 0);
    bytes.extend_from_slice(&frame);
    let end = bytes.len() as u64;
    let least = end + (length.next_multiple_of(align) + behind_frames(align)) as u64;
    let size = location.options.segment_bytes.max(least);

    let file = location.disk.create_new(draft);
    let file = file.map_err(LogError::io("create", draft))?;
    file.allocate(size)
        .map_err(LogError::io("set space aside for", draft))?;
    file.write_and_sync(&[IoSlice::new(&bytes)], 0)
        .map_err(LogError::io("write and sync", draft))?;
    Ok(CurrentSegment {
        file,
        header,
        end,
        size,
        max: 0,
    })
}

pub(super) fn remove_leftover(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(LogError::io("remove", path)),
    }
}
