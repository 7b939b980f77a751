//! The index: an ordered concurrent map of records, behind a table of hints.
//!
//! The map holds `Key → ()`, where a [`Key`] is a counted reference to a record and compares by the
//! record's key; its first eight bytes lie beside the reference, so that most comparisons touch no
//! other memory. `benches/index.rs` compares the candidates for the map.
//!
//! Invariants:
//! 1. At most one record of a key is not dead.
//! 2. A record enters never written, and leaves after it was marked dead under its lock.
//! 3. The record of the empty key, the smallest of all, never leaves: `TreeIndex` 3.8 takes a
//!    time exponential in its depth to start a range below its smallest key.

use std::cmp::Ordering;

use std::sync::Arc;

use scc::{Comparable, Equivalent, TreeIndex};

use crate::holds::Holds;
use crate::lookaside::{HintLookup, HintTable, KeyHash, Lookaside};
use crate::record::RecordRef;
use crate::word::{DEAD, LOCK, LockRefusal, QUEUED, WordValue};

/// A key in the map: an owned reference to its record.
struct Key {
    prefix: u64,
    record: RecordRef,
}

fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

impl Key {
    /// Returns a key that takes over one reference to the record.
    fn owning(record: RecordRef) -> Key {
        Key {
            prefix: prefix(record.key()),
            record,
        }
    }
}

impl Clone for Key {
    fn clone(&self) -> Key {
        self.record.retain();
        Key {
            prefix: self.prefix,
            record: self.record,
        }
    }
}

impl Drop for Key {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: a Key owns one reference and gives it back once.
        unsafe { self.record.release() }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        let by_prefix = self.prefix.cmp(&other.prefix);
        by_prefix.then_with(|| self.record.key().cmp(other.record.key()))
    }
}

/// A key to search for.
struct Probe<'k> {
    prefix: u64,
    key: &'k [u8],
}

impl<'k> Probe<'k> {
    fn new(key: &'k [u8]) -> Probe<'k> {
        Probe {
            prefix: prefix(key),
            key,
        }
    }
}

impl Equivalent<Key> for Probe<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.compare(key) == Ordering::Equal
    }
}

impl Comparable<Key> for Probe<'_> {
    fn compare(&self, key: &Key) -> Ordering {
        self.prefix
            .cmp(&key.prefix)
            .then_with(|| self.key.cmp(key.record.key()))
    }
}

/// Bytes of a record's place in the ordered map, measured (see `benches/index.rs`).
pub(crate) const TREE_BYTES_PER_RECORD: usize = 48;

pub(crate) struct RecordIndex {
    tree: TreeIndex<Key, ()>,
    hints: Lookaside,
    holds: Arc<Holds>,
}

impl RecordIndex {
    pub(crate) fn new(holds: Arc<Holds>) -> RecordIndex {
        let index = RecordIndex {
            tree: TreeIndex::new(),
            hints: Lookaside::new(),
            holds,
        };
        index.get_or_insert(index.hash(b""), b"");
        index
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        self.hints.hash(key)
    }

    #[inline]
    pub(crate) fn hints(&self) -> &Lookaside {
        &self.hints
    }

    /// Returns the live record of `key`. The caller may have records locked, this one too.
    pub(crate) fn get(&self, hash: KeyHash, key: &[u8]) -> Option<RecordRef> {
        match self.hints.find(hash, key) {
            HintLookup::Record(record) if !record.word().load().has(DEAD) => return Some(record),
            HintLookup::Nothing => return None,
            HintLookup::Record(_) | HintLookup::Unknown => {}
        }
        let record = self.get_from_tree(key)?;
        match self.try_remember(hash, record) {
            Err(LockRefusal::Dead) => None,
            // The thread that has it locked found it by its entry, or makes sure that it gets one;
            // a held record had its entry before, and in a new table gets it from the janitor.
            Ok(()) | Err(LockRefusal::Busy | LockRefusal::Held) => Some(record),
        }
    }

