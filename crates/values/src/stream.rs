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

mod groups;
mod id;
mod nodes;
mod progress;
mod trim;

use std::borrow::Cow;
use std::ops::Range;

use base::transaction::CallError;

pub(crate) use groups::{ConsumerGroup, PendingEntry};
pub(crate) use id::{RequestedId, StreamId};
pub(crate) use nodes::{NODE_ENTRIES, StreamEntry, StreamNode};
pub(crate) use trim::{StreamTrim, TrimGoal};

use crate::packed::{blobs, push_blob};
use nodes::{NODE_HEADER, encode_entry, new_node, nodes_from};
use smallvec::SmallVec;

const HEADER: usize = 52;

/// The numbers of a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct StreamHeader {
    last_id: StreamId,
    deleted_id: StreamId,
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
            last_id: StreamId::from_bytes(*last_id),
            deleted_id: StreamId::from_bytes(*deleted_id),
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
    pub(crate) fn last_id(self) -> StreamId {
        self.header.last_id
    }

    /// Returns the greatest id that was deleted; the least id if there is none.
    pub(crate) fn deleted_id(self) -> StreamId {
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
    pub(crate) fn first_id(self) -> StreamId {
        self.first().map_or(StreamId::MIN, |entry| entry.id)
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
        start: StreamId,
        end: StreamId,
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
        start: StreamId,
        end: StreamId,
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
    pub(crate) fn get(self, id: StreamId) -> Option<StreamEntry<'v>> {
        self.range(id, id).next()
    }

    /// Returns the node in which the entry with this id is, if there is one, and the place of the node before.
    fn node_of(self, id: StreamId) -> Option<(usize, StreamNode<'v>)> {
        let (mut before, mut found) = (0, self.nodes().next()?);
        for node in self.nodes().skip(1).take_while(|node| node.first_id <= id) {
            (before, found) = (found.place, node);
        }
        Some((before, found))
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

/// A stream that is changed: a copy is made at the first change.
pub(crate) struct StreamEditor<'v> {
    /// The value; its header may be old.
    bytes: Cow<'v, [u8]>,
    header: StreamHeader,
    changed: bool,
}

impl<'v> StreamEditor<'v> {
    /// Begins to change the stream of a value; no bytes are a new stream.
    pub(crate) fn new(bytes: &'v [u8]) -> StreamEditor<'v> {
        let header = StreamHeader::decode(bytes).unwrap_or_default();
        let bytes = match bytes.is_empty() {
            true => Cow::Owned(header.encode().to_vec()),
            false => Cow::Borrowed(bytes),
        };
        StreamEditor {
            bytes,
            header,
            changed: false,
        }
    }

    /// Returns the stream as it is now.
    pub(crate) fn view(&self) -> StreamView<'_> {
        let nodes = self.header.nodes();
        StreamView {
            header: self.header,
            groups: &self.bytes[HEADER..nodes],
            nodes: &self.bytes[nodes..],
        }
    }

    /// Sets the last id that was given.
    pub(crate) fn set_last_id(&mut self, id: StreamId) {
        self.header.last_id = id;
        self.changed = true;
    }

    /// Sets the greatest id that was deleted.
    pub(crate) fn set_deleted_id(&mut self, id: StreamId) {
        self.header.deleted_id = id;
        self.changed = true;
    }

    /// Sets the number of entries that were ever added.
    pub(crate) fn set_added(&mut self, added: u64) {
        self.header.added = added;
        self.changed = true;
    }

    /// Adds an entry, with an id above the last one.
    pub(crate) fn append(&mut self, id: StreamId, fields: &[&[u8]]) {
        let entry = encode_entry(id, fields);
        let (end, nodes) = (self.bytes.len(), self.header.nodes());
        let view = self.view();
        let last = StreamNode::at(view.nodes, self.header.last_node as usize);
        match last.filter(|node| node.takes(entry.len())) {
            Some(node) => {
                let header = node.header(node.length() + entry.len(), 1, 0);
                let at = nodes + node.place;
                self.replace(end..end, &entry);
                self.bytes.to_mut()[at..at + NODE_HEADER].copy_from_slice(&header);
            }
            None => {
                let node = new_node(id, &entry);
                self.replace(end..end, &node);
                self.header.last_node = narrow(end - nodes);
            }
        }
        self.header.len += 1;
        self.header.added += 1;
        self.header.last_id = id;
    }

    /// Deletes an entry. Returns `true` if it was there.
    pub(crate) fn delete(&mut self, id: StreamId) -> bool {
        let Some((before, node)) = self.view().node_of(id) else {
            return false;
        };
        let mut entries = node.entries();
        let (mut start, mut found) = (0, false);
        while !found {
            start = entries.place();
            match entries.next() {
                Some(entry) if entry.id < id => {}
                entry => {
                    found = entry.is_some_and(|entry| entry.id == id);
                    break;
                }
            }
        }
        if !found {
            return false;
        }
        let removed = entries.place() - start;
        let (at, is_last) = (
            self.header.nodes() + node.place,
            node.place == self.header.last_node as usize,
        );
        let removed = match node.len {
            1 => {
                let end = self.header.nodes() + node.end();
                self.replace(at..end, b"");
                if is_last {
                    self.header.last_node = narrow(before);
                }
                end - at
            }
            _ => {
                let header = node.header(node.length() - removed, 0, 1);
                let start = at + NODE_HEADER + start;
                self.replace(start..start + removed, b"");
                self.bytes.to_mut()[at..at + NODE_HEADER].copy_from_slice(&header);
                removed
            }
        };
        if !is_last {
            self.header.last_node -= narrow(removed);
        }
        self.header.len -= 1;
        self.header.deleted_id = self.header.deleted_id.max(id);
        true
    }

    /// Removes the oldest entries. Returns their number.
    pub(crate) fn trim(&mut self, trim: &StreamTrim) -> usize {
        let cut = trim.cut(self.view());
        if cut.entries == 0 {
            return 0;
        }
        let nodes = self.header.nodes();
        self.replace(nodes..nodes + cut.bytes, &cut.header);
        let removed = narrow(cut.bytes - cut.header.len());
        self.header.last_node = self.header.last_node.saturating_sub(removed);
        self.header.len -= narrow(cut.entries);
        cut.entries
    }

    /// Sets or adds a consumer group.
    pub(crate) fn put_group(&mut self, group: &ConsumerGroup<'_>) {
        let mut bytes = SmallVec::new();
        push_blob(&mut bytes, &group.encode());
        self.replace_group(group.name, &bytes);
    }

    /// Removes a consumer group. Returns `true` if it was there.
    pub(crate) fn remove_group(&mut self, name: &[u8]) -> bool {
        let is_there = !self.view().group_place(name).is_empty();
        if is_there {
            self.replace_group(name, b"");
        }
        is_there
    }

    fn replace_group(&mut self, name: &[u8], bytes: &[u8]) {
        let place = self.view().group_place(name);
        let length = self.header.groups as usize - place.len() + bytes.len();
        self.replace(HEADER + place.start..HEADER + place.end, bytes);
        self.header.groups = narrow(length);
    }

    /// Replaces bytes of the value.
    fn replace(&mut self, place: Range<usize>, by: &[u8]) {
        match &mut self.bytes {
            Cow::Owned(bytes) if place.start == bytes.len() => bytes.extend_from_slice(by),
            Cow::Owned(bytes) => drop(bytes.splice(place, by.iter().copied())),
            Cow::Borrowed(old) => {
                self.bytes = Cow::Owned([&old[..place.start], by, &old[place.end..]].concat());
            }
        }
        self.changed = true;
    }

    /// Returns the bytes of the changed value; `None` if nothing was changed.
    pub(crate) fn into_changed(self) -> Option<Vec<u8>> {
        self.changed.then(|| {
            let mut bytes = self.bytes.into_owned();
            bytes[..HEADER].copy_from_slice(&self.header.encode());
            bytes
        })
    }
}

fn narrow(length: usize) -> u32 {
    u32::try_from(length).expect("a value has fewer than 2^32 bytes")
}

#[cfg(test)]
mod tests;
