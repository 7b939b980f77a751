//! Leaves: entries, one after the other.
//!
//! | offset in the body | bytes | field |
//! |---|---|---|
//! | 0 | used | entries |
//! | … | … | unused |
//! | capacity − 2 (groups − 1) | 2 each | offsets of the first entries of the last, …, third, second group |
//!
//! A group has [`GROUP`] entries. An entry in the order of keys:
//!
//! | bytes | field |
//! |---|---|
//! | 1, 3 or 5 | length of the key |
//! | 1, 3 or 5 | length of the value |
//! | … | key |
//! | … | value |
//!
//! An entry in the order of positions has no key and no length of one. A length below 254 is one byte; 254
//! is followed by a length in two bytes, 255 by one in four (least byte first).
//!
//! Invariants:
//! 1. A leaf has at least one entry.
//! 2. A leaf of several entries has at most as many bytes as [`super::NodeLimits`] says; a leaf of one entry
//!    may have any number.
//! 3. Keys ascend.

use std::hint::select_unpredictable;
use std::marker::PhantomData;
use std::ops::Range;

use smallvec::SmallVec;

use super::node::{HEADER_BYTES, NewNode, NodeMut, NodeRef};
use super::search_key::SearchKey;
use super::{TreeOrder, VersionStamp};

/// The entries of a group. With fewer, leaves are larger and look-ups as fast.
const GROUP: usize = 8;
const OFFSET_BYTES: usize = 2;
const TWO_BYTES: u8 = 254;
const FOUR_BYTES: u8 = 255;

/// Returns the bytes of a leaf with so many bytes of entries and so many entries.
pub(super) fn leaf_bytes<O: TreeOrder>(used: usize, count: usize) -> usize {
    HEADER_BYTES + used + OFFSET_BYTES * (count.saturating_sub(1) / GROUP)
}

/// An entry of a leaf.
#[derive(Clone, Copy)]
pub(super) struct LeafEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    /// The offset of the next entry.
    pub(super) end: usize,
}

/// A leaf that others may read as well.
#[derive(Debug)]
pub(super) struct LeafRef<'a, O> {
    node: NodeRef<'a>,
    body: &'a [u8],
    order: PhantomData<O>,
}

impl<O> Clone for LeafRef<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for LeafRef<'_, O> {}

impl<'a, O: TreeOrder> LeafRef<'a, O> {
    #[inline]
    pub(super) fn new(node: NodeRef<'a>) -> Self {
        debug_assert_eq!(node.height(), 0);
        LeafRef {
            node,
            body: node.body(),
            order: PhantomData,
        }
    }

    #[inline]
    pub(super) fn count(self) -> usize {
        self.node.count()
    }

    pub(super) fn used(self) -> usize {
        self.node.used()
    }

    /// Returns the offset of an entry, or the end of the last one.
    #[inline]
    pub(super) fn offset(self, index: usize) -> usize {
        if index >= self.count() {
            return self.used();
        }
        let mut offset = self.group_offset(index / GROUP);
        for _ in 0..index % GROUP {
            offset = self.end_of(offset);
        }
        offset
    }

    #[inline]
    fn group_offset(self, group: usize) -> usize {
        if group == 0 {
            return 0;
        }
        let at = self.body.len() - OFFSET_BYTES * group;
        usize::from(u16::from_le_bytes([self.body[at], self.body[at + 1]]))
    }

    /// Returns the end of the entry at an offset.
    #[inline]
    fn end_of(self, offset: usize) -> usize {
        let (key_len, at) = if O::KEYED {
            length(self.body, offset)
        } else {
            (0, offset)
        };
        let (value_len, at) = length(self.body, at);
        at + key_len + value_len
    }

    /// Returns the entry at an offset.
    #[inline]
    pub(super) fn entry(self, offset: usize) -> LeafEntry<'a> {
        let (key_len, at) = if O::KEYED {
            length(self.body, offset)
        } else {
            (0, offset)
        };
        let (value_len, at) = length(self.body, at);
        let middle = at + key_len;
        LeafEntry {
            key: &self.body[at..middle],
            value: &self.body[middle..middle + value_len],
            end: middle + value_len,
        }
    }

    /// Returns the bytes of some entries.
    pub(super) fn run(self, entries: Range<usize>) -> &'a [u8] {
        &self.body[self.offset(entries.start)..self.offset(entries.end)]
    }

    /// Returns the index and the entry of a key, or the index where it would be.
    #[inline]
    pub(super) fn search(self, key: SearchKey<'_>) -> Result<(usize, LeafEntry<'a>), usize> {
        // The last group that begins with the key or with a lesser one has the key.
        let (mut low, mut groups) = (0, (self.count() - 1) / GROUP + 1);
        while groups > 1 {
            let half = groups / 2;
            let reaches = key.reaches(self.entry(self.group_offset(low + half)).key);
            low = select_unpredictable(reaches, low + half, low);
            groups -= half;
        }
        let key = key.bytes();
        let mut offset = self.group_offset(low);
        let first = low * GROUP;
        for index in first..self.count().min(first + GROUP) {
            let entry = self.entry(offset);
            match entry.key.cmp(key) {
                std::cmp::Ordering::Less => offset = entry.end,
                std::cmp::Ordering::Equal => return Ok((index, entry)),
                std::cmp::Ordering::Greater => return Err(index),
            }
        }
        Err(self.count().min(first + GROUP))
    }

    pub(super) fn first_key(self) -> &'a [u8] {
        self.entry(0).key
    }

    pub(super) fn last_key(self) -> &'a [u8] {
        self.entry(self.offset(self.count() - 1)).key
    }
}

