//! Prepares a part of a transaction over several partitions: its operations are executed as those
//! of any transaction, but instead of a commit
//!
//! 1. the records of keys that were absent are made, so that absences can be held;
//! 2. the scanned ranges are held;
//! 3. the records to be written are locked in the order of their addresses, the system record
//!    among them;
//! 4. the epoch is drawn, as a commit does;
//! 5. each record that was read is validated and held in one step; ranges and deadlines are
//!    validated, and that the attempt is unknown and its timestamp above those of the versions that
//!    it replaces;
//! 6. a TID is drawn, and the system record goes to the log;
//! 7. the locks become exclusive holds, and the system record is published.
//!
//! If anything fails before the last step, everything is given back. After it the transaction can
//! commit at any later time: until then no transaction reads what it will write or writes what it has
//! read. Any thread may decide it from then on, so that this one must not read the new versions any
//! more: replies are copied before. So it counts as executed at the moment of its preparation, and
//! takes its TID when it commits (module [`crate::decide`]), above those of all versions that it has
//! read and replaces.
//!
//! Every prepared transaction holds the generation's record as a reader, and one that flushes
//! exclusively: a flush waits for all others. So that it does not wait for ever, a transaction that
//! would hold as a reader a record that another one wants to write (module `writer_marks`) is refused while
//! others hold it, with the name of a holder: it waits for that holder to end, or gives up, as with any
//! other hold. Counting keys holds nothing, as it validates nothing.

mod acquire;

use base::change::{Origin, siblings};
use base::participant::{Isolation, Prepare, State};
use base::partition::OwnedReply;
use base::transaction::Holder;
use base::{Abort, Op, Tid, TransactionId};

use self::acquire::{Acquired, acquire, gather_reads, hold_reads};
use crate::announce::is_system;
use crate::commit::{append, append_staged, unlock};
use crate::conflict;
use crate::engine::Engine;
use crate::holds::deciding;
use crate::log::{RecordWrite, RedoLog, value_of};
use crate::one_shot;
use crate::prepared::PreparedTransaction;
use crate::publish::publish;
use crate::read_atomic;
use crate::record::RecordRef;
use crate::system_record::{self, PreparedEffect, PreparedState, SystemRecord};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::version_tree::VersionTree;
use crate::word::{STAGED, WordValue};

/// The number of attempts that give way to a writer of a record that is not held any more: some
/// tenths of a millisecond, in which a thread that waited can wake. The writer may also have gone.
const GIVING_WAY: u32 = 20;

/// Refuses an attempt that has too many operations or malformed siblings.
pub(crate) fn check(engine: &Engine, prepare: &Prepare<'_>) -> Result<(), Abort> {
    engine.check_count(prepare.ops)?;
    // A log with such siblings in it could not be read again.
    if siblings::read(prepare.siblings).is_none() {
        return Err(Abort::Refused);
    }
    Ok(())
}

/// Executes the operations of an attempt and prepares it. On an error it has left nothing.
pub(crate) fn prepare(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    prepare: &Prepare<'_>,
    attempt: u32,
) -> Result<Vec<OwnedReply>, TransactionError> {
    // It may be decided long after the versions that it has read.
    txn.needs_applied = true;
    if prepare.isolation == Isolation::ReadAtomic {
        txn.admit_bytes(thread, prepare.ops.iter().map(Op::brings).sum())?;
        return read_atomic::prepare(thread, txn, log, prepare);
    }
    txn.origin = Some(thread.engine.origins.share(Origin {
        id: prepare.holder.id,
        siblings: prepare.siblings,
    }));
    let outcome = one_shot::run(thread, txn, prepare.ops).and_then(|()| {
        // Replies may refer to versions that the attempt made. Once it is prepared another
        // thread may abort it, which frees them at once.
        let replies = one_shot::owned_replies(txn);
        let held = hold_all(thread, txn, log, (prepare.holder, Some(prepare)), attempt);
        held.map(|()| replies)
    });
    outcome.map_err(|error| abandon_reads(&thread.engine, txn, error))
}

