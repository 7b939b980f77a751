//! The consumer groups of a large stream: a tree. Each element begins with the kind of its key:
//!
//! | key | value |
//! |---|---|
//! | 0, name of a group | its number; the id of the last entry that it has delivered (16 bytes); the number of entries up to there (8 bytes; the greatest number: unknown) |
//! | 1, number of a group | its name |
//! | 2, number of a group, name of a consumer | the consumer's number; the times when it was seen last and when it got entries last (8 bytes each; the greatest number: never) |
//! | 3, number of a group, number of a consumer | the consumer's name |
//! | 4, number of a group, id of a pending entry (16 bytes) | its consumer's number; the time of its last delivery (8 bytes); the number of its deliveries (LEB128) |
//! | 5, number of a group, number of a consumer, id of a pending entry of it | none |
//!
//! Numbers of groups, and those of the consumers of a group, have 4 bytes; a new one has the least number that no
//! other has. They are not seen outside of the tree: members of a partition may have different ones. Kinds are one
//! byte; all numbers are big-endian, times in milliseconds since the Unix epoch.

use std::ops::Range;

use smallvec::SmallVec;

use super::group::{GroupConsumer, GroupName, PendingEntry};
use super::id::EntryId;
use super::numbers::GroupPosition;
use super::packed_group::PackedGroup;
use crate::leb128::{push_number, read_number};
use crate::tree::{KeyOrder, TreeBuilder, TreeCursor, TreeEditor, TreeView};

/// The kinds of keys.
const GROUP: u8 = 0;
const GROUP_NAME: u8 = 1;
const CONSUMER: u8 = 2;
const CONSUMER_NAME: u8 = 3;
const PENDING: u8 = 4;
const CONSUMER_PENDING: u8 = 5;

/// Stands for an unknown number and for a time that never was.
const NONE: u64 = u64::MAX;

type Key = SmallVec<[u8; 64]>;

fn key(kind: u8, parts: &[&[u8]]) -> Key {
    let mut key = Key::new();
    key.push(kind);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// Returns the positions of the elements whose keys begin with a prefix, which has some byte below 255.
fn positions(tree: TreeView<'_, KeyOrder>, prefix: &[u8]) -> Range<usize> {
    let mut behind = Key::from_slice(prefix);
    while behind.last() == Some(&u8::MAX) {
        behind.pop();
    }
    if let Some(last) = behind.last_mut() {
        *last += 1;
    }
    let rank = |key: &[u8]| tree.rank(key).unwrap_or_else(|rank| rank);
    rank(prefix)..rank(&behind)
}

/// Returns the least number that is not behind a prefix among the keys, all of which have a number there.
fn free_number(tree: TreeView<'_, KeyOrder>, prefix: &[u8]) -> u32 {
    let used = positions(tree, prefix);
    let is_dense = |position: usize| {
        let number = tree
            .nth(position)
            .and_then(|(key, _)| number_at(key, prefix.len()));
        number.map(|number| number as usize) == Some(position - used.start)
    };
    let (mut low, mut high) = (used.start, used.end);
    while low < high {
        let middle = usize::midpoint(low, high);
        match is_dense(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    (low - used.start) as u32
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let number = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*number))
}

fn take_number(from: &mut &[u8]) -> Option<u64> {
    let (number, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_be_bytes(*number))
}

fn group_value(number: u32, position: GroupPosition) -> Key {
    let mut value = Key::new();
    value.extend_from_slice(&number.to_be_bytes());
    value.extend_from_slice(&position.last_id.to_bytes());
    value.extend_from_slice(&position.entries_read.unwrap_or(NONE).to_be_bytes());
    value
}

fn consumer_value(number: u32, (seen_ms, active_ms): (u64, Option<u64>)) -> Key {
    let mut value = Key::new();
    value.extend_from_slice(&number.to_be_bytes());
    value.extend_from_slice(&seen_ms.to_be_bytes());
    value.extend_from_slice(&active_ms.unwrap_or(NONE).to_be_bytes());
    value
}

fn pending_value(consumer: u32, entry: &PendingEntry) -> Key {
    let mut value = Key::new();
    value.extend_from_slice(&consumer.to_be_bytes());
    value.extend_from_slice(&entry.delivered_ms.to_be_bytes());
    push_number(&mut value, entry.deliveries);
    value
}

fn pending_entry(id: EntryId, value: &[u8]) -> Option<PendingEntry> {
    let consumer = number_at(value, 0)? as usize;
    let mut rest = &value[size_of::<u32>()..];
    Some(PendingEntry {
        id,
        consumer,
        delivered_ms: take_number(&mut rest)?,
        deliveries: read_number(&mut rest)?,
    })
}

/// Returns the id at the end of a key.
fn id_of(key: &[u8]) -> Option<EntryId> {
    key.last_chunk().map(|id| EntryId::from_bytes(*id))
}

/// A group of a large stream that is read.
#[derive(Clone, Copy)]
pub(crate) struct TreeGroup<'v> {
    tree: TreeView<'v, KeyOrder>,
    pub(super) name: &'v [u8],
    number: [u8; 4],
    pub(super) position: GroupPosition,
}

