//! The layout of a mailbox and of the records in its ring; the tables are those of [`ring`](super).

use std::io::{self, ErrorKind};

use crate::memory::RemoteError;
use crate::sync::AtomicU64;

/// The number of words of a mailbox before its ring.
pub const CONTROL: usize = 16;
/// The size of the smallest ring in words.
pub const RING_MIN: usize = 8;

/// Places of words in a mailbox.
pub(super) const TAKEN: usize = 0;
pub(super) const SLEEP: usize = 1;
/// Bits of the word at [`SLEEP`].
pub(super) const INPUT: u64 = 1;
pub(super) const SPACE: u64 = 2;
pub(super) const NAP: u64 = 4;

/// The number of bytes of a record besides its body.
pub(super) const AROUND: usize = 10;
/// The offset of a record's body.
pub(super) const BODY: usize = 9;
/// The value of an indicator that is set.
pub(super) const SET: u8 = 1;

/// The reason why a stream has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The peer violates the format.
    #[error("the peer has written garbage into the ring: {0}")]
    Garbage(&'static str),
    /// The peer's memory cannot be written.
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl From<RingError> for io::Error {
    fn from(error: RingError) -> io::Error {
        let kind = match error {
            RingError::Garbage(_) => ErrorKind::InvalidData,
            RingError::Remote(_) => ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }
}

/// Returns the longest body of a record in a ring of `capacity` words.
pub(super) fn body_max(capacity: usize) -> usize {
    capacity / 4 * 8 - AROUND
}

/// Returns the number of words of a record with a body of `body` bytes.
#[inline]
pub(super) fn record_words(body: usize) -> usize {
    (body + AROUND).div_ceil(16) * 2
}

/// Returns the byte of a word at this offset.
#[inline]
pub(super) fn byte_of(word: u64, offset: usize) -> u8 {
    word.to_le_bytes()[offset % 8]
}

/// Returns the words of a ring in its mailbox.
#[inline]
pub(super) fn ring(mailbox: &[AtomicU64]) -> &[AtomicU64] {
    &mailbox[CONTROL..]
}
