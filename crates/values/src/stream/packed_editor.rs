//! Changes of a stream that is a packed block.

use std::borrow::Cow;
use std::ops::Range;

use base::transaction::CallError;

use super::change::StreamChange;
use super::group::{GroupConsumer, GroupName, PendingEntry};
use super::id::EntryId;
use super::numbers::StreamNumbers;
use super::packed_group::PackedGroup;
use super::packed_nodes::{NODE_HEADER, NodeCounts, entry_head, node_header};
use super::packed_stream::{HEADER, PackedStream, StreamHeader};
use crate::leb128::push_bytes;

/// A stream that is changed: a copy is made at the first change.
pub(crate) struct PackedStreamEditor<'v> {
    /// The value; its header may be old.
    bytes: Cow<'v, [u8]>,
    header: StreamHeader,
    changed: bool,
    /// The group that was used last.
    open: Option<Box<OpenGroup>>,
}

/// A group, which the value has not in its present form if it was changed.
struct OpenGroup {
    group: PackedGroup,
    changed: bool,
}

impl<'v> PackedStreamEditor<'v> {
    /// Begins to change the stream of a value; no bytes are a new stream.
    pub(crate) fn new(bytes: &'v [u8]) -> PackedStreamEditor<'v> {
        let header = StreamHeader::decode(bytes).unwrap_or_default();
        let bytes = match bytes.is_empty() {
            true => Cow::Owned(header.encode().to_vec()),
            false => Cow::Borrowed(bytes),
        };
        PackedStreamEditor {
            bytes,
            header,
            changed: false,
            open: None,
        }
    }

    /// Returns the stream as it is now, but for its groups, which are those before any changes of them.
    pub(super) fn stream(&self) -> PackedStream<'_> {
        let nodes = self.header.nodes();
        PackedStream {
            header: self.header,
            groups: &self.bytes[HEADER..nodes],
            nodes: &self.bytes[nodes..],
        }
    }

    /// Returns the length of the value in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Makes a change. Returns `true` if it fits the stream; otherwise nothing is changed.
    pub(crate) fn apply(&mut self, change: &StreamChange<'_>) -> bool {
        match *change {
            StreamChange::Add { id, fields } => self.append(id, fields),
            StreamChange::Delete { id } => self.delete(id),
            StreamChange::RemoveOldest { entries } => self.remove_oldest(entries),
            StreamChange::SetNumbers {
                last_id,
                deleted_id,
                added,
            } => {
                self.header.numbers = StreamNumbers {
                    last_id,
                    deleted_id,
                    added,
                    ..self.header.numbers
                };
                self.changed = true;
                true
            }
            StreamChange::PutGroup { name, position } => {
                match self.open(name) {
                    Err(_) => return false,
                    Ok(true) => {}
                    Ok(false) => {
                        let group = PackedGroup::new(name, position);
                        let changed = true;
                        self.open = Some(Box::new(OpenGroup { group, changed }));
                    }
                }
                self.change_group(name, |group| {
                    group.position = position;
                    true
                })
            }
            StreamChange::RemoveGroup { name } => {
                if !matches!(self.open(name), Ok(true)) {
                    return false;
                }
                self.open = None;
                self.replace_group(name, b"");
                true
            }
            StreamChange::PutConsumer {
                group,
                name,
                seen_ms,
                active_ms,
            } => self.change_group(group, |group| {
                group.put_consumer(GroupConsumer {
                    name: GroupName::from_slice(name),
                    seen_ms,
                    active_ms,
                });
                true
            }),
            StreamChange::RemoveConsumer { group, name } => {
                self.change_group(group, |group| group.remove_consumer(name))
            }
            StreamChange::PutPending {
                group,
                id,
                consumer,
                delivered_ms,
                deliveries,
            } => self.change_group(group, |group| {
                let consumer = group.consumer(consumer);
                let entry = consumer.map(|consumer| PendingEntry {
                    id,
                    consumer,
                    delivered_ms,
                    deliveries,
                });
                entry.map(|entry| group.put_pending(entry)).is_ok()
            }),
            StreamChange::RemovePending { group, id } => {
                self.change_group(group, |group| group.remove_pending(id))
            }
        }
    }

    /// Adds an entry, with an id above the last one, whose fields are blobs.
    fn append(&mut self, id: EntryId, fields: &[u8]) -> bool {
        if id <= self.header.numbers.last_id {
            return false;
        }
        let head = entry_head(id, fields.len());
        let end = self.bytes.len();
        let last = self
            .stream()
            .last_node()
            .map(|node| (node.place, node.counts));
        match last.filter(|(_, counts)| counts.takes_entry(fields.len())) {
            Some((place, counts)) => {
                self.replace(end..end, &[&head, fields]);
                self.set_counts(place, counts.with_entry(fields.len()));
            }
            None => {
                let counts = NodeCounts::default().with_entry(fields.len());
                self.header.last_node = end - self.header.nodes();
                self.replace(end..end, &[&node_header(id, counts), &head, fields]);
            }
        }
        let numbers = &mut self.header.numbers;
        numbers.len += 1;
        numbers.added = numbers.added.wrapping_add(1);
        numbers.last_id = id;
        true
    }

