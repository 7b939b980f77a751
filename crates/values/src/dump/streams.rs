//! Streams.
//!
//! | is | as |
//! |---|---|
//! | the number of nodes | a length |
//! | for each node the id of the entry with which it began | a string of 16 bytes: two big-endian numbers |
//! | its entries | a string that is a listpack |
//! | the number of entries | a length |
//! | the last id that was given | two lengths |
//! | the first id, and the greatest id that was deleted | two lengths each; not in the first encoding |
//! | the number of entries that were ever added | a length; not in the first encoding |
//! | the number of groups | a length |
//! | for each group its name | a string |
//! | the last id that it has delivered | two lengths |
//! | the number of entries up to there; the greatest number: unknown | a length; not in the first encoding |
//! | its pending entries | their number, a length; of each the id (16 bytes), the time of the last delivery (8 bytes), and the number of deliveries (a length) |
//! | the number of its consumers | a length |
//! | for each consumer its name | a string |
//! | when it was seen last | 8 bytes |
//! | when it got entries last | 8 bytes, -1: never; in the third encoding only |
//! | its pending entries | their number, a length; of each the id (16 bytes) |
//!
//! Times are in milliseconds since the Unix epoch, little-endian, with a sign.
//!
//! The listpack of a node begins with the number of its entries, that of deleted ones, the number of fields of its
//! first entry, their names, and a 0. An entry follows as:
//!
//! | is | when |
//! |---|---|
//! | 1 if it is deleted, plus 2 if its fields have the names of those of the first entry | |
//! | the two numbers of its id, less those of the node's id | |
//! | the number of its fields | their names are others |
//! | for each field its name | their names are others |
//! | and its value | |
//! | the number of items of the listpack that it takes before this one | |
//!
//! Entries are written in the nodes that they have in Redis if they were added one by one. Those that were read get
//! the nodes that they have here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base::number::parse_int;

use super::block_entry::BlockEntry;
use super::listpack::ListpackEntries;
use super::payload::{DecodeContext, PayloadError, longest_block};
use super::reader::PayloadReader;
use super::value_type::{STREAM, STREAM_2, STREAM_3};
use super::writer;
use crate::leb128::push_bytes;
use crate::listpack::{HEADER, ListpackWriter};
use crate::stream::{
    EntryId, GroupConsumer, GroupName, GroupPosition, GroupView, NODE_ENTRIES, PackedGroup,
    PackedStreamEditor, PendingEntry, StreamChange, StreamEntry, StreamView,
};

/// The greatest length of a node, in bytes, to which an entry is added. Redis counts the bytes of the new fields
/// and values, without what the listpack adds to them.
const NODE_BYTES: usize = 4096;

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// The items of an entry before its fields: what is deleted, and the two numbers of its id.
const ENTRY_ITEMS: usize = 3;

/// A node that is written.
struct NodeWriter<'v> {
    first: StreamEntry<'v>,
    listpack: ListpackWriter,
    entries: u8,
}

impl<'v> NodeWriter<'v> {
    fn new(first: StreamEntry<'v>) -> NodeWriter<'v> {
        let mut listpack = ListpackWriter::new();
        // The number of entries becomes known at the end. It takes one byte.
        push_number(0, &mut listpack);
        push_number(0, &mut listpack);
        push_number(names(first).count() as u64, &mut listpack);
        names(first).for_each(|name| listpack.push(name));
        push_number(0, &mut listpack);
        NodeWriter {
            first,
            listpack,
            entries: 0,
        }
    }

    fn takes(&self, entry: StreamEntry<'_>) -> bool {
        let bytes: usize = entry.fields().map(<[u8]>::len).sum();
        u16::from(self.entries) < NODE_ENTRIES && self.listpack.len() + bytes < NODE_BYTES
    }

    fn push(&mut self, entry: StreamEntry<'_>) {
        let to = &mut self.listpack;
        let (first, id) = (self.first.id, entry.id);
        let has_names = names(self.first).eq(names(entry));
        push_int(if has_names { SAME_FIELDS } else { 0 }, to);
        push_int(id.ms.wrapping_sub(first.ms) as i64, to);
        push_int(id.number.wrapping_sub(first.number) as i64, to);
        let fields = names(entry).count();
        let items = match has_names {
            true => {
                entry
                    .fields()
                    .skip(1)
                    .step_by(2)
                    .for_each(|value| to.push(value));
                ENTRY_ITEMS + fields
            }
            false => {
                push_number(fields as u64, to);
                entry.fields().for_each(|item| to.push(item));
                ENTRY_ITEMS + 1 + 2 * fields
            }
        };
        push_number(items as u64, to);
        self.entries += 1;
    }

    fn write(self, out: &mut Vec<u8>) {
        let mut listpack = self.listpack.finish();
        listpack[HEADER] = self.entries;
        writer::string(&self.first.id.to_bytes(), out);
        writer::string(&listpack, out);
    }
}

/// Returns the names of an entry's fields.
fn names<'v>(entry: StreamEntry<'v>) -> impl Iterator<Item = &'v [u8]> {
    entry.fields().step_by(2)
}

