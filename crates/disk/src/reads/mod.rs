//! Reads of many pieces at once, into memory that is lent for them.
//!
//! | part | concept |
//! |---|---|
//! | `landing` | memory that reads land in |
//! | this | what every way of reading offers |
//!
//! The way of a turn: [`Reads::submit`] as often as there is room, [`Reads::start`] once,
//! [`Reads::finish`] for what is over. Whoever sleeps in a poll in between [arms](Reads::arm) first.

mod landing;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use landing::Landing;

/// A file, as one of the ways of reading knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(pub u32);

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
    /// How many bytes there were: fewer than asked for only at the file's end.
    pub result: io::Result<usize>,
}

/// Reads of many pieces at once. One thread's own.
pub trait Reads<L: Landing>: Send {
    /// How many reads more may be submitted.
    fn room(&self) -> usize;

    /// Takes a read, which begins at the next [`Reads::start`] at the latest.
    ///
    /// # Panics
    /// Without room, or if the landing is smaller than what is to be read.
    fn submit(&mut self, read: Read<L>);

    /// Begins what was submitted. Does not block.
    ///
    /// # Errors
    /// None of what was submitted is read, and this way of reading is of no use any more.
    fn start(&mut self) -> io::Result<()>;

    /// Appends what is over, in no order, and tells how many that are. Does not block.
    fn finish(&mut self, done: &mut Vec<Done<L>>) -> usize;

    /// As [`Reads::finish`], but waits until at least one is over, nothing is under way, or the time
    /// has passed.
    fn wait(&mut self, done: &mut Vec<Done<L>>, at_most: Option<Duration>) -> usize;

    /// How many are under way or submitted.
    fn under_way(&self) -> usize;

    /// To be called before the thread sleeps until [`Reads::bell`] is readable, or anything else. False
    /// if something is over already, so that it must not sleep.
    fn arm(&mut self) -> bool;

    /// Becomes readable when something is over, if [`Reads::arm`] was true before.
    fn bell(&self) -> BorrowedFd<'_>;
}
