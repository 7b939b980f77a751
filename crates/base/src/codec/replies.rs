//! Replies and reasons of aborts as bytes: a tag, then the fields.
//!
//! | tag | reply | fields |
//! |---|---|---|
//! | 0 | ok | none |
//! | 1 | nil | none |
//! | 2 | integer | 8 bytes, signed |
//! | 3 | bytes | bytes |
//! | 4 | kind | 1 byte, as in logs |
//! | 5 | deadline: none | none |
//! | 6 | deadline | milliseconds (8 bytes) |
//! | 7 | version | 8 bytes |
//! | 8 | pairs | count, then so many times key and value (bytes) |
//! | 9 | error | 1 byte: 0 wrong type, 1 not an integer, 2 overflow, 3 not a number, 4 not finite, 5 too long, 6 bad expiry, 7 reserved, 8 an error of a call: its number follows (1 byte) |
//! | 10 | value | 1 byte: the type, as in logs; bytes |
//! | 11 | nested | bytes: items of a nested reply |
//!
//! | tag | abort | fields |
//! |---|---|---|
//! | 0 | precondition | index of the operation (count) |
//! | 1 | conflict | attempts (4 bytes) |
//! | 2 | held | the holder's id, its age (8 bytes) |
//! | 3 | overtaken | timestamp (8 bytes) |
//! | 4 | refused | none |
//! | 5 | unavailable | text |
//! | 6 | unknown | text |
//! | 7 | too large | 1 byte: 0 operations, 1 bytes, 2 another limit, 3 the length of a lock's name |
//! | 8 | read-only | text |
//! | 9 | failed | an error, as in replies |
//! | 10 | cancelled | none |
//! | 11 | elsewhere | 1 byte: 1 if a leader is known; then its number (2 bytes) |
//! | 12 | forgotten | none |
//! | 13 | unsupported | text |
//! | 14 | stale | lock (bytes), token (8 bytes), the greatest that was seen (8 bytes) |
//! | 15 | out of memory | none |
//! | 16 | unacknowledged | count, then so many numbers of partitions (2 bytes each) |

use crate::model::abort::{Abort, Holder};
use crate::model::call_error::CallError;
use crate::model::ids::{NodeId, Timestamp, Version};
use crate::model::nested::NestedReply;
use crate::model::op_error::OpError;
use crate::model::operation::Kind;
use crate::model::reply::OwnedReply;

use super::bytes::{Reader, put_bytes, put_count, put_i64, put_u64};
use super::malformed::{Malformed, MalformedKind};

const ERRORS: [OpError; 8] = [
    OpError::WrongType,
    OpError::NotInteger,
    OpError::Overflow,
    OpError::NotNumber,
    OpError::NotFinite,
    OpError::TooLong,
    OpError::BadExpiry,
    OpError::Reserved,
];

/// In the place of an error's index: an error of a call.
const CALL: u8 = 8;

/// The limits that are encoded by their index; the third one stands for all others.
const LIMITS: [&str; 4] = [
    "operations",
    "bytes written",
    "what a partition takes",
    "the length of a lock's name",
];
/// The index of the one that stands for others.
const ANOTHER: usize = 2;

/// Appends replies.
pub fn write_replies(replies: &[OwnedReply], to: &mut Vec<u8>) {
    put_count(to, replies.len() as u64);
    replies.iter().for_each(|reply| write(reply, to));
}

/// Reads replies; bytes may follow.
///
/// # Errors
/// Returns an error if they are malformed.
pub fn read_replies(from: &mut Reader<'_>) -> Result<Vec<OwnedReply>, Malformed> {
    from.list(read)
}

fn write(reply: &OwnedReply, to: &mut Vec<u8>) {
    match reply {
        OwnedReply::Ok => to.push(0),
        OwnedReply::Nil => to.push(1),
        OwnedReply::Int(number) => {
            to.push(2);
            put_i64(to, *number);
        }
        OwnedReply::Bytes(bytes) => {
            to.push(3);
            put_bytes(to, bytes);
        }
        OwnedReply::Kind(kind) => to.extend_from_slice(&[4, *kind as u8]),
        OwnedReply::Deadline(None) => to.push(5),
        OwnedReply::Deadline(Some(ms)) => {
            to.push(6);
            put_u64(to, *ms);
        }
        OwnedReply::Version(version) => {
            to.push(7);
            put_u64(to, version.to_bits());
        }
        OwnedReply::Pairs(pairs) => {
            to.push(8);
            put_count(to, pairs.len() as u64);
            for (key, value) in pairs {
                put_bytes(to, key);
                put_bytes(to, value);
            }
        }
        OwnedReply::Error(error) => {
            to.push(9);
            write_error(*error, to);
        }
        OwnedReply::Value(kind, bytes) => {
            to.extend_from_slice(&[10, *kind as u8]);
            put_bytes(to, bytes);
        }
        OwnedReply::Nested(nested) => {
            to.push(11);
            put_bytes(to, nested.as_bytes());
        }
    }
}

fn read(from: &mut Reader<'_>) -> Result<OwnedReply, Malformed> {
    Ok(match from.u8()? {
        0 => OwnedReply::Ok,
        1 => OwnedReply::Nil,
        2 => OwnedReply::Int(from.i64()?),
        3 => OwnedReply::Bytes(from.bytes()?.to_vec()),
        4 => OwnedReply::Kind(read_kind(from)?),
        5 => OwnedReply::Deadline(None),
        6 => OwnedReply::Deadline(Some(from.u64()?)),
        7 => OwnedReply::Version(Version::from_bits(from.u64()?)),
        8 => {
            let pair = |from: &mut Reader<'_>| Ok((from.bytes()?.to_vec(), from.bytes()?.to_vec()));
            OwnedReply::Pairs(from.list(pair)?)
        }
        9 => OwnedReply::Error(read_error(from)?),
        10 => OwnedReply::Value(read_kind(from)?, from.bytes()?.to_vec()),
        11 => {
            let nested = NestedReply::from_bytes(from.bytes()?);
            OwnedReply::Nested(nested.ok_or(from.malformed(MalformedKind::BadReply))?)
        }
        other => return Err(from.malformed(MalformedKind::Kind(other, "reply"))),
    })
}

