//! Changes of a stream.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use super::groups::ConsumerGroup;
use super::id::EntryId;
use super::nodes::{NODE_HEADER, StreamNode, encode_entry, new_node};
use super::trim::StreamTrim;
use super::{HEADER, StreamHeader, StreamView};
use crate::packed::push_blob;

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
    pub(crate) fn set_last_id(&mut self, id: EntryId) {
        self.header.last_id = id;
        self.changed = true;
    }

    /// Sets the greatest id that was deleted.
    pub(crate) fn set_deleted_id(&mut self, id: EntryId) {
        self.header.deleted_id = id;
        self.changed = true;
    }

    /// Sets the number of entries that were ever added.
    pub(crate) fn set_added(&mut self, added: u64) {
        self.header.added = added;
        self.changed = true;
    }

    /// Returns the length of the value in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an entry, with an id above the last one.
    pub(crate) fn append(&mut self, id: EntryId, fields: &[&[u8]]) {
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
        self.header.added = self.header.added.wrapping_add(1);
        self.header.last_id = id;
    }

    /// Deletes an entry. Returns `true` if it was there.
    pub(crate) fn delete(&mut self, id: EntryId) -> bool {
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

    /// Sets all consumer groups, which are in the order of their names.
    pub(crate) fn set_groups<'g>(&mut self, groups: impl Iterator<Item = ConsumerGroup<'g>>) {
        let mut bytes: SmallVec<[u8; 128]> = SmallVec::new();
        groups.for_each(|group| push_blob(&mut bytes, &group.encode()));
        self.replace(HEADER..self.header.nodes(), &bytes);
        self.header.groups = narrow(bytes.len());
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
