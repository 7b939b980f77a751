//! Publication: makes new versions current, and sees to it that the replaced ones are freed when they
//! may be. The callers have the records locked, or hold them exclusively.

use std::sync::atomic::Ordering;

use base::{Tid, database};

use crate::access_stamp::{AccessStamp, UseTracking};
use crate::database_table::VisibleGenerations;
use crate::garbage::{Bag, Garbage};
use crate::log::RecordWrite;
use crate::record::{RecordRef, VersionRef};
use crate::system_record;
use crate::thread_context::ThreadContext;
use crate::version_tree::VersionTree;
use crate::word::{HELD, LOCK, QUEUED, WordValue};
use crate::worker_slot::{KeyCount, WorkerSlot};

/// Publishes writes whose records have these words; `generation` is visible from then on. Exclusive
/// holds are thereby given back, as locks are.
#[inline]
pub(crate) fn publish(
    thread: &ThreadContext,
    generation: u16,
    writes: &[RecordWrite],
    locked: &[WordValue],
    tid: Tid,
) {
    let engine = &thread.engine;
    let mut keys = KeyCount::default();
    publish_writes(thread, (writes, locked), tid, |write, old| {
        if write.record == engine.generation {
            engine
                .generation_now
                .store(u64::from(generation), Ordering::Release);
        } else if database::may_be_qualified(write.record.key()) {
            note_qualified(thread, (generation, writes), write, old);
        } else {
            keys.add((write.record, write.version), generation, 1);
            keys.add((write.record, old), generation, -1);
        }
    });
    thread.counters().count_keys(generation, keys);
}

/// Publishes writes whose records have these words; `note` gets each with the version that it is about to replace.
#[inline]
pub(crate) fn publish_writes(
    thread: &ThreadContext,
    (writes, locked): (&[RecordWrite], &[WordValue]),
    tid: Tid,
    mut note: impl FnMut(RecordWrite, VersionRef),
) {
    let counters = thread.counters();
    let mut bag = counters.bag.lock();
    let tracking = thread.engine.eviction.tracking();
    let mut bytes = 0;
    for (write, seen) in writes.iter().zip(locked) {
        let (old, new) = (RecordRef::version(*seen), write.version);
        new.set_tid(tid);
        bytes += (new.bytes() + publish_tree(old, new)) as i64;
        note(*write, old);
        if tracking != UseTracking::None {
            note_written(thread, tracking, write, old);
        }
        // The word of a record that is held, and not locked, changes together with the table of holds.
        let is_held = seen.has(HELD) && !seen.has(LOCK);
        let _held = is_held.then(|| thread.engine.holds.publishing(write.record));
        install(thread, &mut bag, write.record, *seen, old, new);
    }
    bytes -= bag.take_freed() as i64;
    drop(bag);
    WorkerSlot::count(&counters.bytes, bytes);
}

/// Notes what is known of the use of a key that is written. That of a key which exists was noted by the transaction,
/// but where the transaction ran on another node.
#[cold]
fn note_written(
    thread: &ThreadContext,
    tracking: UseTracking,
    write: &RecordWrite,
    old: VersionRef,
) {
    let (engine, new) = (&thread.engine, write.version);
    let time_ms = engine.epochs.time_ms();
    if new.is_absent() {
        return;
    }
    if !old.exists_in(new.generation()) {
        write
            .record
            .set_stamp(AccessStamp::of_new(tracking, time_ms));
    } else if engine.epochs.is_driven() && tracking == UseTracking::LastUse {
        write.record.set_stamp(AccessStamp::used_at(time_ms));
    }
}

/// Notes the write of a key that may be of another database than 0, or of the record of the databases.
/// `own` is the generation of database 0.
#[cold]
fn note_qualified(
    thread: &ThreadContext,
    (own, writes): (u16, &[RecordWrite]),
    write: RecordWrite,
    old: VersionRef,
) {
    let engine = &thread.engine;
    let is_table = |write: &&RecordWrite| write.record.key() == system_record::DATABASES;
    if is_table(&&write) {
        return engine.note_databases(write.version);
    }
    let database = database::number(write.record.key());
    let table = writes.iter().find(is_table).map(|write| write.version);
    let table = table.or_else(|| engine.database_table());
    let generation = VisibleGenerations::new(own, table).of_namespace(database);
    let mut keys = KeyCount::default();
    keys.add((write.record, write.version), generation, 1);
    keys.add((write.record, old), generation, -1);
    thread.counters().count_keys_of(database, generation, keys);
}

