//! The candidates behind one trait.
//!
//! | map | keys it can hold | remarks |
//! |---|---|---|
//! | the engine's `RecordTree` | bytes | two levels; a mutex for each leaf |
//! | `scc::TreeIndex` | any ordered type | B+ tree; readers take no lock |
//! | `crossbeam_skiplist` | any ordered type | one allocation and one cache line per entry |
//! | `masstree` | bytes, at most 256 | panics on longer keys; 0.9.5 scans from wrong places |
//! | `congee` | exactly 8 bytes | adaptive radix tree; cannot hold keys of varying length |

use congee::U64Congee;
use crossbeam_skiplist::SkipMap;
use masstree::{MassTree, RangeBound};
use scc::{Guard, TreeIndex};

use crate::record::{KeyRef, RecordRef, at, prefix};
use crate::record_tree::RecordTree;

/// An ordered map from keys to records, as the engine needs it.
pub trait Index: Sync {
    const NAME: &'static str;
    fn new() -> Self;
    fn get(&self, key: &[u8]) -> Option<RecordRef>;
    /// Adds the record unless its key is present; returns `true` if it did.
    fn insert(&self, record: RecordRef) -> bool;
    /// Removes a key; returns `true` if it was present.
    fn remove(&self, key: &[u8]) -> bool;
    /// Visits at most `limit` records from `from` on, and returns their number.
    fn scan(&self, from: &[u8], limit: usize, visit: &mut dyn FnMut(RecordRef)) -> usize;
}

pub struct Own(RecordTree);

impl Index for Own {
    const NAME: &'static str = "engine's tree";

    fn new() -> Own {
        Own(RecordTree::default())
    }

    fn get(&self, key: &[u8]) -> Option<RecordRef> {
        self.0.get(key)
    }

    fn insert(&self, record: RecordRef) -> bool {
        self.0.insert(record)
    }

    fn remove(&self, key: &[u8]) -> bool {
        let found = self.0.get(key);
        found.is_some_and(|record| self.0.remove(record))
    }

    fn scan(&self, from: &[u8], limit: usize, visit: &mut dyn FnMut(RecordRef)) -> usize {
        let mut count = 0;
        self.0.range(from, |record| {
            visit(record);
            count += 1;
            count < limit
        });
        count
    }
}

pub struct Tree(TreeIndex<KeyRef, ()>);

impl Index for Tree {
    const NAME: &'static str = "scc TreeIndex";

    fn new() -> Tree {
        Tree(TreeIndex::new())
    }

    fn get(&self, key: &[u8]) -> Option<RecordRef> {
        let guard = Guard::new();
        let entry = self.0.peek_entry(&KeyRef::probe(&key), &guard);
        entry.map(|(key, ())| key.target())
    }

    fn insert(&self, record: RecordRef) -> bool {
        self.0.insert_sync(KeyRef::record(record), ()).is_ok()
    }

    fn remove(&self, key: &[u8]) -> bool {
        self.0.remove_sync(&KeyRef::probe(&key))
    }

    fn scan(&self, from: &[u8], limit: usize, visit: &mut dyn FnMut(RecordRef)) -> usize {
        let guard = Guard::new();
        let range = self.0.range(KeyRef::probe(&from).., &guard);
        range
            .take(limit)
            .map(|(key, ())| visit(key.target()))
            .count()
    }
}

pub struct SkipList(SkipMap<KeyRef, ()>);

impl Index for SkipList {
    const NAME: &'static str = "crossbeam-skiplist";

    fn new() -> SkipList {
        SkipList(SkipMap::new())
    }

    fn get(&self, key: &[u8]) -> Option<RecordRef> {
        self.0
            .get(&KeyRef::probe(&key))
            .map(|entry| entry.key().target())
    }

    fn insert(&self, record: RecordRef) -> bool {
        self.0
            .get_or_insert(KeyRef::record(record), ())
            .key()
            .target()
            == record
    }

    fn remove(&self, key: &[u8]) -> bool {
        self.0.remove(&KeyRef::probe(&key)).is_some()
    }

    fn scan(&self, from: &[u8], limit: usize, visit: &mut dyn FnMut(RecordRef)) -> usize {
        let range = self.0.range(KeyRef::probe(&from)..);
        range
            .take(limit)
            .map(|entry| visit(entry.key().target()))
            .count()
    }
}

pub struct Masstree(MassTree<u64>);

impl Index for Masstree {
    const NAME: &'static str = "masstree";

    fn new() -> Masstree {
        Masstree(MassTree::new())
    }

    fn get(&self, key: &[u8]) -> Option<RecordRef> {
        let found = self.0.get_with_guard(key, &self.0.guard());
        found.map(|address| at(address as usize))
    }

    fn insert(&self, record: RecordRef) -> bool {
        // Its own insert overwrites, and its entry looks the key up twice: there is no atomic
        // "insert if absent". The plain insert is the cheaper of the two.
        let (key, address) = (record.key(), record.address());
        self.0
            .insert_with_guard(key, address, &self.0.guard())
            .is_none()
    }

    fn remove(&self, key: &[u8]) -> bool {
        self.0
            .remove_with_guard(key, &self.0.guard())
            .is_ok_and(|old| old.is_some())
    }

    fn scan(&self, from: &[u8], limit: usize, visit: &mut dyn FnMut(RecordRef)) -> usize {
        let mut count = 0;
        let each = |_: &[u8], address: u64| {
            visit(at(address as usize));
            count += 1;
            count < limit
        };
        let (from, to) = (RangeBound::Included(from), RangeBound::Unbounded);
        self.0.scan(from, to, each, &self.0.guard());
        count
    }
}

pub struct Art(U64Congee<usize>);

impl Index for Art {
    const NAME: &'static str = "congee";

    fn new() -> Art {
        Art(U64Congee::new())
    }

    fn get(&self, key: &[u8]) -> Option<RecordRef> {
        let found = self.0.get(prefix(key), &congee::epoch::pin());
        found.map(at)
    }

    fn insert(&self, record: RecordRef) -> bool {
        let (key, guard) = (prefix(record.key()), congee::epoch::pin());
        self.0
            .insert(key, record.address() as usize, &guard)
            .is_ok_and(|old| old.is_none())
    }

    fn remove(&self, key: &[u8]) -> bool {
        self.0.remove(prefix(key), &congee::epoch::pin()).is_some()
    }

    fn scan(&self, from: &[u8], limit: usize, visit: &mut dyn FnMut(RecordRef)) -> usize {
        let mut buffer = [([0; 8], 0); crate::SCAN];
        let buffer = &mut buffer[..limit];
        let count = self
            .0
            .range(prefix(from), u64::MAX, buffer, &congee::epoch::pin());
        buffer[..count]
            .iter()
            .for_each(|(_, address)| visit(at(*address)));
        count
    }
}
