//! Read-only views of the whole engine at an epoch boundary.
//!
//! A snapshot of epoch *S* sees, of every key, the newest version of an epoch ≤ *S*.
//!
//! | step | what |
//! |---|---|
//! | 1 | announce *S* = the current epoch |
//! | 2 | see to it that the current epoch is beyond *S* |
//! | 3 | wait until *S* has finished |
//!
//! In a driven engine *S* is the epoch of the newest entry that is applied, and the current one is
//! beyond it already. It is announced while no entry is being applied, and its time is the newest
//! stamp of an applied entry, so that snapshots of one epoch are the same on all replicas.
//!
//! Invariants:
//! 1. A commit of an epoch > *S* drew its epoch after step 2 began, hence sees the announcement
//!    and keeps the version that the snapshot needs, linked behind the new one.
//! 2. Versions behind the newest of an epoch ≤ the oldest snapshot's are cut off by the janitor.
//! 3. A record whose older versions, expiry or generation a snapshot still needs stays in the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::change::SYSTEM_GENERATION;
use base::epochs::EpochClock;
use base::{Epoch, Tid};
use parking_lot::Mutex;

use crate::engine::Engine;
use crate::log::RedoLog;
use crate::record::{RecordRef, VersionRef};
use crate::worker::Worker;

/// The snapshots that are alive.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// The newest one's epoch, 0 when there is none: commits read it.
    newest: AtomicU64,
    /// Epoch and time of each.
    alive: Mutex<Vec<(Epoch, u64)>>,
}

impl Snapshots {
    /// Returns the versions that snapshots need of `old` and those behind it, after it was
    /// replaced: `old` itself; only those behind it, if it is newer than every snapshot; or none.
    pub(crate) fn kept(&self, old: VersionRef) -> Option<VersionRef> {
        let newest = self.newest.load(Ordering::SeqCst);
        if newest == 0 {
            None
        } else if old.epoch().0 > newest {
            old.previous()
        } else {
            (!old.is_absent() || old.previous().is_some()).then_some(old)
        }
    }

    fn add(&self, epoch: Epoch, time_ms: u64) {
        let mut alive = self.alive.lock();
        alive.push((epoch, time_ms));
        self.newest.fetch_max(epoch.0, Ordering::SeqCst);
    }

    fn remove(&self, epoch: Epoch) {
        let mut alive = self.alive.lock();
        let at = alive
            .iter()
            .position(|(e, _)| *e == epoch)
            .expect("added before");
        alive.swap_remove(at);
        let newest = alive.iter().map(|(e, _)| e.0).max().unwrap_or(0);
        self.newest.store(newest, Ordering::SeqCst);
    }

    /// Returns the epoch of the oldest snapshot.
    pub(crate) fn oldest(&self) -> Option<Epoch> {
        self.alive.lock().iter().map(|(epoch, _)| *epoch).min()
    }

    /// Returns the epochs of all snapshots.
    pub(crate) fn epochs(&self) -> Vec<Epoch> {
        self.alive.lock().iter().map(|(epoch, _)| *epoch).collect()
    }

    /// Returns the time of the snapshot that is farthest back.
    pub(crate) fn oldest_time(&self) -> Option<u64> {
        self.alive.lock().iter().map(|(_, time)| *time).min()
    }
}

/// A read-only view at an epoch boundary. While it lives, versions that it needs stay in memory.
pub struct Snapshot {
    engine: Arc<Engine>,
    epoch: Epoch,
    time_ms: u64,
}

impl Engine {
    /// Returns a view of everything that has committed. It waits for transactions that run in the
    /// current epoch, which takes microseconds unless one of them is long; in a driven engine, for
    /// the entry that is being applied, or the snapshot that is being loaded.
    ///
    /// Must not be called by a thread that is within a transaction of this engine.
    #[must_use]
    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        if self.epochs.is_driven() {
            return self.snapshot_of_applied();
        }
        let epochs = &self.epochs;
        epochs.refresh();
        let snapshot = loop {
            let epoch = epochs.current();
            let time_ms = epochs.stamp_ms(epoch);
            self.snapshots.add(epoch, time_ms);
            let snapshot = Snapshot {
                engine: Arc::clone(self),
                epoch,
                time_ms,
            };
            // Announced too late for an epoch that has moved on: try again.
            if epochs.current() == epoch {
                break snapshot;
            }
        };
        let epoch = snapshot.epoch;
        let mut waits = 0u32;
        while epochs.advance(epoch) <= epoch || epochs.finished() < epoch {
            waits += 1;
            if waits < 64 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        snapshot
    }

    fn snapshot_of_applied(self: &Arc<Self>) -> Snapshot {
        let _applying = self.applying.lock();
        let (epoch, time_ms) = (self.applied(), self.epochs.logged_ms());
        self.snapshots.add(epoch, time_ms);
        Snapshot {
            engine: Arc::clone(self),
            epoch,
            time_ms,
        }
    }

    /// Returns `true` if one of the first `workers` workers is in an epoch at this moment: a
    /// sample, for threads that want to avoid them.
    #[must_use]
    pub fn is_busy(&self, workers: usize) -> bool {
        (1..=workers).any(|place| self.epochs.is_pinned(place))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.engine.snapshots.remove(self.epoch);
    }
}