/// Executes operations that only read, and holds the records that they have read, as `holder`, until
/// [`Engine::end_hold`]. Nothing of it goes to the log. On an error it has left nothing.
pub(crate) fn hold(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (ops, holder): (&[Op<'_>], Holder),
    attempt: u32,
) -> Result<(), TransactionError> {
    txn.needs_applied = true;
    let outcome = one_shot::run(thread, txn, ops).and_then(|()| {
        gather_reads(thread, txn)?;
        let engine = &thread.engine;
        if conflict::conflicting_holder(engine, txn).is_some() {
            return Err(TransactionError::Conflict);
        }
        give_way(engine, txn, holder.id, attempt)?;
        let mut acquired = Acquired::default();
        let outcome = hold_reads(engine, txn, holder, &[], &mut acquired);
        if outcome.is_err() {
            engine.release_hold(holder.id, &acquired.shared, false);
            txn.released_holds |= !acquired.shared.is_empty();
            return outcome;
        }
        let held = PreparedTransaction::new(Vec::new(), acquired.shared, false);
        engine.prepared.lock().insert(holder.id, held);
        Ok(())
    });
    outcome.map_err(|error| abandon_reads(&thread.engine, txn, error))
}

/// Leaves the records that were made to hold absences to the janitor. Returns the reason of the
/// failure, with the holder in the way.
pub(crate) fn abandon_reads(
    engine: &Engine,
    txn: &TransactionState,
    error: TransactionError,
) -> TransactionError {
    let error = conflict::with_holder(engine, txn, error);
    for (record, _) in &txn.reads {
        engine.abandon(*record);
    }
    error
}

/// Takes the holds (steps 1 to 7); without a system record for a transaction of this partition
/// alone, which is staged. In a driven engine all writes come back by the log.
pub(crate) fn hold_all(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    (holder, prepare): (Holder, Option<&Prepare<'_>>),
    attempt: u32,
) -> Result<(), TransactionError> {
    // A flush takes effect at the commit, not before.
    txn.generation = RecordRef::version(txn.reads[0].1).generation();
    gather_reads(thread, txn)?;
    // Nothing is taken in vain: holds that are given back wake all waiting transactions.
    if !txn.awaited.is_empty() || conflict::conflicting_holder(&thread.engine, txn).is_some() {
        return Err(TransactionError::Conflict);
    }
    give_way(&thread.engine, txn, holder.id, attempt)?;
    thread.engine.check_size(&txn.writes)?;
    let own = match prepare {
        Some(prepare) => Some(write_system_record(thread, txn, prepare)?),
        None => None,
    };
    let mut writes = std::mem::take(&mut txn.writes);
    writes.sort_unstable_by_key(|write| write.record);
    let mut acquired = Acquired::default();
    let outcome = acquire(thread, txn, holder, (&writes, own), &mut acquired)
        .and_then(|tid| log_held(thread, txn, log, &writes, own, tid).map(|()| tid));
    match (outcome, own) {
        (Ok(Tid::ZERO), own) => {
            let passes = own.is_none() && log.passes_holds() && may_pass(&thread.engine, &writes);
            match passes {
                true => settle_passing(&thread.engine, holder, writes, acquired),
                false => settle_staged(&thread.engine, holder, writes, own, acquired),
            }
            Ok(())
        }
        (Ok(tid), own) => {
            let own = own.expect("only a driven engine stages");
            settle(thread, txn, holder, (writes, own), acquired, tid);
            Ok(())
        }
        (Err(error), _) => {
            unlock(&writes, &acquired.locked);
            let Acquired { shared, ranged, .. } = acquired;
            thread.engine.release_hold(holder.id, &shared, ranged);
            txn.released_holds |= ranged || !shared.is_empty();
            txn.writes = writes;
            Err(error)
        }
    }
}

/// Returns `true` if staged writes may become the bases of other transactions: if they are of keys alone, none of
/// these is read atomic, and their deadlines allow it.
fn may_pass(engine: &Engine, writes: &[RecordWrite]) -> bool {
    writes.iter().all(|write| {
        let key = write.record.key();
        let is_key = write.record != engine.generation && !is_system(key);
        is_key
            && !engine.read_atomic.covers(key)
            && has_known_deadlines(write)
            && engine.holds.may_pass(write.record)
    })
}

/// Returns `true` if a version has no deadlines but that of the applied one. The engine's time passes only deadlines
/// that were applied, and not before the log is about to say so: no transaction sees one pass that the log does not
/// know, and what was executed before is in the log before.
fn has_known_deadlines(write: &RecordWrite) -> bool {
    let (version, applied) = (
        write.version,
        RecordRef::version(write.record.word().load()),
    );
    (version.deadline().is_none() || version.deadline() == applied.deadline())
        && version.next_field_deadline(0).is_none()
}

/// Gives way to writers of records that this transaction would hold as a reader: until the present
/// holders have ended, and a moment longer, in which the writers that waited may come first. Also gives way to
/// transactions that need the applied version of a record with staged versions, until these are applied.
pub(crate) fn give_way(
    engine: &Engine,
    txn: &TransactionState,
    id: TransactionId,
    attempt: u32,
) -> Result<(), TransactionError> {
    let holds = &engine.holds;
    if !holds.writer_marks.any() {
        return Ok(());
    }
    let is_marked = |(record, _): &&(RecordRef, WordValue)| {
        let now = RecordRef::version(record.word().load()).tid();
        holds.writer_marks.has(*record, now, txn.time_ms) && txn.own_write(*record).is_none()
    };
    let staged = txn.writes.iter().find(|write| {
        !txn.needs_applied
            && write.record.word().load().has(STAGED)
            && holds.writer_marks.needs_applied(write.record, txn.time_ms)
    });
    if let Some(by) = staged.and_then(|write| holds.holder(write.record)) {
        return Err(TransactionError::Abort(Abort::Held { by }));
    }
    let (mut free, mut oldest) = (false, None::<Holder>);
    for (record, _) in txn.reads.iter().filter(is_marked) {
        match holds.holder(*record) {
            Some(by) if oldest.is_none_or(|old| (by.age, by.id) < (old.age, old.id)) => {
                oldest = Some(by);
            }
            Some(_) => {}
            None => free = true,
        }
    }
    match oldest {
        // The attempt will be refused, and may be one of the holders itself.
        Some(_) if is_known(engine, txn, id) => Ok(()),
        Some(by) => Err(TransactionError::Abort(Abort::Held { by })),
        None if free && attempt < GIVING_WAY => Err(TransactionError::Conflict),
        None => Ok(()),
    }
}

fn is_known(engine: &Engine, txn: &TransactionState, id: TransactionId) -> bool {
    let (key, index) = (system_record::key(id), &engine.index);
    let record = index.get(index.hash(&key), &key);
    let version = record.map(|record| RecordRef::version(record.word().load()));
    version.is_some_and(|version| system_record::state_at(version, txn.time_ms) != State::Unknown)
}

/// Puts the system record into the write set.
fn write_system_record(
    thread: &ThreadContext,
    txn: &mut TransactionState,
    prepare: &Prepare<'_>,
) -> Result<RecordRef, TransactionError> {
    let record = thread.record_of(&system_record::key(prepare.holder.id));
    let version = system_record::new_version(&describe(&thread.engine, txn, prepare), None);
    let write = RecordWrite { record, version };
    txn.writes.push(write);
    thread.engine.check_size(&[write]).map(|()| record)
}

fn log_held(
    thread: &ThreadContext,
    txn: &TransactionState,
    log: &mut impl RedoLog,
    writes: &[RecordWrite],
    own: Option<RecordRef>,
    tid: Tid,
) -> Result<(), TransactionError> {
    let own = own.map(|record| writes_of(writes, record));
    let writes = own.as_deref().unwrap_or(writes);
    match tid {
        Tid::ZERO => append_staged(thread, txn, log, writes),
        tid => append(thread, log, writes, &[], tid),
    }
}

/// Returns the value of the system record.
fn describe(engine: &Engine, txn: &TransactionState, prepare: &Prepare<'_>) -> Vec<u8> {
    let generation = engine.generation;
    let trees = txn.writes.iter().filter_map(|write| write.version.tree());
    trees.for_each(VersionTree::log_whole);
    let effect = |write: &RecordWrite| effect_of(write, generation);
    let shared = txn.reads.iter().map(|(record, _)| *record);
    let shared = shared.filter(|record| *record != generation && txn.own_write(*record).is_none());
    let ranges = txn.scans.iter();
    let kept = PreparedState {
        age: prepare.holder.age,
        siblings: prepare.siblings,
        effects: txn.writes.iter().map(effect).collect(),
        shared: shared.map(RecordRef::key).collect(),
        ranges: ranges.map(|scan| (&scan.from[..], &scan.to[..])).collect(),
    };
    let note = prepare.note;
    SystemRecord::Prepared { note, kept }.encode()
}

/// Turns the locks into holds and publishes the system record (step 7).
fn settle(
    thread: &ThreadContext,
    txn: &mut TransactionState,
    holder: Holder,
    (writes, own): (Vec<RecordWrite>, RecordRef),
    acquired: Acquired,
    tid: Tid,
) {
    let engine = &thread.engine;
    let (mut effects, mut published) = (Vec::with_capacity(writes.len() - 1), None);
    for (write, seen) in writes.into_iter().zip(acquired.locked) {
        if write.record == own {
            published = Some((write, seen));
        } else {
            engine.holds.exclude(write.record, seen, holder);
            effects.push(write);
        }
    }
    let mut prepared = PreparedTransaction::new(effects, acquired.shared, acquired.ranged);
    prepared.events = std::mem::take(&mut txn.events);
    engine.prepared.lock().insert(holder.id, prepared);
    let (write, seen) = published.expect("the system record is in the write set");
    publish(thread, txn.generation, &[write], &[seen], tid);
    txn.note_commit(tid);
}

/// Performs step 7 of a staged transaction. The applier may be waiting for the last of these records
/// already: it is the one whose version is in the log, and everything else is in place before.
fn settle_staged(
    engine: &Engine,
    holder: Holder,
    writes: Vec<RecordWrite>,
    own: Option<RecordRef>,
    acquired: Acquired,
) {
    let mut held = acquired.shared;
    let keys = writes.iter().map(|write| write.record);
    held.extend(keys.filter(|record| Some(*record) != own));
    let prepared = PreparedTransaction::new(Vec::new(), held, acquired.ranged);
    engine.prepared.lock().insert(holder.id, prepared);
    let pairs = || writes.iter().zip(&acquired.locked);
    for (write, seen) in pairs().filter(|(write, _)| Some(write.record) != own) {
        engine.holds.exclude(write.record, *seen, holder);
    }
    for (write, seen) in pairs().filter(|(write, _)| Some(write.record) == own) {
        let holder = deciding(holder.id);
        engine.holds.exclude(write.record, *seen, holder);
    }
    for write in writes {
        write.version.free_unpublished();
    }
}

/// Performs step 7 of a staged transaction whose writes become the bases of others once its entry is submitted
/// ([`Engine::pass_holds`]). They are kept, and published when the entry is applied.
fn settle_passing(engine: &Engine, holder: Holder, writes: Vec<RecordWrite>, acquired: Acquired) {
    let trees = writes.iter().filter_map(|write| write.version.tree());
    trees.for_each(VersionTree::stage);
    let records: Vec<RecordRef> = writes.iter().map(|write| write.record).collect();
    let mut held = acquired.shared;
    held.extend(&records);
    let prepared = PreparedTransaction::new(writes, held, acquired.ranged);
    engine.prepared.lock().insert(holder.id, prepared);
    for (record, seen) in records.into_iter().zip(acquired.locked) {
        engine.holds.begin_to_pass(record, seen, holder);
    }
}

/// Returns the write of one record.
fn writes_of(writes: &[RecordWrite], record: RecordRef) -> Vec<RecordWrite> {
    let of_it = writes.iter().filter(|write| write.record == record);
    of_it.copied().collect()
}

fn effect_of(write: &RecordWrite, generation: RecordRef) -> PreparedEffect<'static> {
    let version = write.version;
    if write.record == generation {
        PreparedEffect::Flush {
            generation: version.generation(),
        }
    } else if version.is_absent() {
        PreparedEffect::Delete {
            key: write.record.key(),
        }
    } else {
        PreparedEffect::Put {
            key: write.record.key(),
            value: value_of(version),
            kind: version.kind(),
            generation: version.generation(),
            deadline: version.deadline(),
        }
    }
}
