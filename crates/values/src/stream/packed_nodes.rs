//! The nodes of a stream in a packed block. A node:
//!
//! | bytes | field of a node |
//! |---|---|
//! | 4 | the length of its entries |
//! | 2 | the number of its entries, at least 1 |
//! | 2 | the number of entries that it had besides, and that were deleted |
//! | 16 | the id of its first entry, when that was added |
//! | … | its entries in the order of their ids: the id, 16; a blob of its fields, name and value in turns, each a blob |
//!
//! Numbers but those of ids are little-endian.

use std::ops::Range;

use smallvec::SmallVec;

use super::entry::StreamEntry;
use super::id::EntryId;
use crate::leb128::{number_bytes, push_number};
use crate::packed::{Elements, blobs};

/// The most entries of a node.
pub(crate) const NODE_ENTRIES: u16 = 100;
/// The most bytes of the entries of a node that has several.
const NODE_BYTES: usize = 4096;
/// The bytes of a node before its entries.
pub(super) const NODE_HEADER: usize = 24;
const ID: usize = 16;

/// The counts of a node.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct NodeCounts {
    /// The bytes of its entries in a packed block.
    pub(super) length: usize,
    /// The number of its entries.
    pub(super) len: u16,
    /// The number of its deleted entries.
    pub(super) deleted: u16,
}

/// The bytes of a node's counts.
pub(super) const COUNTS: usize = 8;

impl NodeCounts {
    /// Returns the counts with these bytes: the first three fields of a node.
    pub(super) fn from_bytes([a, b, c, d, e, f, g, h]: [u8; COUNTS]) -> NodeCounts {
        NodeCounts {
            length: u32::from_le_bytes([a, b, c, d]) as usize,
            len: u16::from_le_bytes([e, f]),
            deleted: u16::from_le_bytes([g, h]),
        }
    }

    /// Returns their bytes.
    pub(super) fn to_bytes(self) -> [u8; COUNTS] {
        let length = u32::try_from(self.length).expect("a value has fewer than 2^32 bytes");
        let mut bytes = [0; COUNTS];
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.len.to_le_bytes());
        bytes[6..].copy_from_slice(&self.deleted.to_le_bytes());
        bytes
    }

    /// Returns `true` if an entry whose fields have so many bytes is added to the node, which is the last one.
    pub(super) fn takes_entry(self, fields: usize) -> bool {
        let length = self.length + entry_bytes(fields);
        self.len + self.deleted < NODE_ENTRIES && length <= NODE_BYTES
    }

    /// Returns the counts once an entry whose fields have so many bytes was added.
    pub(super) fn with_entry(self, fields: usize) -> NodeCounts {
        NodeCounts {
            length: self.length + entry_bytes(fields),
            len: self.len + 1,
            ..self
        }
    }

    /// Returns the counts once `removed` entries, which have so many bytes, were removed.
    pub(super) fn without(self, removed: u16, bytes: usize) -> NodeCounts {
        NodeCounts {
            length: self.length - bytes,
            len: self.len - removed,
            deleted: self.deleted + removed,
        }
    }
}

/// A node.
#[derive(Clone, Copy)]
pub(super) struct PackedNode<'v> {
    /// Its place among the bytes of all nodes.
    pub(super) place: usize,
    pub(super) counts: NodeCounts,
    /// The id of the entry with which it began.
    pub(super) first_id: EntryId,
    entries: &'v [u8],
}

impl<'v> PackedNode<'v> {
    /// Returns the node at a place.
    pub(super) fn at(nodes: &'v [u8], place: usize) -> Option<PackedNode<'v>> {
        let header = nodes.get(place..)?.first_chunk::<NODE_HEADER>()?;
        let (counts, id) = header.split_first_chunk()?;
        let counts = NodeCounts::from_bytes(*counts);
        let begin = place + NODE_HEADER;
        Some(PackedNode {
            place,
            counts,
            first_id: EntryId::from_bytes(id.try_into().ok()?),
            entries: nodes.get(begin..begin + counts.length)?,
        })
    }

    /// Returns the place behind it.
    pub(super) fn end(self) -> usize {
        self.place + NODE_HEADER + self.entries.len()
    }

    /// Returns its entries.
    pub(super) fn entries(self) -> PackedEntries<'v> {
        let (bytes, at) = (self.entries, 0);
        PackedEntries { bytes, at }
    }

    /// Returns the places of so many of its first entries among the bytes of all nodes.
    pub(super) fn oldest(self, count: usize) -> Range<usize> {
        let mut entries = self.entries();
        entries.by_ref().take(count).for_each(drop);
        let begin = self.place + NODE_HEADER;
        begin..begin + entries.place()
    }
}

/// Returns the bytes of a node before its entries.
pub(super) fn node_header(first_id: EntryId, counts: NodeCounts) -> [u8; NODE_HEADER] {
    let mut header = [0; NODE_HEADER];
    header[..COUNTS].copy_from_slice(&counts.to_bytes());
    header[COUNTS..].copy_from_slice(&first_id.to_bytes());
    header
}

/// Returns the bytes of an entry before its fields, which have so many bytes.
pub(super) fn entry_head(id: EntryId, fields: usize) -> SmallVec<[u8; 24]> {
    let mut head = SmallVec::new();
    head.extend_from_slice(&id.to_bytes());
    push_number(&mut head, fields as u64);
    head
}

/// Returns the bytes of an entry whose fields have so many bytes.
pub(super) fn entry_bytes(fields: usize) -> usize {
    ID + number_bytes(fields as u64) + fields
}

/// The entries of a node; see [`PackedNode::entries`].
#[derive(Clone)]
pub(crate) struct PackedEntries<'v> {
    bytes: &'v [u8],
    at: usize,
}

impl PackedEntries<'_> {
    /// Returns the place of the next entry among the bytes of the entries.
    pub(super) fn place(&self) -> usize {
        self.at
    }
}

impl<'v> Iterator for PackedEntries<'v> {
    type Item = StreamEntry<'v>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'v>> {
        let (id, rest) = self.bytes.get(self.at..)?.split_first_chunk::<ID>()?;
        let mut rest: Elements<'v> = blobs(rest);
        let fields = rest.next()?;
        self.at += ID + fields.place.end;
        Some(StreamEntry::new(EntryId::from_bytes(*id), fields.first))
    }
}

/// Returns the nodes from a place on.
pub(super) fn nodes_from(nodes: &[u8], place: usize) -> impl Iterator<Item = PackedNode<'_>> {
    let first = PackedNode::at(nodes, place);
    std::iter::successors(first, |node| PackedNode::at(nodes, node.end()))
}
