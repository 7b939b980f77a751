//! A worker's slot among the engine's counters: its garbage, and numbers that it alone changes and that
//! are added up when a caller asks for figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::garbage::Bag;
use crate::index::TREE_BYTES_PER_RECORD;
use crate::record::{RecordRef, VersionRef};

/// The unit in which sums of deadlines are counted: fine enough for a mean, and coarse enough for the
/// sum over as many keys as fit into memory.
pub(crate) const DEADLINE_UNIT_MS: u64 = 64;
/// The latest deadline in such a sum, in that unit, in the year 2109; later ones count as this one.
const LATEST_DEADLINE: u64 = 1 << 36;

/// A change of the numbers of keys.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct KeyCount {
    pub(crate) keys: i64,
    /// Those of them that have a deadline.
    pub(crate) expiring: i64,
    /// The sum of their deadlines, in [`DEADLINE_UNIT_MS`].
    pub(crate) deadlines: i64,
    /// About the bytes of their records and current versions, with their places in the index.
    pub(crate) bytes: i64,
}

impl KeyCount {
    /// Adds another change.
    pub(crate) fn add_count(&mut self, other: KeyCount) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.deadlines = self.deadlines.wrapping_add(other.deadlines);
        self.bytes += other.bytes;
    }

    /// Counts a version of a record, `sign` times: 1 when it comes, -1 when it goes. Absences and versions of
    /// another generation do not count.
    #[inline]
    pub(crate) fn add(
        &mut self,
        (record, version): (RecordRef, VersionRef),
        generation: u16,
        sign: i64,
    ) {
        if !version.is_key_of(generation) {
            return;
        }
        self.keys += sign;
        self.bytes += sign * bytes_of(record, version) as i64;
        if let Some(deadline) = version.deadline() {
            self.expiring += sign;
            let units = (deadline / DEADLINE_UNIT_MS).min(LATEST_DEADLINE);
            self.deadlines = self.deadlines.wrapping_add(sign * units as i64);
        }
    }
}

/// Returns about the bytes that are freed when the key of a record with this version is deleted, and no snapshot needs
/// it.
#[inline]
pub(crate) fn bytes_of(record: RecordRef, version: VersionRef) -> usize {
    record.bytes() + TREE_BYTES_PER_RECORD + version.all_bytes()
}

/// A worker's own counters and garbage; others read the counters now and then.
#[derive(Default)]
pub(crate) struct WorkerSlot {
    pub(crate) bag: Mutex<Bag>,
    /// The generation that `keys` counts, of namespace 0.
    pub(crate) generation: AtomicU64,
    /// Keys made minus keys deleted, in two's complement.
    pub(crate) keys: AtomicU64,
    /// As `keys`, of those that have a deadline.
    pub(crate) expiring: AtomicU64,
    /// The sum of their deadlines, in [`DEADLINE_UNIT_MS`], in two's complement.
    pub(crate) deadlines: AtomicU64,
    /// As `keys`, the bytes of [`KeyCount::bytes`].
    pub(crate) key_bytes: AtomicU64,
    /// For each namespace other than 0: a generation, and its keys made minus its keys deleted.
    pub(crate) namespaces: Mutex<HashMap<u16, (u16, KeyCount)>>,
    /// Bytes allocated minus bytes freed, in two's complement.
    pub(crate) bytes: AtomicU64,
    /// Records made minus records removed, in two's complement.
    pub(crate) records: AtomicU64,
    /// Versions of read-atomic keys put behind newer ones minus those taken away, in two's
    /// complement.
    pub(crate) kept_versions: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    /// Locked while the worker stages a transaction (module [`crate::stage`]).
    pub(crate) staging: Arc<Mutex<()>>,
}

impl WorkerSlot {
    /// Adds to the number of keys of a namespace, 0 or another, as [`WorkerSlot::count_keys`].
    pub(crate) fn count_keys_of(&self, namespace: u16, generation: u16, by: KeyCount) {
        if namespace == 0 {
            return self.count_keys(generation, by);
        }
        let mut namespaces = self.namespaces.lock();
        let counted = namespaces.entry(namespace).or_default();
        if counted.0 != generation {
            *counted = (generation, KeyCount::default());
        }
        counted.1.add_count(by);
    }

    /// Adds to the number of keys of a generation of namespace 0; those of earlier ones are gone.
    #[inline]
    pub(crate) fn count_keys(&self, generation: u16, by: KeyCount) {
        if self.generation.load(Ordering::Relaxed) != u64::from(generation) {
            for counter in [&self.keys, &self.expiring, &self.deadlines, &self.key_bytes] {
                counter.store(0, Ordering::Relaxed);
            }
            self.generation
                .store(u64::from(generation), Ordering::Release);
        }
        WorkerSlot::count(&self.keys, by.keys);
        WorkerSlot::count(&self.key_bytes, by.bytes);
        if by.expiring != 0 || by.deadlines != 0 {
            WorkerSlot::count(&self.expiring, by.expiring);
            WorkerSlot::count(&self.deadlines, by.deadlines);
        }
    }

    /// Adds to a counter that only this slot's worker writes.
    #[inline]
    pub(crate) fn count(counter: &AtomicU64, by: i64) {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(by as u64);
        counter.store(sum, Ordering::Relaxed);
    }
}
