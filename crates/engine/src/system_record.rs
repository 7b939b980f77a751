//! System records: the data that a partition stores about itself. They are ordinary versions of
//! ordinary records, so that log, checkpoints and recovery carry them like any other; their
//! generation is `base::change::SYSTEM_GENERATION`, which no flush removes.
//!
//! | record of | key | value |
//! |---|---|---|
//! | a transaction over several partitions | 32 bytes: sixteen times 255, and the transaction's id (its timestamp and a number that tells attempts of one timestamp apart, 8 bytes each, big-endian) | see below |
//! | a lock | 33 times 255, and the lock's name | the greatest token that was seen of the lock, 8 bytes |
//! | the databases | 32 times 255, and a 2 | the table of databases, see below |
//! | the time that a worker has told | 32 times 255, a 0, and the worker's number (4 bytes, big-endian) | that time, milliseconds since the Unix epoch, 8 bytes |
//! | the libraries of functions | 32 times 255, and a 1 | their generation, 8 bytes; the libraries, as the server stores them |
//!
//! Keys of transactions begin with [`RESERVED`]; the keys of databases (`base::database`) follow, and then
//! those of modules `fencing`, `libraries` and `database_table`. Numbers in values are little-endian. Reserved
//! keys are the last ones in the order of keys; clients can neither write nor see them.
//!
//! The table of databases is that of module `database_table`. The value of a transaction's record:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | state: 1 prepared, 2 committed, 3 refused, 4 prepared without holds |
//! | bytes | all but refused: the coordinator's note |
//! | 8 | prepared, as all that follows: when the transaction began; not of 4 |
//! | bytes | siblings |
//! | 4 … | how many effects, and each of them; of 4 that is the end |
//! | 4 … | how many records are held by it as a reader; of each its key, as bytes |
//! | 4 … | how many ranges are held by it, and each of them |
//!
//! | part | bytes |
//! |---|---|
//! | bytes | length 4, the bytes themselves |
//! | effect: put | 1, kind 1, generation 2, whether there is a deadline 1 (0 or 1), deadline 8 if there is one, key bytes, value bytes |
//! | effect: delete | 2, key bytes |
//! | effect: flush | 3, generation 2 |
//! | range | from bytes, to bytes (exclusive) |
//!
//! The record of the generation is not among the readers' holds: every prepared transaction holds
//! it as a reader, but for one that flushes, which holds it exclusively.
//!
//! A refusal ends with its version's deadline.

use base::change::SYSTEM_GENERATION;
use base::database;
use base::limits::RESERVED;
use base::participant::State;
use base::transaction::Kind;
use base::{Timestamp, TransactionId};

use crate::record::{VersionContent, VersionRef};

/// The prefix of other reserved keys than those of transactions: they are behind all of these.
pub(crate) const OTHERS: [u8; RESERVED.len() + TransactionId::BYTES + 1] = {
    let mut key = [0xff; RESERVED.len() + TransactionId::BYTES + 1];
    key[RESERVED.len() + TransactionId::BYTES] = 0;
    key
};

/// The key of the record of the databases.
pub(crate) const DATABASES: [u8; OTHERS.len()] = {
    let mut key = OTHERS;
    key[OTHERS.len() - 1] = 2;
    key
};

/// The key behind those of all transactions.
pub(crate) const BEHIND_TRANSACTIONS: [u8; RESERVED.len() + 1] = database::PREFIX_OF_ALL;

const PREPARED: u8 = 1;
const COMMITTED: u8 = 2;
const REFUSED: u8 = 3;
const PENDING: u8 = 4;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const FLUSH: u8 = 3;

/// Returns `true` if a key is the engine's own.
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(&RESERVED)
}

/// Returns `true` if a key is that of a transaction's record.
pub(crate) fn is_transaction(key: &[u8]) -> bool {
    is_reserved(key) && key < &BEHIND_TRANSACTIONS[..]
}

/// Returns the key of a transaction's record.
pub(crate) fn key(id: TransactionId) -> [u8; RESERVED.len() + TransactionId::BYTES] {
    let mut key = [0; RESERVED.len() + TransactionId::BYTES];
    key[..RESERVED.len()].copy_from_slice(&RESERVED);
    key[RESERVED.len()..].copy_from_slice(&id.to_bytes());
    key
}

