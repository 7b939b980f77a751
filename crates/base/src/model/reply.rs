//! Answers to operations.

use super::ids::Version;
use super::operation::Kind;

/// The answer to an operation. Bytes are borrowed from the store for as long as the answer lives.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reply<'e> {
    /// Done.
    Ok,
    /// No value.
    Nil,
    /// A number.
    Int(i64),
    /// A value.
    Bytes(&'e [u8]),
    /// A type.
    Kind(Kind),
    /// The time at which a key expires, in milliseconds since the Unix epoch.
    Deadline(Option<u64>),
    /// A key's version.
    Version(Version),
    /// Keys and, if asked for, their values (else empty).
    Pairs(Vec<(&'e [u8], &'e [u8])>),
    /// The operation failed by itself; nothing of it took effect.
    Error(OpError),
}

/// The reason why one operation failed. The transaction's other operations are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The value has another type.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The value, or the operand, is not an integer of 64 bits.
    #[error("value is not an integer or out of range")]
    NotInteger,
    /// The sum does not fit 64 bits.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// The value is not a number.
    #[error("value is not a valid float")]
    NotNumber,
    /// The sum is not a finite number.
    #[error("increment would produce NaN or Infinity")]
    NotFinite,
    /// The key or the value is longer than the limits allow.
    #[error("the key or value exceeds the maximum allowed size")]
    TooLong,
    /// The expiry lies out of range.
    #[error("the expire time is out of range")]
    BadExpiry,
    /// The key is one of those that the store keeps for itself.
    #[error("the key is reserved: no key may begin with sixteen bytes of 0xff")]
    Reserved,
}

/// A [`Reply`] that owns its bytes, for answers that outlive the transaction.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The variants are those of `Reply`.
pub enum OwnedReply {
    Ok,
    Nil,
    Int(i64),
    Bytes(Vec<u8>),
    Kind(Kind),
    Deadline(Option<u64>),
    Version(Version),
    Pairs(Vec<(Vec<u8>, Vec<u8>)>),
    Error(OpError),
}

impl From<&Reply<'_>> for OwnedReply {
    fn from(reply: &Reply<'_>) -> OwnedReply {
        match reply {
            Reply::Ok => OwnedReply::Ok,
            Reply::Nil => OwnedReply::Nil,
            Reply::Int(n) => OwnedReply::Int(*n),
            Reply::Bytes(bytes) => OwnedReply::Bytes(bytes.to_vec()),
            Reply::Kind(kind) => OwnedReply::Kind(*kind),
            Reply::Deadline(at) => OwnedReply::Deadline(*at),
            Reply::Version(version) => OwnedReply::Version(*version),
            Reply::Pairs(pairs) => OwnedReply::Pairs(
                pairs
                    .iter()
                    .map(|(k, v)| (k.to_vec(), v.to_vec()))
                    .collect(),
            ),
            Reply::Error(error) => OwnedReply::Error(*error),
        }
    }
}

impl OwnedReply {
    /// Returns the same reply, borrowed.
    #[must_use]
    pub fn as_reply(&self) -> Reply<'_> {
        match self {
            OwnedReply::Ok => Reply::Ok,
            OwnedReply::Nil => Reply::Nil,
            OwnedReply::Int(n) => Reply::Int(*n),
            OwnedReply::Bytes(bytes) => Reply::Bytes(bytes),
            OwnedReply::Kind(kind) => Reply::Kind(*kind),
            OwnedReply::Deadline(at) => Reply::Deadline(*at),
            OwnedReply::Version(version) => Reply::Version(*version),
            OwnedReply::Pairs(pairs) => {
                Reply::Pairs(pairs.iter().map(|(k, v)| (&k[..], &v[..])).collect())
            }
            OwnedReply::Error(error) => Reply::Error(*error),
        }
    }
}
