//! The ids of versions of read-atomic keys (module [`crate::read_atomic`]), as far as the engine draws
//! them: for transactions of this partition alone.
//!
//! A new id is above that of the version it replaces; for a key without any version, above those of
//! all versions that have left memory.

use std::hash::BuildHasher;

use base::change::{Origin, siblings};
use base::{Op, Timestamp, TransactionId};
use foldhash::fast::FixedState;

use crate::engine::Engine;
use crate::log::RecordWrite;
use crate::record::{RecordRef, VersionRef};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::word::WordValue;

/// Returns `true` if the deletion of a key that is absent is a version nevertheless: in a transaction that writes
/// several read-atomic keys. A write of these that is prepared already, and has a smaller id, is passed over on the
/// keys that have a version of the transaction; it must not be the newest version of this one.
#[inline]
pub(crate) fn deletes_absent(engine: &Engine, txn: &TransactionState, key: &[u8]) -> bool {
    let origin = txn.origin.as_ref().map(|origin| origin.get());
    origin.is_some_and(|origin| !origin.siblings.is_empty()) && engine.read_atomic.covers(key)
}

/// Draws an id for the transaction if its operations write read-atomic keys.
#[inline]
pub(crate) fn draw_for_operations(engine: &Engine, txn: &mut TransactionState, ops: &[Op<'_>]) {
    if !engine.read_atomic.any() || txn.is_deterministic || txn.origin.is_some() {
        return;
    }
    let written = ops.iter().filter(|op| !op.is_read_only());
    let keys = written.filter_map(Op::key);
    let mut keys: Vec<&[u8]> = keys.filter(|key| engine.read_atomic.covers(key)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut siblings = Vec::new();
    match keys.len() {
        0 => return,
        1 => {}
        _ => keys
            .iter()
            .for_each(|key| siblings::push(&mut siblings, key)),
    }
    let newest = keys.iter().map(|key| {
        let version = txn.newest_version(engine, engine.index.hash(key), key);
        version.map_or(TransactionId::ZERO, VersionRef::origin_id)
    });
    let newest = newest.max().unwrap_or(TransactionId::ZERO);
    // The same in every run: the key distinguishes it from others.
    let mark = (FixedState::default().hash_one(keys[0]) >> 32) as u32;
    let passed = match keys[..] {
        [key] if newest == TransactionId::ZERO => passed_over(engine, key),
        _ => None,
    };
    let id = match passed {
        Some(pending) => just_below(engine, pending, mark),
        None => just_above(newest, engine.read_atomic.left(), mark),
    };
    let siblings = &siblings;
    txn.origin = Some(engine.origins.share(Origin { id, siblings }));
}

/// Draws an id for a transaction that writes `key` and whose further writes are not known yet, if
/// the key is read atomic and the transaction has none.
#[inline]
pub(crate) fn draw_for_key(thread: &mut ThreadContext, txn: &mut TransactionState, key: &[u8]) {
    let known = txn.origin.is_some() || txn.is_deterministic;
    if !known && thread.engine.read_atomic.covers(key) {
        draw_by_time(thread, txn);
    }
}

fn draw_by_time(thread: &mut ThreadContext, txn: &mut TransactionState) {
    let now = Timestamp::at_ms(txn.time_ms);
    let least = thread.last_stamp.max(thread.engine.read_atomic.left());
    thread.last_stamp = now.max(least.next());
    let id = TransactionId {
        timestamp: thread.last_stamp,
        // Distinguishes the id from those of other workers. Interactive transactions run in an
        // embedded store, which has no other partitions.
        unique: thread.slot as u64,
    };
    let siblings = &siblings::untold();
    txn.origin = Some(thread.engine.origins.share(Origin { id, siblings }));
}

/// Returns `true` if the transaction's id, if it has drawn one, is above those of the read-atomic
/// keys' versions that it replaces, which are locked. If not, the next one will be.
#[inline]
pub(crate) fn is_newest(
    thread: &mut ThreadContext,
    txn: &TransactionState,
    writes: &[RecordWrite],
    locked: &[WordValue],
) -> bool {
    let Some(origin) = &txn.origin else {
        return true;
    };
    let id = origin.get().id;
    let pairs = writes.iter().zip(locked);
    let of_keys = pairs.filter(|(write, _)| thread.engine.read_atomic.covers(write.record.key()));
    let newest = of_keys.map(|(_, seen)| RecordRef::version(*seen).origin_id());
    let newest = newest.max().unwrap_or(TransactionId::ZERO);
    thread.last_stamp = thread.last_stamp.max(newest.timestamp);
    newest < id
}

/// Returns the least id that is above a version's, or above those of all versions that have left
/// memory if there is none. A prepared write has a greater id than the version that it will replace:
/// it stays above a transaction that has not seen it, and is not lost behind it.
///
/// `mark` distinguishes it from ids that are drawn for other keys above the same id.
fn just_above(newest: TransactionId, left: Timestamp, mark: u32) -> TransactionId {
    let mark = 1 + u64::from(mark);
    match newest.unique.checked_add(mark) {
        Some(unique) if newest > TransactionId::ZERO => TransactionId { unique, ..newest },
        _ => TransactionId {
            timestamp: newest.timestamp.max(left).next(),
            unique: mark,
        },
    }
}

/// Returns the least id that is prepared for an absent key, if an id above those of all versions that
/// have left memory would pass it over. That can happen after a restart, when every version until
/// then may have left.
fn passed_over(engine: &Engine, key: &[u8]) -> Option<TransactionId> {
    let until = engine.read_atomic.left().next();
    engine.least_pending_of(key, until)
}

/// Returns an id for an absent key, below the prepared one, and never drawn twice.
///
/// No version of the key has left with a greater id than the prepared one: it was there when that was
/// prepared, which would have been refused, or is retained until nothing older is prepared.
fn just_below(engine: &Engine, pending: TransactionId, mark: u32) -> TransactionId {
    let number = engine.read_atomic.next_below();
    TransactionId {
        timestamp: Timestamp(pending.timestamp.0.saturating_sub(1)),
        unique: number << 32 | u64::from(mark),
    }
}
