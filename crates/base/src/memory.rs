//! Memory that peers read and write without the owner's processor: regions as parameters.
//!
//! A *region* is a row of 64-bit words that its owner has registered. The owner reads and writes
//! it as [`Words`]; a peer that has a grant reads it as [`RemoteMemory`].
//!
//! **Guarantees of a read.** Each aligned word is as one write has left it. Nothing else is
//! guaranteed: words of one read can be of different moments, in any order, and the owner's writes
//! in between can be seen in part. A reader that needs more puts it into the words, as a version
//! and a checksum.
//!
//! **Limits of a read.** Memory can be read although its owner no longer runs: a process that was
//! stopped, or whose machine is cut off but for its network card, is read from as before. The words
//! must therefore say themselves how long they are valid.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes of a word.
pub const WORD: usize = 8;

/// A region, as its owner sees it. Peers may read any word at any time, and peers that were granted
/// it write any word.
pub trait Words: Send + Sync {
    /// Returns all words, the same place in memory each time.
    fn words(&self) -> &[AtomicU64];
}

/// Words of this process alone: for tests, and where nothing is granted.
impl Words for Box<[AtomicU64]> {
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// A region with several owners.
impl<W: Words + ?Sized> Words for Arc<W> {
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }
}

/// The reason why a peer's memory was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The words lie beyond the region's end.
    #[error("words {from}..{to} lie beyond the region's {len}")]
    Bounds {
        /// The first word.
        from: usize,
        /// The word after the last one.
        to: usize,
        /// The number of words in the region.
        len: usize,
    },
    /// The grant does not hold: it was never given, was withdrawn, or does not allow this.
    #[error("the region's owner does not allow it: {0}")]
    Refused(String),
    /// The owner is gone, or the connection to it.
    #[error("the region is out of reach: {0}")]
    Lost(String),
}

/// A region of a peer, read without the peer's processor. It belongs to one thread.
///
/// Reads are begun, several of them and in several regions if need be, and then finished, so that
/// their round trips overlap.
pub trait RemoteMemory {
    /// Returns the number of words in the region.
    fn len(&self) -> usize;

    /// Returns `true` if the region has no words.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to read `count` words from word `from` on.
    ///
    /// # Errors
    /// Returns a [`RemoteError`]; the read has not begun then.
    fn begin(&mut self, from: usize, count: usize) -> Result<(), RemoteError>;

    /// Waits until all reads that were begun have arrived, and appends their words in the order in
    /// which they were begun. Reads of one region take place in the order in which they were begun:
    /// no word of a later one is older than any word of an earlier one.
    ///
    /// # Errors
    /// Returns a [`RemoteError`]; nothing is appended, and no read is under way any more.
    fn finish(&mut self, into: &mut Vec<u64>) -> Result<(), RemoteError>;
}