impl Snapshot {
    /// Returns the epoch up to which everything is in the view.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the view's time, milliseconds since the Unix epoch: keys that had expired then are
    /// not in it.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Returns the version of a record in this view, which may be a tombstone.
    fn version_of(&self, record: RecordRef) -> Option<VersionRef> {
        let mut version = Some(RecordRef::version(record.word().load()));
        while let Some(v) = version.filter(|v| v.epoch() > self.epoch) {
            version = v.previous();
        }
        version
    }

    /// Returns the entry that a copy of the view needs for a record that is not in the view: the
    /// transaction that made a read-atomic key absent. It looks like a key that has expired.
    fn absence_of<'p>(&self, record: RecordRef, generation: u16) -> Option<SnapshotEntry<'p>> {
        let retained = self.engine.is_read_atomic(record.key());
        let version = retained.then(|| self.version_of(record)).flatten()?;
        let origin = version.origin()?;
        Some(SnapshotEntry {
            key: record.key(),
            value: b"",
            kind: base::transaction::Kind::String,
            deadline: Some(ABSENT_MS),
            tid: version.tid(),
            generation,
            origin: Some(origin),
        })
    }

    /// Returns the view's entry of a record, when `generation` is visible in it.
    fn entry_of<'p>(&self, record: RecordRef, generation: u16) -> Option<SnapshotEntry<'p>> {
        let visible = |v: &VersionRef| {
            crate::commit::lasts(*v, generation)
                && v.deadline().is_none_or(|deadline| deadline > self.time_ms)
        };
        let version = self.version_of(record).filter(visible)?;
        Some(SnapshotEntry {
            key: record.key(),
            value: version.value(),
            kind: version.kind(),
            deadline: version.deadline(),
            tid: version.tid(),
            generation: version.generation(),
            origin: version.origin(),
        })
    }
}

/// The deadline of an absence in a copy of a snapshot: it has passed at any time.
pub const ABSENT_MS: u64 = 1;

/// A key in a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// The value's type.
    pub kind: base::transaction::Kind,
    /// The time at which it expires, in milliseconds since the Unix epoch.
    pub deadline: Option<u64>,
    /// The transaction that wrote it.
    pub tid: base::Tid,
    /// The generation that it belongs to: the view's, or that of system records.
    pub generation: u16,
    /// The origin, if a transaction over several partitions wrote it.
    pub origin: Option<base::Origin<'a>>,
}

impl SnapshotEntry<'_> {
    /// Returns `true` for a system record, which is no client's key.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.generation == SYSTEM_GENERATION
    }
}

impl<L: RedoLog> Worker<L> {
    /// Visits the keys of the view from `from` to `to` (exclusive) in order and looks at `limit`
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
        self.walk_snapshot(snapshot, from, to, |entry| {
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
    /// [`ABSENT_MS`].
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
        let _pinned = Pinned::new(&engine, self.place);
        let generation = snapshot
            .version_of(engine.generation)
            .map_or(0, VersionRef::generation);
        let mut batch = Batch::new(with_absences);
        let mut next = None;
        let mut look = |batch: &mut Batch| {
            next = batch.visit(snapshot, generation, &mut visit);
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
        let _pinned = Pinned::new(&engine, self.place);
        let generation = snapshot
            .version_of(engine.generation)
            .map_or(0, VersionRef::generation);
        let record = engine.index.get(engine.index.hash(key), key)?;
        let entry = snapshot.entry_of(record, generation);
        entry.filter(|entry| !entry.is_system()).map(visit)
    }

    /// Returns the generation that is visible in the view, and the transaction that began it: TID
    /// zero if nothing was ever flushed.
    pub fn snapshot_generation(&mut self, snapshot: &Snapshot) -> (u16, Tid) {
        let engine = self.engine_of(snapshot);
        let _pinned = Pinned::new(&engine, self.place);
        let version = snapshot.version_of(engine.generation);
        version.map_or((0, Tid::ZERO), |v| (v.generation(), v.tid()))
    }

    /// Returns the key of the record that lies `records` behind that of `from`, or `None` if there
    /// is none: a boundary for threads that share a walk. The worker is in an epoch meanwhile.
    pub fn skip_records(&mut self, from: &[u8], records: usize) -> Option<Vec<u8>> {
        let engine = Arc::clone(&self.engine);
        let _pinned = Pinned::new(&engine, self.place);
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
            Arc::ptr_eq(&self.engine, &snapshot.engine),
            "a snapshot of another engine"
        );
        Arc::clone(&self.engine)
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
        generation: u16,
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
            let absence = || snapshot.absence_of(record, generation);
            let entry = snapshot.entry_of(record, generation);
            let entry = match self.with_absences {
                true => entry.or_else(absence),
                false => entry,
            };
            self.stopped = !visit(entry);
        }
        None
    }
}

/// A place that is pinned until this is dropped, also on a panic.
pub(crate) struct Pinned<'e> {
    engine: &'e Engine,
    place: usize,
}

impl<'e> Pinned<'e> {
    pub(crate) fn new(engine: &'e Engine, place: usize) -> Pinned<'e> {
        engine.epochs.pin(place);
        Pinned { engine, place }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.engine.epochs.unpin(self.place);
    }
}
