//! The data of an entry of the log: a tag, then the fields in this order. An entry without data is
//! Raft's own: the first entry of a new leader.
//!
//! | tag | payload | fields |
//! |---|---|---|
//! | 1 | transaction | stamp (8 bytes), client (8 bytes), sequence (8 bytes), result (bytes), changes (the rest) |
//! | 2 | operations | stamp (8 bytes), client (8 bytes), sequence (8 bytes), ops (the rest) |
//! | 3 | tick | stamp (8 bytes) |
//! | 4 | sessions | stamp (8 bytes), count of the sessions that end, each 8 bytes |
//! | 5 | open | stamp (8 bytes), most (8 bytes) |
//!
//! | field | meaning |
//! |---|---|
//! | stamp | the leader's time, milliseconds since the Unix epoch |
//! | client, sequence | of which session the transaction is, and its number there; both 0: of none |
//! | result | what the client is told, now and whenever it asks again |
//! | changes | what was written, as the journal encodes the entries of a transaction. Changes of a collection's elements whose `base` is zero are of the version that the entries before have left: it was not applied yet when the leader executed them |
//! | ops | the operations, which every member executes by itself |
//! | most | a session is opened, whose id is the log's time so far (milliseconds, shifted by 22 bits) and the index of the entry, added up; not if there are so many already |

use base::codec::{Malformed, MalformedKind, Reader, put_bytes, put_count, put_u64};
use journal::ChangeReader;

const TRANSACTION: u8 = 1;
const EXECUTE: u8 = 2;
const TICK: u8 = 3;
const SESSIONS: u8 = 4;
const OPEN: u8 = 5;

/// The data of an entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// A transaction that the leader has executed.
    Transaction {
        /// The leader's time, milliseconds since the Unix epoch.
        stamp_ms: u64,
        /// The session of the transaction; 0 if it has none.
        client: u64,
        /// The number of the transaction in the session.
        sequence: u64,
        /// The result that the client gets.
        result: &'a [u8],
        /// The changes; [`changes`] reads them, [`journal::write_changes`] writes them.
        changes: &'a [u8],
    },
    /// Operations that every member executes when it applies the entry.
    Execute {
        /// The leader's time, milliseconds since the Unix epoch.
        stamp_ms: u64,
        /// The session of the operations; 0 if they have none.
        client: u64,
        /// Their number in the session.
        sequence: u64,
        /// The operations, as [`base::codec::encode_ops`] writes them.
        ops: &'a [u8],
    },
    /// Time passes.
    Tick {
        /// The leader's time, milliseconds since the Unix epoch.
        stamp_ms: u64,
    },
    /// Clients that have not been heard of for long are forgotten.
    Sessions {
        /// The leader's time, milliseconds since the Unix epoch.
        stamp_ms: u64,
        /// The sessions that end.
        expire: Vec<u64>,
    },
    /// A client's session begins.
    Open {
        /// The leader's time, milliseconds since the Unix epoch.
        stamp_ms: u64,
        /// The limit on sessions, at which none is opened. It is in the entry so that all members
        /// agree.
        most: u64,
    },
}

/// Returns a reader of a transaction's changes.
#[must_use]
pub(crate) fn changes(bytes: &[u8]) -> ChangeReader<'_> {
    ChangeReader::new(bytes)
}

impl<'a> Payload<'a> {
    /// Returns the leader's time, in milliseconds since the Unix epoch.
    #[must_use]
    pub(crate) fn stamp_ms(&self) -> u64 {
        match self {
            Payload::Transaction { stamp_ms, .. }
            | Payload::Execute { stamp_ms, .. }
            | Payload::Tick { stamp_ms }
            | Payload::Sessions { stamp_ms, .. }
            | Payload::Open { stamp_ms, .. } => *stamp_ms,
        }
    }