/// Reads a length, and returns it and the offset behind it.
#[inline]
fn length(bytes: &[u8], at: usize) -> (usize, usize) {
    match bytes[at] {
        TWO_BYTES => {
            let field = [bytes[at + 1], bytes[at + 2]];
            (usize::from(u16::from_le_bytes(field)), at + 3)
        }
        FOUR_BYTES => {
            let field = bytes[at + 1..at + 5].try_into().expect("four bytes");
            (u32::from_le_bytes(field) as usize, at + 5)
        }
        len => (usize::from(len), at + 1),
    }
}

/// The lengths of an entry, as a leaf has them.
pub(super) type EntryHead = SmallVec<[u8; 10]>;

/// Returns the lengths in front of an entry.
pub(super) fn entry_head<O: TreeOrder>(key: &[u8], value: &[u8]) -> EntryHead {
    let mut head = EntryHead::new();
    if O::KEYED {
        push_length(&mut head, key.len());
    }
    push_length(&mut head, value.len());
    head
}

fn push_length(head: &mut EntryHead, len: usize) {
    if len < usize::from(TWO_BYTES) {
        head.push(len as u8);
    } else if let Ok(len) = u16::try_from(len) {
        head.push(TWO_BYTES);
        head.extend_from_slice(&len.to_le_bytes());
    } else {
        let len = u32::try_from(len).expect("a key or value has less than 4 GiB");
        head.push(FOUR_BYTES);
        head.extend_from_slice(&len.to_le_bytes());
    }
}

/// Consecutive entries, as runs of bytes that lie at several places.
#[derive(Default)]
pub(super) struct EntryRuns<'a> {
    /// Entries in front of a new one, its lengths, key and value, and the entries behind it.
    runs: [&'a [u8]; 5],
    len: usize,
    bytes: usize,
    count: usize,
}

impl<'a> EntryRuns<'a> {
    /// Appends a part of the bytes of entries.
    pub(super) fn push(&mut self, run: &'a [u8]) {
        self.runs[self.len] = run;
        self.len += 1;
        self.bytes += run.len();
    }

    /// Appends an entry.
    pub(super) fn push_entry(&mut self, head: &'a [u8], key: &'a [u8], value: &'a [u8]) {
        for run in [head, key, value] {
            self.push(run);
        }
        self.count += 1;
    }

    pub(super) fn runs(&self) -> &[&'a [u8]] {
        &self.runs[..self.len]
    }

    /// Counts entries whose bytes were appended.
    pub(super) fn add_count(&mut self, count: usize) {
        self.count += count;
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of a leaf of these entries.
    pub(super) fn leaf_bytes<O: TreeOrder>(&self) -> usize {
        leaf_bytes::<O>(self.bytes, self.count)
    }

    /// Makes a leaf of these entries, with room for at least `room` bytes. The first `kept` entries are
    /// those of `source`.
    pub(super) fn leaf<O: TreeOrder>(
        &self,
        birth: VersionStamp,
        room: usize,
        source: Option<(LeafRef<'_, O>, usize)>,
    ) -> NewNode {
        let room = room.max(self.leaf_bytes::<O>());
        let mut new = NewNode::new(room, 0, birth, self.runs());
        let node = new.as_mut();
        node.set_used(self.bytes);
        node.set_count(self.count);
        node.set_total(self.count);
        let kept = source.map_or(0, |(_, kept)| kept);
        if let Some((source, kept)) = source {
            copy_offsets(node.body(), source, kept);
        }
        write_offsets::<O>(node, kept);
        new
    }
}

/// Copies the offsets of the groups that begin with one of the first `kept` entries.
fn copy_offsets<O: TreeOrder>(body: &mut [u8], source: LeafRef<'_, O>, kept: usize) {
    let bytes = OFFSET_BYTES * (kept.saturating_sub(1) / GROUP);
    let from = source.body.len() - bytes;
    let to = body.len() - bytes;
    body[to..].copy_from_slice(&source.body[from..]);
}

/// Writes the offsets of groups. Those of groups that begin with one of the first `kept` entries are right.
fn write_offsets<O: TreeOrder>(node: &mut NodeMut<'_>, kept: usize) {
    let count = node.as_ref().count();
    let leaf = LeafRef::<O>::new(node.as_ref());
    let first = kept.saturating_sub(1) / GROUP;
    let mut offset = leaf.group_offset(first);
    let last = (count - 1) / GROUP;
    for group in first + 1..=last {
        let leaf = LeafRef::<O>::new(node.as_ref());
        for _ in 0..GROUP {
            offset = leaf.end_of(offset);
        }
        let body = node.body();
        let at = body.len() - OFFSET_BYTES * group;
        let field = u16::try_from(offset).expect("a leaf of several entries is short");
        body[at..at + OFFSET_BYTES].copy_from_slice(&field.to_le_bytes());
    }
}

/// Replaces some entries of a leaf, which has room for the new one, by at most one.
pub(super) fn splice<O: TreeOrder>(
    node: &mut NodeMut<'_>,
    replaced: Range<usize>,
    new: &EntryRuns<'_>,
) {
    let leaf = LeafRef::<O>::new(node.as_ref());
    let (start, end) = (leaf.offset(replaced.start), leaf.offset(replaced.end));
    let count = leaf.count() - replaced.len() + new.count;
    let used = leaf.used();
    let body = node.body();
    body.copy_within(end..used, start + new.bytes);
    let mut at = start;
    for run in new.runs() {
        body[at..at + run.len()].copy_from_slice(run);
        at += run.len();
    }
    node.set_used(used - (end - start) + new.bytes);
    node.set_count(count);
    node.set_total(count);
    write_offsets::<O>(node, replaced.start);
}
