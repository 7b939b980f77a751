//! Leaves: entries, one after the other.
//!
//! Eight entries are a group. The body has the begins of all groups but the first one, and then the entries.
//! The begin of a group:
//!
//! | bytes | field |
//! |---|---|
//! | 2 | offset of the group's first entry, counted from the leaf's first entry |
//! | 8 | head of the entry's key: its first eight bytes as a number; only in the order of keys |
//!
//! An entry in the order of keys:
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
use super::search_key::{SearchKey, key_head};
use super::{MAX_LEAF_BYTES, TreeOrder, VersionStamp};

/// The entries of a group.
const GROUP: usize = 8;
const OFFSET_BYTES: usize = 2;
const HEAD_BYTES: usize = 8;
const TWO_BYTES: u8 = 254;
const FOUR_BYTES: u8 = 255;

/// Zeros in place of the begins of groups, until these are written.
static ZEROS: [u8; MAX_LEAF_BYTES] = [0; MAX_LEAF_BYTES];

/// Returns the bytes of the begin of a group.
const fn group_bytes<O: TreeOrder>() -> usize {
    OFFSET_BYTES + if O::KEYED { HEAD_BYTES } else { 0 }
}

/// Returns the bytes of the begins of groups in a leaf with so many entries.
#[inline]
fn all_group_bytes<O: TreeOrder>(count: usize) -> usize {
    count.saturating_sub(1) / GROUP * group_bytes::<O>()
}

/// Returns the bytes of a leaf with so many bytes of entries and so many entries.
pub(super) fn leaf_bytes<O: TreeOrder>(used: usize, count: usize) -> usize {
    HEADER_BYTES + all_group_bytes::<O>(count) + used
}

/// Consecutive entries of one leaf, as their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryRun<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) count: usize,
}