fn push_number(number: u64, to: &mut ListpackWriter) {
    to.push(number.to_string().as_bytes());
}

fn push_int(number: i64, to: &mut ListpackWriter) {
    to.push(number.to_string().as_bytes());
}

/// Writes a stream with its type.
pub(super) fn write(stream: StreamView<'_>, out: &mut Vec<u8>) {
    let mut nodes: Vec<NodeWriter<'_>> = Vec::new();
    for entry in stream.nodes().flat_map(|node| node.entries()) {
        let node = match nodes.last_mut().filter(|node| node.takes(entry)) {
            Some(node) => node,
            None => nodes.push_mut(NodeWriter::new(entry)),
        };
        node.push(entry);
    }
    out.push(STREAM_2);
    writer::length(nodes.len(), out);
    nodes.into_iter().for_each(|node| node.write(out));
    writer::length(stream.len(), out);
    for id in [stream.last_id(), stream.first_id(), stream.deleted_id()] {
        write_id(id, out);
    }
    write_number(stream.added(), out);
    writer::length(stream.group_count(), out);
    stream.groups().for_each(|group| write_group(&group, out));
}

fn write_group(group: &GroupView<'_>, out: &mut Vec<u8>) {
    let GroupPosition {
        last_id,
        entries_read,
    } = group.position();
    writer::string(group.name(), out);
    write_id(last_id, out);
    write_number(entries_read.unwrap_or(u64::MAX), out);
    writer::length(group.pending_count(), out);
    let consumers = group.consumers();
    let mut pending = vec![Vec::new(); consumers.len()];
    for entry in group.pending_from(EntryId::MIN) {
        out.extend(entry.id.to_bytes());
        out.extend(entry.delivered_ms.to_le_bytes());
        write_number(entry.deliveries, out);
        if let Some(pending) = pending.get_mut(entry.consumer) {
            pending.push(entry.id);
        }
    }
    writer::length(consumers.len(), out);
    for ((_, consumer), pending) in consumers.iter().zip(pending) {
        writer::string(&consumer.name, out);
        out.extend(consumer.seen_ms.to_le_bytes());
        writer::length(pending.len(), out);
        pending.iter().for_each(|id| out.extend(id.to_bytes()));
    }
}

fn write_id(id: EntryId, out: &mut Vec<u8>) {
    write_number(id.ms, out);
    write_number(id.number, out);
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    let number = usize::try_from(number).expect("addresses have 64 bits");
    writer::length(number, out);
}

/// Reads a stream of an encoding. Returns the bytes of its value.
pub(super) fn read(
    encoding: u8,
    rest: &mut PayloadReader<'_>,
    context: DecodeContext,
) -> Result<Vec<u8>, PayloadError> {
    let mut reader = StreamReader {
        encoding,
        longest: context.longest,
        stream: PackedStreamEditor::new(b""),
    };
    for _ in 0..rest.length()? {
        let id = rest.string(size_of::<EntryId>())?;
        let id = <[u8; 16]>::try_from(&*id).map_err(|_| PayloadError::Malformed)?;
        let block = rest.string(longest_block(context.longest))?;
        reader.read_node(EntryId::from_bytes(id), &block)?;
    }
    reader.read_numbers(rest)?;
    reader.read_groups(rest)?;
    let bytes = reader
        .stream
        .into_changed()
        .ok_or(PayloadError::Malformed)?;
    within(bytes.len(), context.longest)?;
    Ok(bytes)
}

/// A stream that is read.
struct StreamReader {
    encoding: u8,
    longest: usize,
    stream: PackedStreamEditor<'static>,
}

