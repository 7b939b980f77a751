//! The entries of a stream, in nodes as Redis has them: what trims approximately removes whole nodes.
//!
//! A node:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | the length of its entries, little-endian |
//! | 2 | the number of its entries |
//! | 2 | the number of entries that it had besides, and that were deleted |
//! | 16 | the id of its first entry, when that was added |
//! | … | its entries, in the order of their ids |
//!
//! An entry is its id, and a blob that consists of its fields and their values, each a blob (`packed`).
//!
//! 1. A node has an entry.
//! 2. An entry is added to the last node, or to a new one if the last one has [`NODE_ENTRIES`], deleted ones
//!    included, or would have more than [`NODE_BYTES`] bytes.

use smallvec::SmallVec;

use super::id::EntryId;
use crate::packed::{Elements, blobs, push_blob};

/// The most entries of a node.
pub(crate) const NODE_ENTRIES: u16 = 100;
/// The most bytes of the entries of a node that has several.
const NODE_BYTES: usize = 4096;
/// The bytes of a node before its entries.
pub(super) const NODE_HEADER: usize = 24;
const ID: usize = 16;

/// A node.
#[derive(Clone, Copy)]
pub(crate) struct StreamNode<'v> {
    /// Its place among the bytes of all nodes.
    pub(super) place: usize,
    /// The number of its entries.
    pub(crate) len: u16,
    /// The number of its deleted entries.
    pub(super) deleted: u16,
    /// The id of the entry with which it began.
    pub(crate) first_id: EntryId,
    entries: &'v [u8],
}

/// An entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StreamEntry<'v> {
    pub(crate) id: EntryId,
    fields: &'v [u8],
}

impl<'v> StreamEntry<'v> {
    /// Returns its fields and values, alternating.
    pub(crate) fn fields(self) -> impl Iterator<Item = &'v [u8]> + Clone {
        blobs(self.fields).map(|blob| blob.first)
    }
}

impl<'v> StreamNode<'v> {
    /// Returns the node at a place.
    pub(super) fn at(nodes: &'v [u8], place: usize) -> Option<StreamNode<'v>> {
        let header = nodes.get(place..)?.first_chunk::<NODE_HEADER>()?;
        let [a, b, c, d, e, f, g, h, id @ ..] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let begin = place + NODE_HEADER;
        Some(StreamNode {
            place,
            len: u16::from_le_bytes([e, f]),
            deleted: u16::from_le_bytes([g, h]),
            first_id: EntryId::from_bytes(id),
            entries: nodes.get(begin..begin + length)?,
        })
    }

    /// Returns the place behind it.
    pub(super) fn end(self) -> usize {
        self.place + NODE_HEADER + self.entries.len()
    }

    /// Returns its entries.
    pub(crate) fn entries(self) -> NodeEntries<'v> {
        let (bytes, at) = (self.entries, 0);
        NodeEntries { bytes, at }
    }

    /// Returns its last entry.
    pub(crate) fn last(self) -> Option<StreamEntry<'v>> {
        self.entries().last()
    }

    /// Returns `true` if an entry of so many bytes is added to it, the last node.
    pub(super) fn takes(self, bytes: usize) -> bool {
        self.len + self.deleted < NODE_ENTRIES && self.entries.len() + bytes <= NODE_BYTES
    }

    /// Returns the bytes before its entries once these have so many bytes, and so many of them were added or
    /// removed.
    pub(super) fn header(self, length: usize, added: u16, removed: u16) -> [u8; NODE_HEADER] {
        let (len, deleted) = (self.len + added - removed, self.deleted + removed);
        header(length, (len, deleted), self.first_id)
    }

    /// Returns the length of its entries in bytes.
    pub(super) fn length(self) -> usize {
        self.entries.len()
    }
}

/// Returns a node with one entry.
pub(super) fn new_node(id: EntryId, entry: &[u8]) -> Vec<u8> {
    [&header(entry.len(), (1, 0), id)[..], entry].concat()
}

fn header(length: usize, (len, deleted): (u16, u16), first_id: EntryId) -> [u8; NODE_HEADER] {
    let mut header = [0; NODE_HEADER];
    let length = u32::try_from(length).expect("a value has fewer than 2^32 bytes");
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..6].copy_from_slice(&len.to_le_bytes());
    header[6..8].copy_from_slice(&deleted.to_le_bytes());
    header[8..].copy_from_slice(&first_id.to_bytes());
    header
}

/// Returns the bytes of an entry.
pub(super) fn encode_entry(id: EntryId, fields: &[&[u8]]) -> SmallVec<[u8; 128]> {
    let (mut all, mut entry) = (SmallVec::new(), SmallVec::new());
    fields.iter().for_each(|field| push_blob(&mut all, field));
    entry.extend_from_slice(&id.to_bytes());
    push_blob(&mut entry, &all);
    entry
}

/// The entries of a node; see [`StreamNode::entries`].
#[derive(Clone)]
pub(crate) struct NodeEntries<'v> {
    bytes: &'v [u8],
    at: usize,
}

impl NodeEntries<'_> {
    /// Returns the place of the next entry among the bytes of the entries.
    pub(super) fn place(&self) -> usize {
        self.at
    }
}

impl<'v> Iterator for NodeEntries<'v> {
    type Item = StreamEntry<'v>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'v>> {
        let (id, rest) = self.bytes.get(self.at..)?.split_first_chunk::<ID>()?;
        let mut rest: Elements<'v> = blobs(rest);
        let fields = rest.next()?;
        self.at += ID + fields.place.end;
        Some(StreamEntry {
            id: EntryId::from_bytes(*id),
            fields: fields.first,
        })
    }
}

/// Returns the nodes from a place on.
pub(super) fn nodes_from(nodes: &[u8], place: usize) -> impl Iterator<Item = StreamNode<'_>> {
    let first = StreamNode::at(nodes, place);
    std::iter::successors(first, |node| StreamNode::at(nodes, node.end()))
}