impl<'v> TreeGroup<'v> {
    /// Returns the groups of a tree, in the order of their names.
    pub(super) fn all(tree: TreeView<'v, KeyOrder>) -> impl Iterator<Item = TreeGroup<'v>> {
        let groups = tree
            .iter()
            .map_while(move |entry| TreeGroup::of(tree, entry));
        groups.take(TreeGroup::count(tree))
    }

    /// Returns the number of groups of a tree.
    pub(super) fn count(tree: TreeView<'_, KeyOrder>) -> usize {
        positions(tree, &[GROUP]).end
    }

    /// Returns the group with this name.
    pub(super) fn find(tree: TreeView<'v, KeyOrder>, name: &[u8]) -> Option<TreeGroup<'v>> {
        let key = key(GROUP, &[name]);
        let found = tree.cursor_from(&key).next();
        let entry = found.filter(|(own, _)| *own == &key[..])?;
        TreeGroup::of(tree, entry)
    }

    fn of(
        tree: TreeView<'v, KeyOrder>,
        (key, value): (&'v [u8], &'v [u8]),
    ) -> Option<TreeGroup<'v>> {
        let (number, rest) = value.split_first_chunk()?;
        let (last_id, mut rest) = rest.split_first_chunk()?;
        let entries_read = take_number(&mut rest)?;
        Some(TreeGroup {
            tree,
            name: &key[1..],
            number: *number,
            position: GroupPosition {
                last_id: EntryId::from_bytes(*last_id),
                entries_read: (entries_read != NONE).then_some(entries_read),
            },
        })
    }

    /// Returns the group as a packed block has it.
    pub(super) fn packed(self) -> PackedGroup {
        let mut group = PackedGroup::new(self.name, self.position);
        let mut positions = Vec::new();
        for (at, (number, consumer)) in self.consumers().enumerate() {
            if positions.len() <= number {
                positions.resize(number + 1, 0);
            }
            positions[number] = at;
            group.consumers.push(consumer);
        }
        let pending = self.pending_from(EntryId::MIN).map(|entry| PendingEntry {
            consumer: positions.get(entry.consumer).copied().unwrap_or_default(),
            ..entry
        });
        group.pending.extend(pending);
        group
    }

    /// Returns the elements of a kind.
    fn elements(
        self,
        kind: u8,
        from: &[u8],
    ) -> impl Iterator<Item = (&'v [u8], &'v [u8])> + use<'v> {
        let prefix = key(kind, &[&self.number]);
        let cursor = self.tree.cursor_from(&key(kind, &[&self.number, from]));
        cursor.take_while(move |(key, _)| key.starts_with(&prefix))
    }

    fn count_of(self, kind: u8, number: &[u8]) -> usize {
        positions(self.tree, &key(kind, &[&self.number, number])).len()
    }

