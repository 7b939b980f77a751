//! Edits of parts of long values, as a restoration finds them.
//!
//! A log has an edit in place of a long value of which a part has changed: some bytes of a string, or elements of
//! a collection. An edit needs the version
//! before it, which another thread may find later. So edits are kept as bytes, those of a key together,
//! and are applied once all other changes are: those that are newer than the key's version, in the
//! order of their TIDs. Each names the version that it changes, which must be the one before it.
//!
//! A checkpoint has whole values. Edits of epochs that it covers are not read, and those of later epochs
//! find their first version in it or in the logs behind it.
//!
//! Memory: the bytes of edits in the logs, and the values of one key at a time.

use base::Tid;
use hashbrown::HashMap;

use crate::record::RecordRef;

/// The tags of the parts of edits in memory, and the deadline of a key without one.
const OF_BYTES: u64 = 0;
const OF_ELEMENTS: u64 = 1;
const NEVER: u64 = u64::MAX;

/// Edits that one restorer has found.
#[derive(Default)]
pub(crate) struct Edits {
    /// Of each record: all fields of one edit after another, as [`Edits::keep`] writes them.
    of: HashMap<RecordRef, Vec<u8>>,
}

/// An edit that was kept.
pub(crate) struct StoredEdit<'a> {
    pub(crate) tid: Tid,
    /// The transaction that wrote the version that the edit changes.
    pub(crate) base: Tid,
    pub(crate) part: EditedPart,
    /// The new bytes, or the changes of elements in the format of crate `values`.
    pub(crate) bytes: &'a [u8],
}

/// The part of a value that an edit changes.
#[derive(Clone, Copy)]
pub(crate) enum EditedPart {
    /// The bytes of a string from an offset on.
    Bytes { offset: usize },
    /// Elements of a collection, which has this deadline then.
    Elements { deadline: Option<u64> },
}

impl Edits {
    /// Keeps an edit.
    pub(crate) fn keep(&mut self, record: RecordRef, edit: &StoredEdit<'_>) {
        let to = self.of.entry(record).or_default();
        let (tag, number) = match edit.part {
            EditedPart::Bytes { offset } => (OF_BYTES, offset as u64),
            EditedPart::Elements { deadline } => (OF_ELEMENTS, deadline.unwrap_or(NEVER)),
        };
        let fields = [
            edit.tid.to_bits(),
            edit.base.to_bits(),
            tag,
            number,
            edit.bytes.len() as u64,
        ];
        fields
            .iter()
            .for_each(|field| to.extend_from_slice(&field.to_le_bytes()));
        to.extend_from_slice(edit.bytes);
    }

    /// Removes the edits of all threads, and returns them by record: for each thread's bytes a list,
    /// which [`read_sorted`] reads.
    pub(crate) fn take_all<'e>(
        all: impl Iterator<Item = &'e mut Edits>,
    ) -> HashMap<RecordRef, Vec<Vec<u8>>> {
        let mut by_record: HashMap<RecordRef, Vec<Vec<u8>>> = HashMap::new();
        for edits in all {
            for (record, bytes) in edits.of.drain() {
                by_record.entry(record).or_default().push(bytes);
            }
        }
        by_record
    }
}

/// Returns the edits in the order of their TIDs.
pub(crate) fn read_sorted(bytes: &[Vec<u8>]) -> Vec<StoredEdit<'_>> {
    let mut edits: Vec<StoredEdit<'_>> = bytes.iter().flat_map(|bytes| read(bytes)).collect();
    edits.sort_unstable_by_key(|edit| edit.tid);
    edits
}

/// Returns a string in which edits have been made; `None` if one of them is of a collection.
pub(crate) fn apply(value: &[u8], edits: &[StoredEdit<'_>]) -> Option<Vec<u8>> {
    let mut value = value.to_vec();
    for edit in edits {
        let EditedPart::Bytes { offset } = edit.part else {
            return None;
        };
        let end = offset + edit.bytes.len();
        if value.len() < end {
            value.resize(end, 0);
        }
        value[offset..end].copy_from_slice(edit.bytes);
    }
    Some(value)
}

/// Reads the edits that [`Edits::keep`] has written.
fn read(mut rest: &[u8]) -> impl Iterator<Item = StoredEdit<'_>> {
    let field = move |bytes: &mut &[u8]| -> Option<u64> {
        let (field, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u64::from_le_bytes(*field))
    };
    std::iter::from_fn(move || {
        let (tid, base) = (field(&mut rest)?, field(&mut rest)?);
        let (tag, number) = (field(&mut rest)?, field(&mut rest)?);
        let length = field(&mut rest)?;
        let bytes;
        (bytes, rest) = rest.split_at_checked(length as usize)?;
        Some(StoredEdit {
            tid: Tid::from_bits(tid),
            base: Tid::from_bits(base),
            part: match tag {
                OF_BYTES => EditedPart::Bytes {
                    offset: number as usize,
                },
                _ => EditedPart::Elements {
                    deadline: (number != NEVER).then_some(number),
                },
            },
            bytes,
        })
    })
}
