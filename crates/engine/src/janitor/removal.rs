//! Takes versions and records out of memory. The records are locked by the caller.

use std::sync::atomic::Ordering;

use base::{Epoch, database};

use crate::engine::{Engine, JANITOR};
use crate::garbage::Garbage;
use crate::record::{RecordRef, VersionRef};
use crate::word::WordValue;
use crate::worker_slot::{KeyCount, WorkerSlot};

/// Cuts off the versions that no snapshot needs, not even one that was announced since the
/// janitor read the engine's state. The record is locked.
pub(super) fn cut_history(engine: &Engine, newest: VersionRef, viewed: Epoch) {
    let mut needed = newest;
    while needed.epoch() > viewed {
        let Some(previous) = needed.previous() else {
            return;
        };
        needed = previous;
    }
    let mut cut = needed.previous();
    if cut.is_some() {
        needed.set_previous(None);
    }
    while let Some(version) = cut.filter(|version| !version.is_never()) {
        cut = version.previous();
        retire(engine, Garbage::Version(version));
    }
}

/// Cuts off versions as [`cut_history`], of a read-atomic key, whose versions are not
/// all in the order of their epochs. Those that only a snapshot needs stay by themselves.
pub(super) fn cut_retained(engine: &Engine, newest: VersionRef, old: Epoch) {
    let chain = || std::iter::successors(Some(newest), |version| version.previous());
    let young = chain().filter(|version| version.epoch() > old).last();
    let mut last = match young.map(VersionRef::previous) {
        None => newest,
        Some(Some(needed)) => needed,
        Some(None) => return,
    };
    let views = engine.snapshots.epochs();
    let seen = views
        .iter()
        .filter_map(|view| chain().find(|version| version.epoch() <= *view));
    let seen: Vec<VersionRef> = seen.collect();
    let (mut next, mut left) = (last.previous(), 0);
    while let Some(version) = next.filter(|version| !version.is_never()) {
        next = version.previous();
        if seen.contains(&version) {
            last.set_previous(Some(version));
            last = version;
        } else {
            left += 1;
            retire(engine, Garbage::Version(version));
        }
    }
    if left > 0 {
        last.set_previous(None);
        WorkerSlot::count(&engine.slots[JANITOR].kept_versions, -left);
    }
}

/// Takes a locked record out of the index.
pub(super) fn remove(engine: &Engine, record: RecordRef, seen: WordValue) {
    let version = RecordRef::version(seen);
    let counters = &engine.slots[JANITOR];
    if !version.is_never() {
        engine.floors.raise(record.key(), version.tid());
    }
    if engine.read_atomic.covers(record.key()) {
        engine.read_atomic.note_left(version.origin_id());
    }
    let database = database::number(record.key());
    let generation = engine.current_generation_of(database);
    if version.is_key_of(generation) {
        let mut gone = KeyCount::default();
        gone.add((record, version), generation, -1);
        counters.count_keys_of(database, generation, gone);
        engine.expired.fetch_add(1, Ordering::Relaxed);
    }
    WorkerSlot::count(&counters.records, -1);
    engine.index.remove(record, seen);
    engine.holds.writer_marks.forget(record);
    retire(engine, Garbage::Record(record));
}

/// Retires memory that has just become unreachable.
fn retire(engine: &Engine, garbage: Garbage) {
    engine.slots[JANITOR]
        .bag
        .lock()
        .put(&engine.epochs, garbage);
}