    /// Returns the consumers with their numbers, in the order of their names.
    pub(super) fn consumers(self) -> impl Iterator<Item = (usize, GroupConsumer)> + use<'v> {
        self.elements(CONSUMER, b"")
            .filter_map(|(key, value)| consumer_of(&key[1 + size_of::<u32>()..], value))
    }

    /// Returns the number of consumers.
    pub(super) fn consumer_count(self) -> usize {
        self.count_of(CONSUMER, b"")
    }

    /// Returns a consumer with its number.
    pub(super) fn consumer(self, name: &[u8]) -> Option<(usize, GroupConsumer)> {
        let value = self.tree.get(&key(CONSUMER, &[&self.number, name]))?;
        consumer_of(name, value)
    }

    /// Returns the name of the consumer with this number.
    pub(super) fn consumer_name(self, number: usize) -> Option<&'v [u8]> {
        let number = (number as u32).to_be_bytes();
        self.tree.get(&key(CONSUMER_NAME, &[&self.number, &number]))
    }

    /// Returns the number of pending entries.
    pub(super) fn pending_count(self) -> usize {
        self.count_of(PENDING, b"")
    }

    /// Returns the number of pending entries of a consumer.
    pub(super) fn pending_count_of(self, consumer: usize) -> usize {
        self.count_of(CONSUMER_PENDING, &(consumer as u32).to_be_bytes())
    }

    /// Returns the pending entry with this id.
    pub(super) fn pending(self, id: EntryId) -> Option<PendingEntry> {
        let value = self
            .tree
            .get(&key(PENDING, &[&self.number, &id.to_bytes()]))?;
        pending_entry(id, value)
    }

    /// Returns the last pending entry.
    pub(super) fn last_pending(self) -> Option<PendingEntry> {
        let own = positions(self.tree, &key(PENDING, &[&self.number]));
        let last = own.end.checked_sub(1).filter(|last| own.contains(last))?;
        let (key, value) = self.tree.nth(last)?;
        pending_entry(id_of(key)?, value)
    }

    /// Returns the pending entries from an id on.
    pub(super) fn pending_from(self, id: EntryId) -> impl Iterator<Item = PendingEntry> + use<'v> {
        self.elements(PENDING, &id.to_bytes())
            .filter_map(|(key, value)| pending_entry(id_of(key)?, value))
    }

    /// Returns the pending entries of a consumer from an id on.
    pub(super) fn pending_of(
        self,
        consumer: usize,
        id: EntryId,
    ) -> impl Iterator<Item = PendingEntry> + use<'v> {
        let consumer = (consumer as u32).to_be_bytes();
        let prefix = key(CONSUMER_PENDING, &[&self.number, &consumer]);
        let first = key(CONSUMER_PENDING, &[&self.number, &consumer, &id.to_bytes()]);
        let own: TreeCursor<'v, KeyOrder> = self.tree.cursor_from(&first);
        own.take_while(move |(key, _)| key.starts_with(&prefix))
            .filter_map(move |(key, _)| self.pending(id_of(key)?))
    }
}

fn consumer_of(name: &[u8], value: &[u8]) -> Option<(usize, GroupConsumer)> {
    let number = number_at(value, 0)? as usize;
    let mut rest = &value[size_of::<u32>()..];
    let (seen_ms, active_ms) = (take_number(&mut rest)?, take_number(&mut rest)?);
    let consumer = GroupConsumer {
        name: GroupName::from_slice(name),
        seen_ms,
        active_ms: (active_ms != NONE).then_some(active_ms),
    };
    Some((number, consumer))
}

/// Sets or adds a group.
pub(super) fn put_group(tree: &mut TreeEditor<KeyOrder>, name: &[u8], position: GroupPosition) {
    let number = match TreeGroup::find(tree.view(), name) {
        Some(group) => u32::from_be_bytes(group.number),
        None => {
            let number = free_number(tree.view(), &[GROUP_NAME]);
            tree.put(&key(GROUP_NAME, &[&number.to_be_bytes()]), name);
            number
        }
    };
    tree.put(&key(GROUP, &[name]), &group_value(number, position));
}

/// Removes a group. Returns `true` if it was there.
pub(super) fn remove_group(tree: &mut TreeEditor<KeyOrder>, name: &[u8]) -> bool {
    let Some(TreeGroup { number, .. }) = TreeGroup::find(tree.view(), name) else {
        return false;
    };
    tree.remove(&key(GROUP, &[name]));
    for kind in [
        GROUP_NAME,
        CONSUMER,
        CONSUMER_NAME,
        PENDING,
        CONSUMER_PENDING,
    ] {
        let own = positions(tree.view(), &key(kind, &[&number]));
        tree.remove_range(own);
    }
    true
}

/// Sets or adds a consumer, with the times when it was seen last and when it got entries last. Returns `false` if the
/// group is not there.
pub(super) fn put_consumer(
    tree: &mut TreeEditor<KeyOrder>,
    group: &[u8],
    name: &[u8],
    times: (u64, Option<u64>),
) -> bool {
    let Some(group) = TreeGroup::find(tree.view(), group) else {
        return false;
    };
    let own = group.number;
    let number = match group.consumer(name) {
        Some((number, _)) => number as u32,
        None => {
            let number = free_number(tree.view(), &key(CONSUMER_NAME, &[&own]));
            let key = key(CONSUMER_NAME, &[&own, &number.to_be_bytes()]);
            tree.put(&key, name);
            number
        }
    };
    tree.put(
        &key(CONSUMER, &[&own, name]),
        &consumer_value(number, times),
    );
    true
}

