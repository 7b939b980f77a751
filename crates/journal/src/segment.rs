//! The segment that a log is written to.
//!
//! Invariants:
//! 1. A segment's header and name are durable before a block is written to it.
//! 2. A segment is synced before the next one gets its name.
//! 3. A segment is the recorded one ([`newest`](crate::newest)) before a block is written to it.
//! 4. After an error nothing is written or synced any more; [`LogFile`]'s owner ensures that. Only
//!    [`LogFile::branch`] and [`LogFile::make_room`] may fail and leave the segment as it was.

use std::io::IoSlice;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, DiskFile};

use crate::checkpoint;
use crate::error::{JournalFailure, StartError};
use crate::format::{LogSegmentHeader, SEGMENT_HEADER, log_name, segment_name};
use crate::newest_segment::NewestSegment;
use crate::spare::Spare;

pub(crate) struct LogFile {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    header: LogSegmentHeader,
    /// The offset of the next block.
    end: u64,
    /// The file's size.
    size: u64,
    room: SegmentRoom,
    newest: Arc<NewestSegment>,
    /// `true` if the next segment's file was asked for.
    asked: bool,
}

/// The room that segments reserve before they need it.
#[derive(Clone, Default)]
pub(crate) struct SegmentRoom {
    /// Bytes by which a segment grows ahead of the writes.
    pub(crate) preallocate: u64,
    /// With warm-up: the source of files that were written before.
    pub(crate) spare: Option<Arc<Spare>>,
}

impl LogFile {
    /// Creates the first segment of a run, which `header` describes, in its log's directory, which
    /// exists. With warm-up this takes as long as writing all of it does.
    pub(crate) fn first(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        header: LogSegmentHeader,
        room: SegmentRoom,
    ) -> Result<LogFile, StartError> {
        let newest = Arc::new(NewestSegment::new(disk, dir, header.log));
        let dir = dir.join(log_name(header.log as usize));
        let path = dir.join(segment_name(header.segment));
        let Some(spare) = &room.spare else {
            return LogFile::create(disk, dir, path, header, room, newest);
        };
        let file = disk
            .create_new(&path)
            .map_err(StartError::io("create", &path))?;
        spare
            .fill(&*file, &|_| true)
            .map_err(StartError::io("warm up", &path))?;
        let size = spare.size();
        let file = (file, size);
        LogFile::begin(disk, dir, path, file, header, room, newest)
    }

    /// Creates a segment in a new file.
    fn create(
        disk: &Arc<dyn Disk>,
        dir: PathBuf,
        path: PathBuf,
        header: LogSegmentHeader,
        room: SegmentRoom,
        newest: Arc<NewestSegment>,
    ) -> Result<LogFile, StartError> {
        let file = disk
            .create_new(&path)
            .map_err(StartError::io("create", &path))?;
        let size = room.preallocate;
        file.allocate(size)
            .map_err(StartError::io("set space aside for", &path))?;
        let file = (file, size);
        LogFile::begin(disk, dir, path, file, header, room, newest)
    }

    /// Turns `file`, which is called `path` and holds this many zeros, into the segment.
    fn begin(
        disk: &Arc<dyn Disk>,
        dir: PathBuf,
        path: PathBuf,
        (file, size): (Box<dyn DiskFile>, u64),
        header: LogSegmentHeader,
        room: SegmentRoom,
        newest: Arc<NewestSegment>,
    ) -> Result<LogFile, StartError> {
        // On a device that writes whole sectors the first block gets one of its own.
        let end = (SEGMENT_HEADER as u64).next_multiple_of(file.alignment() as u64);
        let header = LogSegmentHeader {
            first: end as u32,
            ..header
        };
        let mut bytes = header.encode().to_vec();
        bytes.resize(end as usize, 0);
        file.write_and_sync(&[IoSlice::new(&bytes)], 0)
            .map_err(StartError::io("write and sync", &path))?;
        disk.sync_dir(&dir).map_err(StartError::io("sync", &dir))?;
        newest.record(header.segment)?;
        Ok(LogFile {
            disk: Arc::clone(disk),
            dir,
            path,
            file,
            header,
            end,
            size: size.max(end),
            room,
            newest,
            asked: false,
        })
    }

    /// Returns the segment behind this one, whose first block has number `sequence`: in a file that
    /// was warmed up if there is one, else in a new one.
    fn next(&self, sequence: u64) -> Result<LogFile, StartError> {
        let header = LogSegmentHeader {
            segment: self.header.segment + 1,
            sequence,
            ..self.header
        };
        let (disk, dir, room) = (&self.disk, self.dir.clone(), self.room.clone());
        let newest = Arc::clone(&self.newest);
        let path = dir.join(segment_name(header.segment));
        let Some((spare, file)) = room.spare.as_ref().and_then(|s| Some((s, s.take()?))) else {
            return LogFile::create(disk, dir, path, header, room, newest);
        };
        disk.rename(spare.path(), &path)
            .map_err(StartError::io("rename", spare.path()))?;
        let size = spare.size();
        let file = (file, size);
        LogFile::begin(disk, dir, path, file, header, room, newest)
    }

