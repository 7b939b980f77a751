//! The one-shot transaction: the layers above build it, the layers below execute it.
//!
//! A [`Transaction`] is a list of [`Op`]s, executed atomically in their order; later operations
//! see the effects of earlier ones. The result is one [`Reply`] for each operation, or an
//! [`Abort`], after which nothing has happened. An operation that fails by itself (a value of the
//! wrong type, an overflow) answers [`Reply::Error`] in its place and the others still take
//! effect, as in a Redis `MULTI` block; [`Op::Check`], [`Op::Require`] and [`Op::Guard`] are the
//! operations that abort.

use crate::ids::{Epoch, NodeId, Tid, Timestamp, TransactionId, Version};

/// The type of a value. Records have always stored it, so that a later type cannot be
/// mistaken for a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A byte string.
    String = 0,
    /// A map of fields to values.
    Hash = 1,
    /// A list of byte strings.
    List = 2,
    /// A set of byte strings.
    Set = 3,
    /// A set ordered by score.
    SortedSet = 4,
}

impl Kind {
    /// Returns the kind with this number, if there is one.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Kind> {
        [
            Kind::String,
            Kind::Hash,
            Kind::List,
            Kind::Set,
            Kind::SortedSet,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == number)
    }
}

/// A one-shot transaction.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Transaction<'a> {
    /// The operations, in order.
    pub ops: Vec<Op<'a>>,
}

impl<'a> Transaction<'a> {
    /// Returns a transaction of these operations.
    #[must_use]
    pub fn new(ops: Vec<Op<'a>>) -> Transaction<'a> {
        Transaction { ops }
    }

    /// Returns `true` if no operation can write.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.ops.iter().all(Op::is_read_only)
    }
}

/// The condition on which a [`Op::Put`] takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum When {
    /// In any case.
    #[default]
    Always,
    /// Only if the key is absent (`NX`).
    Absent,
    /// Only if the key is present (`XX`).
    Present,
}

/// The expiry of a key after an operation. Times are milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Expiry {
    /// The key does not expire.
    #[default]
    Never,
    /// The key's expiry stays as it was.
    Keep,
    /// At this time; a time that has passed deletes the key.
    AtMs(i64),
    /// This many milliseconds after the operation is executed, by the partition's clock; that may be up
    /// to ten milliseconds behind.
    InMs(i64),
}

/// The condition on which [`Op::Expire`] takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ExpireWhen {
    /// In any case.
    #[default]
    Always,
    /// Only if the key has no expiry (`NX`).
    None,
    /// Only if the key has an expiry (`XX`).
    Some,
    /// Only if the new time is later; no expiry counts as infinitely late (`GT`).
    Later,
    /// Only if the new time is earlier; no expiry counts as infinitely late (`LT`).
    Earlier,
    /// Only if the key has an expiry and the new time is later (`XX GT`).
    SomeAndLater,
    /// Only if the key has an expiry and the new time is earlier (`XX LT`).
    SomeAndEarlier,
}

