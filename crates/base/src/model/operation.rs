//! Operations of transactions, and the types of values.

use super::eviction::KeyAccess;
use super::ids::Version;
use super::key_event::KeyEvent;
use super::op_error::OpError;
use super::value_call::ValueCall;

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
    /// A log of entries with ids, and its consumer groups.
    Stream = 5,
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
            Kind::Stream,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == number)
    }

    /// Returns the number of the kind as a string of one byte.
    #[must_use]
    pub fn number_bytes(self) -> &'static [u8] {
        &[0, 1, 2, 3, 4, 5][self as usize..=self as usize]
    }
}

/// What an [`Op::Scan`] returns of each key besides the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScanContents {
    /// Nothing.
    #[default]
    Keys,
    /// The value, as it is stored.
    Values,
    /// The number of its type, as [`Kind::number_bytes`].
    Kinds,
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

impl Expiry {
    /// Returns the deadline of a key that is given this expiry at `now_ms` and had the deadline `kept`,
    /// both in milliseconds since the Unix epoch; `None`: it does not expire.
    ///
    /// # Errors
    /// Returns [`OpError::BadExpiry`] if the deadline is too far away to be a number.
    #[inline]
    pub fn deadline(self, now_ms: u64, kept: Option<u64>) -> Result<Option<u64>, OpError> {
        let at = match self {
            Expiry::Never => return Ok(None),
            Expiry::Keep => return Ok(kept),
            Expiry::AtMs(at) => at,
            Expiry::InMs(ms) => {
                let now = i64::try_from(now_ms).map_err(|_| OpError::BadExpiry)?;
                now.checked_add(ms).ok_or(OpError::BadExpiry)?
            }
        };
        // A time before 1970 has passed like any other.
        Ok(Some(u64::try_from(at).unwrap_or(0)))
    }
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

impl ExpireWhen {
    /// Returns `true` if a key's deadline may change from `old` to `new`; `None`: it does not expire.
    #[must_use]
    pub fn allows(self, old: Option<u64>, new: Option<u64>) -> bool {
        let new = new.unwrap_or(u64::MAX);
        match self {
            ExpireWhen::Always => true,
            ExpireWhen::None => old.is_none(),
            ExpireWhen::Some => old.is_some(),
            ExpireWhen::Later => old.is_some_and(|old| new > old),
            ExpireWhen::Earlier => old.is_none_or(|old| new < old),
            ExpireWhen::SomeAndLater => old.is_some_and(|old| new > old),
            ExpireWhen::SomeAndEarlier => old.is_some_and(|old| new < old),
        }
    }
}

/// Returns the bytes `start..=end` of a value, as [`Op::GetRange`] selects them: negative positions count
/// from the end.
#[must_use]
pub fn byte_range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let position = |at: i64| {
        if at < 0 {
            (len.saturating_add(at)).max(0)
        } else {
            at
        }
    };
    let (start, end) = (position(start), position(end).min(len - 1));
    if start > end || len == 0 {
        return b"";
    }
    &value[start as usize..=end as usize]
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
    /// Aborts the transaction ([`Abort::Stale`](super::abort::Abort::Stale)) if a greater token than
    /// `token` was seen for
    /// `lock` in this partition; otherwise `token` is the greatest that was seen from now on. It is
    /// not forgotten, also not by [`Op::Flush`]. The lock's name is no key: the guard is executed in
    /// every partition that takes part in the transaction. Answers `Ok`.
    Guard { lock: &'a [u8], token: u64 },
    /// Returns the transaction's own time, milliseconds since the Unix epoch. It never goes back
    /// within a partition, also not over a restart or when another node leads. It is executed where
    /// the transaction's keys are, which must be of one partition. Answers `Int`.
    Now,
    /// Returns the libraries of functions that the partition has: their generation (8 bytes,
    /// little-endian) and what was stored with it. It is executed where the transaction's keys are.
    /// Answers `Bytes`, or `Nil` if none were ever stored.
    Libraries,
    /// Aborts the transaction ([`Abort::Precondition`](super::abort::Abort::Precondition)) if the
    /// partition has libraries of a later generation. It is executed in every partition that takes
    /// part in the transaction. Answers `Ok`.
    CheckLibraries { generation: u64 },
    /// Stores the libraries of functions, which [`Op::Flush`] leaves alone, unless the partition has
    /// those of this generation or a later one: then it aborts the transaction, as
    /// [`Op::CheckLibraries`] does. It is executed in every partition that takes part in the
    /// transaction. Answers `Ok`.
    SetLibraries {
        generation: u64,
        libraries: &'a [u8],
    },

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
    /// Returns the number of keys of a database; keys that expired and were not yet reclaimed may be
    /// counted. Answers `Int`.
    Count { database: u16 },
    /// Returns the keys from `from` (inclusive) to `to` (exclusive; `None`: the end), in byte
    /// order, at most `limit`, with `contents` of each. Answers `Pairs`.
    Scan {
        from: &'a [u8],
        to: Option<&'a [u8]>,
        limit: usize,
        contents: ScanContents,
    },

    /// Announces an event of the key, with the commit, if anything listens. The events that a
    /// transaction's operations announce are then all that there are of it. Answers `Ok`.
    Announce { key: &'a [u8], event: KeyEvent },

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
    /// Executes a command on the key's value, a collection. Answers as the command says.
    Call { key: &'a [u8], call: ValueCall<'a> },
    /// Returns the value, of any type, as it is stored. Answers `Value` or `Nil`.
    GetAny { key: &'a [u8] },
    /// As [`Op::GetAny`], but it does not count as a use of the key.
    Inspect { key: &'a [u8] },
    /// Returns or changes what is known of the use of the key; answers `Nil` if it is absent, unless the access says
    /// otherwise.
    Access { key: &'a [u8], access: KeyAccess },
    /// Sets the value, of any type, to bytes that [`Op::GetAny`] has answered or that have the same
    /// format. Answers `Ok`.
    PutAny {
        key: &'a [u8],
        kind: Kind,
        value: &'a [u8],
        expiry: Expiry,
    },
    /// Deletes every key of every database. Answers `Ok`.
    Flush,
    /// Deletes every key of a database. Answers `Ok`.
    FlushDatabase { database: u16 },
    /// Exchanges the keys of two databases. Answers `Ok`.
    SwapDatabases { first: u16, second: u16 },
}

/// The operations without a key.
macro_rules! keyless {
    () => {
        Op::Guard { .. }
            | Op::Now
            | Op::Libraries
            | Op::CheckLibraries { .. }
            | Op::SetLibraries { .. }
            | Op::Count { .. }
            | Op::Scan { .. }
            | Op::Flush
            | Op::FlushDatabase { .. }
            | Op::SwapDatabases { .. }
    };
}

/// The operations with a key, which gets this name.
macro_rules! keyed {
    ($key:ident) => {
        Op::Check { key: $key, .. }
            | Op::Require { key: $key, .. }
            | Op::Watch { key: $key }
            | Op::Announce { key: $key, .. }
            | Op::Get { key: $key }
            | Op::GetIfString { key: $key }
            | Op::GetRange { key: $key, .. }
            | Op::Len { key: $key }
            | Op::Exists { key: $key }
            | Op::KindOf { key: $key }
            | Op::ExpiryOf { key: $key }
            | Op::Put { key: $key, .. }
            | Op::Delete { key: $key }
            | Op::GetDelete { key: $key }
            | Op::GetExpire { key: $key, .. }
            | Op::Append { key: $key, .. }
            | Op::SetRange { key: $key, .. }
            | Op::Add { key: $key, .. }
            | Op::AddDecimal { key: $key, .. }
            | Op::Expire { key: $key, .. }
            | Op::Persist { key: $key }
            | Op::Call { key: $key, .. }
            | Op::GetAny { key: $key }
            | Op::Inspect { key: $key }
            | Op::Access { key: $key, .. }
            | Op::PutAny { key: $key, .. }
    };
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
            keyless!() => None,
            keyed!(key) => Some(key),
        }
    }

    /// Returns the key, for operations that have one, so that another one can take its place.
    #[must_use]
    pub fn key_mut(&mut self) -> Option<&mut &'a [u8]> {
        match self {
            keyless!() => None,
            keyed!(key) => Some(key),
        }
    }

    /// Returns `true` if the operation has no place of its own: it is executed where the
    /// transaction's other operations are.
    #[must_use]
    pub fn goes_along(&self) -> bool {
        matches!(
            self,
            Op::Guard { .. }
                | Op::Now
                | Op::Libraries
                | Op::CheckLibraries { .. }
                | Op::SetLibraries { .. }
        )
    }

    /// Returns the number of bytes that the operation may add to the partition's data, not counting
    /// bytes that are there already; 0 for an operation that adds nothing.
    #[must_use]
    pub fn brings(&self) -> usize {
        match self {
            Op::Put { key, value, .. }
            | Op::Append { key, value }
            | Op::PutAny { key, value, .. } => key.len() + value.len(),
            Op::Call { key, call } => match call.brings() {
                0 => 0,
                bytes => key.len() + bytes,
            },
            Op::SetLibraries { libraries, .. } => libraries.len(),
            Op::SetRange { value: [], .. } => 0,
            Op::SetRange { key, offset, value } => {
                let end = offset.saturating_add(value.len());
                end.saturating_add(key.len())
            }
            Op::Add { key, .. } | Op::AddDecimal { key, .. } => key.len() + size_of::<i64>(),
            _ => 0,
        }
    }

    /// Returns the events of the operation, if it has written its key; `deleted` says that the key is
    /// absent since then. Those of an [`Op::Call`] come with its outcome.
    #[must_use]
    pub fn events(&self, deleted: bool) -> [Option<KeyEvent>; 2] {
        let is_deadline = |expiry| matches!(expiry, Expiry::AtMs(_) | Expiry::InMs(_));
        match *self {
            // It has noted its events itself.
            Op::Call { .. } => [None, None],
            _ if deleted => [Some(KeyEvent::Del), None],
            Op::Put { expiry, .. } | Op::PutAny { expiry, .. } if is_deadline(expiry) => {
                [Some(KeyEvent::Set), Some(KeyEvent::Expire)]
            }
            Op::Put { .. } | Op::PutAny { .. } => [Some(KeyEvent::Set), None],
            Op::Append { .. } => [Some(KeyEvent::Append), None],
            Op::SetRange { .. } => [Some(KeyEvent::SetRange), None],
            Op::Add { .. } => [Some(KeyEvent::IncrBy), None],
            Op::AddDecimal { .. } => [Some(KeyEvent::IncrByFloat), None],
            Op::Expire { .. } => [Some(KeyEvent::Expire), None],
            Op::GetExpire { expiry, .. } if is_deadline(expiry) => [Some(KeyEvent::Expire), None],
            Op::GetExpire { .. } | Op::Persist { .. } => [Some(KeyEvent::Persist), None],
            _ => [None, None],
        }
    }

    /// Returns `true` if the operation counts as a use of its key, which is then evicted later: it needs the value, and
    /// not only what is known of it.
    #[must_use]
    pub fn uses_key(&self) -> bool {
        !matches!(
            self,
            Op::Check { .. }
                | Op::Require { .. }
                | Op::Watch { .. }
                | Op::Announce { .. }
                | Op::Exists { .. }
                | Op::KindOf { .. }
                | Op::ExpiryOf { .. }
                | Op::Inspect { .. }
                | Op::Access { .. }
        )
    }

    /// Returns `true` if the operation never writes. [`Op::Now`] counts as writing: the time that
    /// it answers is kept in the log, so that no earlier one is answered later.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self {
            Op::Check { .. }
            | Op::Require { .. }
            | Op::Watch { .. }
            | Op::Announce { .. }
            | Op::Get { .. }
            | Op::GetIfString { .. }
            | Op::GetRange { .. }
            | Op::Len { .. }
            | Op::Exists { .. }
            | Op::KindOf { .. }
            | Op::ExpiryOf { .. }
            | Op::GetAny { .. }
            | Op::Inspect { .. }
            | Op::Access { .. }
            | Op::Libraries
            | Op::CheckLibraries { .. }
            | Op::Count { .. }
            | Op::Scan { .. } => true,
            Op::GetExpire { expiry, .. } => *expiry == Expiry::Keep,
            Op::Call { call, .. } => call.is_read_only(),
            Op::Guard { .. }
            | Op::Now
            | Op::SetLibraries { .. }
            | Op::Put { .. }
            | Op::Delete { .. }
            | Op::GetDelete { .. }
            | Op::Append { .. }
            | Op::SetRange { .. }
            | Op::Add { .. }
            | Op::AddDecimal { .. }
            | Op::Expire { .. }
            | Op::Persist { .. }
            | Op::PutAny { .. }
            | Op::Flush
            | Op::FlushDatabase { .. }
            | Op::SwapDatabases { .. } => false,
        }
    }
}