    /// Deletes an entry. Returns `true` if it was there.
    fn delete(&mut self, id: EntryId) -> bool {
        let Some((before, node)) = self.stream().node_of(id) else {
            return false;
        };
        let mut entries = node.entries();
        let mut start = 0;
        let found = loop {
            match entries.next() {
                Some(entry) if entry.id < id => start = entries.place(),
                entry => break entry.is_some_and(|entry| entry.id == id),
            }
        };
        if !found {
            return false;
        }
        let removed = entries.place() - start;
        let (place, counts, end) = (node.place, node.counts, node.end());
        let is_last = place == self.header.last_node;
        let removed = match counts.len {
            1 => {
                self.remove_bytes(place..end);
                if is_last {
                    self.header.last_node = before;
                }
                end - place
            }
            _ => {
                let start = place + NODE_HEADER + start;
                self.remove_bytes(start..start + removed);
                self.set_counts(place, counts.without(1, removed));
                removed
            }
        };
        if !is_last {
            self.header.last_node -= removed;
        }
        let numbers = &mut self.header.numbers;
        numbers.len -= 1;
        numbers.deleted_id = numbers.deleted_id.max(id);
        true
    }

    /// Removes so many of the oldest entries. Returns `false` if there are fewer.
    fn remove_oldest(&mut self, entries: usize) -> bool {
        if entries == 0 || entries > self.header.numbers.len {
            return false;
        }
        // The whole nodes that go, and the entries that go of the node behind them.
        let (mut end, mut left, mut rest) = (0, entries, None);
        for node in self.stream().nodes() {
            let len = usize::from(node.counts.len);
            if left < len {
                let places = node.oldest(left);
                let counts = node.counts.without(left as u16, places.len());
                rest = Some((node.place, places, counts));
                break;
            }
            (left, end) = (left - len, node.end());
        }
        if let Some((place, places, counts)) = rest.filter(|_| left > 0) {
            if place < self.header.last_node {
                self.header.last_node -= places.len();
            }
            self.set_counts(place, counts);
            self.remove_bytes(places);
        }
        self.remove_bytes(0..end);
        self.header.last_node = self.header.last_node.saturating_sub(end);
        self.header.numbers.len -= entries;
        true
    }

    /// Opens a group. Returns `false` if there is none with this name.
    ///
    /// # Errors
    /// Its bytes are damaged.
    pub(crate) fn open(&mut self, name: &[u8]) -> Result<bool, CallError> {
        if self.opened(name).is_some() {
            return Ok(true);
        }
        self.close();
        let changed = false;
        let group = self.stream().group(name)?;
        self.open = group.map(|group| Box::new(OpenGroup { group, changed }));
        Ok(self.open.is_some())
    }

    /// Returns the group if it is the one that is open.
    pub(crate) fn opened(&self, name: &[u8]) -> Option<&PackedGroup> {
        let open = self.open.as_ref().map(|open| &open.group);
        open.filter(|group| &group.name[..] == name)
    }

    /// Changes a group. Returns `false` if it is not there, or `change` does.
    fn change_group(&mut self, name: &[u8], change: impl FnOnce(&mut PackedGroup) -> bool) -> bool {
        let is_there = matches!(self.open(name), Ok(true));
        let Some(open) = self.open.as_mut().filter(|_| is_there) else {
            return false;
        };
        let has_changed = change(&mut open.group);
        open.changed |= has_changed;
        self.changed |= has_changed;
        has_changed
    }

    /// Writes the group that is open to the value.
    fn close(&mut self) {
        let open = self.open.take().filter(|open| open.changed);
        if let Some(open) = open {
            let mut bytes = Vec::new();
            push_bytes(&mut bytes, &open.group.encode());
            self.replace_group(&open.group.name, &bytes);
        }
    }

    /// Sets all consumer groups, which are in the order of their names.
    pub(crate) fn set_groups(&mut self, groups: impl Iterator<Item = PackedGroup>) {
        self.open = None;
        let mut bytes = Vec::new();
        groups.for_each(|group| push_bytes(&mut bytes, &group.encode()));
        self.replace(HEADER..self.header.nodes(), &[&bytes]);
        self.header.groups = bytes.len();
    }

    fn replace_group(&mut self, name: &[u8], bytes: &[u8]) {
        let place = self.stream().group_place(name);
        let length = self.header.groups - place.len() + bytes.len();
        self.replace(HEADER + place.start..HEADER + place.end, &[bytes]);
        self.header.groups = length;
    }

    /// Replaces bytes of the value.
    fn replace(&mut self, place: Range<usize>, by: &[&[u8]]) {
        match &mut self.bytes {
            Cow::Owned(bytes) if place.start == bytes.len() => {
                by.iter().for_each(|part| bytes.extend_from_slice(part));
            }
            Cow::Owned(bytes) => drop(bytes.splice(place, by.concat())),
            Cow::Borrowed(old) => {
                let added: usize = by.iter().map(|part| part.len()).sum();
                let mut bytes = Vec::with_capacity(old.len() - place.len() + added);
                bytes.extend_from_slice(&old[..place.start]);
                by.iter().for_each(|part| bytes.extend_from_slice(part));
                bytes.extend_from_slice(&old[place.end..]);
                self.bytes = Cow::Owned(bytes);
            }
        }
        self.changed = true;
    }

    /// Removes bytes of the nodes.
    fn remove_bytes(&mut self, places: Range<usize>) {
        let nodes = self.header.nodes();
        self.replace(nodes + places.start..nodes + places.end, &[]);
    }

    /// Sets the counts of the node at a place among the nodes.
    fn set_counts(&mut self, place: usize, counts: NodeCounts) {
        let at = self.header.nodes() + place;
        let counts = counts.to_bytes();
        self.bytes.to_mut()[at..at + counts.len()].copy_from_slice(&counts);
        self.changed = true;
    }

    /// Returns the bytes of the changed value; `None` if nothing was changed.
    pub(crate) fn into_changed(mut self) -> Option<Vec<u8>> {
        self.close();
        self.changed.then(|| {
            let mut bytes = self.bytes.into_owned();
            bytes[..HEADER].copy_from_slice(&self.header.encode());
            bytes
        })
    }
}