/// Removes a consumer with its pending entries. Returns `true` if it was there.
pub(super) fn remove_consumer(tree: &mut TreeEditor<KeyOrder>, group: &[u8], name: &[u8]) -> bool {
    let group = TreeGroup::find(tree.view(), group);
    let Some((group, (number, _))) = group.and_then(|own| Some((own, own.consumer(name)?))) else {
        return false;
    };
    let (own, consumer) = (group.number, (number as u32).to_be_bytes());
    let pending = group.pending_of(number, EntryId::MIN);
    let pending: Vec<EntryId> = pending.map(|entry| entry.id).collect();
    for id in pending {
        tree.remove(&key(PENDING, &[&own, &id.to_bytes()]));
    }
    let pending = positions(tree.view(), &key(CONSUMER_PENDING, &[&own, &consumer]));
    tree.remove_range(pending);
    tree.remove(&key(CONSUMER_NAME, &[&own, &consumer]));
    tree.remove(&key(CONSUMER, &[&own, name]))
}

/// Sets or adds a pending entry of the consumer with this name. Returns `false` if the group or the consumer is not
/// there.
pub(super) fn put_pending(
    tree: &mut TreeEditor<KeyOrder>,
    (group, consumer): (&[u8], &[u8]),
    entry: PendingEntry,
) -> bool {
    let group = TreeGroup::find(tree.view(), group);
    let Some((group, (number, _))) = group.and_then(|own| Some((own, own.consumer(consumer)?)))
    else {
        return false;
    };
    let (own, id) = (group.number, entry.id.to_bytes());
    let old = group.pending(entry.id).map(|old| old.consumer);
    if old != Some(number) {
        if let Some(old) = old {
            let old = (old as u32).to_be_bytes();
            tree.remove(&key(CONSUMER_PENDING, &[&own, &old, &id]));
        }
        let number = (number as u32).to_be_bytes();
        tree.put(&key(CONSUMER_PENDING, &[&own, &number, &id]), b"");
    }
    let value = pending_value(number as u32, &entry);
    tree.put(&key(PENDING, &[&own, &id]), &value);
    true
}

/// Removes a pending entry. Returns `true` if it was there.
pub(super) fn remove_pending(tree: &mut TreeEditor<KeyOrder>, group: &[u8], id: EntryId) -> bool {
    let group = TreeGroup::find(tree.view(), group);
    let Some((group, entry)) = group.and_then(|own| Some((own, own.pending(id)?))) else {
        return false;
    };
    let (own, id) = (group.number, id.to_bytes());
    let consumer = (entry.consumer as u32).to_be_bytes();
    tree.remove(&key(CONSUMER_PENDING, &[&own, &consumer, &id]));
    tree.remove(&key(PENDING, &[&own, &id]))
}

/// Appends the elements of groups, which are in the order of their names, to an empty tree.
pub(super) fn build(tree: &mut TreeBuilder<KeyOrder>, groups: &[PackedGroup]) {
    let number = |number: usize| (number as u32).to_be_bytes();
    let numbered = || {
        groups
            .iter()
            .enumerate()
            .map(|(at, group)| (number(at), group))
    };
    for (at, group) in groups.iter().enumerate() {
        let value = group_value(at as u32, group.position);
        tree.push(&key(GROUP, &[&group.name]), &value);
    }
    for (own, group) in numbered() {
        tree.push(&key(GROUP_NAME, &[&own]), &group.name);
    }
    for (own, group) in numbered() {
        for (at, consumer) in group.consumers.iter().enumerate() {
            let value = consumer_value(at as u32, (consumer.seen_ms, consumer.active_ms));
            tree.push(&key(CONSUMER, &[&own, &consumer.name]), &value);
        }
    }
    for (own, group) in numbered() {
        for (at, consumer) in group.consumers.iter().enumerate() {
            tree.push(&key(CONSUMER_NAME, &[&own, &number(at)]), &consumer.name);
        }
    }
    for (own, group) in numbered() {
        for entry in &group.pending {
            let value = pending_value(entry.consumer as u32, entry);
            tree.push(&key(PENDING, &[&own, &entry.id.to_bytes()]), &value);
        }
    }
    for (own, group) in numbered() {
        let mut pending: Vec<(usize, EntryId)> = group
            .pending
            .iter()
            .map(|entry| (entry.consumer, entry.id))
            .collect();
        pending.sort_unstable();
        for (consumer, id) in pending {
            let parts = [&own[..], &number(consumer), &id.to_bytes()];
            tree.push(&key(CONSUMER_PENDING, &parts), b"");
        }
    }
}
