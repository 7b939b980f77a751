//! Transactions in the form in which they lie in a block's payload.
//!
//! A payload is a sequence of transactions. A transaction (integers are little-endian):
//!
//! | bytes | field | |
//! |---|---|---|
//! | 8 | tid | its epoch is the block's |
//! | 4 | entries | how many changes follow, at least 1; origins are not counted |
//!
//! Each entry:
//!
//! | tag | name | then |
//! |---|---|---|
//! | 1 | put | kind 1, generation 2, key length 4, value length 4, key, value |
//! | 2 | put with a deadline | kind 1, generation 2, key length 4, value length 4, deadline 8, key, value |
//! | 3 | delete | key length 4, key |
//! | 4 | flush | generation 2 |
//! | 5 | origin, before version 4 | timestamp 8, length 4, siblings; the number is 0 |
//! | 6 | origin | timestamp 8, number 8, length 4, siblings |
//! | 7 | edit | key length 4, base 8, offset 4, length 4, key, bytes |
//! | 8 | elements | key length 4, base 8, deadline 8, length 4, key, changes |
//!
//! An *origin* is that of the puts and deletes behind it in its transaction, up to the next origin;
//! one whose timestamp is 0 has no siblings, and means that those behind it have none. So a
//! transaction over several partitions writes its siblings only once. Its last entry is a change.
//!
//! An *edit* changes a part of a long value: of the version that the transaction `base` wrote, the
//! bytes from the offset on are now these; between the value's former end and the offset there are
//! zeros. Type, generation and deadline stay, and there is no origin.
//!
//! *Elements* change elements of a collection: of the version that the transaction `base` wrote. The format of
//! the changes is that of crate `values`. The deadline is the key's from now on; 2^64 - 1: it has none. Type and
//! generation stay, and there is no origin.
//!
//! For the bytes of siblings see
//! `base::change::siblings`.

mod read;
#[cfg(test)]
mod tests;

use std::ops::Range;

use base::change::Origin;
use base::transaction::Kind;
use base::{Change, Tid, TransactionId};

use crate::checkpoint::CheckpointKey;

pub use read::ChangeReader;
pub(crate) use read::{decode, decode_keys};

const PUT: u8 = 1;
const PUT_DEADLINE: u8 = 2;
const DELETE: u8 = 3;
const FLUSH: u8 = 4;
const OLD_ORIGIN: u8 = 5;
const ORIGIN: u8 = 6;
const EDIT: u8 = 7;
const ELEMENTS: u8 = 8;
/// In the place of a deadline: there is none.
const NEVER: u64 = u64::MAX;
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
    /// The change.
    pub change: Change<'a>,
}

/// Writes the entries of one transaction into a log buffer.
pub struct EntryWriter<'b> {
    buf: &'b mut Vec<u8>,
    entries: u32,
    /// The origin that the next entry would have: its id, and the place of its siblings.
    origin: Option<(TransactionId, Range<usize>)>,
}

