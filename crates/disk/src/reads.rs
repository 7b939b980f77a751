//! Reads of many pieces at once, into memory that the caller lends.
//!
//! | part | concept |
//! |---|---|
//! | `landing` | memory that reads land in |
//! | `arena`, `pool` | such memory, made once and used again and again |
//! | `file` | a file that is read past the page cache |
//! | `files`, `ledger` | what is under way, on the owner's side |
//! | `job`, `over` | a read that a thread does, and how its outcome comes back |
//! | `threads` | reads by threads, whichever |
//! | `team`, `lone`, `here` | threads made beforehand, a new one for each read, none but the owner |
//! | `ring`, `part`, `memories` | reads by io_uring |
//! | `way` | which ways there are |
//! | this | what every way of reading offers |
//!
//! In each turn the owner calls [`Reads::submit`] as often as there is room, [`Reads::start`] once,
//! and [`Reads::finish`] for the reads that are over. An owner that sleeps in a poll in between
//! [arms](Reads::arm) first.

mod arena;
pub mod conformance;
mod file;
mod files;
mod here;
mod job;
mod landing;
mod ledger;
mod lone;
mod memories;
mod over;
mod part;
mod pool;
mod ring;
mod team;
mod threads;
mod way;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub use file::{PageCache, ReadFile};
pub use landing::{Landing, Memory, OwnBuf};
pub use pool::{Pool, PoolBuf};
pub use way::Way;

/// A file, as a way of reading knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(pub u32);

/// Memory that was [registered](Reads::register).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registered(pub u32);

/// A read that is to be done.
#[derive(Debug)]
pub struct Read<L> {
    /// The file.
    pub file: FileId,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: usize,
    /// The landing: as many bytes at least.
    pub into: L,
}

/// A read that is over.
#[derive(Debug)]
pub struct Done<L> {
    /// The landing.
    pub into: L,
    /// The number of bytes: fewer than asked for only at the file's end. After an error it is not
    /// known which of them were written.
    pub result: io::Result<usize>,
}

/// Reads of many pieces at once. They belong to one thread at a time, and may be sent to another
/// one, also while reads are under way.
///
/// Dropping them waits for the reads under way, because memory that is lent cannot be taken back;
/// where that is impossible, the memory is never freed.
pub trait Reads<L: Landing>: Send {
    /// Adds a file to read from.
    fn add(&mut self, file: Arc<ReadFile>) -> FileId;

    /// Removes a file. Submitted reads are done nevertheless, and the file is closed when they are
    /// over. Later reads of it end with `NotFound`.
    fn remove(&mut self, file: FileId);

    /// Registers memory: reads that land in it are cheaper then. The way recognises such a landing
    /// by its address. The memory is kept until it is [unregistered](Reads::unregister). Returns
    /// `None` if this way of reading gains nothing by that, or if the kernel refuses it (it counts
    /// against the limit for locked memory, `ulimit -l`); reads into it work nevertheless.
    fn register(&mut self, memory: Arc<dyn Memory>) -> Option<Registered> {
        let _ = memory;
        None
    }

    /// Releases memory that was registered. Submitted reads are done nevertheless.
    ///
    /// # Panics
    /// Panics if the memory is not registered.
    fn unregister(&mut self, memory: Registered) {
        panic!("{memory:?} was never given out");
    }

    /// Returns the number of reads that may still be submitted.
    fn room(&self) -> usize;

    /// Submits a read, which begins at the next [`Reads::start`] at the latest. Reads of no bytes,
    /// of a file that was removed, or at an offset that no file has end without being begun.
    ///
    /// # Panics
    /// Panics if there is no room, or if the landing is smaller than the read.
    fn submit(&mut self, read: Read<L>);

    /// Begins the submitted reads. Does not block.
    ///
    /// # Errors
    /// Returns an error if no submitted read can be done, nor any later one: all of them end with
    /// this error. Reads that were started before go on.
    fn start(&mut self) -> io::Result<()>;

    /// Appends the reads that are over, in no order, and returns their number. Does not block.
    fn finish(&mut self, done: &mut Vec<Done<L>>) -> usize;

    /// Finishes as [`Reads::finish`], but begins the submitted reads, and waits until at least one
    /// is over, none is under way, or the time has passed.
    fn wait(&mut self, done: &mut Vec<Done<L>>, at_most: Option<Duration>) -> usize;

    /// Returns the number of reads that are submitted or under way: those that [`Reads::finish`]
    /// has not returned.
    fn under_way(&self) -> usize;

    /// Arms the bell. To be called before the thread sleeps until [`Reads::bell`], or anything else, is
    /// readable. Returns `false` if a read is over already, so that the thread must not sleep.
    fn arm(&mut self) -> bool;

    /// Returns a descriptor that becomes readable when a read is over, if [`Reads::arm`] returned
    /// `true` before; it stays readable at most until the next [`Reads::finish`] that returns a
    /// read. It is always the same one.
    fn bell(&self) -> BorrowedFd<'_>;
}
