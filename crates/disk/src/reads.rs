//! Reads of many pieces at once, into memory that is lent for them.
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
//! The way of a turn: [`Reads::submit`] as often as there is room, [`Reads::start`] once,
//! [`Reads::finish`] for what is over. Whoever sleeps in a poll in between [arms](Reads::arm) first.

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

/// A file, as one of the ways of reading knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(pub u32);

/// Memory that was [registered](Reads::register).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registered(pub u32);

/// What is to be read.
#[derive(Debug)]
pub struct Read<L> {
    /// From where.
    pub file: FileId,
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: usize,
    /// Where to: as many bytes at least.
    pub into: L,
}

/// A read that is over.
#[derive(Debug)]
pub struct Done<L> {
    /// Where it went.
    pub into: L,
    /// How many bytes there were: fewer than asked for only at the file's end. After an error
    /// nobody knows which of them were written.
    pub result: io::Result<usize>,
}

/// Reads of many pieces at once. One thread's own at a time; it may be sent to another one, also
/// while reads are under way.
///
/// Dropping it waits for what is under way, because memory that is lent cannot be taken back; where
/// that is impossible, the memory is never given back.
pub trait Reads<L: Landing>: Send {
    /// Takes a file to read from.
    fn add(&mut self, file: Arc<ReadFile>) -> FileId;

    /// Forgets a file. What was submitted is read all the same, and the file is let go when that
    /// is over. Later reads of it end with `NotFound`.
    fn remove(&mut self, file: FileId);

    /// Prepares memory for reads, which are cheaper then if they land in it: whether a landing does
    /// is seen from its address. The memory is kept until it is [unregistered](Reads::unregister).
    /// `None` if this way of reading gains nothing by that, or if the kernel refuses it (it counts
    /// against the limit for locked memory, `ulimit -l`); reads into it work all the same.
    fn register(&mut self, memory: Arc<dyn Memory>) -> Option<Registered> {
        let _ = memory;
        None
    }

    /// Lets go of memory that was registered. What was submitted is read all the same.
    ///
    /// # Panics
    /// If it is not registered.
    fn unregister(&mut self, memory: Registered) {
        panic!("{memory:?} was never given out");
    }

    /// How many reads more may be submitted.
    fn room(&self) -> usize;

    /// Takes a read, which begins at the next [`Reads::start`] at the latest. Reads of nothing, of
    /// a file that was removed, or at an offset that no file has end without being begun.
    ///
    /// # Panics
    /// Without room, or if the landing is smaller than what is to be read.
    fn submit(&mut self, read: Read<L>);

    /// Begins what was submitted. Does not block.
    ///
    /// # Errors
    /// None of what was submitted is read, nor will anything be: all of it ends with this error, and
    /// so does what is submitted later. What was started before goes on.
    fn start(&mut self) -> io::Result<()>;

    /// Appends what is over, in no order, and tells how many that are. Does not block.
    fn finish(&mut self, done: &mut Vec<Done<L>>) -> usize;

    /// As [`Reads::finish`], but begins what was submitted, and waits until at least one is over,
    /// nothing is under way, or the time has passed.
    fn wait(&mut self, done: &mut Vec<Done<L>>, at_most: Option<Duration>) -> usize;

    /// How many are under way or submitted: those that [`Reads::finish`] has not told.
    fn under_way(&self) -> usize;

    /// To be called before the thread sleeps until [`Reads::bell`] is readable, or anything else. False
    /// if something is over already, so that it must not sleep.
    fn arm(&mut self) -> bool;

    /// Becomes readable when something is over, if [`Reads::arm`] was true before; and stays so at
    /// most until the next [`Reads::finish`] that tells of something. The same one at all times.
    fn bell(&self) -> BorrowedFd<'_>;
}
