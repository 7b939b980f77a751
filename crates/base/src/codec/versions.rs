//! Questions and answers about versions of read-atomic keys, as bytes: a tag, then the fields.
//!
//! | tag | ask | fields |
//! |---|---|---|
//! | 0 | newest | key (bytes) |
//! | 1 | id | key (bytes) |
//! | 2 | one of | key (bytes), ids: count, then 16 bytes each |
//!
//! | tag | found | fields |
//! |---|---|---|
//! | 0 | nothing | none |
//! | 1 | not there | none |
//! | 2 | gone | none |
//! | 3 | a version of an absent key, or its id alone | id (16 bytes), siblings (bytes) |
//! | 4 | a version | id (16 bytes), siblings (bytes), content |
//! | 5 | as 3, of the transaction of the version before | none |
//! | 6 | as 4, of the transaction of the version before | content |
//!
//! Content: 1 byte, the kind as in logs, plus 128 if a deadline (8 bytes) follows; value (bytes). Of
//! versions that follow each other with the same id and siblings, only the first one says them.

use std::sync::Arc;

use crate::model::ids::TransactionId;
use crate::model::operation::Kind;
use crate::model::versions::{Ask, OwnedContent, OwnedFound, OwnedVersion};

use super::bytes::{Reader, put_bytes, put_count, put_u64};
use super::malformed::{Malformed, MalformedKind};

/// Beside a kind: the key expires.
const EXPIRES: u8 = 0x80;

/// Appends questions.
pub fn write_asks(asks: &[Ask<'_>], to: &mut Vec<u8>) {
    put_count(to, asks.len() as u64);
    for ask in asks {
        to.push(match ask {
            Ask::Newest { .. } => 0,
            Ask::Id { .. } => 1,
            Ask::OneOf { .. } => 2,
        });
        put_bytes(to, ask.key());
        if let Ask::OneOf { ids, .. } = ask {
            put_count(to, ids.len() as u64);
            ids.iter()
                .for_each(|id| to.extend_from_slice(&id.to_bytes()));
        }
    }
}

/// Reads questions; bytes may follow.
///
/// # Errors
/// Returns an error if they are malformed.
pub fn read_asks<'a>(from: &mut Reader<'a>) -> Result<Vec<Ask<'a>>, Malformed> {
    from.list(|from| {
        let tag = from.u8()?;
        let unknown = from.malformed(MalformedKind::Kind(tag, "ask"));
        let key = from.bytes()?;
        Ok(match tag {
            0 => Ask::Newest { key },
            1 => Ask::Id { key },
            2 => Ask::OneOf {
                key,
                ids: from.list(Reader::id)?,
            },
            _ => return Err(unknown),
        })
    })
}

/// Appends answers.
pub fn write_founds(founds: &[OwnedFound], to: &mut Vec<u8>) {
    put_count(to, founds.len() as u64);
    let mut last = None;
    for found in founds {
        match found {
            OwnedFound::Nothing => to.push(0),
            OwnedFound::NotThere => to.push(1),
            OwnedFound::Gone => to.push(2),
            OwnedFound::Version(version) => {
                write_version(version, last, to);
                last = Some(version);
            }
        }
    }
}

fn write_version(version: &OwnedVersion, last: Option<&OwnedVersion>, to: &mut Vec<u8>) {
    let same = last.is_some_and(|last| is_same(last, version));
    to.push(3 + u8::from(version.content.is_some()) + 2 * u8::from(same));
    if !same {
        to.extend_from_slice(&version.id.to_bytes());
        put_bytes(to, &version.siblings);
    }
    if let Some(content) = &version.content {
        let expires = content.deadline.map_or(0, |_| EXPIRES);
        to.push(content.kind as u8 | expires);
        content.deadline.iter().for_each(|at| put_u64(to, *at));
        put_bytes(to, &content.value);
    }
}

