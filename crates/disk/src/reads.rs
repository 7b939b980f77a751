//! Reads of many pieces at once, into memory that the caller lends.
//!
//! | module | concept |
//! |---|---|
//! | `read_buffer` | memory that a read writes to |
//! | `huge_page_memory`, `buffer_pool` | such memory, allocated once and reused |
//! | `read_file` | a file that is read past the page cache |
//! | `file_table`, `pending_reads` | the files and reads that are under way, on the owner's side |
//! | `read_job`, `outcome_queue` | a read that a thread does, and how its outcome comes back |
//! | `threaded_reads` | reads by threads of any kind: the owner's part |
//! | `thread_pool`, `thread_per_read`, `inline` | threads made beforehand, a new one for each read, the owner itself |
//! | `uring_reads`, `read_progress`, `registration_table` | reads by io_uring |
//! | `read_method` | the choice between these |
//! | this | the interface that all of them have |
//!
//! In each turn the owner calls [`ReadQueue::submit`] as often as there is room,
//! [`ReadQueue::start`] once, and [`ReadQueue::finish`] for the reads that are over. An owner that
//! sleeps in a poll in between [arms](ReadQueue::arm) first.

mod buffer_pool;
pub mod conformance;
mod file_table;
mod huge_page_memory;
mod inline;
mod outcome_queue;
mod pending_reads;
mod read_buffer;
mod read_file;
mod read_job;
mod read_method;
mod read_progress;
mod registration_table;
mod thread_per_read;
mod thread_pool;
mod threaded_reads;
mod uring_reads;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub use buffer_pool::{BufferPool, PooledBuffer};
pub use read_buffer::{AllocatedBuffer, ReadBuffer, RegistrableMemory};
pub use read_file::{PageCache, ReadFile};
pub use read_method::ReadMethod;

/// A file, as a read queue knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(pub u32);

/// Memory that was [registered](ReadQueue::register).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegistrationId(pub u32);

/// A read that is to be done.
#[derive(Debug)]
pub struct ReadRequest<L> {
    /// The file.
    pub file: FileId,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: usize,
    /// The read buffer: as many bytes at least.
    pub into: L,
}

/// A read that is over.
#[derive(Debug)]
pub struct CompletedRead<L> {
    /// The read buffer.
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
pub trait ReadQueue<L: ReadBuffer>: Send {
    /// Adds a file to read from.
    fn add(&mut self, file: Arc<ReadFile>) -> FileId;

    /// Removes a file. Submitted reads are done nevertheless, and the file is closed when they are
    /// over. Later reads of it end with `NotFound`.
    fn remove(&mut self, file: FileId);

    /// Registers memory: reads that land in it are cheaper then. The queue recognises such a read
    /// buffer by its address. The memory is kept until it is [unregistered](ReadQueue::unregister).
    /// Returns `None` if this method gains nothing by that, or if the kernel refuses it (it counts
    /// against the limit for locked memory, `ulimit -l`); reads into it work nevertheless.
    fn register(&mut self, memory: Arc<dyn RegistrableMemory>) -> Option<RegistrationId> {
        let _ = memory;
        None
    }

    /// Releases memory that was registered. Submitted reads are done nevertheless.
    ///
    /// # Panics
    /// Panics if the memory is not registered.
    fn unregister(&mut self, memory: RegistrationId) {
        panic!("{memory:?} was never given out");
    }

    /// Returns the number of reads that may still be submitted.
    fn room(&self) -> usize;

    /// Submits a read, which begins at the next [`ReadQueue::start`] at the latest. Reads of no bytes,
    /// of a file that was removed, or at an offset that no file has end without being begun.
    ///
    /// # Panics
    /// Panics if there is no room, or if the read buffer is smaller than the read.
    fn submit(&mut self, read: ReadRequest<L>);

    /// Begins the submitted reads. Does not block.
    ///
    /// # Errors
    /// Returns an error if no submitted read can be done, nor any later one: all of them end with
    /// this error. Reads that were started before go on.
    fn start(&mut self) -> io::Result<()>;

    /// Appends the reads that are over, in no order, and returns their number. Does not block.
    fn finish(&mut self, done: &mut Vec<CompletedRead<L>>) -> usize;

    /// Finishes as [`ReadQueue::finish`], but begins the submitted reads, and waits until at least one
    /// is over, none is under way, or the time has passed.
    fn wait(&mut self, done: &mut Vec<CompletedRead<L>>, at_most: Option<Duration>) -> usize;

    /// Returns the number of reads that are submitted or under way: those that [`ReadQueue::finish`]
    /// has not returned.
    fn under_way(&self) -> usize;

    /// Arms the bell. To be called before the thread sleeps until [`ReadQueue::bell`], or anything
    /// else, is readable. Returns `false` if a read is over already, so that the thread must not
    /// sleep.
    fn arm(&mut self) -> bool;

    /// Returns a descriptor that becomes readable when a read is over, if [`ReadQueue::arm`] returned
    /// `true` before; it stays readable at most until the next [`ReadQueue::finish`] that returns a
    /// read. It is always the same one.
    fn bell(&self) -> BorrowedFd<'_>;
}
