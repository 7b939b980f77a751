//! Read-atomic keys (paper 1, RAMP): several versions of each, and transactions over several
//! partitions that hold nothing.
//!
//! | what | where it is |
//! |---|---|
//! | the newest committed version | the record's current one, as of any key |
//! | versions that were replaced | behind it, by falling ids; the janitor leaves them for a while |
//! | prepared versions | in the transaction's system record, as bytes |
//!
//! | step | does |
//! |---|---|
//! | prepare | writes the system record, with all effects in it; no key is touched |
//! | commit | installs each effect that is newer than the key's newest version, and puts the others behind it; then the system record says committed |
//! | abort | deletes the system record |
//!
//! Every write of a read-atomic key has an id, drawn by the coordinator, or here for transactions
//! of this partition alone.
//!
//! Invariants:
//! 1. The ids of a key's versions fall along the chain; TIDs grow with ids, but for versions that
//!    were put behind.
//! 2. An effect is in the chain before the system record ceases to say prepared: a reader that
//!    looks there first, and then at the chain, misses nothing.
//! 3. Only versions that were installed are logged as such: for each key the greatest TID of the
//!    log is the greatest id. Versions that were put behind live in memory alone; no reader asks
//!    for them for longer than for any version that was replaced.
//! 4. A new id is above that of the version it replaces (module `version_ids`).
//!
//! Reads of these versions are in module `read_versions`.

use base::change::Origin;
use base::participant::{Prepare, State};
use base::partition::OwnedReply;
use base::transaction::{Expiry, Kind, OpError, When};
use base::{Abort, Op, Reply, Tid, Timestamp, TransactionId};

use crate::announce::announce;
use crate::commit::{append, append_staged, log_and_publish, unlock};
use crate::deadlines::deadline_of;
use crate::effects::{keep_last, write_of_effect};
use crate::holds::deciding;
use crate::log::{RecordWrite, RedoLog};
use crate::lookaside::KeyHash;
use crate::publish::{link_behind, publish};
use crate::record::{RecordRef, VersionRef};
use crate::strings::check_limits;
use crate::system_record::{self, PreparedEffect, SystemRecord};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::validation::{enters_no_range, newest};
use crate::word::WordValue;
use crate::worker_slot::WorkerSlot;

/// Prepares an attempt: the effects go into the system record, and nothing is held.
pub(crate) fn prepare(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    prepare: &Prepare<'_>,
) -> Result<Vec<OwnedReply>, TransactionError> {
    let id = prepare.holder.id;
    txn.hash_and_fetch_operations(&thread.engine, prepare.ops);
    let (mut effects, mut replies) = (Vec::new(), Vec::new());
    let mut newest = Timestamp::ZERO;
    for (at, op) in prepare.ops.iter().enumerate() {
        let hash = txn.hashes[at].ok_or(TransactionError::Abort(Abort::Refused))?;
        let (reply, effect) = effect_of(thread, txn, op, hash)?;
        // The others would name a sibling that was never written.
        if let OwnedReply::Error(error) = reply {
            return Err(TransactionError::Abort(Abort::Failed(error)));
        }
        replies.push(reply);
        effects.extend(effect);
        let key = op.key().expect("it was hashed");
        let version = txn.newest_version(&thread.engine, hash, key);
        newest = newest.max(match version.map(VersionRef::origin_id) {
            Some(newer) if newer >= id => newer.timestamp,
            Some(_) => Timestamp::ZERO,
            None => thread.engine.read_atomic.left(),
        });
    }
    if newest >= id.timestamp {
        return Err(TransactionError::Abort(Abort::Overtaken { newest }));
    }
    let entry = SystemRecord::Pending {
        note: prepare.note,
        siblings: prepare.siblings,
        effects,
    };
    write_pending(thread, txn, log, id, &entry.encode())?;
    Ok(replies)
}

/// Returns the answer and the effect of an operation, which do not depend on the present version.
fn effect_of<'o>(
    thread: &ThreadContext,
    txn: &mut TransactionState,
    op: &Op<'o>,
    hash: KeyHash,
) -> Result<(OwnedReply, Option<PreparedEffect<'o>>), TransactionError> {
    let failed = |error: OpError| Ok((OwnedReply::from(&Reply::Error(error)), None));
    let engine = &thread.engine;
    match *op {
        Op::Put {
            key,
            value,
            when: When::Always,
            expiry,
            get: false,
        } if expiry != Expiry::Keep => {
            let deadline = check_limits(engine.limits(), key, value.len())
                .and_then(|()| deadline_of(thread, txn, expiry, None));
            let deadline = match deadline {
                Ok(deadline) => deadline,
                Err(error) => return failed(error),
            };
            let effect = if txn.has_passed(deadline) {
                PreparedEffect::Delete { key }
            } else {
                PreparedEffect::Put {
                    key,
                    value,
                    kind: Kind::String,
                    generation: txn.generation,
                    deadline,
                }
            };
            Ok((OwnedReply::Ok, Some(effect)))
        }
        Op::Delete { key } => {
            let exists = txn.read(engine, hash, key).live.is_some();
            if let Err(error) = check_limits(engine.limits(), key, 0) {
                return failed(error);
            }
            let reply = OwnedReply::Int(i64::from(exists));
            Ok((reply, Some(PreparedEffect::Delete { key })))
        }
        _ => Err(TransactionError::Abort(Abort::Refused)),
    }
}

