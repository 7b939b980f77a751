//! Loads a snapshot of another replica, or of an earlier run, into a driven engine: an empty one or
//! one that has an older state.
//!
//! Records come in the order of keys, in parallel with a walk through the existing ones:
//!
//! | key | becomes |
//! |---|---|
//! | in the snapshot, with the same TID | stays as it is |
//! | in the snapshot | what the snapshot says, with its TID |
//! | only in the engine | a tombstone with the greatest TID of the snapshot's epoch |
//!
//! While a snapshot is being loaded the engine shows a mixture of the two states, with TIDs above
//! its current epoch: readers should not be admitted, although a read does no harm. Snapshots that
//! were taken before keep their contents; new ones wait. A snapshot that was not loaded to its end
//! leaves the mixture, and another must be loaded.

use std::collections::VecDeque;

use base::{Change, Epoch, Tid, database};
use hashbrown::HashMap;
use parking_lot::MutexGuard;

use crate::apply::{Applier, lock_to_apply};
use crate::database_table::VisibleGenerations;
use crate::databases::count_restored;
use crate::effects::write_of_change;
use crate::engine::Engine;
use crate::log::RecordWrite;
use crate::origin::RecentOrigin;
use crate::publish::{install, publish_tree};
use crate::record::{RecordRef, VersionRef};
use crate::snapshot::SnapshotEntry;
use crate::thread_context::ThreadContext;
use crate::word::QUEUED;
use crate::worker_slot::{KeyCount, WorkerSlot};

/// The number of keys that are looked up ahead at a time.
const AHEAD: usize = 1_000;

/// Takes the records of a snapshot.
pub struct Loader<'a> {
    thread: &'a ThreadContext,
    recent: &'a mut RecentOrigin,
    _applying: MutexGuard<'a, ()>,
    index: Epoch,
    stamp_ms: u64,
    /// The next existing keys, and the key from which to look for more if there may be some.
    ahead: VecDeque<Vec<u8>>,
    more_from: Option<Vec<u8>>,
    /// Keys of each generation of each database: loaded minus replaced.
    keys: HashMap<(u16, u16), KeyCount>,
    /// The key that came last.
    last: Option<Vec<u8>>,
}

impl Applier {
    /// Begins to load a snapshot of epoch `index`, whose time is `stamp_ms`, in place of the
    /// engine's contents. Nothing must be held.
    ///
    /// # Panics
    /// Panics if a later entry has been applied.
    pub fn load(&mut self, index: Epoch, stamp_ms: u64) -> Loader<'_> {
        let thread = &self.thread;
        let applying = thread.engine.applying.lock();
        let applied = thread.engine.applied();
        assert!(
            index >= applied,
            "a snapshot of entry {index} is older than entry {applied}, which is applied"
        );
        Loader {
            thread,
            recent: &mut self.recent,
            _applying: applying,
            index,
            stamp_ms,
            ahead: VecDeque::new(),
            more_from: Some(Vec::new()),
            keys: HashMap::new(),
            last: None,
        }
    }
}

impl Loader<'_> {
    /// Loads a record.
    ///
    /// # Panics
    /// Panics if its key is not after the last one's.
    pub fn put(&mut self, entry: &SnapshotEntry<'_>) {
        let in_order = self.last.as_deref().is_none_or(|last| last < entry.key);
        assert!(
            in_order,
            "the records of a snapshot come in the order of keys"
        );
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(entry.key);
        self.delete_before(Some(entry.key));
        let _guard = self.thread.pin();
        let change = Change::Put {
            key: entry.key,
            value: &entry.value.bytes(),
            kind: entry.kind,
            generation: entry.generation,
            deadline: entry.deadline,
            origin: entry.origin,
        };
        let write = write_of_change(self.thread, &change, self.recent);
        self.install(write, entry.tid);
    }

    /// Ends the snapshot: `generation` is visible in it, and transaction `flushed` began it. The
    /// engine has then applied everything up to the snapshot's index.
    pub fn finish(mut self, generation: u16, flushed: Tid) {
        self.delete_before(None);
        let engine = &self.thread.engine;
        {
            let _guard = self.thread.pin();
            let write = RecordWrite {
                record: engine.generation,
                version: Engine::generation_version(generation),
            };
            self.install(write, flushed);
            let generations = VisibleGenerations::new(generation, engine.database_table());
            // Flushed versions are gone.
            engine.note_generations(generations, generations.newest());
            count_restored(self.thread, generations, &self.keys);
        }
        engine.floors.raise_all(last_of(self.index));
        engine.epochs.drive(self.index.next(), self.stamp_ms);
        if let Some(listener) = engine.listening.listener() {
            // Any key may have changed.
            listener.flushed(last_of(self.index));
        }
    }

    /// Makes the keys before this one absent that the snapshot does not have.
    fn delete_before(&mut self, key: Option<&[u8]>) {
        while !self.ahead.is_empty() || self.look_ahead() {
            match key {
                Some(key) if &self.ahead[0][..] > key => return,
                Some(key) if self.ahead[0] == key => {
                    self.ahead.pop_front();
                    return;
                }
                _ => {}
            }
            if let Some(key) = self.ahead.pop_front() {
                self.delete(&key);
            }
        }
    }

    /// Looks up the next existing keys. Returns `true` if there are any.
    fn look_ahead(&mut self) -> bool {
        while let Some(from) = self.more_from.take() {
            let engine = &self.thread.engine;
            let _guard = self.thread.pin();
            let mut looked = 0;
            engine.index.range(&from, None, |record| {
                if looked == AHEAD {
                    self.more_from = Some(record.key().to_vec());
                    return false;
                }
                looked += 1;
                if !RecordRef::version(record.word().load()).is_absent() {
                    self.ahead.push_back(record.key().to_vec());
                }
                true
            });
            if !self.ahead.is_empty() {
                return true;
            }
        }
        false
    }

    fn delete(&mut self, key: &[u8]) {
        let _guard = self.thread.pin();
        let write = RecordWrite {
            record: self.thread.record_of(key),
            version: VersionRef::new(0, None, None),
        };
        self.install(write, last_of(self.index));
    }

    /// Makes a version current, unless it already is.
    fn install(&mut self, write: RecordWrite, tid: Tid) {
        let (mut record, new) = (write.record, write.version);
        let (seen, _) = lock_to_apply(self.thread, &mut record);
        let old = RecordRef::version(seen);
        if !old.is_never() && old.tid() == tid {
            record.word().unlock(seen, seen.0 & QUEUED);
            return new.free_unpublished();
        }
        new.set_tid(tid);
        if record != self.thread.engine.generation {
            for (version, by) in [(old, -1), (new, 1)] {
                let place = (database::number(record.key()), version.generation());
                let count = self.keys.entry(place).or_default();
                count.add((record, version), place.1, by);
            }
        }
        let counters = self.thread.counters();
        let mut bag = counters.bag.lock();
        let nodes = publish_tree(old, new);
        install(self.thread, &mut bag, record, seen, old, new);
        let freed = bag.take_freed() as i64;
        drop(bag);
        WorkerSlot::count(&counters.bytes, (new.bytes() + nodes) as i64 - freed);
    }
}

/// Returns the greatest TID of an epoch.
fn last_of(epoch: Epoch) -> Tid {
    Tid::new(epoch, (1 << Tid::SEQUENCE_BITS) - 1)
}
