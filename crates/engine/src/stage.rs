//! Staging: the leader of a replicated partition executes a transaction before consensus (paper 5:
//! strict two-phase locking, then the log).
//!
//! The operations are executed and hold records exactly as in module `prepare`. But
//! nothing is published: the changes go to the worker's log, with TID zero and
//! the transaction's time. The owner of the log submits them as an entry. When
//! that is applied (module [`crate::apply`]) the changes come back, on every replica alike.
//!
//! What `stage` writes are mostly plain keys. Then the owner of the log gives its exclusive holds on when it
//! submits the entry ([`crate::Engine::pass_holds`]): what was staged is kept, and the next transaction on these
//! keys is staged on it (module `staged_chain`).
//!
//! | call | changes of its entry | held until it is applied | and then, until `release` |
//! |---|---|---|---|
//! | `stage` | what the operations write | what they write, unless it is passed on | and have read, and scanned |
//! | `stage_prepare` | the system record: prepared | the system record | nothing is released: the keys are held until the transaction is decided |
//! | `stage_commit` | the effects; the system record: committed | the system record, the effects' keys | all that was held since it was prepared |
//! | `stage_commit`, read atomic | the same | the same | nothing: only these were held |
//! | `stage_abort` | the system record goes | the system record | the same |
//! | `stage_refuse` | the system record: refused | the system record | – |
//! | `stage_forget` | the system record goes | the system record | – |
//!
//! The system record has everything that a decision needs. Until its entry is applied no other
//! decision is made: an attempt to decide meets [`Abort::Held`].
//!
//! Invariants:
//! 1. A worker that stages never waits for another thread while it has something locked or held.
//! 2. A worker has its place's mutex `staging` locked from before it takes the first lock until all
//!    locks have become holds, and the holds to be released are in the engine's map `prepared`.
//! 3. The holds on an entry's records are complete before its applier can have locked the last of
//!    them; so a thread that releases them afterwards finds all.

use std::sync::Arc;

use base::participant::{Prepare, State};
use base::partition::OwnedReply;
use base::transaction::Holder;
use base::{Abort, Op, Origin, TransactionId};

use crate::commit::{append_staged, commit};
use crate::decide::{TransactionDecision, applies};
use crate::effects::write_of_effect;
use crate::holds::deciding;
use crate::interactive::Txn;
use crate::log::{RecordWrite, RedoLog};
use crate::one_shot;
use crate::prepare::{self, abandon_reads, hold_all};
use crate::prepared::PreparedTransaction;
use crate::read_atomic::{lock_effects, unlock_effects};
use crate::record::{RecordRef, VersionRef};
use crate::system_record::{self, SystemRecord, WELL_FORMED};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;

/// A transaction that was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged<T> {
    /// Its replies, one for each operation, or what its closure has returned: true once the entry is applied, or,
    /// without an entry, of its reads.
    pub value: T,
    /// The number of changes that went to the log. If there are none the transaction is done, and
    /// nothing is held; otherwise [`crate::Engine::release`] must follow the application of the
    /// entry, or the news that it was not submitted.
    pub writes: usize,
    /// `true` if it has asked for the time.
    pub returned_time: bool,
}