    fn get_from_tree(&self, key: &[u8]) -> Option<RecordRef> {
        self.tree.peek_with(&Probe::new(key), |key, ()| key.record)
    }

    /// Returns the live record of `key`, and makes one if there is none; also returns `true` if it
    /// was made. The caller has no record locked. The record has its entry (see
    /// [`crate::lookaside`], invariant 3).
    pub(crate) fn get_or_insert(&self, hash: KeyHash, key: &[u8]) -> (RecordRef, bool) {
        if let HintLookup::Record(record) = self.hints.find(hash, key)
            && !record.word().load().has(DEAD)
        {
            return (record, false);
        }
        loop {
            // A key without a hint is a new one more often than not: no look-up before.
            let record = RecordRef::new(key);
            record.retain(); // One reference for the engine, one for the map.
            match self.tree.insert_sync(Key::owning(record), ()) {
                Ok(()) => {
                    if self.remember(hash, record) {
                        return (record, true);
                    }
                    // The janitor has already removed it again.
                    continue;
                }
                Err((mine, ())) => {
                    drop(mine);
                    drop(Key::owning(record));
                }
            }
            if let Some(record) = self.get_from_tree(key)
                && self.remember(hash, record)
            {
                return (record, false);
            }
            // A dead record is about to leave.
            std::hint::spin_loop();
        }
    }

    /// Gives a record of the map its entry in the table, unless another thread has it locked.
    fn try_remember(&self, hash: KeyHash, record: RecordRef) -> Result<(), LockRefusal> {
        let seen = record.word().lock()?;
        self.hints.remember(hash, record);
        record.word().unlock(seen, seen.0 & QUEUED);
        Ok(())
    }

    /// Gives a record of the map its entry in the table, waiting for a thread that has it locked,
    /// which must not be the caller's. Returns `true` if the record is alive.
    fn remember(&self, hash: KeyHash, record: RecordRef) -> bool {
        loop {
            match self.try_remember(hash, record) {
                Err(LockRefusal::Dead) => return false,
                Ok(()) => return true,
                Err(LockRefusal::Busy) => std::thread::yield_now(),
                // A record that is held cannot be locked, but cannot leave either.
                Err(LockRefusal::Held) => {
                    let remember = || self.hints.remember(hash, record);
                    if self.holds.while_held(record, remember) {
                        return true;
                    }
                }
            }
        }
    }

    /// Gives the record its entry, as part of the walk that completes a table.
    pub(crate) fn list(&self, record: RecordRef) {
        self.remember(self.hash(record.key()), record);
    }

    /// Returns `true` if the record stays for ever.
    pub(crate) fn keeps(record: RecordRef) -> bool {
        record.key().is_empty()
    }

    /// Removes a record: `seen` is its word, locked. The caller gives back the engine's reference.
    pub(crate) fn remove(&self, record: RecordRef, seen: WordValue) {
        debug_assert!(seen.has(LOCK) && !Self::keeps(record));
        record.word().unlock(seen, DEAD);
        self.hints.forget(self.hash(record.key()), record);
        let removed = self.tree.remove_sync(&Probe::new(record.key()));
        debug_assert!(removed, "a record leaves the index once");
    }

    /// Visits the records from `from` (inclusive) to `to` (exclusive) in key order until `visit`
    /// returns `false`. Records that enter or leave meanwhile may be seen or not.
    pub(crate) fn range(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        mut visit: impl FnMut(RecordRef) -> bool,
    ) {
        let guard = scc::Guard::new();
        let records = self
            .tree
            .range(Probe::new(from).., &guard)
            .map(|(key, ())| key.record);
        for record in records {
            if to.is_some_and(|to| record.key() >= to) || !visit(record) {
                return;
            }
        }
    }

    /// Lets the table of hints keep pace with `records`; see [`Lookaside::grow`].
    pub(crate) fn grow(&self, records: usize) -> Option<std::sync::Arc<HintTable>> {
        self.hints.grow(records)
    }
}
