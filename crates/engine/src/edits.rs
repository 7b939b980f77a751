//! Edits of parts of long values, as a restoration finds them.
//!
//! A log has an edit in place of a long value of which a part has changed. An edit needs the version
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
    offset: usize,
    bytes: &'a [u8],
}

impl Edits {
    /// Keeps an edit: transaction `tid` has put `bytes` at `offset` of the version that `base` wrote.
    pub(crate) fn keep(
        &mut self,
        record: RecordRef,
        (tid, base): (Tid, Tid),
        offset: usize,
        bytes: &[u8],
    ) {
        let to = self.of.entry(record).or_default();
        let fields = [
            tid.to_bits(),
            base.to_bits(),
            offset as u64,
            bytes.len() as u64,
        ];
        fields
            .iter()
            .for_each(|field| to.extend_from_slice(&field.to_le_bytes()));
        to.extend_from_slice(bytes);
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

/// Returns a value in which edits have been made.
pub(crate) fn apply(value: &[u8], edits: &[StoredEdit<'_>]) -> Vec<u8> {
    let mut value = value.to_vec();
    for edit in edits {
        let end = edit.offset + edit.bytes.len();
        if value.len() < end {
            value.resize(end, 0);
        }
        value[edit.offset..end].copy_from_slice(edit.bytes);
    }
    value
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
        let (offset, length) = (field(&mut rest)?, field(&mut rest)?);
        let bytes;
        (bytes, rest) = rest.split_at_checked(length as usize)?;
        Some(StoredEdit {
            tid: Tid::from_bits(tid),
            base: Tid::from_bits(base),
            offset: offset as usize,
            bytes,
        })
    })
}