/// Returns the transaction of a record.
pub(crate) fn id(key: &[u8]) -> Result<TransactionId, MalformedSystemRecord> {
    let bytes = key
        .strip_prefix(&RESERVED)
        .and_then(|id| id.try_into().ok());
    bytes
        .map(TransactionId::from_bytes)
        .ok_or(MalformedSystemRecord(
            "its key is not that of a transaction",
        ))
}

/// The reason why a value is not that of a system record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedSystemRecord(pub(crate) &'static str);

/// The value of a system record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemRecord<'a> {
    Prepared {
        note: &'a [u8],
        kept: PreparedState<'a>,
    },
    Committed {
        note: &'a [u8],
    },
    Refused,
    /// The value of a prepared read-atomic transaction: it holds nothing.
    Pending {
        note: &'a [u8],
        siblings: &'a [u8],
        effects: Vec<PreparedEffect<'a>>,
    },
}

/// The state that is kept of a prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PreparedState<'a> {
    pub(crate) age: Timestamp,
    pub(crate) siblings: &'a [u8],
    pub(crate) effects: Vec<PreparedEffect<'a>>,
    /// Keys of the records that it holds as a reader.
    pub(crate) shared: Vec<&'a [u8]>,
    pub(crate) ranges: Vec<(&'a [u8], &'a [u8])>,
}

/// An effect of a prepared transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreparedEffect<'a> {
    Put {
        key: &'a [u8],
        value: &'a [u8],
        kind: Kind,
        generation: u16,
        deadline: Option<u64>,
    },
    Delete {
        key: &'a [u8],
    },
    Flush {
        generation: u16,
    },
}

impl SystemRecord<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            SystemRecord::Prepared { note, kept } => {
                to.push(PREPARED);
                put_bytes(&mut to, note);
                kept.encode(&mut to);
            }
            SystemRecord::Committed { note } => {
                to.push(COMMITTED);
                put_bytes(&mut to, note);
            }
            SystemRecord::Refused => to.push(REFUSED),
            SystemRecord::Pending {
                note,
                siblings,
                effects,
            } => {
                to.push(PENDING);
                put_bytes(&mut to, note);
                put_bytes(&mut to, siblings);
                put_len(&mut to, effects.len());
                effects.iter().for_each(|effect| effect.encode(&mut to));
            }
        }
        to
    }
}

impl PreparedState<'_> {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.age.0.to_le_bytes());
        put_bytes(to, self.siblings);
        put_len(to, self.effects.len());
        self.effects.iter().for_each(|effect| effect.encode(to));
        put_len(to, self.shared.len());
        self.shared.iter().for_each(|key| put_bytes(to, key));
        put_len(to, self.ranges.len());
        for (from, end) in &self.ranges {
            put_bytes(to, from);
            put_bytes(to, end);
        }
    }
}

impl PreparedEffect<'_> {
    /// Returns `true` if the effect changes this key by name.
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        match self {
            PreparedEffect::Put { key: of, .. } | PreparedEffect::Delete { key: of } => *of == key,
            PreparedEffect::Flush { .. } => false,
        }
    }

    /// Returns the same effect, of another generation.
    pub(crate) fn of_generation(self, generation: u16) -> Self {
        match self {
            PreparedEffect::Put {
                key,
                value,
                kind,
                deadline,
                ..
            } => PreparedEffect::Put {
                key,
                value,
                kind,
                generation,
                deadline,
            },
            other => other,
        }
    }

    fn encode(&self, to: &mut Vec<u8>) {
        match *self {
            PreparedEffect::Put {
                key,
                value,
                kind,
                generation,
                deadline,
            } => {
                to.extend_from_slice(&[PUT, kind as u8]);
                to.extend_from_slice(&generation.to_le_bytes());
                to.push(deadline.is_some().into());
                let deadline = deadline.map(u64::to_le_bytes);
                deadline.iter().for_each(|at| to.extend_from_slice(at));
                put_bytes(to, key);
                put_bytes(to, value);
            }
            PreparedEffect::Delete { key } => {
                to.push(DELETE);
                put_bytes(to, key);
            }
            PreparedEffect::Flush { generation } => {
                to.push(FLUSH);
                to.extend_from_slice(&generation.to_le_bytes());
            }
        }
    }
}

