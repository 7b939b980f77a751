//! Silo's commit protocol.
//!
//! 1. Lock the write set in the order of the records' addresses.
//! 2. Draw the commit epoch: the point in the serial order, between the locks and the validation.
//! 3. Validate the reads: records unchanged and not locked by others, keys that had no record still
//!    without one that was ever written, ranges with the same records in them, no deadline passed
//!    between the transaction's own time and the commit epoch's stamp; if an operation has
//!    answered the transaction's time, that both times are the same.
//! 4. Draw the TID above everything read or overwritten, within the commit epoch.
//! 5. Publish the new versions, which unlocks; hand the changes to the log.
//!
//! Phantoms: a record enters the index before its key is locked, so that an insertion either was
//! in the index when a scan validates, or draws its commit epoch after that validation and is
//! later in the serial order.
//!
//! Transactions over several partitions hold the records that they have read and will write until
//! they are decided (modules `holds`, `prepare`). A commit that meets a hold fails in step 1 or 3,
//! or if a new key lies in a range that is held, which the commit looks up after step 2; only then
//! it searches for the holder (module `conflict`).
//!
//! Everything happens inside the worker's epoch, so that an epoch that has finished is complete
//! in the log.

use base::Tid;
use base::epochs::EpochClock;
use base::planted::{self, Bug};

use crate::announce::announce;
use crate::conflict;
use crate::fencing;
use crate::listening::NotedEvent;
use crate::log::{self, Changes, Edit, RecordWrite, RedoLog};
use crate::publish::publish;
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::validation::{enters_no_range, newest, validate};
use crate::version_ids;
use crate::version_tree::VersionTree;
use crate::word::{QUEUED, WordValue};
use crate::worker_slot::WorkerSlot;

/// Commits a transaction. On an error nothing has happened, but for [`base::Abort::ReadOnly`]: then
/// the transaction is done in memory and will not be durable.
#[inline]
pub(crate) fn commit(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
) -> Result<(), TransactionError> {
    let outcome = try_commit(thread, txn, log);
    outcome.map_err(|error| conflict::with_holder(&thread.engine, txn, error))
}

#[inline]
fn try_commit(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
) -> Result<(), TransactionError> {
    fencing::log_returned_time(thread, txn);
    if txn.writes.is_empty() {
        let epoch = thread.engine.epochs.commit_epoch();
        return validate(&thread.engine, txn, epoch, &[]);
    }
    let mut writes = std::mem::take(&mut txn.writes);
    let outcome = commit_writes(thread, txn, log, &mut writes);
    if txn.wrote != Tid::ZERO {
        // They are published: the transaction can no longer take them back.
        writes.clear();
    }
    txn.writes = writes;
    outcome
}

#[inline]
fn commit_writes(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    log: &mut impl RedoLog,
    writes: &mut [RecordWrite],
) -> Result<(), TransactionError> {
    thread.engine.check_size(writes)?;
    writes.sort_unstable_by_key(|write| write.record);
    let mut locked = std::mem::take(&mut txn.locked);
    let drawn = lock_and_validate(thread, txn, writes, &mut locked);
    let outcome = match drawn {
        Ok(tid) => {
            txn.note_commit(tid);
            prepare_log(log, writes);
            publish(thread, txn.generation, writes, &locked, tid);
            announce(&thread.engine, (writes, &locked), &txn.events, tid);
            WorkerSlot::count(&thread.counters().commits, 1);
            txn.edits.sort_unstable_by_key(|edit| edit.record);
            append(thread, log, writes, &txn.edits, tid)
        }
        Err(error) => {
            unlock(writes, &locked);
            Err(error)
        }
    };
    locked.clear();
    txn.locked = locked;
    outcome
}

/// Steps 1 to 4. `locked` gets the words of the records that were locked, also on an error.
#[inline]
fn lock_and_validate(
    thread: &mut ThreadContext,
    txn: &TransactionState,
    writes: &[RecordWrite],
    locked: &mut Vec<WordValue>,
) -> Result<Tid, TransactionError> {
    for write in writes {
        let seen = write.record.word().lock_to_commit();
        locked.push(seen.map_err(|_| TransactionError::Conflict)?);
    }
    if !version_ids::is_newest(thread, txn, writes, locked) {
        return Err(TransactionError::Conflict);
    }
    let engine = &thread.engine;
    let epoch = engine.epochs.commit_epoch();
    validate(engine, txn, epoch, writes)?;
    if !planted::is(Bug::IgnoredHolds) {
        enters_no_range(engine, writes, locked, None)?;
    }
    let read = newest(txn.reads.iter().map(|(_, seen)| seen));
    thread.draw_tid(epoch, read.max(newest(locked.iter())))
}