impl EntryRun<'_> {
    /// Returns the number of entries.
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Returns the bytes that the entries take.
    pub(crate) fn bytes(self) -> usize {
        self.bytes.len()
    }
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
    groups: &'a [u8],
    entries: &'a [u8],
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
        let group_bytes = all_group_bytes::<O>(node.count());
        let (groups, entries) = node.body().split_at(group_bytes);
        LeafRef {
            node,
            groups,
            entries,
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
        let at = (group - 1) * group_bytes::<O>();
        usize::from(u16::from_le_bytes([self.groups[at], self.groups[at + 1]]))
    }

    /// Returns the head of the first key of a group, which is not the first one.
    #[inline]
    fn group_head(self, group: usize) -> u64 {
        let at = (group - 1) * group_bytes::<O>() + OFFSET_BYTES;
        let field = self.groups[at..at + HEAD_BYTES].try_into();
        u64::from_le_bytes(field.expect("bytes of a head"))
    }

    /// Returns the end of the entry at an offset.
    #[inline]
    fn end_of(self, offset: usize) -> usize {
        let (key_len, at) = if O::KEYED {
            length(self.entries, offset)
        } else {
            (0, offset)
        };
        let (value_len, at) = length(self.entries, at);
        at + key_len + value_len
    }

    /// Returns the entry at an offset.
    #[inline]
    pub(super) fn entry(self, offset: usize) -> LeafEntry<'a> {
        let (key_len, at) = if O::KEYED {
            length(self.entries, offset)
        } else {
            (0, offset)
        };
        let (value_len, at) = length(self.entries, at);
        let middle = at + key_len;
        LeafEntry {
            key: &self.entries[at..middle],
            value: &self.entries[middle..middle + value_len],
            end: middle + value_len,
        }
    }

    /// Returns the bytes of some entries.
    pub(super) fn run(self, entries: Range<usize>) -> &'a [u8] {
        &self.entries[self.offset(entries.start)..self.offset(entries.end)]
    }

    /// Returns the first entries, as many as have at most so many bytes.
    pub(super) fn first_run(self, most_bytes: usize) -> EntryRun<'a> {
        if self.used() <= most_bytes {
            return EntryRun {
                bytes: &self.entries[..self.used()],
                count: self.count(),
            };
        }
        let (mut count, mut end) = (0, 0);
        loop {
            let next = self.end_of(end);
            if next > most_bytes {
                break;
            }
            (count, end) = (count + 1, next);
        }
        let bytes = &self.entries[..end];
        EntryRun { bytes, count }
    }

    /// Returns the last entries, as many as have at most so many bytes.
    pub(super) fn last_run(self, most_bytes: usize) -> EntryRun<'a> {
        let (mut before, mut begin) = (0, 0);
        while self.used() - begin > most_bytes {
            (before, begin) = (before + 1, self.end_of(begin));
        }
        EntryRun {
            bytes: &self.entries[begin..self.used()],
            count: self.count() - before,
        }
    }

    /// Returns the index and the entry of a key, or the index where it would be.
    #[inline]
    pub(super) fn search(self, key: SearchKey<'_>) -> Result<(usize, LeafEntry<'a>), usize> {
        // The last group that begins with the key or with a lesser one has the key.
        let (mut low, mut groups) = (0, (self.count() - 1) / GROUP + 1);
        while groups > 1 {
            let half = groups / 2;
            let group = low + half;
            let first = || self.entry(self.group_offset(group)).key;
            let reaches = key.reaches_head(self.group_head(group), first);
            low = select_unpredictable(reaches, group, low);
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

    /// Appends the entries of a run.
    pub(super) fn push_run(&mut self, run: EntryRun<'a>) {
        self.push(run.bytes);
        self.count += run.count;
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
        let (kept, kept_groups) = source.map_or((0, &[][..]), |(source, kept)| {
            let bytes = all_group_bytes::<O>(kept);
            (kept, &source.groups[..bytes])
        });
        let missing = all_group_bytes::<O>(self.count) - kept_groups.len();
        let [a, b, c, d, e] = self.runs;
        let runs = [kept_groups, &ZEROS[..missing], a, b, c, d, e];
        let room = room.max(self.leaf_bytes::<O>());
        let mut new = NewNode::new(room, 0, birth, &runs);
        let node = new.as_mut();
        node.set_used(self.bytes);
        node.set_count(self.count);
        node.set_total(self.count);
        write_groups::<O>(node, kept);
        new
    }
}

/// Writes the begins of groups. Those of groups that begin with one of the first `kept` entries are right.
fn write_groups<O: TreeOrder>(node: &mut NodeMut<'_>, kept: usize) {
    let last = (node.as_ref().count() - 1) / GROUP;
    let first = kept.saturating_sub(1) / GROUP;
    let mut offset = LeafRef::<O>::new(node.as_ref()).group_offset(first);
    for group in first + 1..=last {
        let leaf = LeafRef::<O>::new(node.as_ref());
        for _ in 0..GROUP {
            offset = leaf.end_of(offset);
        }
        let head = key_head(leaf.entry(offset).key);
        let at = (group - 1) * group_bytes::<O>();
        let begin = &mut node.body()[at..at + group_bytes::<O>()];
        let field = u16::try_from(offset).expect("a leaf of several entries is short");
        begin[..OFFSET_BYTES].copy_from_slice(&field.to_le_bytes());
        if O::KEYED {
            begin[OFFSET_BYTES..].copy_from_slice(&head.to_le_bytes());
        }
    }
}

/// Replaces some entries of a leaf, which has room for the new ones.
pub(super) fn splice<O: TreeOrder>(
    node: &mut NodeMut<'_>,
    replaced: Range<usize>,
    new: &EntryRuns<'_>,
) {
    let leaf = LeafRef::<O>::new(node.as_ref());
    let (start, end) = (leaf.offset(replaced.start), leaf.offset(replaced.end));
    let count = leaf.count() - replaced.len() + new.count;
    let used = leaf.used();
    let old_groups = all_group_bytes::<O>(leaf.count());
    let groups = all_group_bytes::<O>(count);
    let body = node.body();
    if groups != old_groups {
        body.copy_within(old_groups..old_groups + used, groups);
    }
    let entries = &mut body[groups..];
    entries.copy_within(end..used, start + new.bytes);
    let mut at = start;
    for run in new.runs() {
        entries[at..at + run.len()].copy_from_slice(run);
        at += run.len();
    }
    node.set_used(used - (end - start) + new.bytes);
    node.set_count(count);
    node.set_total(count);
    write_groups::<O>(node, replaced.start);
}
