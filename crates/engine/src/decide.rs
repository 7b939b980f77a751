//! The decision about transactions over several partitions that are prepared here, or must not be
//! prepared any more.
//!
//! Everything is decided under the lock of the transaction's system record, in one transaction of
//! the engine with one TID and one entry of the log:
//!
//! | call | of what state | does |
//! |---|---|---|
//! | commit | prepared | publishes the effects, the system record says committed |
//! | abort | prepared | deletes the system record |
//! | refuse | unknown, refused for a shorter time | writes a refusal with a deadline |
//! | forget | committed | deletes the system record |
//!
//! A commit validates nothing: the records that the transaction has read and replaces have been
//! held since it was prepared. Holds are given back after the entry is in the log, and within the
//! epoch: a reader of a published version depends on this epoch or a later one.
//!
//! Errors leave everything as it was, including the error of a log that has failed.

use base::participant::State;
use base::{Epoch, Tid, TransactionId};

use crate::commit::log_and_publish;
use crate::engine::Engine;
use crate::log::{RecordWrite, RedoLog};
use crate::prepared::PreparedTransaction;
use crate::read_atomic;
use crate::record::{RecordRef, VersionRef};
use crate::system_record::{self, SystemRecord, WELL_FORMED};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::word::WordValue;
use crate::worker_slot::WorkerSlot;

/// The decision about a transaction.
#[derive(Clone, Copy)]
pub(crate) enum TransactionDecision {
    Commit,
    Abort,
    Refuse { until_ms: u64 },
    Forget,
}

/// Locks the system record, reads it, and acts on its state. Returns the state before, and the epoch
/// that must be durable before the result is sent.
pub(crate) fn decide(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    id: TransactionId,
    decision: TransactionDecision,
) -> Result<(State, Epoch), TransactionError> {
    let record = thread.record_of(&system_record::key(id));
    let Ok(seen) = record.word().lock() else {
        thread.engine.abandon(record);
        return Err(TransactionError::Conflict);
    };
    let old = RecordRef::version(seen);
    let state = system_record::state_at(old, txn.time_ms);
    let own = (record, seen);
    let changed = match decision {
        TransactionDecision::Commit if applies(decision, &state) => {
            commit(thread, txn, log, id, own)
        }
        TransactionDecision::Abort if applies(decision, &state) => abort(thread, txn, log, id, own),
        TransactionDecision::Refuse { until_ms }
            if applies(decision, &state) && old.deadline() < Some(until_ms) =>
        {
            let refusal =
                system_record::new_version(&SystemRecord::Refused.encode(), Some(until_ms));
            replace(thread, txn, log, own, refusal)
        }
        TransactionDecision::Forget if applies(decision, &state) => {
            replace(thread, txn, log, own, VersionRef::new(0, None, None))
        }
        _ => {
            txn.observe(old.epoch());
            thread.engine.unlock_unwritten(record, seen);
            return Ok((state, txn.observed));
        }
    };
    match changed {
        Ok(tid) => {
            txn.note_commit(tid);
            Ok((state, tid.epoch()))
        }
        Err(error) => {
            thread.engine.unlock_unwritten(record, seen);
            Err(error)
        }
    }
}

/// Replaces the contents of the locked system record, and nothing else.
fn replace(
    thread: &mut ThreadContext,
    txn: &TransactionState,
    log: &mut impl RedoLog,
    (record, seen): (RecordRef, WordValue),
    version: VersionRef,
) -> Result<Tid, TransactionError> {
    let write = RecordWrite { record, version };
    log_and_publish(thread, log, txn.generation, (&[write], &[seen], &[]), &[])
        .inspect_err(|_| version.free_unpublished())
}

/// Commits an attempt. `own` is the system record, locked.
fn commit(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    id: TransactionId,
    own: (RecordRef, WordValue),
) -> Result<Tid, TransactionError> {
    let (record, seen) = own;
    let old = RecordRef::version(seen).value();
    if system_record::is_unheld(old) {
        return read_atomic::commit(thread, txn, log, id, own);
    }
    let mut prepared = take_prepared(&thread.engine, id);
    let note = match system_record::state(old).expect(WELL_FORMED) {
        State::Prepared(note) => note,
        _ => unreachable!("it is prepared"),
    };
    let marker = SystemRecord::Committed { note: &note }.encode();
    let mut writes = std::mem::take(&mut prepared.effects);
    let of = |record: &RecordRef| record.word().load();
    let mut words: Vec<WordValue> = writes.iter().map(|write| of(&write.record)).collect();
    let read: Vec<WordValue> = prepared.held.iter().map(of).collect();
    let own = RecordWrite {
        record,
        version: system_record::new_version(&marker, None),
    };
    writes.push(own);
    words.push(seen);
    let generation = thread.engine.generation;
    if let Some(flush) = writes.iter().find(|write| write.record == generation) {
        txn.generation = flush.version.generation();
    }
    let outcome = log_and_publish(
        thread,
        log,
        txn.generation,
        (&writes, &words, &prepared.events),
        &read,
    );
    if outcome.is_err() {
        own.version.free_unpublished();
        writes.pop();
        prepared.effects = writes;
        thread.engine.prepared.lock().insert(id, prepared);
        return outcome;
    }
    WorkerSlot::count(&thread.counters().commits, 1);
    thread
        .engine
        .release_hold(id, &prepared.held, prepared.ranged);
    // Effects are given back even if nothing else was held.
    txn.released_holds = true;
    outcome
}

/// Aborts an attempt. `own` is the system record, locked.
fn abort(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    id: TransactionId,
    own: (RecordRef, WordValue),
) -> Result<Tid, TransactionError> {
    if system_record::is_unheld(RecordRef::version(own.1).value()) {
        return replace(thread, txn, log, own, VersionRef::new(0, None, None));
    }
    let prepared = take_prepared(&thread.engine, id);
    let outcome = replace(thread, txn, log, own, VersionRef::new(0, None, None));
    if outcome.is_err() {
        thread.engine.prepared.lock().insert(id, prepared);
        return outcome;
    }
    let written = prepared.effects.iter().map(|write| write.record);
    let held: Vec<RecordRef> = written.chain(prepared.held.iter().copied()).collect();
    thread.engine.release_hold(id, &held, prepared.ranged);
    txn.released_holds |= prepared.ranged || !held.is_empty();
    outcome
}

fn take_prepared(engine: &Engine, id: TransactionId) -> PreparedTransaction {
    let prepared = engine.prepared.lock().remove(&id);
    prepared.expect("its system record says so, and restore_prepared was called")
}

/// Returns `true` if a verdict changes an attempt of this state.
pub(crate) fn applies(decision: TransactionDecision, state: &State) -> bool {
    match decision {
        TransactionDecision::Commit | TransactionDecision::Abort => {
            matches!(state, State::Prepared(_))
        }
        TransactionDecision::Refuse { .. } => matches!(state, State::Unknown | State::Refused),
        TransactionDecision::Forget => matches!(state, State::Committed(_)),
    }
}
