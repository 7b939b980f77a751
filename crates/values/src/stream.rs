//! Streams: entries in the order of their ids, and consumer groups. A stream without entries exists.
//!
//! | bytes | field |
//! |---|---|
//! | 16 | the last id that was given: two big-endian numbers |
//! | 16 | the greatest id that was deleted; the least id: none |
//! | 8 | the number of entries that were ever added, little-endian |
//! | 4 | the number of entries |
//! | 4 | the length of the groups |
//! | 4 | the place of the last node among the nodes; 0 without nodes |
//! | … | the consumer groups (`groups`) |
//! | … | the entries (`nodes`) |
//!
//! No entry has an id above the last one that was given.

mod editor;
mod groups;
mod id;
mod nodes;
mod progress;
mod trim;

use std::ops::Range;

use base::transaction::CallError;

pub(crate) use editor::StreamEditor;
pub(crate) use groups::{ConsumerGroup, GroupConsumer, PendingEntry};
pub(crate) use id::{EntryId, RequestedId};
pub(crate) use nodes::{NODE_ENTRIES, StreamEntry, StreamNode};
pub(crate) use trim::{StreamTrim, TrimGoal};

use crate::packed::blobs;
use nodes::nodes_from;
use smallvec::SmallVec;

const HEADER: usize = 52;

/// The numbers of a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct StreamHeader {
    last_id: EntryId,
    deleted_id: EntryId,
    added: u64,
    len: u32,
    groups: u32,
    last_node: u32,
}

impl StreamHeader {
    fn decode(bytes: &[u8]) -> Option<StreamHeader> {
        let (last_id, rest) = bytes.split_first_chunk()?;
        let (deleted_id, rest) = rest.split_first_chunk()?;
        let (added, rest) = rest.split_first_chunk()?;
        let ([len, groups, last_node], _) = rest.as_chunks::<4>().0.split_first_chunk()?;
        Some(StreamHeader {
            last_id: EntryId::from_bytes(*last_id),
            deleted_id: EntryId::from_bytes(*deleted_id),
            added: u64::from_le_bytes(*added),
            len: u32::from_le_bytes(*len),
            groups: u32::from_le_bytes(*groups),
            last_node: u32::from_le_bytes(*last_node),
        })
    }

    fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..16].copy_from_slice(&self.last_id.to_bytes());
        bytes[16..32].copy_from_slice(&self.deleted_id.to_bytes());
        bytes[32..40].copy_from_slice(&self.added.to_le_bytes());
        for (at, number) in [self.len, self.groups, self.last_node].iter().enumerate() {
            bytes[40 + 4 * at..][..4].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Returns the place of the nodes in the value.
    fn nodes(self) -> usize {
        HEADER + self.groups as usize
    }
}

/// A stream that is read.
#[derive(Clone, Copy)]
pub(crate) struct StreamView<'v> {
    header: StreamHeader,
    groups: &'v [u8],
    nodes: &'v [u8],
}

impl<'v> StreamView<'v> {
    /// Returns the stream of a value; no bytes are a new stream.
    pub(crate) fn new(bytes: &'v [u8]) -> StreamView<'v> {
        let header = StreamHeader::decode(bytes).unwrap_or_default();
        let rest = bytes.get(HEADER..).unwrap_or_default();
        let split = rest.split_at_checked(header.groups as usize);
        let (groups, nodes) = split.unwrap_or_default();
        StreamView {
            header,
            groups,
            nodes,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(self) -> usize {
        self.header.len as usize
    }

    /// Returns the last id that was given.
    pub(crate) fn last_id(self) -> EntryId {
        self.header.last_id
    }

    /// Returns the greatest id that was deleted; the least id if there is none.
    pub(crate) fn deleted_id(self) -> EntryId {
        self.header.deleted_id
    }

    /// Returns the number of entries that were ever added.
    pub(crate) fn added(self) -> u64 {
        self.header.added
    }

    /// Returns the first entry.
    pub(crate) fn first(self) -> Option<StreamEntry<'v>> {
        self.nodes().next()?.entries().next()
    }

    /// Returns the id of the first entry; the least id if there is none.
    pub(crate) fn first_id(self) -> EntryId {
        self.first().map_or(EntryId::MIN, |entry| entry.id)
    }

    /// Returns the last entry.
    pub(crate) fn last(self) -> Option<StreamEntry<'v>> {
        StreamNode::at(self.nodes, self.header.last_node as usize)?.last()
    }

    /// Returns the nodes of the entries, in their order.
    pub(crate) fn nodes(self) -> impl Iterator<Item = StreamNode<'v>> {
        nodes_from(self.nodes, 0)
    }