impl EntryWriter<'_> {
    /// The most bytes that an entry takes besides its key and value. For size hints.
    pub const OVERHEAD: usize = 21;
    /// Bytes that an origin takes besides its siblings.
    pub const ORIGIN_OVERHEAD: usize = 21;

    /// Appends a change of the transaction. An origin is written once if the changes that have it
    /// come one after another.
    pub fn change(&mut self, change: &Change<'_>) {
        match *change {
            Change::Put {
                key,
                value,
                kind,
                generation,
                deadline,
                origin,
            } => {
                self.origin(origin);
                self.put_raw((key, value), kind, generation, deadline);
            }
            Change::Edit {
                key,
                base,
                offset,
                bytes,
            } => {
                self.origin(None);
                self.edit_raw(key, base, offset, bytes);
            }
            Change::Elements {
                key,
                base,
                deadline,
                changes,
            } => {
                self.origin(None);
                self.elements_raw((key, base), deadline, changes);
            }
            Change::Delete { key, origin } => {
                self.origin(origin);
                self.delete_raw(key);
            }
            Change::Flush { generation } => self.flush(generation),
        }
    }

    /// Appends `count` changes that [`write_changes`] has written; none of them has an origin.
    pub fn written(&mut self, changes: &[u8], count: u32) {
        self.origin(None);
        self.buf.extend_from_slice(changes);
        self.entries += count;
    }

    /// Appends a put of `key`.
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        kind: Kind,
        generation: u16,
        deadline: Option<u64>,
    ) {
        self.origin(None);
        self.put_raw((key, value), kind, generation, deadline);
    }

    /// Appends a delete of `key`.
    pub fn delete(&mut self, key: &[u8]) {
        self.origin(None);
        self.delete_raw(key);
    }

    fn put_raw(
        &mut self,
        (key, value): (&[u8], &[u8]),
        kind: Kind,
        generation: u16,
        deadline: Option<u64>,
    ) {
        put_head(self.buf, (key, value.len()), kind, generation, deadline);
        self.buf.extend_from_slice(key);
        self.buf.extend_from_slice(value);
        self.entries += 1;
    }

    fn edit_raw(&mut self, key: &[u8], base: Tid, offset: usize, bytes: &[u8]) {
        self.buf.push(EDIT);
        self.buf
            .extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.buf.extend_from_slice(&base.to_bits().to_le_bytes());
        self.buf.extend_from_slice(&(offset as u32).to_le_bytes());
        self.buf
            .extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.buf.extend_from_slice(key);
        self.buf.extend_from_slice(bytes);
        self.entries += 1;
    }

    fn elements_raw(&mut self, (key, base): (&[u8], Tid), deadline: Option<u64>, changes: &[u8]) {
        let deadline = deadline.unwrap_or(NEVER);
        self.buf.push(ELEMENTS);
        self.buf
            .extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.buf.extend_from_slice(&base.to_bits().to_le_bytes());
        self.buf.extend_from_slice(&deadline.to_le_bytes());
        self.buf
            .extend_from_slice(&(changes.len() as u32).to_le_bytes());
        self.buf.extend_from_slice(key);
        self.buf.extend_from_slice(changes);
        self.entries += 1;
    }

    fn delete_raw(&mut self, key: &[u8]) {
        self.buf.push(DELETE);
        self.buf
            .extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.buf.extend_from_slice(key);
        self.entries += 1;
    }

    /// Appends a flush: the transaction deleted every key, and `generation` begins.
    pub fn flush(&mut self, generation: u16) {
        self.buf.push(FLUSH);
        self.buf.extend_from_slice(&generation.to_le_bytes());
        self.entries += 1;
    }

    /// Appends the origin of the entry that follows, if it is not the same as before.
    fn origin(&mut self, origin: Option<Origin<'_>>) {
        if origin.is_none() && self.origin.is_none() {
            return;
        }
        let same = match (&self.origin, &origin) {
            (Some((id, at)), Some(new)) => *id == new.id && self.buf[at.clone()] == *new.siblings,
            _ => false,
        };
        if !same {
            let none = Origin {
                id: TransactionId::ZERO,
                siblings: &[],
            };
            put_origin(self.buf, &origin.unwrap_or(none));
            let end = self.buf.len();
            self.origin = origin.map(|new| (new.id, end - new.siblings.len()..end));
        }
    }
}

/// Appends a key of a checkpoint, up to its value.
pub(crate) fn encode_head(buf: &mut Vec<u8>, head: &CheckpointKey<'_>) {
    buf.extend_from_slice(&head.tid.to_bits().to_le_bytes());
    if let Some(origin) = &head.origin {
        put_origin(buf, origin);
    }
    let (key, deadline) = (head.key, head.deadline);
    put_head(
        buf,
        (key, head.value_len),
        head.kind,
        head.generation,
        deadline,
    );
    buf.extend_from_slice(key);
}

fn put_origin(buf: &mut Vec<u8>, origin: &Origin<'_>) {
    buf.push(ORIGIN);
    buf.extend_from_slice(&origin.id.timestamp.0.to_le_bytes());
    buf.extend_from_slice(&origin.id.unique.to_le_bytes());
    buf.extend_from_slice(&(origin.siblings.len() as u32).to_le_bytes());
    buf.extend_from_slice(origin.siblings);
}

/// Appends the fields of a put before its key.
fn put_head(
    buf: &mut Vec<u8>,
    (key, value_len): (&[u8], usize),
    kind: Kind,
    generation: u16,
    deadline: Option<u64>,
) {
    let mut head = [0; 20];
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
    let entries = write_changes(buf, fill);
    if entries == 0 {
        buf.truncate(start);
    } else {
        buf[start + 8..start + FRAME].copy_from_slice(&entries.to_le_bytes());
    }
}

/// Appends a transaction's entries, for logs that are not the journal's: without its TID and without
/// their number, which is returned. [`ChangeReader`] reads them.
pub fn write_changes(buf: &mut Vec<u8>, fill: impl FnOnce(&mut EntryWriter<'_>)) -> u32 {
    let mut writer = EntryWriter {
        buf,
        entries: 0,
        origin: None,
    };
    fill(&mut writer);
    writer.entries
}
