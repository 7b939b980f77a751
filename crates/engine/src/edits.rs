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

use crate::record::{Content, RecordRef, VersionRef};
use crate::restore::Restorer;

/// Edits that one restorer has found.
#[derive(Default)]
pub(crate) struct Edits {
    /// Of each record: all fields of one edit after another, as [`Edits::keep`] writes them.
    of: HashMap<RecordRef, Vec<u8>>,
}

/// An edit that was kept.
struct Kept<'a> {
    tid: Tid,
    base: Tid,
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

    /// Applies the edits of all restorers.
    ///
    /// # Errors
    /// Returns the key that lacks the version that an edit changes.
    pub(crate) fn apply(restorers: &mut [Restorer]) -> Result<(), String> {
        let mut all: HashMap<RecordRef, Vec<Vec<u8>>> = HashMap::new();
        for restorer in &mut *restorers {
            for (record, bytes) in restorer.edits.of.drain() {
                all.entry(record).or_default().push(bytes);
            }
        }
        let Some(restorer) = restorers.first_mut() else {
            return Ok(());
        };
        for (record, bytes) in all {
            let mut edits: Vec<Kept<'_>> = bytes.iter().flat_map(|bytes| read(bytes)).collect();
            edits.sort_unstable_by_key(|edit| edit.tid);
            restorer.edit(record, &edits)?;
        }
        Ok(())
    }
}

/// Reads the edits that [`Edits::keep`] has written.
fn read(mut rest: &[u8]) -> impl Iterator<Item = Kept<'_>> {
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
        Some(Kept {
            tid: Tid::from_bits(tid),
            base: Tid::from_bits(base),
            offset: offset as usize,
            bytes,
        })
    })
}

impl Restorer {
    /// Applies the edits of a record which are newer than its version.
    fn edit(&mut self, record: RecordRef, edits: &[Kept<'_>]) -> Result<(), String> {
        let engine = std::sync::Arc::clone(&self.worker.engine);
        let _pinned = crate::snapshot::Pinned::new(&engine, self.worker.place);
        let version = RecordRef::version(record.word().load());
        let known = if version.is_never() {
            Tid::ZERO
        } else {
            version.tid()
        };
        let newer = &edits[edits.partition_point(|edit| edit.tid <= known)..];
        let Some(last) = newer.last() else {
            return Ok(());
        };
        let mut base = known;
        for edit in newer {
            if edit.base != base || version.is_absent() {
                let key = record.key().escape_ascii();
                return Err(format!(
                    "an edit of the key \"{key}\" changes a version that is missing"
                ));
            }
            base = edit.tid;
        }
        let mut value = version.value().to_vec();
        for edit in newer {
            let end = edit.offset + edit.bytes.len();
            if value.len() < end {
                value.resize(end, 0);
            }
            value[edit.offset..end].copy_from_slice(edit.bytes);
        }
        let content = Content {
            parts: &[&value],
            kind: version.kind(),
            deadline: version.deadline(),
        };
        let new = VersionRef::new(version.generation(), Some(content), None);
        self.install(last.tid, record, new);
        Ok(())
    }
}