/// Executes the operations, holds the records that they read and will write as `holder`, and appends
/// their writes to the log.
pub(crate) fn stage(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    (ops, holder): (&[Op<'_>], Holder),
    attempt: u32,
) -> Result<Staged<Vec<OwnedReply>>, TransactionError> {
    let outcome = one_shot::run(thread, txn, ops).and_then(|()| {
        let replies = one_shot::owned_replies(txn);
        stage_effects(thread, txn, log, holder, attempt, replies)
    });
    outcome.map_err(|error| abandon_reads(&thread.engine, txn, error))
}

/// Runs `body`, holds the records that it has read and will write as `holder`, and appends its writes to the log.
pub(crate) fn stage_transaction<T>(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    (body, holder): (
        &mut impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, TransactionError>,
        Holder,
    ),
    attempt: u32,
) -> Result<Staged<T>, TransactionError> {
    let outcome = body(&mut Txn::new(thread, txn))
        .and_then(|value| stage_effects(thread, txn, log, holder, attempt, value));
    outcome.map_err(|error| abandon_reads(&thread.engine, txn, error))
}

/// Holds the records that a transaction has read and will write, and appends its writes to the log. One without
/// writes is committed.
fn stage_effects<T>(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    holder: Holder,
    attempt: u32,
    value: T,
) -> Result<Staged<T>, TransactionError> {
    let (writes, returned_time) = (txn.writes.len(), txn.returned_time);
    if writes == 0 {
        commit(thread, txn, log)?;
    } else {
        let staging = Arc::clone(&thread.counters().staging);
        let _staging = staging.lock();
        hold_all(thread, txn, log, (holder, None), attempt)?;
    }
    Ok(Staged {
        value,
        writes,
        returned_time,
    })
}

/// Prepares an attempt as [`prepare::prepare`].
pub(crate) fn stage_prepare(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    attempt: (&Prepare<'_>, u32),
) -> Result<Vec<OwnedReply>, TransactionError> {
    let staging = Arc::clone(&thread.counters().staging);
    let _staging = staging.lock();
    prepare::prepare(thread, txn, log, attempt.0, attempt.1)
}

/// Locks the system record, reads it, and appends the changes that follow from the verdict. Returns
/// the state before, and `true` if changes were appended.
pub(crate) fn stage_decision(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    id: TransactionId,
    decision: TransactionDecision,
) -> Result<(State, bool), TransactionError> {
    let staging = Arc::clone(&thread.counters().staging);
    let _staging = staging.lock();
    let engine = Arc::clone(&thread.engine);
    let record = thread.record_of(&system_record::key(id));
    let seen = match record.word().lock() {
        Ok(seen) => seen,
        Err(refused) => {
            engine.abandon(record);
            return Err(engine.reason_of(record, refused));
        }
    };
    let old = RecordRef::version(seen);
    let state = system_record::state_at(old, txn.time_ms);
    let outcome = match decision {
        _ if !applies(decision, &state) => Ok(false),
        TransactionDecision::Commit if system_record::is_unheld(old.value()) => {
            stage_unheld(thread, txn, log, id, (record, old))
        }
        TransactionDecision::Refuse { until_ms } if old.deadline() >= Some(until_ms) => Ok(false),
        _ => changes_of(thread, id, decision, record, old).and_then(|writes| {
            let logged = append_staged(thread, txn, log, &writes);
            writes.iter().for_each(|w| w.version.free_unpublished());
            logged.map(|()| true)
        }),
    };
    match outcome {
        Ok(true) => engine.holds.exclude(record, seen, deciding(id)),
        _ => engine.unlock_unwritten(record, seen),
    }
    outcome.map(|appended| (state, appended))
}

/// Commits an attempt that has held nothing until now. Its writes are held until they are applied, so
/// that they come before or after any other staged writes of these keys.
fn stage_unheld(
    thread: &ThreadContext,
    txn: &TransactionState,
    log: &mut impl RedoLog,
    id: TransactionId,
    (own, old): (RecordRef, VersionRef),
) -> Result<bool, TransactionError> {
    let Ok(SystemRecord::Pending {
        note,
        siblings,
        effects,
    }) = system_record::decode(old.value())
    else {
        panic!("{WELL_FORMED}");
    };
    let (mut writes, locked) = lock_effects(thread, txn, (id, siblings), &effects)?;
    let version = system_record::new_version(&SystemRecord::Committed { note }.encode(), None);
    writes.push(RecordWrite {
        record: own,
        version,
    });
    let logged = append_staged(thread, txn, log, &writes);
    version.free_unpublished();
    writes.pop();
    if let Err(error) = logged {
        unlock_effects(thread, &writes, &locked);
        return Err(error);
    }
    let held = writes.iter().map(|write| write.record).collect();
    let mut staged = PreparedTransaction::new(Vec::new(), held, false);
    staged.is_staged = true;
    let engine = &thread.engine;
    engine.prepared.lock().insert(id, staged);
    for (write, seen) in writes.iter().zip(locked) {
        engine.holds.exclude(write.record, seen, deciding(id));
        write.version.free_unpublished();
    }
    Ok(true)
}

/// Returns the writes of a verdict that applies. `record` is the system record, and `old` its version.
fn changes_of(
    thread: &ThreadContext,
    id: TransactionId,
    decision: TransactionDecision,
    record: RecordRef,
    old: VersionRef,
) -> Result<Vec<RecordWrite>, TransactionError> {
    let engine = &thread.engine;
    let holds = matches!(
        decision,
        TransactionDecision::Commit | TransactionDecision::Abort
    );
    if holds && !system_record::is_unheld(old.value()) && !engine.prepared.lock().contains_key(&id)
    {
        return Err(TransactionError::Abort(Abort::Elsewhere { leader: None }));
    }
    let own = |version| RecordWrite { record, version };
    Ok(match decision {
        TransactionDecision::Commit => {
            let Ok(SystemRecord::Prepared { note, kept }) = system_record::decode(old.value())
            else {
                panic!("{WELL_FORMED}");
            };
            let origin = engine.origins.share(Origin {
                id,
                siblings: kept.siblings,
            });
            let effects = kept.effects.iter();
            let mut writes: Vec<RecordWrite> = effects
                .map(|effect| write_of_effect(thread, effect, &origin))
                .collect();
            let marker = SystemRecord::Committed { note }.encode();
            writes.push(own(system_record::new_version(&marker, None)));
            writes
        }
        TransactionDecision::Refuse { until_ms } => {
            let refusal = SystemRecord::Refused.encode();
            vec![own(system_record::new_version(&refusal, Some(until_ms)))]
        }
        TransactionDecision::Abort | TransactionDecision::Forget => {
            vec![own(VersionRef::new(0, None, None))]
        }
    })
}