/// Reads answers; bytes may follow.
///
/// # Errors
/// Returns an error if they are malformed.
pub fn read_founds(from: &mut Reader<'_>) -> Result<Vec<OwnedFound>, Malformed> {
    let mut last: Option<(TransactionId, Arc<[u8]>)> = None;
    from.list(|from| {
        let tag = from.u8()?;
        let unknown = from.malformed(MalformedKind::Kind(tag, "version"));
        let origin = match tag {
            0 => return Ok(OwnedFound::Nothing),
            1 => return Ok(OwnedFound::NotThere),
            2 => return Ok(OwnedFound::Gone),
            3 | 4 => {
                let (id, siblings) = (from.id()?, from.bytes()?);
                let same = last.as_ref().filter(|(_, last)| **last == *siblings);
                // Each value has one encoding.
                if same.is_some_and(|(last, _)| *last == id) {
                    return Err(unknown);
                }
                let shared = same.map(|(_, last)| Arc::clone(last));
                (id, shared.unwrap_or_else(|| siblings.into()))
            }
            5 | 6 => last.clone().ok_or(unknown)?,
            _ => return Err(unknown),
        };
        last = Some(origin.clone());
        let content = match tag {
            4 | 6 => Some(read_content(from)?),
            _ => None,
        };
        let (id, siblings) = origin;
        Ok(OwnedFound::Version(OwnedVersion {
            id,
            siblings,
            content,
        }))
    })
}

fn is_same(one: &OwnedVersion, other: &OwnedVersion) -> bool {
    one.id == other.id && one.siblings == other.siblings
}

fn read_content(from: &mut Reader<'_>) -> Result<OwnedContent, Malformed> {
    let head = from.u8()?;
    let kind = Kind::from_u8(head & !EXPIRES);
    let kind = kind.ok_or(from.malformed(MalformedKind::Kind(head, "value")))?;
    let deadline = match head & EXPIRES {
        0 => None,
        _ => Some(from.u64()?),
    };
    let value = from.bytes()?.to_vec();
    Ok(OwnedContent {
        value,
        kind,
        deadline,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    const ID: TransactionId = TransactionId {
        timestamp: Timestamp(7 << 16),
        unique: 3,
    };

    fn version(content: Option<OwnedContent>) -> OwnedFound {
        OwnedFound::Version(OwnedVersion {
            id: ID,
            siblings: b"\x01\0\0\0k"[..].into(),
            content,
        })
    }

    #[test]
    fn asks_and_answers_come_back_and_cut_ones_are_noticed() {
        let key: &[u8] = b"key";
        let asks = [
            Ask::Newest { key },
            Ask::Id { key: b"" },
            Ask::OneOf {
                key,
                ids: vec![TransactionId::ZERO, ID],
            },
        ];
        let mut bytes = Vec::new();
        write_asks(&asks, &mut bytes);
        assert_eq!(read_asks(&mut Reader::new(&bytes)).unwrap(), asks);
        for len in 0..bytes.len() {
            read_asks(&mut Reader::new(&bytes[..len])).unwrap_err();
        }
        let content = |kind, deadline| OwnedContent {
            value: b"value".to_vec(),
            kind,
            deadline,
        };
        let OwnedFound::Version(mut another) = version(None) else {
            unreachable!("it is one")
        };
        another.id = TransactionId::ZERO;
        let another = OwnedFound::Version(another);
        let founds = [
            OwnedFound::Nothing,
            OwnedFound::NotThere,
            OwnedFound::Gone,
            version(None),
            another,
            version(Some(content(Kind::String, None))),
            version(Some(content(Kind::SortedSet, Some(1 << 40)))),
        ];
        bytes.clear();
        write_founds(&founds, &mut bytes);
        assert_eq!(read_founds(&mut Reader::new(&bytes)).unwrap(), founds);
        for len in 0..bytes.len() {
            read_founds(&mut Reader::new(&bytes[..len])).unwrap_err();
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let ask = |tag| {
            read_asks(&mut Reader::new(&[1, tag, 0, 0]))
                .unwrap_err()
                .kind
        };
        assert_eq!(ask(3), MalformedKind::Kind(3, "ask"));
        let found = read_founds(&mut Reader::new(&[1, 5]));
        assert_eq!(found.unwrap_err().kind, MalformedKind::Kind(5, "version"));
        let mut bytes = Vec::new();
        write_founds(&[version(None)], &mut bytes);
        bytes[1] = 4;
        bytes.extend_from_slice(&[9, 0]);
        let kind = read_founds(&mut Reader::new(&bytes)).unwrap_err().kind;
        assert_eq!(kind, MalformedKind::Kind(9, "value"));
        bytes.clear();
        write_founds(&[version(None)], &mut bytes);
        let said_twice = [&[2][..], &bytes[1..], &bytes[1..]].concat();
        let kind = read_founds(&mut Reader::new(&said_twice)).unwrap_err().kind;
        assert_eq!(kind, MalformedKind::Kind(3, "version"));
    }
}
