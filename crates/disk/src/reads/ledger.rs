//! The reads of a way of reading that are under way, on the side of its owner.
//!
//! Invariant: a landing is in the ledger from the submission of its read until no thread and no
//! kernel can write to it any more. A ledger that is dropped leaks the landings that are still in
//! it; an owner that has ended all reads before drops them with [`Ledger::clear`].

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use slab::Slab;

use super::files::Files;
use super::job::{Job, Outcome};
use super::{Done, FileId, Landing, Read, ReadFile};

/// See the [module](self).
pub(super) struct Ledger<L> {
    files: Files,
    reads: ManuallyDrop<Slab<Under<L>>>,
    /// Reads that ended without being begun.
    ended: Vec<Done<L>>,
    depth: usize,
}

struct Under<L> {
    into: L,
    /// The file's place.
    place: u32,
    offset: u64,
    len: usize,
}

impl<L: Landing> Ledger<L> {
    /// Returns a ledger for at most `depth` reads.
    pub(super) fn new(depth: usize) -> Ledger<L> {
        assert!(depth > 0 && depth <= 1 << 15, "a depth of {depth}");
        Ledger {
            files: Files::default(),
            reads: ManuallyDrop::new(Slab::with_capacity(depth)),
            ended: Vec::new(),
            depth,
        }
    }

    /// Adds a file. Returns its id and its place.
    pub(super) fn add(&mut self, file: Arc<ReadFile>) -> (FileId, u32) {
        self.files.add(file)
    }

    /// Removes a file, as [`Files::remove`].
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
    /// As [`Reads::submit`](super::Reads::submit).
    pub(super) fn submit(&mut self, read: Read<L>) -> Option<(Job, u32)> {
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
        let key = self.reads.insert(Under {
            into: read.into,
            place,
            offset,
            len,
        });
        let job = Job {
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
    fn end_at_once(&mut self, read: Read<L>) {
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
        self.ended.push(Done { into, result });
    }

    /// Records a read that ends with an error.
    ///
    /// # Panics
    /// As [`Reads::submit`](super::Reads::submit).
    pub(super) fn refuse(&mut self, read: Read<L>, error: io::Error) {
        self.check(&read);
        self.ended.push(Done {
            into: read.into,
            result: Err(error),
        });
    }

    /// Checks the read. Returns the start of its landing.
    fn check(&self, read: &Read<L>) -> NonNull<u8> {
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

    /// Ends a read: its landing is not written to any more. Also returns the place of its file if
    /// that is free now, as [`Files::end`].
    pub(super) fn end(&mut self, outcome: Outcome) -> (Done<L>, Option<u32>) {
        let read = self.reads.remove(outcome.key as usize);
        let result = usize::try_from(outcome.result).map_err(|_| {
            let error = io::Error::from_raw_os_error(-outcome.result as i32);
            let file = self.files.at(read.place);
            file.explain(error, read.offset, read.len)
        });
        let freed = self.files.end(read.place);
        let into = read.into;
        (Done { into, result }, freed)
    }

    /// Ends a read as [`Ledger::end`], but one that was never begun; [`Ledger::take_ended`] reports
    /// it.
    pub(super) fn end_unbegun(&mut self, outcome: Outcome) -> Option<u32> {
        let (done, freed) = self.end(outcome);
        self.ended.push(done);
        freed
    }

    /// Appends the reads that ended without being begun.
    pub(super) fn take_ended(&mut self, done: &mut Vec<Done<L>>) {
        done.append(&mut self.ended);
    }

    /// Drops all landings. To be called when they are not written to any more.
    pub(super) fn clear(&mut self) {
        self.reads.clear();
    }
}
