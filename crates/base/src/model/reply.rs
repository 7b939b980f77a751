//! Answers to operations.

use std::borrow::Cow;

use super::ids::Version;
use super::nested::NestedReply;
use super::op_error::OpError;
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
    /// Keys, each with what a scan was to return of it.
    Pairs(Vec<(&'e [u8], &'e [u8])>),
    /// A value of any type, as it is stored.
    Value(Kind, Cow<'e, [u8]>),
    /// What a command on a collection has answered, if it is none of the above.
    Nested(NestedReply),
    /// The operation failed by itself; nothing of it took effect.
    Error(OpError),
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
    Value(Kind, Vec<u8>),
    Nested(NestedReply),
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
            Reply::Value(kind, bytes) => OwnedReply::Value(*kind, bytes.to_vec()),
            Reply::Nested(nested) => OwnedReply::Nested(nested.clone()),
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
            OwnedReply::Value(kind, bytes) => Reply::Value(*kind, Cow::Borrowed(bytes)),
            OwnedReply::Nested(nested) => Reply::Nested(nested.clone()),
            OwnedReply::Error(error) => Reply::Error(*error),
        }
    }
}