    /// Returns the value with which block checksums begin.
    pub(crate) fn seed(&self) -> u32 {
        self.header.seed()
    }

    /// Returns the offset of the next block, and the bytes at whose multiples a write begins and
    /// ends.
    pub(crate) fn next_write(&self) -> (u64, usize) {
        (self.end, self.file.alignment())
    }

    /// Returns the number of the segment, and the offset up to which it is written and synced.
    pub(crate) fn position(&self) -> (u32, u64) {
        (self.header.segment, self.end)
    }

    /// Writes `parts`, `bytes` long in all, and makes them durable.
    pub(crate) fn write_and_sync(
        &mut self,
        parts: &[IoSlice<'_>],
        bytes: u64,
    ) -> Result<(), JournalFailure> {
        let end = self.end + bytes;
        self.file
            .write_and_sync(parts, self.end)
            .map_err(|error| self.failed("write and sync", &error))?;
        self.end = end;
        if let Some(spare) = self.room.spare.as_ref().filter(|_| !self.asked) {
            self.asked = spare.want_at(end);
        }
        Ok(())
    }

    /// Sets space aside for a write of up to `bytes`, whose first block has number `sequence`: in a new
    /// segment if this one has `most` bytes or more. Returns the inner error if there is no room now
    /// but may be later; everything is then as it was.
    pub(crate) fn make_room(
        &mut self,
        bytes: u64,
        sequence: u64,
        most: u64,
    ) -> Result<Result<(), JournalFailure>, JournalFailure> {
        let sort = |error: StartError| {
            if error.is_shortage() {
                Ok(Err(JournalFailure::no_room(&error)))
            } else {
                Err(JournalFailure::new(error.to_string()))
            }
        };
        if self.end >= most
            && let Err(error) = self.branch(sequence)?
        {
            return sort(error);
        }
        let (end, ahead) = (self.end + bytes, self.room.preallocate);
        if end <= self.size || ahead == 0 {
            return Ok(Ok(()));
        }
        // When space is short, no more is set aside than is needed now.
        for size in [end + ahead, end] {
            let allocated = self.file.allocate(size);
            let result = allocated.map_err(StartError::io("set space aside for", &self.path));
            match result {
                Ok(()) => {
                    self.size = size;
                    break;
                }
                Err(error) if size > end && error.is_shortage() => {}
                Err(error) => return sort(error),
            }
        }
        Ok(Ok(()))
    }

    /// Continues in a new segment whose first block has number `sequence`, unless this one has no
    /// block yet. When the next one cannot be made, this one stays in use. Everything written so far
    /// is synced. Returns the segment's number and that of its first block.
    ///
    /// # Errors
    /// Returns the outer error if it is unknown whether the next segment's file would be found
    /// after a crash: blocks that were written to this one would contradict it.
    pub(crate) fn branch(
        &mut self,
        sequence: u64,
    ) -> Result<Result<(u32, u64), StartError>, JournalFailure> {
        if self.end == u64::from(self.header.first) {
            return Ok(Ok((self.header.segment, self.header.sequence)));
        }
        match self.next(sequence) {
            Ok(next) => {
                self.trim();
                *self = next;
                Ok(Ok((self.header.segment, self.header.sequence)))
            }
            // There is no file that must be removed, and no descriptor with which to sync its removal.
            Err(error) if error.action == "create" && error.lacks_descriptor() => Ok(Err(error)),
            // A directory whose sync has failed must not be synced again and trusted; and the next
            // segment may be recorded already. A directory that could not be opened was not synced.
            Err(error)
                if [&*self.dir, self.newest.path()].contains(&&*error.path)
                    && !error.lacks_descriptor() =>
            {
                Err(JournalFailure::new(error.to_string()))
            }
            Err(error) => {
                let path = self.dir.join(segment_name(self.header.segment + 1));
                let gone = checkpoint::remove_files(&*self.disk, iter::once(path));
                gone.map_err(|error| JournalFailure::new(error.to_string()))?;
                self.disk.sync_dir(&self.dir).map_err(|error| {
                    JournalFailure::new(format!("cannot sync {}: {error}", self.dir.display()))
                })?;
                Ok(Err(error))
            }
        }
    }

    /// Gives the remaining room back, if the disk allows it: the room reads as the end of the log
    /// in either case. This segment is not written to any more.
    pub(crate) fn trim(&self) {
        let _ = self.file.set_size(self.end);
    }

    fn failed(&self, action: &str, error: &std::io::Error) -> JournalFailure {
        JournalFailure::new(format!("cannot {action} {}: {error}", self.path.display()))
    }
}
