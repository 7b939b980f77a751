//! Transactions as they lie in a block's payload.
//!
//! A payload is a sequence of transactions. A transaction (integers are little-endian):
//!
//! | bytes | field | |
//! |---|---|---|
//! | 8 | tid | its epoch is the block's |
//! | 4 | entries | how many follow, at least 1 |
//!
//! Each entry:
//!
//! | tag | name | then |
//! |---|---|---|
//! | 1 | put | kind 1, generation 2, key length 4, value length 4, key, value |
//! | 2 | put with a deadline | kind 1, generation 2, key length 4, value length 4, deadline 8, key, value |
//! | 3 | delete | key length 4, key |
//! | 4 | flush | generation 2 |

use base::transaction::Kind;
use base::{Change, Epoch, Tid};

use crate::checkpoint::{Head, View};

const PUT: u8 = 1;
const PUT_DEADLINE: u8 = 2;
const DELETE: u8 = 3;
const FLUSH: u8 = 4;
/// Bytes of a transaction before its entries.
pub(crate) const FRAME: usize = 12;

/// One change of a recovered transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The transaction. Of two changes of one key, that with the greater TID is the newer.
    pub tid: Tid,
    /// The time stamp of the transaction's epoch, or of the checkpoint in which the entry was found;
    /// milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    /// What it did.
    pub change: Change<'a>,
}

/// Writes the entries of one transaction into a log buffer.
pub struct EntryWriter<'b> {
    buf: &'b mut Vec<u8>,
    entries: u32,
}

impl EntryWriter<'_> {
    /// Bytes that an entry takes besides its key and value, at most. For size hints.
    pub const OVERHEAD: usize = 20;

    /// The transaction did this.
    pub fn change(&mut self, change: &Change<'_>) {
        match *change {
            Change::Put {
                key,
                value,
                kind,
                generation,
                deadline,
                origin: _,
            } => {
                self.put(key, value, kind, generation, deadline);
            }
            Change::Delete { key, origin: _ } => self.delete(key),
            Change::Flush { generation } => self.flush(generation),
        }
    }

    /// The transaction set `key`.
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        kind: Kind,
        generation: u16,
        deadline: Option<u64>,
    ) {
        put_head(self.buf, (key, value.len()), kind, generation, deadline);
        self.buf.extend_from_slice(key);
        self.buf.extend_from_slice(value);
        self.entries += 1;
    }

    /// The transaction deleted `key`.
    pub fn delete(&mut self, key: &[u8]) {
        self.buf.push(DELETE);
        self.buf
            .extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.buf.extend_from_slice(key);
        self.entries += 1;
    }

    /// The transaction deleted every key; `generation` begins.
    pub fn flush(&mut self, generation: u16) {
        self.buf.push(FLUSH);
        self.buf.extend_from_slice(&generation.to_le_bytes());
        self.entries += 1;
    }
}

/// Appends a key of a checkpoint, up to its value.
pub(crate) fn encode_head(buf: &mut Vec<u8>, head: &Head<'_>, generation: u16) {
    buf.extend_from_slice(&head.tid.to_bits().to_le_bytes());
    let (key, deadline) = (head.key, head.deadline);
    put_head(buf, (key, head.value_len), head.kind, generation, deadline);
    buf.extend_from_slice(key);
}

/// Appends the fields of a put before its key.
fn put_head(
    buf: &mut Vec<u8>,
    (key, value_len): (&[u8], usize),
    kind: Kind,
    generation: u16,
    deadline: Option<u64>,
) {
    let mut head = [0; EntryWriter::OVERHEAD];
    head[0] = if deadline.is_some() {
        PUT_DEADLINE
    } else {
        PUT
    };
    head[1] = kind as u8;
    head[2..4].copy_from_slice(&generation.to_le_bytes());
    head[4..8].copy_from_slice(&(key.len() as u32).to_le_bytes());
    head[8..12].copy_from_slice(&(value_len as u32).to_le_bytes());
    head[12..20].copy_from_slice(&deadline.unwrap_or(0).to_le_bytes());
    buf.extend_from_slice(&head[..if deadline.is_some() { 20 } else { 12 }]);
}

/// Appends a transaction to a payload. One without entries leaves no trace.
pub(crate) fn encode(buf: &mut Vec<u8>, tid: Tid, fill: impl FnOnce(&mut EntryWriter<'_>)) {
    let start = buf.len();
    buf.extend_from_slice(&tid.to_bits().to_le_bytes());
    buf.extend_from_slice(&[0; 4]);
    let mut writer = EntryWriter { buf, entries: 0 };
    fill(&mut writer);
    let entries = writer.entries;
    if entries == 0 {
        buf.truncate(start);
    } else {
        buf[start + 8..start + FRAME].copy_from_slice(&entries.to_le_bytes());
    }
}

/// Hands every entry of a payload to `apply`, and says how many there were.
///
/// # Errors
/// The offset of the malformed entry within the payload, and what is wrong.
pub(crate) fn decode(
    payload: &[u8],
    epoch: Epoch,
    stamp_ms: u64,
    mut apply: impl FnMut(Entry<'_>),
) -> Result<u64, (usize, &'static str)> {
    let mut rest = Rest { bytes: payload };
    let mut total = 0;
    while !rest.bytes.is_empty() {
        let at = payload.len() - rest.bytes.len();
        let mut transaction = || -> Result<u64, &'static str> {
            let tid = Tid::from_bits(rest.u64()?);
            if tid.epoch() != epoch {
                return Err("a transaction of another epoch than its block's");
            }
            let entries = rest.u32()?;
            if entries == 0 {
                return Err("a transaction without entries");
            }
            for _ in 0..entries {
                apply(Entry {
                    tid,
                    stamp_ms,
                    change: rest.change()?,
                });
            }
            Ok(u64::from(entries))
        };
        total += transaction().map_err(|what| (at, what))?;
    }
    Ok(total)
}

/// Hands every key of a checkpoint's block to `apply`, and says how many there were. All are of
/// `view`.
///
/// # Errors
/// The offset of the malformed entry within the payload, and what is wrong.
pub(crate) fn decode_keys(
    payload: &[u8],
    view: &View,
    mut apply: impl FnMut(Entry<'_>),
) -> Result<u64, (usize, &'static str)> {
    let mut rest = Rest { bytes: payload };
    let mut total = 0;
    while !rest.bytes.is_empty() {
        let at = payload.len() - rest.bytes.len();
        let mut key = || -> Result<(), &'static str> {
            let tid = Tid::from_bits(rest.u64()?);
            let change = rest.change()?;
            match change {
                _ if tid.epoch() > view.epoch => Err("a key of a later epoch than the checkpoint"),
                Change::Put { generation, .. } if generation == view.generation => {
                    let stamp_ms = view.stamp_ms;
                    apply(Entry {
                        tid,
                        stamp_ms,
                        change,
                    });
                    Ok(())
                }
                _ => Err("an entry that is no visible key"),
            }
        };
        key().map_err(|what| (at, what))?;
        total += 1;
    }
    Ok(total)
}

/// What is left of a payload.
struct Rest<'a> {
    bytes: &'a [u8],
}