fn read_kind(from: &mut Reader<'_>) -> Result<Kind, Malformed> {
    let number = from.u8()?;
    let unknown = from.malformed(MalformedKind::Kind(number, "value"));
    Kind::from_u8(number).ok_or(unknown)
}

/// Appends the reason why a transaction did not take effect.
pub fn write_abort(abort: &Abort, to: &mut Vec<u8>) {
    let mut text = |tag: u8, text: &str| {
        to.push(tag);
        put_bytes(to, text.as_bytes());
    };
    match abort {
        Abort::Unavailable { what } => text(5, what),
        Abort::Unknown { what } => text(6, what),
        Abort::ReadOnly { reason } => text(8, reason),
        Abort::Unsupported { what } => text(13, what),
        Abort::Precondition { op } => {
            to.push(0);
            put_count(to, *op as u64);
        }
        Abort::Conflict { attempts } => {
            to.push(1);
            to.extend_from_slice(&attempts.to_le_bytes());
        }
        Abort::Held { by } => {
            to.push(2);
            to.extend_from_slice(&by.id.to_bytes());
            put_u64(to, by.age.0);
        }
        Abort::Overtaken { newest } => {
            to.push(3);
            put_u64(to, newest.0);
        }
        Abort::Refused => to.push(4),
        Abort::TooLarge { what } => {
            let named = LIMITS.iter().position(|limit| limit == what);
            to.extend_from_slice(&[7, named.unwrap_or(ANOTHER) as u8]);
        }
        Abort::Failed(error) => {
            to.push(9);
            write_error(*error, to);
        }
        Abort::Cancelled => to.push(10),
        Abort::Elsewhere { leader } => {
            to.extend_from_slice(&[11, leader.is_some().into()]);
            let leader = leader.map(|node| node.0.to_le_bytes());
            to.extend(leader.iter().flatten());
        }
        Abort::Forgotten => to.push(12),
        Abort::OutOfMemory => to.push(15),
        Abort::Unacknowledged { partitions } => {
            to.push(16);
            put_count(to, partitions.len() as u64);
            let partitions = partitions.iter().map(|of| of.to_le_bytes());
            to.extend(partitions.flatten());
        }
        Abort::Stale {
            lock,
            token,
            highest,
        } => {
            to.push(14);
            put_bytes(to, lock);
            put_u64(to, *token);
            put_u64(to, *highest);
        }
    }
}

/// Reads the reason why a transaction did not take effect.
///
/// # Errors
/// Returns an error if the bytes are malformed.
pub fn read_abort(from: &mut Reader<'_>) -> Result<Abort, Malformed> {
    Ok(match from.u8()? {
        0 => Abort::Precondition { op: from.size()? },
        1 => Abort::Conflict {
            attempts: from.u32()?,
        },
        2 => Abort::Held {
            by: Holder {
                id: from.id()?,
                age: Timestamp(from.u64()?),
            },
        },
        3 => Abort::Overtaken {
            newest: Timestamp(from.u64()?),
        },
        4 => Abort::Refused,
        5 => Abort::Unavailable {
            what: from.text()?.to_owned(),
        },
        6 => Abort::Unknown {
            what: from.text()?.to_owned(),
        },
        7 => {
            let number = from.u8()?;
            let unknown = from.malformed(MalformedKind::Kind(number, "limit"));
            let what = LIMITS.get(usize::from(number)).ok_or(unknown)?;
            Abort::TooLarge { what }
        }
        8 => Abort::ReadOnly {
            reason: from.text()?.to_owned(),
        },
        9 => Abort::Failed(read_error(from)?),
        10 => Abort::Cancelled,
        11 => Abort::Elsewhere {
            leader: match from.bool()? {
                true => Some(NodeId(from.u16()?)),
                false => None,
            },
        },
        12 => Abort::Forgotten,
        13 => Abort::Unsupported {
            what: from.text()?.to_owned(),
        },
        14 => Abort::Stale {
            lock: from.bytes()?.to_vec(),
            token: from.u64()?,
            highest: from.u64()?,
        },
        15 => Abort::OutOfMemory,
        16 => Abort::Unacknowledged {
            partitions: from.list(Reader::u16)?,
        },
        other => return Err(from.malformed(MalformedKind::Kind(other, "abort"))),
    })
}

fn write_error(error: OpError, to: &mut Vec<u8>) {
    if let OpError::Call(error) = error {
        return to.extend_from_slice(&[CALL, error as u8]);
    }
    let at = ERRORS.iter().position(|other| *other == error);
    to.push(at.expect("every other error is in the list") as u8);
}

fn read_error(from: &mut Reader<'_>) -> Result<OpError, Malformed> {
    let number = from.u8()?;
    let unknown = from.malformed(MalformedKind::Kind(number, "error"));
    if number != CALL {
        return ERRORS.get(usize::from(number)).copied().ok_or(unknown);
    }
    let number = from.u8()?;
    let unknown = from.malformed(MalformedKind::Kind(number, "error of a call"));
    let error = CallError::ALL.get(usize::from(number)).ok_or(unknown)?;
    Ok(OpError::Call(*error))
}
