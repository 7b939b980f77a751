//! Operations, replies and reasons of aborts as bytes: in messages between nodes, and in the logs of
//! replicas.
//!
//! | name | encoding |
//! |---|---|
//! | integers | little-endian, of the size that is named |
//! | count | 1 to 10 bytes: seven bits each, the lowest first, the top bit set in all but the last; as short as possible |
//! | bytes | count, then so many bytes |
//! | text | as bytes, UTF-8 |
//! | id | 16 bytes: the attempt's timestamp and its unique number, big-endian, as in keys |
//! | ops, replies | count, then so many; see the modules `ops` and `replies` |
//! | asks, founds | count, then so many; see the module `versions` |
//!
//! Invariants:
//! 1. One value has one encoding: bytes that are decoded and encoded again are the same.
//! 2. Decoding panics for no input, and its allocations are bounded by the length of its input: a
//!    count of more things than bytes follow is refused.
//! 3. Operations borrow their keys and values from the input.

mod bytes;
mod ops;
mod replies;
mod versions;

pub use bytes::{Reader, put_bytes, put_count, put_i64, put_u64};
pub use ops::{decode_ops, encode_ops, read_ops};
pub use replies::{read_abort, read_replies, write_abort, write_replies};
pub use versions::{read_asks, read_founds, write_asks, write_founds};

/// The version of the encoding.
pub const VERSION: u8 = 4;

/// The reason why bytes are malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at byte {at})")]
pub struct Malformed {
    /// The kind of the error.
    pub kind: MalformedKind,
    /// The number of bytes that had been read.
    pub at: usize,
}

/// The kinds of errors in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedKind {
    /// They end too early.
    #[error("the message is cut off")]
    Cut,
    /// They go on behind the end.
    #[error("bytes follow the message's end")]
    TooMuch,
    /// They are of another version than [`VERSION`].
    #[error(
        "the message is of version {0} and this program reads version {VERSION}: use the same release on both sides"
    )]
    Version(u8),
    /// A number that tells variants apart has no meaning.
    #[error("{0} is no kind of {1}")]
    Kind(u8, &'static str),
    /// A count is too large, or longer than necessary.
    #[error("a count is out of range")]
    BadCount,
    /// A flag is neither set nor clear, or has no meaning.
    #[error("flags are set that mean nothing")]
    BadFlag,
    /// A roll has a home that does not take part.
    #[error("the home is none of the participants")]
    NoHome,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    NotText,
}
