//! A stream as a packed block:
//!
//! | bytes | field |
//! |---|---|
//! | 16 | the last id that was given: milliseconds and number, 8 bytes each, big-endian, as in all ids here |
//! | 16 | the greatest id that was deleted; 0: none |
//! | 8 | the number of entries that were ever added |
//! | 4 | the number of entries |
//! | 4 | the length of the groups |
//! | 4 | the place of the last node among the nodes; 0 without nodes |
//! | … | the consumer groups in the order of their names, each a blob |
//! | … | the nodes |
//!
//! Numbers but those of ids are little-endian. Modules `packed_group` and `packed_nodes` have the groups and nodes.

use std::ops::Range;

use base::transaction::CallError;

use super::id::EntryId;
use super::numbers::StreamNumbers;
use super::packed_group::PackedGroup;
use super::packed_nodes::{PackedNode, nodes_from};
use crate::packed::blobs;

pub(super) const HEADER: usize = 52;

/// What a block has before the groups.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct StreamHeader {
    pub(super) numbers: StreamNumbers,
    /// The length of the groups.
    pub(super) groups: usize,
    /// The place of the last node.
    pub(super) last_node: usize,
}

impl StreamHeader {
    pub(super) fn decode(bytes: &[u8]) -> Option<StreamHeader> {
        let (last_id, rest) = bytes.split_first_chunk()?;
        let (deleted_id, rest) = rest.split_first_chunk()?;
        let (added, rest) = rest.split_first_chunk()?;
        let (lengths, _) = rest.as_chunks::<4>().0.split_first_chunk()?;
        let [len, groups, last_node] = lengths.map(|length| u32::from_le_bytes(length) as usize);
        Some(StreamHeader {
            numbers: StreamNumbers {
                last_id: EntryId::from_bytes(*last_id),
                deleted_id: EntryId::from_bytes(*deleted_id),
                added: u64::from_le_bytes(*added),
                len,
            },
            groups,
            last_node,
        })
    }

    pub(super) fn encode(self) -> [u8; HEADER] {
        let numbers = self.numbers;
        let mut bytes = [0; HEADER];
        bytes[..16].copy_from_slice(&numbers.last_id.to_bytes());
        bytes[16..32].copy_from_slice(&numbers.deleted_id.to_bytes());
        bytes[32..40].copy_from_slice(&numbers.added.to_le_bytes());
        let lengths = [numbers.len, self.groups, self.last_node];
        for (at, length) in lengths.into_iter().enumerate() {
            let length = u32::try_from(length).expect("a value has fewer than 2^32 bytes");
            bytes[40 + 4 * at..][..4].copy_from_slice(&length.to_le_bytes());
        }
        bytes
    }

    /// Returns the place of the nodes in the block.
    pub(super) fn nodes(self) -> usize {
        HEADER + self.groups
    }
}

/// Returns `true` if a block has more entries, or, with several of them or with groups of so many bytes, more bytes.
pub(crate) fn is_large(bytes: &[u8], (entries, most_bytes): (usize, usize)) -> bool {
    let header = StreamHeader::decode(bytes).unwrap_or_default();
    let len = header.numbers.len;
    len > entries || bytes.len() > most_bytes && (len > 1 || header.groups > most_bytes)
}

/// A stream that is a packed block.
#[derive(Clone, Copy)]
pub(super) struct PackedStream<'v> {
    pub(super) header: StreamHeader,
    pub(super) groups: &'v [u8],
    pub(super) nodes: &'v [u8],
}

impl<'v> PackedStream<'v> {
    /// Returns the stream of a block; no bytes are a new stream.
    pub(super) fn new(bytes: &'v [u8]) -> PackedStream<'v> {
        let header = StreamHeader::decode(bytes).unwrap_or_default();
        let rest = bytes.get(HEADER..).unwrap_or_default();
        let split = rest.split_at_checked(header.groups);
        let (groups, nodes) = split.unwrap_or_default();
        PackedStream {
            header,
            groups,
            nodes,
        }
    }

    /// Returns the nodes of the entries, in their order.
    pub(super) fn nodes(self) -> impl Iterator<Item = PackedNode<'v>> {
        nodes_from(self.nodes, 0)
    }

    /// Returns the last node.
    pub(super) fn last_node(self) -> Option<PackedNode<'v>> {
        PackedNode::at(self.nodes, self.header.last_node)
    }

    /// Returns the node in which the entry with this id is, if there is one, and the place of the node before.
    pub(super) fn node_of(self, id: EntryId) -> Option<(usize, PackedNode<'v>)> {
        let (mut before, mut found) = (0, self.nodes().next()?);
        for node in self.nodes().skip(1).take_while(|node| node.first_id <= id) {
            (before, found) = (found.place, node);
        }
        Some((before, found))
    }

    /// Returns `true` if its parts fit together. It reads all of them.
    pub(super) fn check(self) -> bool {
        let (mut count, mut last_id, mut end, mut last_node) = (0, EntryId::MIN, 0, 0);
        for node in self.nodes() {
            let entries: Vec<EntryId> = node.entries().map(|entry| entry.id).collect();
            let are_ordered = entries.first().is_some_and(|&id| id > last_id)
                && entries.is_sorted_by(|one, next| one < next);
            let begins = entries.first().is_some_and(|&id| id >= node.first_id)
                && (node.first_id > last_id || count == 0);
            if !are_ordered || !begins || entries.len() != usize::from(node.counts.len) {
                return false;
            }
            count += entries.len();
            last_id = entries.last().copied().unwrap_or_default();
            (last_node, end) = (node.place, node.end());
        }
        let numbers = self.header.numbers;
        let groups: Vec<PackedGroup> = self.groups().collect();
        end == self.nodes.len()
            && count == numbers.len
            && last_node == self.header.last_node
            && last_id <= numbers.last_id
            && groups.len() == self.group_count()
            && groups.iter().all(PackedGroup::check)
            && groups.is_sorted_by(|one, next| one.name < next.name)
    }

    /// Returns the consumer groups in the order of their names, or none of those behind one that is damaged.
    pub(super) fn groups(self) -> impl Iterator<Item = PackedGroup> {
        blobs(self.groups).map_while(|group| PackedGroup::decode(group.first))
    }

    /// Returns the number of consumer groups.
    pub(super) fn group_count(self) -> usize {
        blobs(self.groups).count()
    }

    /// Returns a consumer group; `None`: there is no such group.
    ///
    /// # Errors
    /// Its bytes are damaged.
    pub(super) fn group(self, name: &[u8]) -> Result<Option<PackedGroup>, CallError> {
        let has_name = |bytes| PackedGroup::name_of(bytes) == Some(name);
        let found = blobs(self.groups).find(|group| has_name(group.first));
        let Some(found) = found else {
            return Ok(None);
        };
        let group = PackedGroup::decode(found.first);
        group.map(Some).ok_or(CallError::Corrupt)
    }

    /// Returns the place of a group among the groups: an empty one at which it belongs if it is not there.
    pub(super) fn group_place(self, name: &[u8]) -> Range<usize> {
        for group in blobs(self.groups) {
            let own = PackedGroup::name_of(group.first).unwrap_or_default();
            if own == name {
                return group.place;
            }
            if own > name {
                return group.place.start..group.place.start;
            }
        }
        self.groups.len()..self.groups.len()
    }
}
