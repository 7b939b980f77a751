//! Records whose keys follow each other.
//!
//! | bits of an entry | content |
//! |---|---|
//! | 63–44 | the digest of what the key has behind the prefix that all keys of the leaf share |
//! | 43–0 | the address of the record, which is a multiple of 16, divided by 16 |
//!
//! A digest is five characters of 4 bits where keys go on with digits, and otherwise two bytes and a half. A greater key
//! never has a smaller digest, so that entries are sorted by both. A search reads records only where digests are equal.

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
const ADDRESS_BITS: u32 = 44;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
/// The characters of a digest of digits, and the bits of each. Digits are followed by `:`, which separates parts of many
/// keys, and five more.
const CHARACTERS: usize = 5;
const CHARACTER_BITS: usize = 4;
const DIGITS: std::ops::Range<u8> = b'0'..b'0' + (1 << CHARACTER_BITS);

#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    fn new(record: RecordRef, digest: u32) -> Entry {
        debug_assert_eq!(
            record.address() & !(ADDRESS << 4),
            0,
            "user addresses have 48 bits, and are multiples of 16"
        );
        Entry(u64::from(digest) << ADDRESS_BITS | record.address() >> 4)
    }

    fn digest(self) -> u32 {
        (self.0 >> ADDRESS_BITS) as u32
    }

    fn record(self) -> RecordRef {
        // SAFETY: the tree's first invariant, and the leaf is locked.
        unsafe { RecordRef::from_address((self.0 & ADDRESS) << 4) }
    }

    fn key<'l>(self) -> &'l [u8] {
        self.record().key()
    }
}

/// Returns the digest of the rest of a key.
fn digest(rest: &[u8], has_digits: bool) -> u32 {
    if !has_digits {
        let byte = |at| u32::from(rest.get(at).copied().unwrap_or(0));
        return byte(0) << 12 | byte(1) << 4 | byte(2) >> 4;
    }
    let mut digest = 0;
    for at in 0..CHARACTERS {
        let left = (CHARACTERS - at) * CHARACTER_BITS;
        match rest.get(at) {
            Some(byte) if DIGITS.contains(byte) => {
                digest = digest << CHARACTER_BITS | u32::from(byte - DIGITS.start);
            }
            // What comes behind another byte does not count.
            Some(byte) if *byte >= DIGITS.end => return digest << left | ((1 << left) - 1),
            Some(_) | None => return digest << left,
        }
    }
    digest
}

/// Returns `true` if the rest of a key begins with digits.
fn begins_with_digits(rest: &[u8]) -> bool {
    rest.iter().take(2).all(|byte| DIGITS.contains(byte))
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
    /// A prefix that all keys share.
    prefix: SmallVec<[u8; 16]>,
    /// How digests are made.
    has_digits: bool,
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
        let shared = self.prefix.len();
        match key[..key.len().min(shared)].cmp(&self.prefix) {
            std::cmp::Ordering::Less => return Err(0),
            std::cmp::Ordering::Greater => return Err(self.entries.len()),
            std::cmp::Ordering::Equal => {}
        }
        let rest = &key[shared..];
        let wanted = digest(rest, self.has_digits);
        let low = self
            .entries
            .partition_point(|entry| entry.digest() < wanted);
        let equal = self.entries[low..].partition_point(|entry| entry.digest() == wanted);
        let found = self.entries[low..low + equal]
            .binary_search_by(|entry| entry.key()[shared..].cmp(rest));
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
        let shared = common_prefix(&self.prefix, key);
        if self.entries.is_empty() {
            self.prefix = key.into();
            self.has_digits = false;
        } else if shared < self.prefix.len() {
            self.prefix.truncate(shared);
            self.make_digests();
        }
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(STEP);
        }
        let digest = digest(&key[self.prefix.len()..], self.has_digits);
        self.entries.insert(at, Entry::new(record, digest));
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

    /// Makes the digests anew, for another prefix or other records.
    fn make_digests(&mut self) {
        let shared = self.prefix.len();
        let mut keys = self.entries.iter().map(|entry| entry.key());
        self.has_digits = keys.all(|key| begins_with_digits(&key[shared..]));
        for entry in &mut self.entries {
            let digest = digest(&entry.key()[shared..], self.has_digits);
            *entry = Entry::new(entry.record(), digest);
        }
    }

    /// Looks which prefix all keys share, and makes the digests anew.
    fn find_prefix(&mut self) {
        let shared = self
            .bounds()
            .map(|(first, last)| &first[..common_prefix(first, last)]);
        self.prefix = shared.unwrap_or(&[]).into();
        self.make_digests();
    }

    /// Takes the records from `at` on into a leaf of their own.
    pub(super) fn split(&mut self, at: usize) -> Leaf {
        let mut entries = Vec::with_capacity((self.len() - at).next_multiple_of(STEP));
        entries.extend(self.entries.drain(at..));
        self.entries.shrink_to(at.next_multiple_of(STEP));
        let mut next = Leaf {
            entries,
            ..Leaf::default()
        };
        self.find_prefix();
        next.find_prefix();
        next
    }

    /// Appends the records of the next leaf.
    pub(super) fn append(&mut self, next: Leaf) {
        let count = (self.len() + next.len()).next_multiple_of(STEP);
        self.entries.reserve_exact(count - self.len());
        self.entries.extend(next.entries);
        self.find_prefix();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greater_key_has_no_smaller_digest() {
        let mut random = fastrand::Rng::with_seed(1);
        let alphabets: [&[u8]; 3] = [b"0123456789", b"\0+09:?@a\xff", b"\0\x01\x0f\x10\xf0\xff"];
        for _ in 0..100_000 {
            let alphabet = random.choice(alphabets).expect("there are some");
            let mut key = || -> Vec<u8> {
                let len = random.usize(..8);
                (0..len)
                    .map(|_| alphabet[random.usize(..alphabet.len())])
                    .collect()
            };
            let mut keys = [key(), key()];
            keys.sort();
            for has_digits in [false, true] {
                let [less, greater] = keys.each_ref().map(|key| digest(key, has_digits));
                assert!(
                    less <= greater && greater >> 20 == 0,
                    "{keys:?}: {less:x} {greater:x}"
                );
            }
        }
        assert!(digest(b"12345", true) < digest(b"12346", true));
    }
}