impl<'a> Rest<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(n)
            .ok_or("an entry ends too early")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (taken, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or("an entry ends too early")?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        self.array().map(u64::from_le_bytes)
    }

    fn change(&mut self) -> Result<Change<'a>, &'static str> {
        let [tag] = self.array()?;
        match tag {
            PUT | PUT_DEADLINE => {
                let [kind] = self.array()?;
                let kind = Kind::from_u8(kind).ok_or("a value of unknown type")?;
                let generation = self.u16()?;
                let (key, value) = (self.u32()? as usize, self.u32()? as usize);
                let deadline = if tag == PUT_DEADLINE {
                    Some(self.u64()?)
                } else {
                    None
                };
                let (key, value) = (self.take(key)?, self.take(value)?);
                Ok(Change::Put {
                    key,
                    value,
                    kind,
                    generation,
                    deadline,
                    origin: None,
                })
            }
            DELETE => {
                let key = self.u32()? as usize;
                Ok(Change::Delete {
                    key: self.take(key)?,
                    origin: None,
                })
            }
            FLUSH => Ok(Change::Flush {
                generation: self.u16()?,
            }),
            _ => Err("an entry of unknown kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<u8>, Vec<Change<'static>>) {
        let changes = vec![
            Change::Put {
                key: b"k",
                value: b"value",
                kind: Kind::String,
                generation: 7,
                deadline: None,
                origin: None,
            },
            Change::Put {
                key: b"",
                value: b"",
                kind: Kind::Hash,
                generation: 0,
                deadline: Some(9),
                origin: None,
            },
            Change::Delete {
                key: b"gone",
                origin: None,
            },
            Change::Flush { generation: 8 },
        ];
        let mut buf = Vec::new();
        encode(&mut buf, Tid::new(Epoch(3), 1), |to| {
            for change in &changes {
                to.change(change);
            }
        });
        (buf, changes)
    }

    #[test]
    fn entries_come_back_as_they_went() {
        let (buf, changes) = sample();
        let mut seen = 0;
        let n = decode(&buf, Epoch(3), 55, |entry| {
            assert_eq!(entry.tid, Tid::new(Epoch(3), 1));
            assert_eq!(entry.stamp_ms, 55);
            assert_eq!(entry.change, changes[seen]);
            seen += 1;
        });
        assert_eq!((n, seen), (Ok(4), 4));
    }

    #[test]
    fn keys_of_a_checkpoint_come_back_and_must_belong_to_it() {
        let view = View {
            epoch: Epoch(3),
            stamp_ms: 55,
            generation: 7,
            ..View::default()
        };
        let head = Head {
            tid: Tid::new(Epoch(2), 9),
            key: b"key",
            value_len: 5,
            kind: Kind::String,
            deadline: Some(8),
        };
        let mut buf = Vec::new();
        encode_head(&mut buf, &head, 7);
        buf.extend(b"value");
        let found = decode_keys(&buf, &view, |entry| {
            assert_eq!((entry.tid, entry.stamp_ms), (head.tid, 55));
            let change = Change::Put {
                key: b"key",
                value: b"value",
                kind: Kind::String,
                generation: 7,
                deadline: Some(8),
                origin: None,
            };
            assert_eq!(entry.change, change);
        });
        assert_eq!(found, Ok(1));
        for n in 1..buf.len() {
            assert!(decode_keys(&buf[..n], &view, |_| {}).is_err(), "{n} bytes");
        }
        let generation = 6;
        let epoch = Epoch(1);
        for other in [View { generation, ..view }, View { epoch, ..view }] {
            assert!(decode_keys(&buf, &other, |_| {}).is_err(), "{other:?}");
        }
    }

    #[test]
    fn an_empty_transaction_leaves_no_trace() {
        let mut buf = Vec::new();
        encode(&mut buf, Tid::new(Epoch(3), 1), |_| {});
        assert!(buf.is_empty());
    }

    #[test]
    fn a_cut_payload_is_an_error_at_every_length() {
        let (buf, _) = sample();
        for n in 1..buf.len() {
            assert!(decode(&buf[..n], Epoch(3), 0, |_| {}).is_err(), "{n} bytes");
        }
        assert!(decode(&buf, Epoch(4), 0, |_| {}).is_err(), "another epoch");
    }
}