/// One operation. The comment of each says what it answers; any operation on a value of another
/// type than it needs answers [`OpError::WrongType`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The fields of an operation are its arguments, said in its comment.
pub enum Op<'a> {
    /// Aborts the transaction unless `key` still has `version`. Answers `Ok`.
    Check { key: &'a [u8], version: Version },
    /// Aborts the transaction unless `key` is present, or absent. Answers `Ok`.
    Require { key: &'a [u8], present: bool },
    /// Returns the version of `key`, for a later [`Op::Check`]. Answers `Version`.
    Watch { key: &'a [u8] },
    /// Aborts the transaction ([`Abort::Stale`]) if a greater token than `token` was seen for
    /// `lock` in this partition; otherwise `token` is the greatest that was seen from now on. It is
    /// not forgotten, also not by [`Op::Flush`]. The lock's name is no key: the guard is executed in
    /// every partition that takes part in the transaction. Answers `Ok`.
    Guard { lock: &'a [u8], token: u64 },
    /// Returns the transaction's own time, milliseconds since the Unix epoch. It never goes back
    /// within a partition, also not over a restart or when another node leads. It is executed where
    /// the transaction's keys are, which must be of one partition. Answers `Int`.
    Now,

    /// Returns the value. Answers `Bytes` or `Nil`.
    Get { key: &'a [u8] },
    /// As [`Op::Get`], but a value of another type reads as `Nil` (`MGET`).
    GetIfString { key: &'a [u8] },
    /// Returns the bytes `start..=end` of the value; negative positions count from its end. Answers
    /// `Bytes`, empty when out of range or absent.
    GetRange { key: &'a [u8], start: i64, end: i64 },
    /// Returns the length of the value in bytes, 0 when absent. Answers `Int`.
    Len { key: &'a [u8] },
    /// Returns 1 if the key is present, of any type. Answers `Int` 0 or 1.
    Exists { key: &'a [u8] },
    /// Returns the type of the value. Answers `Kind` or `Nil`.
    KindOf { key: &'a [u8] },
    /// Returns the expiry of the key. Answers `Deadline` (`None`: never) or `Nil` when absent.
    ExpiryOf { key: &'a [u8] },
    /// Returns the number of keys; keys that expired and were not yet reclaimed may be counted.
    /// Answers `Int`.
    Count,
    /// Returns the keys from `from` (inclusive) to `to` (exclusive; `None`: the end), in byte
    /// order, at most `limit`, with their values if asked for. Answers `Pairs`.
    Scan {
        from: &'a [u8],
        to: Option<&'a [u8]>,
        limit: usize,
        values: bool,
    },

    /// Sets the value. Answers `Ok`, or `Nil` when its condition did not hold. With `get` it
    /// answers the old value (`Bytes` or `Nil`) instead, whether or not the condition held.
    Put {
        key: &'a [u8],
        value: &'a [u8],
        when: When,
        expiry: Expiry,
        get: bool,
    },
    /// Deletes the key, of any type. Answers `Int` 0 or 1.
    Delete { key: &'a [u8] },
    /// Deletes the key. Answers its value, `Bytes` or `Nil`.
    GetDelete { key: &'a [u8] },
    /// Returns the value, and sets a new expiry if `expiry` is not `Keep`. Answers `Bytes` or
    /// `Nil`.
    GetExpire { key: &'a [u8], expiry: Expiry },
    /// Appends to the value, or creates it. Answers its new length, `Int`.
    Append { key: &'a [u8], value: &'a [u8] },
    /// Overwrites the value from `offset`, filling with zeros before it. An empty `value` changes
    /// nothing. Answers the new length, `Int`.
    SetRange {
        key: &'a [u8],
        offset: usize,
        value: &'a [u8],
    },
    /// Adds to the value, a decimal number; absent counts as 0. Answers the sum, `Int`.
    Add { key: &'a [u8], delta: i64 },
    /// Adds to the value, a decimal fraction; absent counts as 0. `delta` is a text that
    /// [`crate::number::parse_decimal`] accepts. Answers the sum as `Bytes`.
    AddDecimal { key: &'a [u8], delta: &'a [u8] },
    /// Sets the expiry of the key, of any type; a time that has passed deletes it. `expiry` is
    /// `AtMs` or `InMs`. Answers `Int` 0 (absent, or the condition did not hold) or 1.
    Expire {
        key: &'a [u8],
        expiry: Expiry,
        when: ExpireWhen,
    },
    /// Removes the expiry of the key, of any type. Answers `Int` 1 if there was one.
    Persist { key: &'a [u8] },
    /// Deletes every key. Answers `Ok`.
    Flush,
}

impl<'a> Op<'a> {
    /// Sets the key unconditionally and without an expiry.
    #[must_use]
    pub fn put(key: &'a [u8], value: &'a [u8]) -> Op<'a> {
        Op::Put {
            key,
            value,
            when: When::Always,
            expiry: Expiry::Never,
            get: false,
        }
    }

    /// Returns the key, for operations that have one.
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Op::Guard { .. } | Op::Now | Op::Count | Op::Scan { .. } | Op::Flush => None,
            Op::Check { key, .. }
            | Op::Require { key, .. }
            | Op::Watch { key }
            | Op::Get { key }
            | Op::GetIfString { key }
            | Op::GetRange { key, .. }
            | Op::Len { key }
            | Op::Exists { key }
            | Op::KindOf { key }
            | Op::ExpiryOf { key }
            | Op::Put { key, .. }
            | Op::Delete { key }
            | Op::GetDelete { key }
            | Op::GetExpire { key, .. }
            | Op::Append { key, .. }
            | Op::SetRange { key, .. }
            | Op::Add { key, .. }
            | Op::AddDecimal { key, .. }
            | Op::Expire { key, .. }
            | Op::Persist { key } => Some(key),
        }
    }

    /// Returns `true` if the operation has no place of its own: it is executed where the
    /// transaction's other operations are.
    #[must_use]
    pub fn goes_along(&self) -> bool {
        matches!(self, Op::Guard { .. } | Op::Now)
    }

    /// Returns the number of bytes that the operation may add to the partition's data, not counting
    /// bytes that are there already; 0 for an operation that adds nothing.
    #[must_use]
    pub fn brings(&self) -> usize {
        match self {
            Op::Put { key, value, .. } | Op::Append { key, value } => key.len() + value.len(),
            Op::SetRange { value: [], .. } => 0,
            Op::SetRange { key, offset, value } => {
                let end = offset.saturating_add(value.len());
                end.saturating_add(key.len())
            }
            Op::Add { key, .. } | Op::AddDecimal { key, .. } => key.len() + size_of::<i64>(),
            _ => 0,
        }
    }

    /// Returns `true` if the operation never writes. [`Op::Now`] counts as writing: the time that
    /// it answers is kept in the log, so that no earlier one is answered later.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self {
            Op::Check { .. }
            | Op::Require { .. }
            | Op::Watch { .. }
            | Op::Get { .. }
            | Op::GetIfString { .. }
            | Op::GetRange { .. }
            | Op::Len { .. }
            | Op::Exists { .. }
            | Op::KindOf { .. }
            | Op::ExpiryOf { .. }
            | Op::Count
            | Op::Scan { .. } => true,
            Op::GetExpire { expiry, .. } => *expiry == Expiry::Keep,
            Op::Guard { .. }
            | Op::Now
            | Op::Put { .. }
            | Op::Delete { .. }
            | Op::GetDelete { .. }
            | Op::Append { .. }
            | Op::SetRange { .. }
            | Op::Add { .. }
            | Op::AddDecimal { .. }
            | Op::Expire { .. }
            | Op::Persist { .. }
            | Op::Flush => false,
        }
    }
}

/// Refuses a transaction that consists of guards alone: there is nothing to be guarded, and no
/// partition to which it belongs.
///
/// # Errors
/// Returns [`Abort::Unsupported`].
pub fn check_guards(ops: &[Op<'_>]) -> Result<(), Abort> {
    let has_guard = ops.iter().any(|op| matches!(op, Op::Guard { .. }));
    if has_guard && ops.iter().all(Op::goes_along) {
        let what = "a guard alone guards nothing: put what it is to guard into its transaction";
        let what = what.to_owned();
        return Err(Abort::Unsupported { what });
    }
    Ok(())
}

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

/// The reason why a transaction did not take effect, and what its caller may do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Abort {
    /// A precondition ([`Op::Check`] or [`Op::Require`]) did not hold. Start over from reading.
    #[error("operation {op} of the transaction found its precondition not met")]
    Precondition {
        /// The index of the operation.
        op: usize,
    },
    /// The partition has seen a newer token of a lock than that of an [`Op::Guard`]: another client
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

/// The data on which a reply depends: the reply may be sent once `epoch` is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Observed {
    /// The newest epoch that the transaction wrote or observed; [`Epoch::ZERO`] if nothing.
    pub epoch: Epoch,
    /// The transaction's id if it wrote, else [`Tid::ZERO`]. Keys that it wrote have it as their
    /// version.
    pub tid: Tid,
    /// The transaction's own time, milliseconds since the Unix epoch.
    pub time_ms: u64,
}
