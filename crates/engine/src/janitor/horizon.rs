//! What the janitor may reclaim: judged by the durable epoch, the snapshots, the time and the generation.

use base::Epoch;
use base::epochs::EpochClock;

use crate::database_table::VisibleGenerations;
use crate::engine::Engine;
use crate::record::{RecordRef, VersionRef};

/// The state of the engine while records are looked at: what may be reclaimed.
#[derive(Clone, Copy)]
pub(super) struct ReclaimHorizon {
    /// Deletes up to this epoch may be made final.
    pub(super) reclaimable: Epoch,
    pub(super) time_ms: u64,
    pub(super) generations: VisibleGenerations,
    /// The epoch of the newest flush.
    pub(super) flushed: Epoch,
    /// No snapshot is of an earlier epoch, nor will be a snapshot that is announced later.
    pub(super) viewed: Epoch,
    /// Writes that were committed up to this epoch are old enough: versions of read-atomic keys
    /// that they replaced may leave.
    pub(super) old: Epoch,
    pub(super) oldest_snapshot: Option<Epoch>,
    pub(super) oldest_snapshot_time: Option<u64>,
}

impl ReclaimHorizon {
    /// Returns the present state. Deletes up to epoch `durable` are durable, and writes up to epoch
    /// `old` are old enough.
    pub(super) fn new(engine: &Engine, durable: Epoch, old: Epoch) -> ReclaimHorizon {
        let flush = RecordRef::version(engine.generation.word().load());
        let table = engine.database_table();
        let flushed = table.map_or(flush.epoch(), |table| flush.epoch().max(table.epoch()));
        // In this order: a snapshot that is announced too late to be seen here is of this epoch or
        // a later one.
        let epoch = engine.epochs.current();
        // Snapshots of a driven engine are of the applied entries.
        let next = if engine.epochs.is_driven() {
            epoch.prev()
        } else {
            epoch
        };
        let oldest_snapshot = engine.snapshots.oldest();
        ReclaimHorizon {
            reclaimable: engine.reclaimable(durable),
            time_ms: engine.epochs.expired_ms(epoch),
            generations: VisibleGenerations::new(flush.generation(), table),
            flushed,
            viewed: oldest_snapshot.map_or(next, |oldest| oldest.min(next)),
            old,
            oldest_snapshot,
            oldest_snapshot_time: engine.snapshots.oldest_time(),
        }
    }

    /// Returns `true` if the key of a record with this version is absent for transactions that begin
    /// now.
    pub(super) fn is_gone(&self, record: RecordRef, version: VersionRef) -> bool {
        !version.exists_in(self.generations.of(record.key()))
            || version
                .deadline()
                .is_some_and(|deadline| deadline <= self.time_ms)
    }

    /// Returns `true` if a record whose key is gone may leave the index.
    pub(super) fn may_leave(&self, record: RecordRef, version: VersionRef) -> bool {
        if version.previous().is_some() || version.epoch() > self.reclaimable {
            return false;
        }
        if version.is_absent() {
            return true;
        }
        if !version.exists_in(self.generations.of(record.key())) {
            return self.flushed <= self.reclaimable
                && self
                    .oldest_snapshot
                    .is_none_or(|oldest| oldest >= self.flushed);
        }
        let seen_alive = |time| version.deadline().is_some_and(|deadline| deadline > time);
        !self.oldest_snapshot_time.is_some_and(seen_alive)
    }
}
