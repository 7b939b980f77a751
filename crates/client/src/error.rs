//! What can go wrong, and what the caller may do.

use base::transaction::OpError;
use base::{Abort, NodeId};

/// What can go wrong. [`Error::is_retryable`] and [`Error::is_unknown`] say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No node of the cluster can be reached. Nothing has happened.
    #[error(
        "no node can be reached: {why}; look whether the cluster runs and the addresses are right"
    )]
    Unreachable {
        /// What happened at each address.
        why: String,
    },
    /// The transport that was chosen needs an RDMA device, and none can be used. Nothing has happened.
    #[error("{why}")]
    Device {
        /// Why none can be used, and what to do.
        why: String,
    },
    /// A node and this client do not fit together: another secret, version or program. Nothing has
    /// happened, and each further call fails until that is changed.
    #[error("a node does not take this client: {why}")]
    Refused {
        /// Which node refuses the client, and what to do.
        why: String,
    },
    /// The call's time is up. Nothing has happened; trying again later may help.
    #[error("gave up after {attempts} attempts, without any effect: {why}")]
    TimedOut {
        /// Number of attempts.
        attempts: u32,
        /// Why the last attempt failed.
        why: String,
    },
    /// The transaction was sent, and it is not known whether it took effect. It was not repeated, since
    /// it might then take effect twice; or, where partitions are replicated, it was sent again until the
    /// call's time was up. Read what it writes to find out, or write the transaction such that a second
    /// execution does no harm: with a `Check` or a key of its own.
    #[error(
        "it is not known whether the transaction took effect: {why}; read what it writes before \
         you repeat it"
    )]
    Unknown {
        /// What happened.
        why: String,
    },
    /// The transaction has committed, but the call has no complete answer: its replies could not be used,
    /// or some of its keys may have their old values for a while. It must not be repeated.
    #[error("the transaction has committed: {why}; do not repeat it")]
    Committed {
        /// The part of the answer that the call lacks.
        why: String,
    },
    /// The transaction did not take effect, and repeating it as it is does not help. After
    /// [`Abort::ReadOnly`] a transaction that writes may have taken effect nevertheless.
    #[error(transparent)]
    Aborted(#[from] Abort),
    /// An operation failed by itself. The others of its transaction have taken effect.
    #[error("operation {op} failed: {error}")]
    Operation {
        /// The operation's index.
        op: usize,
        /// Why it failed.
        error: OpError,
    },
    /// A node has answered another question. The transaction had nothing to write.
    #[error("node {node} answered what was not asked: {what}")]
    Answer {
        /// The node.
        node: NodeId,
        /// Its answer.
        what: String,
    },
    /// The transaction, or the answer, is longer than the longest message. Split it.
    #[error("{why}; split the transaction")]
    TooLong {
        /// Which of them is too long, and its length.
        why: String,
    },
    /// The closure of a transaction gave up, with this reason. Nothing has happened.
    #[error("cancelled: {0}")]
    Cancelled(String),
}

impl Error {
    /// Returns the error with which the closure of a transaction gives up.
    #[must_use]
    pub fn cancelled(why: impl Into<String>) -> Error {
        Error::Cancelled(why.into())
    }

    /// Returns `true` if nothing has happened and the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Unreachable { .. } | Error::TimedOut { .. })
    }

    /// Returns `true` if a guard's token was stale: nothing has happened, and the lock must be acquired
    /// again.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Error::Aborted(Abort::Stale { .. }))
    }

    /// Returns `true` if the transaction has committed, but the call has no complete answer.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        matches!(
            self,
            Error::Committed { .. } | Error::Aborted(Abort::Unacknowledged { .. })
        )
    }

    /// Returns `true` if it is not known whether the transaction took effect.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            Error::Unknown { .. } | Error::Aborted(Abort::ReadOnly { .. } | Abort::Unknown { .. })
        )
    }
}
