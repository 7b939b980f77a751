//! Why a request was not carried out, and what the client can do.

use std::time::Duration;

/// Why a request was not carried out. Something may have happened only after
/// [`LockError::Uncertain`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The key is longer than [`LockLimits::key`](crate::LockLimits::key), or empty.
    #[error("the key of a lock has 1 to {limit} bytes")]
    KeyLength {
        /// The longest, in bytes.
        limit: usize,
    },
    /// The owner is longer than [`LockLimits::owner`](crate::LockLimits::owner), or the value that a change
    /// sets is longer than [`LockLimits::value`](crate::LockLimits::value).
    #[error("the owner of a lock has at most {limit} bytes")]
    ValueLength {
        /// The longest, in bytes.
        limit: usize,
    },
    /// The lease is shorter than a millisecond or longer than
    /// [`LockLimits::lease`](crate::LockLimits::lease).
    #[error("a lease lasts from 1 ms to {} ms", limit.as_millis())]
    LeaseLength {
        /// The longest lease.
        limit: Duration,
    },
    /// A table that a restart empties does not grant locks without a lease.
    #[error("a table in memory keeps no lock without a lease: name one, or keep the table durably")]
    NeedsLease,
    /// The table is full. Try again when locks have ended.
    #[error(
        "there are {limit} locks already; nothing has happened, try again when some have ended"
    )]
    TooManyLocks {
        /// The largest number of locks; or their present number, if their bytes have reached the
        /// limit.
        limit: usize,
    },
    /// Too many requests wait, for this key or for all keys. Try again later.
    #[error("{limit} requests wait already; nothing has happened, try again later")]
    TooManyWaiters {
        /// The largest number of requests that may wait.
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
        /// Time until then.
        left: Duration,
    },
    /// The table is being stopped. Ask another proxy, or try again.
    #[error("the table of locks is being stopped; nothing has happened, ask another proxy")]
    Stopping,
    /// The store of the table does not answer. Nothing has happened; try again.
    #[error("what keeps the locks does not answer ({what}); nothing has happened, try again")]
    Unavailable {
        /// The last error.
        what: String,
    },
    /// The store of the table stopped answering after it was asked to change something. Ask who
    /// holds the key, or acquire it again as the same owner.
    #[error(
        "what keeps the locks stopped answering ({what}): whether this took effect is not known; \
         acquire again as the same owner, or ask who holds the lock"
    )]
    Uncertain {
        /// The last error.
        what: String,
    },
    /// The store of the table refuses the request. Another attempt will fail, too.
    #[error(
        "what keeps the locks refuses this ({what}): nothing has happened, and it is no use to try \
         again before an operator has looked"
    )]
    Refused {
        /// The store's reason.
        what: String,
    },
    /// The key's record is not one of this program. An operator has to look at it.
    #[error(
        "the record of this lock is damaged, or of another version: nothing has happened, and no client \
         gets the lock before an operator has removed the record"
    )]
    Damaged,
}
