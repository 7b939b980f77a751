//! The nodes of a large stream: the elements of a tree. The key of a node is the id of the entry with which it
//! began. Its value:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | the bytes of its entries in a packed block, little-endian |
//! | 2 | the number of its entries |
//! | 2 | the number of entries that it had besides, and that were deleted |
//! | … | the names of the fields of its first entry, each a blob: all of them are a blob |
//! | … | its entries, in the order of their ids |
//!
//! An entry:
//!
//! | is | |
//! |---|---|
//! | a number | the milliseconds of its id, less those of the node's |
//! | a number | the number of its id; if the milliseconds are those of the node, less the number of the node's |
//! | a number | twice the length of what follows; one more if the names of its fields are those of the node |
//! | blobs | its fields, name and value in turns; the values alone if the names are those of the node |
//!
//! Numbers are LEB128. The bytes in a packed block decide which entries a node takes: a stream has the same nodes in
//! both forms.

use std::ops::Range;

use super::entry::StreamEntry;
use super::id::EntryId;
use super::packed_nodes::{COUNTS, NodeCounts, PackedNode, entry_bytes, entry_head, node_header};
use crate::leb128::{push_bytes, push_number, read_bytes, read_number};
use crate::packed::blobs;

/// A node.
#[derive(Clone, Copy)]
pub(super) struct TreeNode<'v> {
    pub(super) counts: NodeCounts,
    /// The id of the entry with which it began.
    pub(super) first_id: EntryId,
    names: &'v [u8],
    entries: &'v [u8],
}

impl<'v> TreeNode<'v> {
    /// Returns the node with this key and this value in the tree; `None` if they are malformed.
    pub(super) fn of((key, value): (&'v [u8], &'v [u8])) -> Option<TreeNode<'v>> {
        let (counts, mut rest) = value.split_first_chunk::<COUNTS>()?;
        let names = read_bytes(&mut rest)?;
        Some(TreeNode {
            counts: NodeCounts::from_bytes(*counts),
            first_id: EntryId::from_bytes(key.try_into().ok()?),
            names,
            entries: rest,
        })
    }

    /// Returns the value of a node that begins with an entry with these fields.
    pub(super) fn new_value(id: EntryId, fields: &[u8]) -> Vec<u8> {
        let counts = NodeCounts::default().with_entry(fields.len());
        let names = names_in(fields);
        let mut value = value_head(counts, &names, fields.len() + names.len());
        push_entry(&mut value, (id, &names), id, fields);
        value
    }

    /// Returns the value of a node of a packed block.
    pub(super) fn value_of(node: PackedNode<'_>) -> Vec<u8> {
        let mut entries = node.entries().peekable();
        let names = entries.peek().map(|first| names_in(first.own_fields()));
        let names = names.unwrap_or_default();
        let mut value = value_head(node.counts, &names, node.counts.length);
        entries.for_each(|entry| {
            push_entry(
                &mut value,
                (node.first_id, &names),
                entry.id,
                entry.own_fields(),
            );
        });
        value
    }

    /// Returns its value with one more entry.
    pub(super) fn with(self, id: EntryId, fields: &[u8]) -> Vec<u8> {
        let counts = self.counts.with_entry(fields.len());
        let mut value = value_head(counts, self.names, self.entries.len() + fields.len());
        value.extend_from_slice(self.entries);
        push_entry(&mut value, (self.first_id, self.names), id, fields);
        value
    }

    /// Returns its value without these consecutive entries, which have these places.
    pub(super) fn without(self, places: Range<usize>, removed: &[StreamEntry<'_>]) -> Vec<u8> {
        let bytes = removed.iter().map(|entry| entry_bytes(entry.field_bytes()));
        let counts = self.counts.without(removed.len() as u16, bytes.sum());
        let mut value = value_head(counts, self.names, self.entries.len());
        value.extend_from_slice(&self.entries[..places.start]);
        value.extend_from_slice(&self.entries[places.end..]);
        value
    }

    /// Returns its entries.
    pub(super) fn entries(self) -> TreeEntries<'v> {
        TreeEntries {
            node: self,
            rest: self.entries,
        }
    }

    /// Appends it to the nodes of a packed block.
    pub(super) fn pack(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&node_header(self.first_id, self.counts));
        for entry in self.entries() {
            to.extend_from_slice(&entry_head(entry.id, entry.field_bytes()));
            entry.fields().for_each(|field| push_bytes(to, field));
        }
    }
}

/// The entries of a node; see [`TreeNode::entries`].
#[derive(Clone)]
pub(crate) struct TreeEntries<'v> {
    node: TreeNode<'v>,
    rest: &'v [u8],
}

impl TreeEntries<'_> {
    /// Returns the place of the next entry among the bytes of the entries.
    pub(super) fn place(&self) -> usize {
        self.node.entries.len() - self.rest.len()
    }
}

impl<'v> Iterator for TreeEntries<'v> {
    type Item = StreamEntry<'v>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'v>> {
        let first = self.node.first_id;
        let (ms, number) = (read_number(&mut self.rest)?, read_number(&mut self.rest)?);
        let length = read_number(&mut self.rest)?;
        let fields;
        (fields, self.rest) = self.rest.split_at_checked((length >> 1) as usize)?;
        let id = EntryId {
            ms: first.ms.wrapping_add(ms),
            number: match ms {
                0 => first.number.wrapping_add(number),
                _ => number,
            },
        };
        Some(match length & 1 {
            0 => StreamEntry::new(id, fields),
            _ => StreamEntry::with_names(id, self.node.names, fields),
        })
    }
}

/// Returns the names of fields, which have a name and a value in turns, each a blob.
fn names_in(fields: &[u8]) -> Vec<u8> {
    let names = blobs(fields).step_by(2);
    names
        .flat_map(|name| &fields[name.place])
        .copied()
        .collect()
}

/// Returns the bytes of a value before its entries, with room for so many bytes of these.
fn value_head(counts: NodeCounts, names: &[u8], entries: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(COUNTS + names.len() + entries + 16);
    value.extend_from_slice(&counts.to_bytes());
    push_bytes(&mut value, names);
    value
}

/// Appends an entry to the value of a node that began with an id, and has these names.
fn push_entry(to: &mut Vec<u8>, (first, names): (EntryId, &[u8]), id: EntryId, fields: &[u8]) {
    let ms = id.ms.wrapping_sub(first.ms);
    push_number(to, ms);
    push_number(
        to,
        if ms == 0 {
            id.number.wrapping_sub(first.number)
        } else {
            id.number
        },
    );
    let own_names = blobs(fields).step_by(2).map(|blob| blob.first);
    if !own_names.eq(blobs(names).map(|blob| blob.first)) {
        push_number(to, (fields.len() as u64) << 1);
        return to.extend_from_slice(fields);
    }
    push_number(to, ((fields.len() - names.len()) as u64) << 1 | 1);
    for value in blobs(fields).skip(1).step_by(2) {
        to.extend_from_slice(&fields[value.place]);
    }
}