fn put_len(to: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len).expect("a transaction's size is limited");
    to.extend_from_slice(&len.to_le_bytes());
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_len(to, bytes.len());
    to.extend_from_slice(bytes);
}

/// The reason why the value of a system record can be read without an error.
pub(crate) const WELL_FORMED: &str = "system records were checked when they were restored";

/// Returns a new version of a system record.
pub(crate) fn new_version(value: &[u8], deadline: Option<u64>) -> VersionRef {
    let content = VersionContent {
        parts: &[value],
        kind: Kind::String,
        deadline,
    };
    VersionRef::new(SYSTEM_GENERATION, Some(content), None)
}

/// Returns the state that a version of a transaction's record describes at `time_ms`.
pub(crate) fn state_at(version: VersionRef, time_ms: u64) -> State {
    let passed = |deadline| deadline <= time_ms;
    if version.is_absent() || version.deadline().is_some_and(passed) {
        return State::Unknown;
    }
    state(version.value()).expect(WELL_FORMED)
}

/// Returns the state that a value describes, without reading the rest of a prepared transaction.
pub(crate) fn state(value: &[u8]) -> Result<State, MalformedSystemRecord> {
    let mut from = Reader(value);
    Ok(match from.u8()? {
        PREPARED | PENDING => State::Prepared(from.bytes()?.to_vec()),
        COMMITTED => State::Committed(from.bytes()?.to_vec()),
        REFUSED => State::Refused,
        _ => return Err(MalformedSystemRecord("there is no such state")),
    })
}

/// Returns `true` if a value is that of a prepared transaction that holds nothing.
pub(crate) fn is_unheld(value: &[u8]) -> bool {
    value.first() == Some(&PENDING)
}

/// Decodes a whole value.
pub(crate) fn decode(value: &[u8]) -> Result<SystemRecord<'_>, MalformedSystemRecord> {
    let mut from = Reader(value);
    let entry = match from.u8()? {
        PREPARED => SystemRecord::Prepared {
            note: from.bytes()?,
            kept: from.kept()?,
        },
        COMMITTED => SystemRecord::Committed {
            note: from.bytes()?,
        },
        REFUSED => SystemRecord::Refused,
        PENDING => SystemRecord::Pending {
            note: from.bytes()?,
            siblings: from.bytes()?,
            effects: from.list(Reader::effect)?,
        },
        _ => return Err(MalformedSystemRecord("there is no such state")),
    };
    if !from.0.is_empty() {
        return Err(MalformedSystemRecord("bytes follow its end"));
    }
    Ok(entry)
}