    /// Appends the payload. It has no length field: it is all of an entry's data.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        to.push(match self {
            Payload::Transaction { .. } => TRANSACTION,
            Payload::Execute { .. } => EXECUTE,
            Payload::Tick { .. } => TICK,
            Payload::Sessions { .. } => SESSIONS,
            Payload::Open { .. } => OPEN,
        });
        put_u64(to, self.stamp_ms());
        match self {
            Payload::Transaction {
                client,
                sequence,
                result,
                changes,
                ..
            } => {
                put_u64(to, *client);
                put_u64(to, *sequence);
                put_bytes(to, result);
                to.extend_from_slice(changes);
            }
            Payload::Execute {
                client,
                sequence,
                ops,
                ..
            } => {
                put_u64(to, *client);
                put_u64(to, *sequence);
                to.extend_from_slice(ops);
            }
            Payload::Tick { .. } => {}
            Payload::Sessions { expire, .. } => {
                put_count(to, expire.len() as u64);
                expire.iter().for_each(|&client| put_u64(to, client));
            }
            Payload::Open { most, .. } => put_u64(to, *most),
        }
    }

    /// Reads a payload, which is all of `bytes`. Its changes or operations are read when the entry
    /// is applied.
    ///
    /// # Errors
    /// Returns an error if the payload is malformed.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Payload<'a>, Malformed> {
        let mut from = Reader::new(bytes);
        let tag = from.u8()?;
        if !(TRANSACTION..=OPEN).contains(&tag) {
            return Err(from.malformed(MalformedKind::Kind(tag, "payload")));
        }
        let stamp_ms = from.u64()?;
        let payload = match tag {
            TRANSACTION => {
                let (client, sequence) = (from.u64()?, from.u64()?);
                Payload::Transaction {
                    stamp_ms,
                    client,
                    sequence,
                    result: from.bytes()?,
                    changes: rest(&mut from, bytes)?,
                }
            }
            EXECUTE => Payload::Execute {
                stamp_ms,
                client: from.u64()?,
                sequence: from.u64()?,
                ops: rest(&mut from, bytes)?,
            },
            TICK => Payload::Tick { stamp_ms },
            SESSIONS => Payload::Sessions {
                stamp_ms,
                expire: from.list(Reader::u64)?,
            },
            _ => Payload::Open {
                stamp_ms,
                most: from.u64()?,
            },
        };
        from.end()?;
        Ok(payload)
    }
}

/// Returns all bytes that have not been read.
fn rest<'a>(from: &mut Reader<'a>, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let read = from.malformed(MalformedKind::Cut).at;
    from.take(bytes.len() - read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Payload<'static>> {
        vec![
            Payload::Transaction {
                stamp_ms: 1,
                client: 2,
                sequence: 3,
                result: b"done",
                changes: b"\x04\x02\0",
            },
            Payload::Transaction {
                stamp_ms: 1,
                client: 2,
                sequence: 3,
                result: b"",
                changes: b"",
            },
            Payload::Execute {
                stamp_ms: u64::MAX,
                client: 5,
                sequence: 6,
                ops: b"\0",
            },
            Payload::Tick { stamp_ms: 7 },
            Payload::Sessions {
                stamp_ms: 8,
                expire: vec![9, u64::MAX],
            },
            Payload::Open {
                stamp_ms: 9,
                most: 10,
            },
        ]
    }

    #[test]
    fn payloads_come_back() {
        for payload in samples() {
            let mut bytes = Vec::new();
            payload.encode(&mut bytes);
            assert_eq!(Payload::decode(&bytes), Ok(payload));
        }
    }

    #[test]
    fn what_is_cut_or_unknown_is_refused() {
        assert!(Payload::decode(b"").is_err());
        let unknown = Payload::decode(b"\x06\0\0\0\0\0\0\0\0").unwrap_err();
        assert_eq!(unknown.kind, MalformedKind::Kind(6, "payload"));
        let mut bytes = Vec::new();
        samples()[4].encode(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Payload::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        bytes.push(0);
        assert!(Payload::decode(&bytes).is_err());
    }
}