    /// Returns the entries with ids between these two, both included.
    pub(crate) fn range(
        self,
        start: EntryId,
        end: EntryId,
    ) -> impl Iterator<Item = StreamEntry<'v>> {
        let first = self
            .node_of(start)
            .map_or(self.nodes.len(), |(_, node)| node.place);
        nodes_from(self.nodes, first)
            .flat_map(StreamNode::entries)
            .skip_while(move |entry| entry.id < start)
            .take_while(move |entry| entry.id <= end)
    }

    /// Returns the entries with ids between these two, both included, from the last one to the first.
    pub(crate) fn range_back(
        self,
        start: EntryId,
        end: EntryId,
    ) -> impl Iterator<Item = StreamEntry<'v>> {
        let nodes = self.nodes().take_while(move |node| node.first_id <= end);
        let nodes: Vec<StreamNode<'v>> = nodes.collect();
        let back = |node: StreamNode<'v>| {
            let entries: SmallVec<[StreamEntry<'v>; 16]> = node.entries().collect();
            entries.into_iter().rev()
        };
        nodes
            .into_iter()
            .rev()
            .flat_map(back)
            .skip_while(move |entry| entry.id > end)
            .take_while(move |entry| entry.id >= start)
    }

    /// Returns the entry with this id.
    pub(crate) fn get(self, id: EntryId) -> Option<StreamEntry<'v>> {
        self.range(id, id).next()
    }

    /// Returns the node in which the entry with this id is, if there is one, and the place of the node before.
    fn node_of(self, id: EntryId) -> Option<(usize, StreamNode<'v>)> {
        let (mut before, mut found) = (0, self.nodes().next()?);
        for node in self.nodes().skip(1).take_while(|node| node.first_id <= id) {
            (before, found) = (found.place, node);
        }
        Some((before, found))
    }

    /// Returns `true` if its parts fit together. It reads all of them.
    pub(crate) fn check(self) -> bool {
        let (mut count, mut last_id, mut end, mut last_node) = (0, EntryId::MIN, 0, 0);
        for node in self.nodes() {
            let entries: Vec<EntryId> = node.entries().map(|entry| entry.id).collect();
            let are_ordered = entries.first().is_some_and(|&id| id > last_id)
                && entries.is_sorted_by(|one, next| one < next);
            let begins = entries.first().is_some_and(|&id| id >= node.first_id);
            if !are_ordered || !begins || entries.len() != usize::from(node.len) {
                return false;
            }
            count += entries.len();
            last_id = entries.last().copied().unwrap_or_default();
            (last_node, end) = (node.place, node.end());
        }
        let are_consumers_known = |group: &ConsumerGroup<'_>| {
            let mut pending = group.pending.iter();
            pending.all(|entry| entry.consumer < group.consumers.len())
                && group.pending.is_sorted_by(|one, next| one.id < next.id)
                && group
                    .consumers
                    .is_sorted_by(|one, next| one.name < next.name)
        };
        let groups: Vec<ConsumerGroup<'_>> = self.groups().collect();
        end == self.nodes.len()
            && count == self.len()
            && last_node == self.header.last_node as usize
            && last_id <= self.last_id()
            && groups.len() == self.group_count()
            && groups.iter().all(are_consumers_known)
            && groups.is_sorted_by(|one, next| one.name < next.name)
    }

    /// Returns the consumer groups in the order of their names, or none of those behind one that is damaged.
    pub(crate) fn groups(self) -> impl Iterator<Item = ConsumerGroup<'v>> {
        blobs(self.groups).map_while(|group| ConsumerGroup::decode(group.first))
    }

    /// Returns the number of consumer groups.
    pub(crate) fn group_count(self) -> usize {
        blobs(self.groups).count()
    }

    /// Returns a consumer group; `None`: there is no such group.
    ///
    /// # Errors
    /// Its bytes are damaged.
    pub(crate) fn group(self, name: &[u8]) -> Result<Option<ConsumerGroup<'v>>, CallError> {
        let has_name = |bytes| ConsumerGroup::name_of(bytes) == Some(name);
        let found = blobs(self.groups).find(|group| has_name(group.first));
        let Some(found) = found else {
            return Ok(None);
        };
        let group = ConsumerGroup::decode(found.first);
        group.map(Some).ok_or(CallError::Corrupt)
    }

    /// Returns the place of a group among the groups: an empty one at which it belongs if it is not there.
    fn group_place(self, name: &[u8]) -> Range<usize> {
        for group in blobs(self.groups) {
            let own = ConsumerGroup::name_of(group.first).unwrap_or_default();
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

#[cfg(test)]
mod tests;