/// The bytes that were not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], MalformedSystemRecord> {
        let (taken, rest) = self
            .0
            .split_at_checked(len)
            .ok_or(MalformedSystemRecord("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedSystemRecord> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many as were asked for"))
    }

    fn u8(&mut self) -> Result<u8, MalformedSystemRecord> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, MalformedSystemRecord> {
        self.array().map(u16::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, MalformedSystemRecord> {
        self.array().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, MalformedSystemRecord> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MalformedSystemRecord("a flag is neither 0 nor 1")),
        }
    }

    fn len(&mut self) -> Result<usize, MalformedSystemRecord> {
        self.array().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    fn bytes(&mut self) -> Result<&'a [u8], MalformedSystemRecord> {
        let len = self.len()?;
        self.take(len)
    }

    /// Reads as many parts as the count says; memory grows with the bytes that are there, not with
    /// the number.
    fn list<T>(
        &mut self,
        part: impl Fn(&mut Reader<'a>) -> Result<T, MalformedSystemRecord>,
    ) -> Result<Vec<T>, MalformedSystemRecord> {
        let len = self.len()?;
        let mut list = Vec::new();
        for _ in 0..len {
            list.push(part(self)?);
        }
        Ok(list)
    }

    fn kept(&mut self) -> Result<PreparedState<'a>, MalformedSystemRecord> {
        Ok(PreparedState {
            age: Timestamp(self.u64()?),
            siblings: self.bytes()?,
            effects: self.list(Reader::effect)?,
            shared: self.list(Reader::bytes)?,
            ranges: self.list(|from| Ok((from.bytes()?, from.bytes()?)))?,
        })
    }

    fn effect(&mut self) -> Result<PreparedEffect<'a>, MalformedSystemRecord> {
        Ok(match self.u8()? {
            PUT => {
                let kind = Kind::from_u8(self.u8()?)
                    .ok_or(MalformedSystemRecord("there is no such type"))?;
                PreparedEffect::Put {
                    kind,
                    generation: self.u16()?,
                    deadline: self.flag()?.then(|| self.u64()).transpose()?,
                    key: self.bytes()?,
                    value: self.bytes()?,
                }
            }
            DELETE => PreparedEffect::Delete { key: self.bytes()? },
            FLUSH => PreparedEffect::Flush {
                generation: self.u16()?,
            },
            _ => return Err(MalformedSystemRecord("there is no such effect")),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn examples() -> [SystemRecord<'static>; 5] {
        let put = |deadline| PreparedEffect::Put {
            key: b"key",
            value: b"value",
            kind: Kind::String,
            generation: 7,
            deadline,
        };
        let kept = PreparedState {
            age: Timestamp(99),
            siblings: b"siblings",
            effects: vec![
                put(None),
                put(Some(5)),
                PreparedEffect::Delete { key: b"" },
                PreparedEffect::Flush { generation: 8 },
            ],
            shared: vec![b"read", b""],
            ranges: vec![(b"a", b"b"), (b"", b"c")],
        };
        let empty = PreparedState {
            age: Timestamp::ZERO,
            siblings: b"",
            effects: Vec::new(),
            shared: Vec::new(),
            ranges: Vec::new(),
        };
        [
            SystemRecord::Prepared {
                note: b"note",
                kept,
            },
            SystemRecord::Prepared {
                note: b"",
                kept: empty,
            },
            SystemRecord::Committed { note: b"note" },
            SystemRecord::Refused,
            SystemRecord::Pending {
                note: b"note",
                siblings: b"siblings",
                effects: vec![put(Some(5)), PreparedEffect::Delete { key: b"k" }],
            },
        ]
    }

    #[test]
    fn values_come_back() {
        for entry in examples() {
            let bytes = entry.encode();
            assert_eq!(decode(&bytes).as_ref(), Ok(&entry));
            let expected = match entry {
                SystemRecord::Prepared { note, .. } | SystemRecord::Pending { note, .. } => {
                    State::Prepared(note.to_vec())
                }
                SystemRecord::Committed { note } => State::Committed(note.to_vec()),
                SystemRecord::Refused => State::Refused,
            };
            assert_eq!(state(&bytes), Ok(expected));
        }
    }

    #[test]
    fn what_is_cut_or_followed_by_bytes_is_refused() {
        for bytes in examples().map(|entry| entry.encode()) {
            for len in 0..bytes.len() {
                assert!(decode(&bytes[..len]).is_err(), "{len} bytes of {bytes:?}");
            }
            let mut longer = bytes.clone();
            longer.push(0);
            assert_eq!(
                decode(&longer),
                Err(MalformedSystemRecord("bytes follow its end"))
            );
        }
        assert!(decode(&[5]).is_err() && state(&[0]).is_err());
        let huge_count = [&[PREPARED][..], &[0; 16], &[0xff; 4]].concat();
        assert!(decode(&huge_count).is_err());
    }

    #[test]
    fn keys_are_those_of_transactions() {
        let one = TransactionId {
            timestamp: Timestamp(1),
            unique: 2,
        };
        assert_eq!(id(&key(one)), Ok(one));
        assert!(is_reserved(&key(one)) && !is_reserved(&[0xff; 15]));
        assert!(id(&RESERVED).is_err() && id(b"other").is_err());
        let last = TransactionId {
            timestamp: Timestamp(0xfd << 56 | u64::MAX >> 8),
            unique: u64::MAX,
        };
        assert!(key(last)[..] < BEHIND_TRANSACTIONS[..] && is_transaction(&key(last)));
        for other in [&OTHERS[..], &DATABASES, &database::prefix(1)] {
            assert!(is_reserved(other) && !is_transaction(other));
        }
        assert!(!is_transaction(b"key"));
    }
}
