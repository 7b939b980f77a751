//! The index: the records in the order of their keys, behind a table of hints.
//!
//! Invariants:
//! 1. At most one record of a key is not dead.
//! 2. A record enters never written, and leaves after it was marked dead under its lock.

use std::sync::Arc;

use crate::holds::Holds;
use crate::lookaside::{HintLookup, HintTable, KeyHash, Lookaside};
use crate::record::RecordRef;
use crate::record_tree::RecordTree;
use crate::word::{DEAD, LOCK, LockRefusal, QUEUED, WordValue};

/// Bytes of a record's place in the tree, measured (see `benches/index.rs`).
pub(crate) const TREE_BYTES_PER_RECORD: usize = 10;

pub(crate) struct RecordIndex {
    tree: RecordTree,
    hints: Lookaside,
    holds: Arc<Holds>,
}

impl RecordIndex {
    pub(crate) fn new(holds: Arc<Holds>) -> RecordIndex {
        RecordIndex {
            tree: RecordTree::default(),
            hints: Lookaside::new(),
            holds,
        }
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
        let record = self.tree.get(key)?;
        match self.try_remember(hash, record) {
            Err(LockRefusal::Dead) => None,
            // The thread that has it locked found it by its entry, or makes sure that it gets one;
            // a held record had its entry before, and in a new table gets it from the janitor.
            Ok(()) | Err(LockRefusal::Busy | LockRefusal::Held) => Some(record),
        }
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
            if self.tree.insert(record) {
                if self.remember(hash, record) {
                    return (record, true);
                }
                // The janitor has already removed it again.
                continue;
            }
            record.free_unpublished();
            if let Some(record) = self.tree.get(key)
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

    /// Removes a record: `seen` is its word, locked. The caller gives back the engine's reference.
    pub(crate) fn remove(&self, record: RecordRef, seen: WordValue) {
        debug_assert!(seen.has(LOCK));
        record.word().unlock(seen, DEAD);
        self.hints.forget(self.hash(record.key()), record);
        let removed = self.tree.remove(record);
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
        self.tree.range(from, |record| {
            to.is_none_or(|to| record.key() < to) && visit(record)
        });
    }

    /// Takes all records.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = RecordRef> {
        self.tree.take()
    }

    /// Lets the table of hints keep pace with `records`; see [`Lookaside::grow`].
    pub(crate) fn grow(&self, records: usize) -> Option<std::sync::Arc<HintTable>> {
        self.hints.grow(records)
    }
}
