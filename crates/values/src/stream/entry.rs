//! An entry of a stream that is read.

use super::id::EntryId;
use crate::packed::{Elements, blobs};

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamEntry<'v> {
    pub(crate) id: EntryId,
    /// The names of its fields, each a blob; empty: they are in `fields`.
    names: &'v [u8],
    /// Its fields, name and value in turns, or the values alone; each a blob.
    fields: &'v [u8],
}

impl<'v> StreamEntry<'v> {
    /// Returns an entry with these fields, name and value in turns, each a blob.
    pub(super) fn new(id: EntryId, fields: &'v [u8]) -> StreamEntry<'v> {
        let names = b"";
        StreamEntry { id, names, fields }
    }

    /// Returns an entry whose fields have these names and values, each a blob.
    pub(super) fn with_names(id: EntryId, names: &'v [u8], values: &'v [u8]) -> StreamEntry<'v> {
        let fields = values;
        StreamEntry { id, names, fields }
    }

    /// Returns its fields and values, alternating.
    pub(crate) fn fields(self) -> EntryFields<'v> {
        EntryFields {
            names: blobs(self.names),
            fields: blobs(self.fields),
            takes_name: !self.names.is_empty(),
            has_names: !self.names.is_empty(),
        }
    }

    /// Returns its fields, name and value in turns, each a blob; of an entry of a packed block only.
    pub(super) fn own_fields(self) -> &'v [u8] {
        debug_assert!(self.names.is_empty());
        self.fields
    }

    /// Returns the bytes of its fields and values, each being a blob.
    pub(super) fn field_bytes(self) -> usize {
        self.names.len() + self.fields.len()
    }
}

/// The fields of an entry; see [`StreamEntry::fields`].
#[derive(Clone)]
pub(crate) struct EntryFields<'v> {
    names: Elements<'v>,
    fields: Elements<'v>,
    has_names: bool,
    /// `true` if the next blob is one of `names`.
    takes_name: bool,
}

impl<'v> Iterator for EntryFields<'v> {
    type Item = &'v [u8];

    #[inline]
    fn next(&mut self) -> Option<&'v [u8]> {
        let blob = match self.takes_name {
            true => self.names.next()?,
            false => self.fields.next()?,
        };
        self.takes_name = self.has_names && !self.takes_name;
        Some(blob.first)
    }
}
