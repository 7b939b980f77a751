//! Why a request was not carried out, and what its sender may do.

use std::time::Duration;

/// Why a request was not carried out. Only after [`LockError::Uncertain`] something may have
/// happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The key is longer than [`Limits::key`](crate::Limits::key), or empty.
    #[error("the key of a lock has 1 to {limit} bytes")]
    KeyLength {
        /// The longest, in bytes.
        limit: usize,
    },
    /// The owner is longer than [`Limits::owner`](crate::Limits::owner), or what a change sets than
    /// [`Limits::value`](crate::Limits::value).
    #[error("the owner of a lock has at most {limit} bytes")]
    ValueLength {
        /// The longest, in bytes.
        limit: usize,
    },
    /// The lease is shorter than a millisecond or longer than
    /// [`Limits::lease`](crate::Limits::lease).
    #[error("a lease lasts from 1 ms to {} ms", limit.as_millis())]
    LeaseLength {
        /// The longest.
        limit: Duration,
    },
    /// Locks without a lease are not possible in a table that a restart empties.
    #[error("a table in memory keeps no lock without a lease: name one, or keep the table durably")]
    NeedsLease,
    /// The table is full. Try again when locks have ended.
    #[error(
        "there are {limit} locks already; nothing has happened, try again when some have ended"
    )]
    TooManyLocks {
        /// How many there may be; or how many there are, if they have as many bytes as they may.
        limit: usize,
    },
    /// Too many wait, for this key or for all. Try again later.
    #[error("{limit} requests wait already; nothing has happened, try again later")]
    TooManyWaiters {
        /// How many there may be.
        limit: usize,
    },
    /// The table has lost its memory in a restart; locks that it has forgotten may still be held.
    /// Try again when their leases have ended.
    #[error(
        "the table was emptied by a restart; locks are granted again in {} ms, when all leases from \
         before have ended",
        left.as_millis()
    )]
    Settling {
        /// How long that takes.
        left: Duration,
    },
    /// The table is being stopped. Ask another proxy, or try again.
    #[error("the table of locks is being stopped; nothing has happened, ask another proxy")]
    Stopping,
    /// What keeps the table does not answer. Nothing has happened; try again.
    #[error("what keeps the locks does not answer ({what}); nothing has happened, try again")]
    Unavailable {
        /// What was heard of it last.
        what: String,
    },
    /// What keeps the table stopped answering after it was told to change something. Ask who holds
    /// the key, or acquire it again as the same owner.
    #[error(
        "what keeps the locks stopped answering ({what}): whether this took effect is not known; \
         acquire again as the same owner, or ask who holds the lock"
    )]
    Uncertain {
        /// What was heard of it last.
        what: String,
    },
    /// What keeps the table refuses to. It is no use to try again.
    #[error(
        "what keeps the locks refuses this ({what}): nothing has happened, and it is no use to try \
         again before an operator has looked"
    )]
    Refused {
        /// Why.
        what: String,
    },
    /// The key's record is not one of this program. An operator has to look at it.
    #[error(
        "the record of this lock is damaged, or of another version: nothing has happened, and nobody \
         gets the lock before an operator has removed the record"
    )]
    Damaged,
}