/// Writes the system record of an attempt that is not known yet.
fn write_pending(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    id: TransactionId,
    value: &[u8],
) -> Result<(), TransactionError> {
    let record = thread.record_of(&system_record::key(id));
    let seen = match record.word().lock() {
        Ok(seen) => seen,
        Err(refused) => {
            thread.engine.abandon(record);
            return Err(thread.engine.reason_of(record, refused));
        }
    };
    if system_record::state_at(RecordRef::version(seen), txn.time_ms) != State::Unknown {
        thread.engine.unlock_unwritten(record, seen);
        return Err(TransactionError::Abort(Abort::Refused));
    }
    let version = system_record::new_version(value, None);
    let writes = [RecordWrite { record, version }];
    let outcome = thread.engine.check_size(&writes).and_then(|()| {
        if thread.engine.epochs.is_driven() {
            append_staged(thread, txn, log, &writes).map(|()| Tid::ZERO)
        } else {
            log_and_publish(thread, log, txn.generation, (&writes, &[seen], &[]), &[])
        }
    });
    match outcome {
        Ok(Tid::ZERO) => {
            thread.engine.holds.exclude(record, seen, deciding(id));
            version.free_unpublished();
        }
        Ok(tid) => txn.note_commit(tid),
        Err(error) => {
            version.free_unpublished();
            thread.engine.unlock_unwritten(record, seen);
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the writes of a prepared transaction, one for each key, and the words of their records,
/// which are locked in their order.
pub(crate) fn lock_effects(
    thread: &ThreadContext,
    txn: &TransactionState,
    (id, siblings): (TransactionId, &[u8]),
    effects: &[PreparedEffect<'_>],
) -> Result<(Vec<RecordWrite>, Vec<WordValue>), TransactionError> {
    let engine = &thread.engine;
    let origin = engine.origins.share(Origin { id, siblings });
    let of_now = effects
        .iter()
        .map(|effect| effect.of_generation(txn.generation));
    let mut writes: Vec<RecordWrite> = of_now
        .map(|effect| write_of_effect(thread, &effect, &origin))
        .collect();
    // Of several effects on one key the last one counts.
    keep_last(&mut writes, |write| write.record);
    let mut locked = Vec::with_capacity(writes.len());
    for write in &writes {
        match write.record.word().lock() {
            Ok(seen) => locked.push(seen),
            Err(refused) => {
                let error = engine.reason_of(write.record, refused);
                unlock_effects(thread, &writes, &locked);
                return Err(error);
            }
        }
    }
    if let Err(error) = enters_no_range(engine, &writes, &locked, None) {
        let holder = |write: &RecordWrite| engine.holds.range_holder(write.record.key(), None);
        let by = writes.iter().find_map(holder);
        unlock_effects(thread, &writes, &locked);
        return Err(by.map_or(error, |by| TransactionError::Abort(Abort::Held { by })));
    }
    Ok((writes, locked))
}

/// Undoes [`lock_effects`].
pub(crate) fn unlock_effects(thread: &ThreadContext, writes: &[RecordWrite], locked: &[WordValue]) {
    unlock(writes, locked);
    for write in writes {
        write.version.free_unpublished();
        thread.engine.abandon(write.record);
    }
}

/// Commits an attempt. `own` is the system record, locked, and `seen` its word.
pub(crate) fn commit(
    thread: &mut ThreadContext,
    txn: &TransactionState,
    log: &mut impl RedoLog,
    id: TransactionId,
    (own, seen): (RecordRef, WordValue),
) -> Result<Tid, TransactionError> {
    let value = RecordRef::version(seen).value();
    let Ok(SystemRecord::Pending {
        note,
        siblings,
        effects,
    }) = system_record::decode(value)
    else {
        unreachable!("it is prepared without holds")
    };
    let (writes, locked) = lock_effects(thread, txn, (id, siblings), &effects)?;
    let epoch = thread.engine.epochs.commit_epoch();
    let tid = match thread.draw_tid(epoch, newest(locked.iter().chain([&seen]))) {
        Ok(tid) => tid,
        Err(error) => {
            unlock_effects(thread, &writes, &locked);
            return Err(error);
        }
    };
    let marker = system_record::new_version(&SystemRecord::Committed { note }.encode(), None);
    let (mut newer, mut words) = (Vec::new(), Vec::new());
    let is_late = |seen: &WordValue| RecordRef::version(*seen).origin_id() > id;
    for (write, word) in writes.iter().zip(&locked).filter(|(_, s)| !is_late(s)) {
        newer.push(*write);
        words.push(*word);
    }
    newer.push(RecordWrite {
        record: own,
        version: marker,
    });
    words.push(seen);
    if let Err(error) = append(thread, log, &newer, &[], tid) {
        marker.free_unpublished();
        unlock_effects(thread, &writes, &locked);
        return Err(error);
    }
    for (write, word) in writes.iter().zip(&locked).filter(|(_, s)| is_late(s)) {
        link_behind(thread, *write, *word, tid);
    }
    // The system record comes last.
    publish(thread, txn.generation, &newer, &words, tid);
    announce(&thread.engine, (&newer, &words), &[], tid);
    WorkerSlot::count(&thread.counters().commits, 1);
    Ok(tid)
}
