//! Records whose keys follow each other.
//!
//! | bits of an entry | content |
//! |---|---|
//! | 63–48 | two bytes of the key: those behind the prefix that all keys of the leaf share, zero where the key ends |
//! | 47–0 | the address of the record |
//!
//! Entries are sorted by their keys, and so by their two bytes: a search reads a record only to compare the shared
//! prefix, and where two bytes are equal.

#![allow(unsafe_code)]

use smallvec::SmallVec;

use crate::record::RecordRef;

/// The most records of a leaf.
pub(super) const MOST: usize = 128;
/// Room is made for so many entries at a time: 128 bytes, which allocators do not round up.
const STEP: usize = 16;
/// A leaf with fewer records is joined with its neighbour.
const SPARSE: usize = MOST / 4;
/// Two leaves with at most so many records are joined.
const JOINED: usize = MOST * 3 / 4;
const ADDRESS: u64 = (1 << 48) - 1;

#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    fn new(record: RecordRef, common: usize) -> Entry {
        debug_assert_eq!(
            record.address() & !ADDRESS,
            0,
            "user addresses have 48 bits"
        );
        Entry(u64::from(digest(record.key(), common)) << 48 | record.address())
    }

    fn digest(self) -> u16 {
        (self.0 >> 48) as u16
    }

    fn record(self) -> RecordRef {
        // SAFETY: the tree's first invariant, and the leaf is locked.
        unsafe { RecordRef::from_address(self.0 & ADDRESS) }
    }

    fn key<'l>(self) -> &'l [u8] {
        self.record().key()
    }
}

/// Returns two bytes of a key from `at` on.
fn digest(key: &[u8], at: usize) -> u16 {
    let byte = |at| key.get(at).copied().unwrap_or(0);
    u16::from_be_bytes([byte(at), byte(at + 1)])
}

/// Returns the length of the prefix that two keys share.
pub(super) fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let pairs = one.iter().zip(other);
    pairs.take_while(|(one, other)| one == other).count()
}

/// The records of one leaf, copied.
pub(super) type RecordBatch = SmallVec<[RecordRef; MOST]>;

/// The place at which a walk goes on.
#[derive(Clone, Copy)]
pub(super) enum WalkPosition<'k> {
    /// At this key, or at the next one.
    From(&'k [u8]),
    /// Behind this key.
    Behind(&'k [u8]),
}

/// See the module's description.
#[derive(Default)]
pub(super) struct Leaf {
    /// The length of a prefix that all keys share.
    common: usize,
    entries: Vec<Entry>,
}

impl Leaf {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() == MOST
    }

    /// Returns `true` if the leaf is to be joined with another one. That is not so after each removal, since it may not
    /// be possible.
    pub(super) fn is_sparse(&self) -> bool {
        let count = self.entries.len();
        count < SPARSE && count.is_multiple_of(8)
    }

    /// Returns `true` if one leaf is to have the records of both: one has none, or there is some room left.
    pub(super) fn can_join(&self, next: &Leaf) -> bool {
        self.len() == 0 || next.len() == 0 || self.len() + next.len() <= JOINED
    }

    /// Returns the keys between which the leaf lies.
    pub(super) fn bounds(&self) -> Option<(&[u8], &[u8])> {
        Some((self.entries.first()?.key(), self.entries.last()?.key()))
    }

    pub(super) fn records(&self) -> impl Iterator<Item = RecordRef> {
        self.entries.iter().map(|entry| entry.record())
    }

    /// Returns the position of a key, or the one at which it would be.
    fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(first) = self.entries.first() else {
            return Err(0);
        };
        let common = self.common;
        if common > 0 {
            let own = &key[..key.len().min(common)];
            match own.cmp(&first.key()[..common]) {
                std::cmp::Ordering::Less => return Err(0),
                std::cmp::Ordering::Greater => return Err(self.entries.len()),
                std::cmp::Ordering::Equal => {}
            }
        }
        let wanted = digest(key, common);
        let low = self
            .entries
            .partition_point(|entry| entry.digest() < wanted);
        let equal = self.entries[low..].partition_point(|entry| entry.digest() == wanted);
        let rest = &key[common..];
        let found = self.entries[low..low + equal]
            .binary_search_by(|entry| entry.key()[common..].cmp(rest));
        found.map(|at| low + at).map_err(|at| low + at)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<RecordRef> {
        let at = self.search(key).ok()?;
        Some(self.entries[at].record())
    }

    /// Adds a record; the leaf is not full. Returns `false` if there is one of the same key.
    pub(super) fn insert(&mut self, record: RecordRef) -> bool {
        let key = record.key();
        let Err(at) = self.search(key) else {
            return false;
        };
        match self.entries.first() {
            None => self.common = key.len(),
            Some(first) => {
                let common = common_prefix(&first.key()[..self.common], key);
                self.set_common(common);
            }
        }
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(STEP);
        }
        self.entries.insert(at, Entry::new(record, self.common));
        true
    }

    /// Removes a record. Returns `false` if it is not in the leaf.
    pub(super) fn remove(&mut self, record: RecordRef) -> bool {
        let found = self.search(record.key()).ok();
        let Some(at) = found.filter(|&at| self.entries[at].record() == record) else {
            return false;
        };
        self.entries.remove(at);
        if self.entries.capacity() - self.entries.len() >= 3 * STEP {
            let count = self.entries.len().next_multiple_of(STEP);
            self.entries.shrink_to(count);
        }
        true
    }

    /// Changes the length of the shared prefix.
    fn set_common(&mut self, common: usize) {
        if common != self.common {
            self.common = common;
            for entry in &mut self.entries {
                *entry = Entry::new(entry.record(), common);
            }
        }
    }

    /// Looks how long the shared prefix is.
    fn find_common(&mut self) {
        let common = self
            .bounds()
            .map(|(first, last)| common_prefix(first, last));
        self.set_common(common.unwrap_or(0));
    }

    /// Takes the records from `at` on into a leaf of their own.
    pub(super) fn split(&mut self, at: usize) -> Leaf {
        let mut entries = Vec::with_capacity((self.len() - at).next_multiple_of(STEP));
        entries.extend(self.entries.drain(at..));
        self.entries.shrink_to(at.next_multiple_of(STEP));
        let mut next = Leaf {
            common: self.common,
            entries,
        };
        self.find_common();
        next.find_common();
        next
    }

    /// Appends the records of the next leaf.
    pub(super) fn append(&mut self, next: Leaf) {
        let count = (self.len() + next.len()).next_multiple_of(STEP);
        self.entries.reserve_exact(count - self.len());
        // Their two bytes may be of another place.
        let common = self.common;
        let records = next.entries.iter().map(|entry| entry.record());
        self.entries
            .extend(records.map(|record| Entry::new(record, common)));
        self.find_common();
    }

    /// Appends the records from a position on.
    pub(super) fn copy(&self, position: WalkPosition<'_>, into: &mut RecordBatch) {
        let from = match position {
            WalkPosition::From(key) => self.search(key).unwrap_or_else(|at| at),
            WalkPosition::Behind(key) => self.search(key).map_or_else(|at| at, |at| at + 1),
        };
        into.extend(self.entries[from..].iter().map(|entry| entry.record()));
    }
}