/// Publishes the trees of a version that is about to replace another one, if it has some. Returns the bytes of
/// the nodes that were made for it.
#[inline]
pub(crate) fn publish_tree(old: VersionRef, new: VersionRef) -> usize {
    match (old.tree(), new.tree()) {
        (None, None) => 0,
        (before, tree) => replace_tree(old.address(), before, tree),
    }
}

#[cold]
fn replace_tree(old: u64, before: Option<&VersionTree>, tree: Option<&VersionTree>) -> usize {
    let (replaced, allocated) = tree.map_or((None, 0), |tree| tree.publish(old));
    if let Some(before) = before {
        before.note_successor(replaced, allocated);
    }
    allocated
}

/// Makes `new` current in place of `old`, and puts `old` into the bag if nothing needs it.
#[inline]
pub(crate) fn install(
    thread: &ThreadContext,
    bag: &mut Bag,
    record: RecordRef,
    seen: WordValue,
    old: VersionRef,
    new: VersionRef,
) {
    let engine = &thread.engine;
    let is_generation = record == engine.generation;
    let is_read_atomic = !is_generation && engine.read_atomic.covers(record.key());
    let kept = if !old.is_never() && is_read_atomic {
        WorkerSlot::count(&thread.counters().kept_versions, 1);
        Some(old)
    } else {
        engine.snapshots.needed_of(old)
    };
    let watcher = engine
        .read_atomic
        .watcher()
        .filter(|_| is_read_atomic || is_generation);
    if let Some(watcher) = watcher {
        match is_generation {
            true => watcher.writing_all(),
            false => watcher.writing(record.key()),
        }
    }
    if kept.is_some() {
        new.set_previous(kept);
    }
    let needs_janitor =
        new.is_absent() || new.deadline().is_some() || kept.is_some() || is_generation;
    let queue = needs_janitor && !seen.has(QUEUED);
    record
        .word()
        .publish(seen, new.address(), if queue { QUEUED } else { 0 });
    if let Some(watcher) = watcher {
        match is_generation {
            true => watcher.written_all(),
            false => watcher.written(record.key()),
        }
    }
    if queue {
        engine.queue.push(record);
    }
    engine.note_field_deadlines(record, old, new);
    let mut next = Some(old);
    while let Some(version) = next.filter(|&v| !v.is_never() && Some(v) != kept) {
        next = version.previous();
        if let (Some(tree), Some(older)) = (version.tree(), kept.and_then(VersionRef::tree)) {
            tree.leave(older);
        }
        bag.put(&engine.epochs, Garbage::Version(version));
    }
}

/// Puts those of the writes of read-atomic keys that are older than the current version behind it,
/// and removes them from `writes` and `locked`. All are locked.
pub(crate) fn link_late(
    thread: &ThreadContext,
    writes: &mut Vec<RecordWrite>,
    locked: &mut Vec<WordValue>,
    tid: Tid,
) {
    let keys = &thread.engine.read_atomic;
    if !keys.any() {
        return;
    }
    for at in (0..writes.len()).rev() {
        let (write, seen) = (writes[at], locked[at]);
        // A version without an id is of a time when the key was not read atomic.
        let is_late = write.version.origin().is_some()
            && keys.covers(write.record.key())
            && RecordRef::version(seen).origin_id() > write.version.origin_id();
        if is_late {
            writes.swap_remove(at);
            locked.swap_remove(at);
            link_behind(thread, write, seen, tid);
        }
    }
}

/// Puts a version of a read-atomic key behind those with greater ids, and unlocks the record.
pub(crate) fn link_behind(thread: &ThreadContext, write: RecordWrite, seen: WordValue, tid: Tid) {
    let RecordWrite { record, version } = write;
    version.set_tid(tid);
    let id = version.origin_id();
    let mut newer = RecordRef::version(seen);
    let mut older = newer.previous();
    while let Some(next) = older.filter(|next| next.origin_id() > id) {
        newer = next;
        older = next.previous();
    }
    version.set_previous(older);
    newer.set_previous(Some(version));
    let counters = thread.counters();
    WorkerSlot::count(&counters.bytes, version.bytes() as i64);
    WorkerSlot::count(&counters.kept_versions, 1);
    record.word().unlock(seen, QUEUED);
    if !seen.has(QUEUED) {
        thread.engine.queue.push(record);
    }
}
