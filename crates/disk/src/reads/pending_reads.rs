//! The reads of a queue that are under way, on the side of its owner.
//!
//! Invariant: a read buffer is in the list from the submission of its read until no thread and no
//! kernel can write to it any more. A list that is dropped leaks the read buffers that are still in
//! it; an owner that has ended all reads before drops them with [`PendingReads::clear`].

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use slab::Slab;

use super::file_table::FileTable;
use super::read_job::{ReadJob, ReadOutcome};
use super::{CompletedRead, FileId, ReadBuffer, ReadFile, ReadRequest};

/// See the [module](self).
pub(super) struct PendingReads<L> {
    files: FileTable,
    reads: ManuallyDrop<Slab<PendingRead<L>>>,
    /// Reads that ended without being begun.
    ended: Vec<CompletedRead<L>>,
    depth: usize,
}

struct PendingRead<L> {
    into: L,
    /// The file's place.
    place: u32,
    offset: u64,
    len: usize,
}

impl<L: ReadBuffer> PendingReads<L> {
    /// Returns a list for at most `depth` reads.
    pub(super) fn new(depth: usize) -> PendingReads<L> {
        assert!(depth > 0 && depth <= 1 << 15, "a depth of {depth}");
        PendingReads {
            files: FileTable::default(),
            reads: ManuallyDrop::new(Slab::with_capacity(depth)),
            ended: Vec::new(),
            depth,
        }
    }

    /// Adds a file. Returns its id and its place.
    pub(super) fn add(&mut self, file: Arc<ReadFile>) -> (FileId, u32) {
        self.files.add(file)
    }

    /// Removes a file, as [`FileTable::remove`].
    pub(super) fn remove(&mut self, file: FileId) -> Option<u32> {
        self.files.remove(file)
    }

    /// Returns the number of reads that have begun or will begin.
    pub(super) fn begun(&self) -> usize {
        self.reads.len()
    }

    pub(super) fn under_way(&self) -> usize {
        self.reads.len() + self.ended.len()
    }

    pub(super) fn room(&self) -> usize {
        self.depth - self.under_way()
    }

    /// Returns `true` if reads ended without being begun, and were not reported yet.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Records a read. Returns the job to do, and the place of the file; `None` if there is nothing
    /// to do, because the read has ended.
    ///
    /// # Panics
    /// As [`ReadQueue::submit`](super::ReadQueue::submit).
    pub(super) fn submit(&mut self, read: ReadRequest<L>) -> Option<(ReadJob, u32)> {
        let start = self.check(&read);
        let end = read.offset.checked_add(read.len as u64);
        let fits = end.is_some_and(|end| i64::try_from(end).is_ok());
        if !fits || read.len == 0 {
            self.end_at_once(read);
            return None;
        }
        let Some((place, fd)) = self.files.begin(read.file) else {
            self.end_at_once(read);
            return None;
        };
        let (offset, len) = (read.offset, read.len);
        let key = self.reads.insert(PendingRead {
            into: read.into,
            place,
            offset,
            len,
        });
        let job = ReadJob {
            fd,
            key: key as u32,
            offset,
            start,
            len,
        };
        Some((job, place))
    }

    /// Records the outcome of a read that is not begun.
    #[cold]
    fn end_at_once(&mut self, read: ReadRequest<L>) {
        let result = if !self.files.has(read.file) {
            let what = format!("file {} was removed from this reader", read.file.0);
            Err(io::Error::new(io::ErrorKind::NotFound, what))
        } else if read.len == 0 {
            Ok(0)
        } else {
            let what = format!("no file has {} bytes at {}", read.len, read.offset);
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        };
        let into = read.into;
        self.ended.push(CompletedRead { into, result });
    }

    /// Records a read that ends with an error.
    ///
    /// # Panics
    /// As [`ReadQueue::submit`](super::ReadQueue::submit).
    pub(super) fn refuse(&mut self, read: ReadRequest<L>, error: io::Error) {
        self.check(&read);
        self.ended.push(CompletedRead {
            into: read.into,
            result: Err(error),
        });
    }

    /// Checks the read. Returns the start of its read buffer.
    fn check(&self, read: &ReadRequest<L>) -> NonNull<u8> {
        assert!(self.room() > 0, "no room for another read");
        let memory = read.into.memory();
        let there = memory.len();
        assert!(
            read.len <= there,
            "{} bytes are read into {there}",
            read.len
        );
        memory.cast()
    }

    /// Ends a read: its read buffer is not written to any more. Also returns the place of its file if
    /// that is free now, as [`FileTable::end`].
    pub(super) fn end(&mut self, outcome: ReadOutcome) -> (CompletedRead<L>, Option<u32>) {
        let read = self.reads.remove(outcome.key as usize);
        let result = usize::try_from(outcome.result).map_err(|_| {
            let error = io::Error::from_raw_os_error(-outcome.result as i32);
            let file = self.files.at(read.place);
            file.explain(error, read.offset, read.len)
        });
        let freed = self.files.end(read.place);
        let into = read.into;
        (CompletedRead { into, result }, freed)
    }

    /// Ends a read as [`PendingReads::end`], but one that was never begun;
    /// [`PendingReads::take_ended`] reports it.
    pub(super) fn end_unbegun(&mut self, outcome: ReadOutcome) -> Option<u32> {
        let (done, freed) = self.end(outcome);
        self.ended.push(done);
        freed
    }

    /// Appends the reads that ended without being begun.
    pub(super) fn take_ended(&mut self, done: &mut Vec<CompletedRead<L>>) {
        done.append(&mut self.ended);
    }

    /// Drops all read buffers. To be called when they are not written to any more.
    pub(super) fn clear(&mut self) {
        self.reads.clear();
    }
}