impl StreamReader {
    /// Reads a node that began with this id.
    fn read_node(&mut self, begin: EntryId, block: &[u8]) -> Result<(), PayloadError> {
        let mut items = NodeItems(ListpackEntries::new(block)?);
        let (entries, deleted) = (items.count()?, items.count()?);
        let fields = items.count()?;
        let names = (0..fields).map(|_| items.next());
        let names: Vec<BlockEntry<'_>> = names.collect::<Result<_, _>>()?;
        if items.int()? != 0 {
            return Err(PayloadError::Malformed);
        }
        let (mut live, mut gone) = (0, 0);
        while live + gone < entries.saturating_add(deleted) {
            let flags = items.int()?;
            let (ms, number) = (items.int()? as u64, items.int()? as u64);
            let id = EntryId {
                ms: begin.ms.wrapping_add(ms),
                number: begin.number.wrapping_add(number),
            };
            let has_names = flags & SAME_FIELDS != 0;
            let (count, besides) = match has_names {
                true => (fields, ENTRY_ITEMS as u64),
                false => (items.count()?, ENTRY_ITEMS as u64 + 1),
            };
            let mut read: Vec<Cow<'_, [u8]>> = Vec::new();
            for at in 0..count {
                let name = match has_names {
                    true => names[at as usize],
                    false => items.next()?,
                };
                read.extend([name.bytes(), items.next()?.bytes()]);
            }
            let taken = besides + if has_names { count } else { 2 * count };
            if items.count()? != taken || count == 0 || flags & !(DELETED | SAME_FIELDS) != 0 {
                return Err(PayloadError::Malformed);
            }
            match flags & DELETED {
                0 => {
                    live += 1;
                    self.add(begin, id, &read)?;
                }
                _ => gone += 1,
            }
        }
        match items.0.next() {
            None if (live, gone) == (entries, deleted) && live > 0 => Ok(()),
            _ => Err(PayloadError::Malformed),
        }
    }

    fn add(
        &mut self,
        begin: EntryId,
        id: EntryId,
        fields: &[Cow<'_, [u8]>],
    ) -> Result<(), PayloadError> {
        let mut blobs = Vec::new();
        fields
            .iter()
            .for_each(|field| push_bytes(&mut blobs, field));
        let change = StreamChange::Add { id, fields: &blobs };
        if id < begin || !self.stream.apply(&change) {
            return Err(PayloadError::Malformed);
        }
        within(self.stream.bytes(), self.longest)
    }

    /// Reads what a stream has besides its entries and groups.
    fn read_numbers(&mut self, rest: &mut PayloadReader<'_>) -> Result<(), PayloadError> {
        let view = StreamView::of_packed(&self.stream);
        let (len, last) = (view.len() as u64, view.last_id());
        if rest.length()? != len {
            return Err(PayloadError::Malformed);
        }
        let last_id = read_id(rest)?;
        let (mut deleted_id, mut added) = (EntryId::MIN, len);
        if self.encoding != STREAM {
            // The first id follows from the entries.
            read_id(rest)?;
            deleted_id = read_id(rest)?;
            added = rest.length()?;
        }
        // In Redis the last id can be lowered below one that was deleted.
        if last_id < last || added < len {
            return Err(PayloadError::Malformed);
        }
        self.stream.apply(&StreamChange::SetNumbers {
            last_id,
            deleted_id,
            added,
        });
        Ok(())
    }

    fn read_groups(&mut self, rest: &mut PayloadReader<'_>) -> Result<(), PayloadError> {
        let mut groups: BTreeMap<Cow<'_, [u8]>, ReadGroup<'_>> = BTreeMap::new();
        for _ in 0..rest.length()? {
            let name = rest.string(self.longest)?;
            let group = self.read_group(rest)?;
            if groups.insert(name, group).is_some() {
                return Err(PayloadError::Malformed);
            }
        }
        let groups = groups.iter().map(|(name, group)| group.as_group(name));
        self.stream.set_groups(groups);
        Ok(())
    }

    fn read_group<'a>(&self, rest: &mut PayloadReader<'a>) -> Result<ReadGroup<'a>, PayloadError> {
        let last_id = read_id(rest)?;
        let entries_read = match self.encoding {
            STREAM => StreamView::of_packed(&self.stream)
                .extent()
                .number_of(last_id),
            _ => match rest.length()? {
                u64::MAX => None,
                read if i64::try_from(read).is_ok() => Some(read),
                _ => return Err(PayloadError::Malformed),
            },
        };
        let mut deliveries = BTreeMap::new();
        for _ in 0..rest.length()? {
            let id = EntryId::from_bytes(rest.array()?);
            let delivery = (read_time(rest)?, rest.length()?);
            if deliveries.insert(id, delivery).is_some() {
                return Err(PayloadError::Malformed);
            }
        }
        let mut consumers = BTreeMap::new();
        for _ in 0..rest.length()? {
            let name = rest.string(self.longest)?;
            let seen_ms = read_time(rest)?;
            let active_ms = match self.encoding {
                STREAM_3 => match i64::from_le_bytes(rest.array()?) {
                    -1 => None,
                    time => Some(u64::try_from(time).map_err(|_| PayloadError::Malformed)?),
                },
                // As in Redis: there is no better estimate.
                _ => Some(seen_ms),
            };
            let mut own = BTreeSet::new();
            for _ in 0..rest.length()? {
                if !own.insert(EntryId::from_bytes(rest.array()?)) {
                    return Err(PayloadError::Malformed);
                }
            }
            let pending = own.into_iter().map(|id| {
                let delivery = deliveries.remove(&id);
                delivery.map(|delivery| (id, delivery))
            });
            let pending = pending.collect::<Option<Vec<_>>>();
            let consumer = ReadConsumer {
                seen_ms,
                active_ms,
                pending: pending.ok_or(PayloadError::Malformed)?,
            };
            if consumers.insert(name, consumer).is_some() {
                return Err(PayloadError::Malformed);
            }
        }
        // None is without a consumer.
        deliveries
            .is_empty()
            .then_some(())
            .ok_or(PayloadError::Malformed)?;
        Ok(ReadGroup {
            last_id,
            entries_read,
            consumers,
        })
    }
}