/// Unlocks those records of a write set that were locked; nothing was written.
pub(crate) fn unlock(writes: &[RecordWrite], locked: &[WordValue]) {
    for (write, seen) in writes.iter().zip(locked) {
        write.record.word().unlock(*seen, seen.0 & QUEUED);
    }
}

/// Hands the changes of transaction `tid` to the log.
#[inline]
pub(crate) fn append(
    thread: &ThreadContext,
    log: &mut impl RedoLog,
    writes: &[RecordWrite],
    edits: &[Edit],
    tid: Tid,
) -> Result<(), TransactionError> {
    let stamp_ms = thread.engine.epochs.stamp_ms(tid.epoch());
    let changes = Changes {
        writes,
        edits,
        generation: thread.engine.generation,
    };
    let appended = log::append(log, changes, tid, stamp_ms);
    let trees = writes.iter().filter_map(|write| write.version.tree());
    trees.for_each(VersionTree::forget_log);
    appended
}

/// Prepares what the log gets of writes that are to be published.
#[inline]
pub(crate) fn prepare_log(log: &impl RedoLog, writes: &[RecordWrite]) {
    if !log.keeps_changes() {
        return;
    }
    let trees = writes.iter().filter_map(|write| write.version.tree());
    trees.for_each(VersionTree::prepare_log);
}

/// Hands changes to the log that the applier will publish.
pub(crate) fn append_staged(
    thread: &ThreadContext,
    txn: &TransactionState,
    log: &mut impl RedoLog,
    writes: &[RecordWrite],
) -> Result<(), TransactionError> {
    let changes = Changes {
        writes,
        edits: &[],
        generation: thread.engine.generation,
    };
    prepare_log(log, writes);
    log::append(log, changes, Tid::ZERO, txn.time_ms)
}

/// Draws a TID above those of all these words' versions, hands the writes to the log, and publishes
/// them. `words` are those of the writes, which are locked, and `read` others. On an error nothing
/// has happened.
pub(crate) fn log_and_publish(
    thread: &mut ThreadContext,
    log: &mut impl RedoLog,
    generation: u16,
    (writes, words, events): (&[RecordWrite], &[WordValue], &[NotedEvent]),
    read: &[WordValue],
) -> Result<Tid, TransactionError> {
    let epoch = thread.engine.epochs.commit_epoch();
    let tid = thread.draw_tid(epoch, newest(words.iter().chain(read)))?;
    prepare_log(log, writes);
    append(thread, log, writes, &[], tid)?;
    publish(thread, generation, writes, words, tid);
    announce(&thread.engine, (writes, words), events, tid);
    Ok(tid)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::clock::ManualClock;
    use base::limits::Limits;
    use base::{Op, Reply, Version};

    use super::*;
    use crate::one_shot;
    use crate::transaction::ActiveTransaction;
    use crate::{Engine, NoLog, Options, Worker};

    /// Runs and commits once, without trying again.
    fn once(w: &mut Worker<NoLog>, ops: &[Op<'_>]) -> Result<(), TransactionError> {
        let active = ActiveTransaction::begin(&mut w.thread, &mut w.txn);
        one_shot::run(active.thread, active.txn, ops)?;
        commit(active.thread, active.txn, &mut w.log)
    }

    fn version(w: &mut Worker<NoLog>, key: &[u8]) -> Version {
        match w.execute(&[Op::Watch { key }]).unwrap().replies()[0] {
            Reply::Version(version) => version,
            ref other => panic!("{other:?}"),
        }
    }

    /// The commit that has the lock may be before others whose effects this reader has seen.
    #[test]
    fn a_lone_read_of_what_a_commit_has_locked_is_validated() {
        let engine = Engine::new(&Options {
            workers: 2,
            clock: Arc::new(ManualClock::new(1_000)),
            limits: Limits::default(),
        });
        let mut w = engine.worker(|_| NoLog).unwrap();
        w.execute(&[Op::put(b"c", b"old")]).map(drop).unwrap();
        let check = Op::Check {
            key: b"c",
            version: version(&mut w, b"c"),
        };
        let record = engine.index.get(engine.index.hash(b"c"), b"c").unwrap();
        let locked = record.word().lock().unwrap();
        for op in [check.clone(), Op::Get { key: b"c" }] {
            assert_eq!(once(&mut w, &[op]), Err(TransactionError::Conflict));
        }
        record.word().unlock(locked, locked.0 & QUEUED);
        assert_eq!(once(&mut w, &[check]), Ok(()), "it was given up");
    }
}
