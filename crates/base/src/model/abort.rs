//! Why a transaction did not take effect, or is not at its end, and what its caller may do.

use super::ids::{NodeId, Timestamp, TransactionId};
use super::op_error::OpError;

/// The end of each error of RESP that says that the outcome of a command is not known. The code `UNKNOWN` alone
/// does not say so: a script may answer with any code. A proxy knows such errors by it.
pub const UNKNOWN_OUTCOME: &str = "before it is given again";

/// The reason why a transaction did not take effect, and what its caller may do. [`Abort::Unknown`] and
/// [`Abort::Unacknowledged`] say that it may have taken effect, and that it has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Abort {
    /// A precondition ([`Op::Check`](super::operation::Op::Check) or
    /// [`Op::Require`](super::operation::Op::Require)) did not hold. Start over from reading.
    #[error("operation {op} of the transaction found its precondition not met")]
    Precondition {
        /// The index of the operation.
        op: usize,
    },
    /// The partition has seen a newer token of a lock than that of an
    /// [`Op::Guard`](super::operation::Op::Guard): another client
    /// has held the lock since. It is no use to retry it; acquire the lock again.
    #[error(
        "the lock '{}' has been granted with a newer token ({highest} > {token}); acquire it again",
        lock.escape_ascii()
    )]
    Stale {
        /// The lock's name.
        lock: Vec<u8>,
        /// The token of the guard.
        token: u64,
        /// The greatest token that was seen.
        highest: u64,
    },
    /// Other transactions kept getting in the way. Safe to retry.
    #[error("the transaction met conflicting transactions {attempts} times; retry it")]
    Conflict {
        /// The number of times that it was tried.
        attempts: u32,
    },
    /// A transaction over several partitions holds a key that this one needs. Nothing has happened;
    /// a caller that can wait tries again once the holder has ended.
    #[error("the transaction waited too long for {}, which is not decided yet; retry it", by.id)]
    Held {
        /// The transaction that holds it.
        by: Holder,
    },
    /// The commit timestamp of a transaction over several partitions is not above one that a key
    /// carries already. Safe to retry with a greater one than this.
    #[error("the transaction's timestamp was overtaken; retry it")]
    Overtaken {
        /// The greatest that was met.
        newest: Timestamp,
    },
    /// The attempt was given up, or must not be begun any more. Safe to retry as another attempt.
    #[error("the transaction was given up while it was being prepared; retry it")]
    Refused,
    /// Another node leads the partition, or none does at the moment. Nothing has happened; retry at
    /// the leader.
    #[error("{}", said_of(*leader))]
    Elsewhere {
        /// The leader, as far as this node knows.
        leader: Option<NodeId>,
    },
    /// A partition cannot be reached; nothing has happened. Safe to retry.
    #[error("{what}; nothing has happened, retry it")]
    Unavailable {
        /// The partition, and the reason.
        what: String,
    },
    /// A partition stopped answering when the transaction may have taken effect already. Only a
    /// read of the keys that it wrote can tell if it did.
    #[error("{what}: whether the transaction took effect is not known")]
    Unknown {
        /// The partition, and the reason.
        what: String,
    },
    /// The transaction has committed: all of its partitions keep it. Some have not said in time that
    /// readers see it there; they will. It must not be repeated.
    #[error(
        "the transaction has committed, and keys of the partitions {partitions:?}, of which nothing was \
         heard in time, may have their old values for a while; do not repeat it"
    )]
    Unacknowledged {
        /// The partitions that have not answered.
        partitions: Vec<u16>,
    },
    /// The partition does not remember the session of the transaction, and did not execute it. If
    /// it was sent before, it is not known if it was executed then. Open another session.
    #[error(
        "the session is not remembered: this was not executed; whether it was when it was sent before \
         is not known"
    )]
    Forgotten,
    /// Such transactions are not supported; nothing has happened. It is no use to retry it.
    #[error("{what}")]
    Unsupported {
        /// The reason, and what to do instead.
        what: String,
    },
    /// The transaction is larger than the limits allow. Split it.
    #[error("the transaction exceeds the limit on {what}")]
    TooLarge {
        /// The limit that it exceeds.
        what: &'static str,
    },
    /// The partition's memory is full, and the transaction needs some. Nothing has happened; it is no
    /// use to retry it before keys are deleted.
    #[error("the partition's memory is full; delete keys, or raise its limit (--maxmemory)")]
    OutOfMemory,
    /// The log cannot be written: writes are refused until the operator acts.
    #[error("the store is read-only: {reason}")]
    ReadOnly {
        /// The failure of the log.
        reason: String,
    },
    /// An operation of an interactive transaction failed.
    #[error("{0}")]
    Failed(OpError),
    /// The closure of an interactive transaction gave up.
    #[error("the transaction was cancelled by its caller")]
    Cancelled,
}

impl Abort {
    /// Returns `true` if the abort reveals something of the partition's data: then it must not be
    /// sent before the data that the transaction observed is durable.
    #[must_use]
    pub fn shows(&self) -> bool {
        matches!(self, Abort::Precondition { .. } | Abort::Stale { .. })
    }
}

fn said_of(leader: Option<NodeId>) -> String {
    match leader {
        Some(node) => {
            let node = node.0;
            format!("node {node} leads this partition; nothing has happened, retry it there")
        }
        None => {
            "no node is known to lead this partition at the moment; nothing has happened, retry it"
                .to_owned()
        }
    }
}

/// A transaction that holds a key under two-phase locking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The attempt.
    pub id: TransactionId,
    /// The time at which the transaction began, over all its attempts: the older goes first.
    pub age: Timestamp,
}