/// A group that was read.
struct ReadGroup<'a> {
    last_id: EntryId,
    entries_read: Option<u64>,
    consumers: BTreeMap<Cow<'a, [u8]>, ReadConsumer>,
}

/// A consumer that was read.
struct ReadConsumer {
    seen_ms: u64,
    active_ms: Option<u64>,
    /// Its pending entries, with the time of their last delivery and the number of their deliveries.
    pending: Vec<(EntryId, (u64, u64))>,
}

impl ReadGroup<'_> {
    fn as_group(&self, name: &[u8]) -> PackedGroup {
        let position = GroupPosition {
            last_id: self.last_id,
            entries_read: self.entries_read,
        };
        let mut group = PackedGroup::new(name, position);
        for (at, (name, consumer)) in self.consumers.iter().enumerate() {
            group.consumers.push(GroupConsumer {
                name: GroupName::from_slice(name),
                seen_ms: consumer.seen_ms,
                active_ms: consumer.active_ms,
            });
            let pending = consumer.pending.iter();
            group.pending.extend(
                pending.map(|&(id, (delivered_ms, deliveries))| PendingEntry {
                    id,
                    consumer: at,
                    delivered_ms,
                    deliveries,
                }),
            );
        }
        group.pending.sort_unstable_by_key(|entry| entry.id);
        group
    }
}

/// The items of the listpack of a node.
struct NodeItems<'b>(ListpackEntries<'b>);

impl<'b> NodeItems<'b> {
    fn next(&mut self) -> Result<BlockEntry<'b>, PayloadError> {
        self.0.next().ok_or(PayloadError::Malformed)?
    }

    fn int(&mut self) -> Result<i64, PayloadError> {
        match self.next()? {
            BlockEntry::Int(number) => Ok(number),
            BlockEntry::Bytes(text) => parse_int(text).ok_or(PayloadError::Malformed),
        }
    }

    fn count(&mut self) -> Result<u64, PayloadError> {
        u64::try_from(self.int()?).map_err(|_| PayloadError::Malformed)
    }
}

fn read_id(rest: &mut PayloadReader<'_>) -> Result<EntryId, PayloadError> {
    Ok(EntryId {
        ms: rest.length()?,
        number: rest.length()?,
    })
}

fn read_time(rest: &mut PayloadReader<'_>) -> Result<u64, PayloadError> {
    let time = i64::from_le_bytes(rest.array()?);
    u64::try_from(time).map_err(|_| PayloadError::Malformed)
}

fn within(bytes: usize, longest: usize) -> Result<(), PayloadError> {
    (bytes <= longest)
        .then_some(())
        .ok_or(PayloadError::TooLong)
}
