//! A partition executes transactions. Local, replicated and remote ones implement the same trait.

use std::future::Future;

use crate::ids::Version;
use crate::transaction::{Abort, Kind, OpError, Reply, Transaction};

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

/// Executes one-shot transactions.
pub trait Partition: Send + Sync {
    /// Executes `transaction` atomically. The future is ready when the outcome may be seen from
    /// outside: its writes and the data that it observed are durable.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing happened; only after [`Abort::ReadOnly`], which
    /// says that the log failed, is the outcome not known.
    fn execute(
        &self,
        transaction: &Transaction<'_>,
    ) -> impl Future<Output = Result<Vec<OwnedReply>, Abort>> + Send;
}
