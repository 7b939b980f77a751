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

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base::Epoch;
use base::change::SYSTEM_GENERATION;
use base::epochs::EpochClock;
use values::CollectionView;

use crate::database_table::VisibleGenerations;
use crate::engine::Engine;
use crate::record::{RecordRef, VersionRef};
use crate::word::HELD;

/// A read-only view at an epoch boundary. While it lives, versions that it needs stay in memory.
pub struct Snapshot {
    pub(crate) engine: Arc<Engine>,
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

    /// Returns a view of everything that has committed, as [`Engine::snapshot`], and the namespace of a
    /// database in it.
    #[must_use]
    pub fn snapshot_of(self: &Arc<Self>, database: u16) -> (Snapshot, u16) {
        loop {
            let before = self.databases_now.read().clone();
            let snapshot = self.snapshot();
            let after = self.databases_now.read().clone();
            // What was written before the snapshot is in it.
            if before.as_ref().map(Arc::as_ptr) == after.as_ref().map(Arc::as_ptr) {
                let namespace = after.map_or(database, |table| table.namespace_of(database));
                return (snapshot, namespace);
            }
        }
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
        (1..=workers).any(|slot| self.epochs.is_pinned(slot))
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
    pub(crate) fn version_of(&self, record: RecordRef) -> Option<VersionRef> {
        let seen = record.word().load();
        if seen.has(HELD) {
            return self.version_of_held(record);
        }
        self.version_behind(RecordRef::version(seen))
    }

    /// Returns the version in this view among this one and those that it has replaced.
    fn version_behind(&self, newest: VersionRef) -> Option<VersionRef> {
        let mut version = Some(newest);
        while let Some(v) = version.filter(|v| v.epoch() > self.epoch) {
            version = v.previous();
        }
        version
    }

    /// Returns the version of a held record in this view. A transaction in slices may have committed it, and not
    /// published it yet. One that commits later has a later epoch than the view.
    #[cold]
    fn version_of_held(&self, record: RecordRef) -> Option<VersionRef> {
        loop {
            let seen = record.word().load();
            if let Some(version) = self.engine.holds.committed_version(record, self.epoch) {
                return Some(version);
            }
            // Otherwise it may have been published in between.
            if record.word().load() == seen {
                return self.version_behind(RecordRef::version(seen));
            }
        }
    }

    /// Returns the entry that a copy of the view needs for a record that is not in the view: the
    /// transaction that made a read-atomic key absent. It looks like a key that has expired.
    pub(crate) fn absence_of<'p>(
        &self,
        record: RecordRef,
        generations: VisibleGenerations,
    ) -> Option<SnapshotEntry<'p>> {
        let retained = self.engine.read_atomic.covers(record.key());
        let version = retained.then(|| self.version_of(record)).flatten()?;
        let origin = version.origin()?;
        Some(SnapshotEntry {
            key: record.key(),
            value: SnapshotValue::Bytes(b""),
            kind: base::transaction::Kind::String,
            deadline: Some(ABSENT_MS),
            tid: version.tid(),
            generation: generations.of(record.key()),
            origin: Some(origin),
        })
    }

    /// Returns the generations that are visible in the view.
    pub(crate) fn generations(&self) -> VisibleGenerations {
        let engine = &self.engine;
        let own = self.version_of(engine.generation);
        let table = engine
            .database_record()
            .and_then(|record| self.version_of(record));
        VisibleGenerations::new(own.map_or(0, VersionRef::generation), table)
    }

    /// Returns the view's entry of a record, when these generations are visible in it.
    pub(crate) fn entry_of<'p>(
        &self,
        record: RecordRef,
        generations: VisibleGenerations,
    ) -> Option<SnapshotEntry<'p>> {
        let generation = generations.of(record.key());
        let visible = |v: &VersionRef| {
            v.exists_in(generation) && v.deadline().is_none_or(|deadline| deadline > self.time_ms)
        };
        let version = self.version_of(record).filter(visible)?;
        Some(SnapshotEntry {
            key: record.key(),
            value: SnapshotValue::of(version),
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
    pub value: SnapshotValue<'a>,
    /// The value's type.
    pub kind: base::transaction::Kind,
    /// The time at which it expires, in milliseconds since the Unix epoch.
    pub deadline: Option<u64>,
    /// The transaction that wrote it.
    pub tid: base::Tid,
    /// The generation that it belongs to: that of its database in the view, or that of system records.
    pub generation: u16,
    /// The origin, if a transaction over several partitions wrote it.
    pub origin: Option<base::Origin<'a>>,
}

/// The value of a key in a snapshot.
#[derive(Clone, Copy, Debug)]
pub enum SnapshotValue<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// A large collection.
    Collection(base::transaction::Kind, CollectionView<'a>),
}

impl<'a> SnapshotValue<'a> {
    fn of(version: VersionRef) -> SnapshotValue<'a> {
        match version.tree() {
            None => SnapshotValue::Bytes(version.value()),
            Some(tree) => SnapshotValue::Collection(version.kind(), tree.view()),
        }
    }

    /// Returns the value as it is stored in logs. Those of large collections are made for this.
    #[must_use]
    pub fn bytes(self) -> Cow<'a, [u8]> {
        match self {
            SnapshotValue::Bytes(bytes) => Cow::Borrowed(bytes),
            SnapshotValue::Collection(kind, view) => Cow::Owned(view.to_packed(kind)),
        }
    }
}

impl SnapshotEntry<'_> {
    /// Returns `true` for a system record, which is no client's key.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.generation == SYSTEM_GENERATION
    }
}
