//! Reads of snapshots by a worker. The worker is in an epoch while it looks at records, so that these
//! stay in memory; each call is one epoch.

use std::sync::Arc;

use base::limits::RESERVED;
use base::transaction::Holder;
use base::{Tid, database};

use crate::database_table::VisibleGenerations;
use crate::engine::Engine;
use crate::epoch::EpochGuard;
use crate::log::RedoLog;
use crate::record::RecordRef;
use crate::snapshot::{Snapshot, SnapshotEntry};
use crate::system_record::{self, PreparedEffect, SystemRecord};
use crate::worker::Worker;

impl<L: RedoLog> Worker<L> {
    /// Visits the keys of the view of the database of `from`, from there to `to` (exclusive), in order and looks at `limit`
    /// records at most. Returns the key to go on from, or `None` when the range is done. The
    /// worker is in an epoch meanwhile: keep slices small (some thousand records).
    pub fn scan_snapshot(
        &mut self,
        snapshot: &Snapshot,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        mut visit: impl FnMut(SnapshotEntry<'_>),
    ) -> Option<Vec<u8>> {
        let mut seen = 0;
        if limit == 0 {
            return Some(from.to_vec());
        }
        let end = database::end_of(from);
        let to = to.map_or(&end[..], |to| to.min(&end[..]));
        self.walk_snapshot(snapshot, from, Some(to), |entry| {
            if let Some(entry) = entry.filter(|entry| !entry.is_system()) {
                visit(entry);
            }
            seen += 1;
            seen < limit
        })
    }

    /// Visits the records from `from` to `to` (exclusive) in order. `visit` gets the view's entry
    /// of each, or `None` if its key is not in the view. Stops after a record for which `visit`
    /// returns `false`, and returns the key to go on from, or `None` when the range is done. System
    /// records are in the view like any other. The worker is in an epoch meanwhile: stop it soon.
    pub fn walk_snapshot(
        &mut self,
        snapshot: &Snapshot,
        from: &[u8],
        to: Option<&[u8]>,
        visit: impl FnMut(Option<SnapshotEntry<'_>>) -> bool,
    ) -> Option<Vec<u8>> {
        self.walk(snapshot, (from, to), false, visit)
    }

    /// Visits records as [`Worker::walk_snapshot`], for a copy: it also visits the absences of
    /// read-atomic keys for which a reader may still ask, as keys that have expired at
    /// [`crate::ABSENT_MS`].
    pub fn copy_snapshot(
        &mut self,
        snapshot: &Snapshot,
        from: &[u8],
        to: Option<&[u8]>,
        visit: impl FnMut(Option<SnapshotEntry<'_>>) -> bool,
    ) -> Option<Vec<u8>> {
        self.walk(snapshot, (from, to), true, visit)
    }

    fn walk(
        &mut self,
        snapshot: &Snapshot,
        (from, to): (&[u8], Option<&[u8]>),
        with_absences: bool,
        mut visit: impl FnMut(Option<SnapshotEntry<'_>>) -> bool,
    ) -> Option<Vec<u8>> {
        let engine = self.engine_of(snapshot);
        let _pinned = EpochGuard::new(&engine.epochs, self.thread.slot);
        let generations = snapshot.generations();
        let mut batch = Batch::new(with_absences);
        let mut next = None;
        let mut look = |batch: &mut Batch| {
            next = batch.visit(snapshot, generations, &mut visit);
            next.is_none()
        };
        engine.index.range(from, to, |record| {
            // A full batch is looked at when it is known that another record follows.
            (!batch.is_full() || look(&mut batch)) && batch.push(record)
        });
        if !batch.is_empty() {
            look(&mut batch);
        }
        next
    }

    /// Looks at one key of the view. Returns what `visit` returns, or `None` if the key is not in
    /// the view.
    pub fn read_snapshot<T>(
        &mut self,
        snapshot: &Snapshot,
        key: &[u8],
        visit: impl FnOnce(SnapshotEntry<'_>) -> T,
    ) -> Option<T> {
        let engine = self.engine_of(snapshot);
        let _pinned = EpochGuard::new(&engine.epochs, self.thread.slot);
        let generations = snapshot.generations();
        let record = engine.index.get(engine.index.hash(key), key)?;
        let entry = snapshot.entry_of(record, generations);
        entry.filter(|entry| !entry.is_system()).map(visit)
    }

    /// Returns the transactions over several partitions that are prepared in the view, with the keys that each will write;
    /// `None`: it will flush all keys. Their commit may be known elsewhere already, so that the view is too old for
    /// these keys.
    pub fn prepared_in(&mut self, snapshot: &Snapshot) -> Vec<(Holder, Option<Vec<Vec<u8>>>)> {
        let mut found = Vec::new();
        let (from, to) = (&RESERVED[..], &system_record::BEHIND_TRANSACTIONS[..]);
        self.walk_snapshot(snapshot, from, Some(to), |entry| {
            let Some(entry) = entry else {
                return true;
            };
            let value = entry.value.bytes();
            let decoded = system_record::decode(&value).expect(system_record::WELL_FORMED);
            if let SystemRecord::Prepared { kept, .. } = decoded {
                let id = system_record::id(entry.key).expect(system_record::WELL_FORMED);
                let keys = kept.effects.iter().map(|effect| match effect {
                    PreparedEffect::Put { key, .. } | PreparedEffect::Delete { key } => {
                        Some(key.to_vec())
                    }
                    PreparedEffect::Flush { .. } => None,
                });
                let holder = Holder { id, age: kept.age };
                found.push((holder, keys.collect()));
            }
            true
        });
        found
    }

    /// Returns the generation that is visible in the view, and the transaction that began it: TID
    /// zero if nothing was ever flushed.
    pub fn snapshot_generation(&mut self, snapshot: &Snapshot) -> (u16, Tid) {
        let engine = self.engine_of(snapshot);
        let _pinned = EpochGuard::new(&engine.epochs, self.thread.slot);
        let version = snapshot.version_of(engine.generation);
        version.map_or((0, Tid::ZERO), |v| (v.generation(), v.tid()))
    }

    /// Returns the key of the record that lies `records` behind that of `from`, or `None` if there
    /// is none: a boundary for threads that share a walk. The worker is in an epoch meanwhile.
    pub fn skip_records(&mut self, from: &[u8], records: usize) -> Option<Vec<u8>> {
        let engine = Arc::clone(&self.thread.engine);
        let _pinned = EpochGuard::new(&engine.epochs, self.thread.slot);
        let (mut seen, mut next) = (0, None);
        engine.index.range(from, None, |record| {
            if seen == records {
                next = Some(record.key().to_vec());
                return false;
            }
            seen += 1;
            true
        });
        next
    }

    fn engine_of(&self, snapshot: &Snapshot) -> Arc<Engine> {
        assert!(
            Arc::ptr_eq(&self.thread.engine, &snapshot.engine),
            "a snapshot of another engine"
        );
        Arc::clone(&self.thread.engine)
    }
}

/// Records that a walk looks at together: the parts of them that are not in the processor's caches
/// are fetched at the same time.
struct Batch {
    records: [Option<RecordRef>; Batch::SIZE],
    used: usize,
    /// `true` if the visitor has seen enough: the walk goes on from the next record.
    stopped: bool,
    with_absences: bool,
}

impl Batch {
    const SIZE: usize = 16;

    fn new(with_absences: bool) -> Batch {
        Batch {
            records: [None; Batch::SIZE],
            used: 0,
            stopped: false,
            with_absences,
        }
    }

    fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn is_full(&self) -> bool {
        self.used == Batch::SIZE
    }

    /// Adds a further record; always returns `true`.
    fn push(&mut self, record: RecordRef) -> bool {
        self.records[self.used] = Some(record);
        self.used += 1;
        true
    }

    /// Visits the records, and empties the batch. Returns the key of the first one that was not
    /// visited, if the visitor has stopped before it.
    fn visit(
        &mut self,
        snapshot: &Snapshot,
        generations: VisibleGenerations,
        visit: &mut impl FnMut(Option<SnapshotEntry<'_>>) -> bool,
    ) -> Option<Vec<u8>> {
        // First the records' words, then the versions: within each step nothing waits for
        // anything else.
        let records = self
            .records
            .map(|record| record.map(|record| (record, RecordRef::version(record.word().load()))));
        let newest = records
            .iter()
            .flatten()
            .map(|(_, version)| version.epoch().0);
        std::hint::black_box(newest.fold(0, u64::max));
        self.records = [None; Batch::SIZE];
        self.used = 0;
        for (record, _) in records.into_iter().flatten() {
            if self.stopped {
                return Some(record.key().to_vec());
            }
            let absence = || snapshot.absence_of(record, generations);
            let entry = snapshot.entry_of(record, generations);
            let entry = match self.with_absences {
                true => entry.or_else(absence),
                false => entry,
            };
            self.stopped = !visit(entry);
        }
        None
    }
}
