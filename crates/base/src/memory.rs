//! Memory that others read, and write, without its owner's processor: regions as parameters.
//!
//! A *region* is a row of 64-bit words that its owner has registered. The owner reads and writes
//! it as [`Words`]; a peer that was given a grant reads it as [`RemoteMemory`].
//!
//! **What a read promises.** Each aligned word is as one write has left it. Beyond that, nothing:
//! words of one read can be of different moments, in any order, and the owner's writes in between
//! can be seen in part. Who needs more puts it into the words, as a version and a checksum.
//!
//! **What a read does not tell.** Memory outlives its owner's attention: a process that was
//! stopped, or whose machine is cut off but for its network card, is read from as before. What is
//! read must say itself how long it may be believed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes of a word.
pub const WORD: usize = 8;

/// A region, as its owner sees it. Others may read any word at any time, and those who were
/// granted so write any word.
pub trait Words: Send + Sync {
    /// All words, the same place in memory each time.
    fn words(&self) -> &[AtomicU64];
}

/// Words of this process alone: for tests, and where nothing is granted.
impl Words for Box<[AtomicU64]> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// A region that several keep.
impl<W: Words + ?Sized> Words for Arc<W> {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }
}

/// Why something of another's memory was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// It lies beyond the region's end.
    #[error("words {from}..{to} lie beyond the region's {len}")]
    Bounds {
        /// The first word.
        from: usize,
        /// The word behind the last one.
        to: usize,
        /// Words of the region.
        len: usize,
    },
    /// The grant does not hold: it was never given, was withdrawn, or does not allow this.
    #[error("the region's owner does not allow it: {0}")]
    Refused(String),
    /// The owner is gone, or the way to it.
    #[error("the region is out of reach: {0}")]
    Lost(String),
}

/// A region of a peer, read without the peer's processor. One thread's own.
///
/// Reads are begun, several of them if need be and in several regions, and then finished, so that
/// their times of travel overlap.
pub trait RemoteMemory {
    /// Words of the region.
    fn len(&self) -> usize;

    /// Whether it has no words.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to read `count` words from word `from` on.
    ///
    /// # Errors
    /// See [`RemoteError`]; nothing was begun then.
    fn begin(&mut self, from: usize, count: usize) -> Result<(), RemoteError>;

    /// Waits until all that was begun is there, and appends it, in the order in which it was begun.
    /// Reads of one region take place in the order in which they were begun: no word of a later
    /// one is older than any word of an earlier one.
    ///
    /// # Errors
    /// See [`RemoteError`]; nothing is appended, and nothing is under way any more.
    fn finish(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError>;
}
