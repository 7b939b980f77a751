//! Takes the locks and holds of an attempt (steps 1 to 6), and validates what it has read.

use base::participant::State;
use base::transaction::Holder;
use base::{Abort, Epoch, Tid, Timestamp};

use crate::engine::Engine;
use crate::log::RecordWrite;
use crate::record::RecordRef;
use crate::system_record;
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::validation::{
    enters_no_range, is_newest, is_written, newest, no_deadline_passed, scan_unchanged,
};
use crate::version_ids;
use crate::word::{HELD, STAGED, STAGING, WordValue};

/// The locks and holds that an attempt has taken so far.
#[derive(Default)]
pub(super) struct Acquired {
    /// Words of the write set's records, in its order.
    pub(super) locked: Vec<WordValue>,
    /// Records held as a reader.
    pub(super) shared: Vec<RecordRef>,
    /// `true` if it holds ranges.
    pub(super) ranged: bool,
}

/// Gathers all reads, each record once, as records (step 1).
pub(super) fn gather_reads(
    thread: &ThreadContext,
    txn: &mut TransactionState,
) -> Result<(), TransactionError> {
    let mut reads = std::mem::take(&mut txn.reads);
    let written = reads.len();
    reads.extend(txn.missing_keys().map(|key| {
        let record = thread.record_of(key);
        (record, record.word().load())
    }));
    txn.reads = reads;
    let mut absent = txn.reads[written..].iter();
    if !absent.all(|(_, seen)| RecordRef::version(*seen).is_never() && !seen.has(STAGED)) {
        return Err(TransactionError::Conflict);
    }
    let reads = &mut txn.reads;
    reads.sort_unstable_by_key(|(record, _)| *record);
    let changed = |pair: &[(RecordRef, WordValue)]| {
        pair[0].0 == pair[1].0 && pair[0].1.pointer() != pair[1].1.pointer()
    };
    if reads.windows(2).any(changed) {
        return Err(TransactionError::Conflict);
    }
    reads.dedup_by_key(|(record, _)| *record);
    Ok(())
}

/// Performs steps 2 to 6 but for the log. `acquired` gets the locks and holds, also on an error. The
/// TID is zero in a driven engine, where the log determines it.
pub(super) fn acquire(
    thread: &mut ThreadContext,
    txn: &TransactionState,
    holder: Holder,
    (writes, own): (&[RecordWrite], Option<RecordRef>),
    acquired: &mut Acquired,
) -> Result<Tid, TransactionError> {
    for scan in &txn.scans {
        acquired.ranged = true;
        thread.engine.holds.hold_range(holder, &scan.from, &scan.to);
    }
    for write in writes {
        let word = write.record.word();
        let seen = match txn.needs_applied {
            true => word.lock(),
            false => word.lock_to_stage(),
        };
        let seen = seen.map_err(|_| TransactionError::Conflict)?;
        acquired.locked.push(seen);
    }
    if own.is_none() && !version_ids::is_newest(thread, txn, writes, &acquired.locked) {
        return Err(TransactionError::Conflict);
    }
    let engine = &thread.engine;
    let epoch = engine.epochs.commit_epoch();
    if let Some(own) = own {
        check_unknown(txn, writes, own, &acquired.locked)?;
        check_timestamp(holder.id.timestamp, &acquired.locked)?;
    }
    hold_reads(engine, txn, holder, writes, acquired)?;
    enters_no_range(engine, writes, &acquired.locked, Some(holder.id))?;
    check_ranges(engine, txn, epoch, writes)?;
    if engine.epochs.is_driven() {
        return Ok(Tid::ZERO);
    }
    let read = txn.reads.iter().map(|(_, seen)| seen);
    let newest = newest(acquired.locked.iter().chain(read));
    thread.draw_tid(epoch, newest)
}

fn check_unknown(
    txn: &TransactionState,
    writes: &[RecordWrite],
    own: RecordRef,
    locked: &[WordValue],
) -> Result<(), TransactionError> {
    let mut pairs = writes.iter().zip(locked);
    let (_, seen) = pairs
        .find(|(write, _)| write.record == own)
        .expect("it is in the write set");
    match system_record::state_at(RecordRef::version(*seen), txn.time_ms) {
        State::Unknown => Ok(()),
        _ => Err(TransactionError::Abort(Abort::Refused)),
    }
}

/// Checks that the versions of each key have growing timestamps.
fn check_timestamp(timestamp: Timestamp, locked: &[WordValue]) -> Result<(), TransactionError> {
    let origins = locked
        .iter()
        .filter_map(|seen| RecordRef::version(*seen).origin());
    match origins.map(|origin| origin.id.timestamp).max() {
        Some(newest) if newest >= timestamp => {
            Err(TransactionError::Abort(Abort::Overtaken { newest }))
        }
        _ => Ok(()),
    }
}

/// Validates the reads, and holds the records that are not locked.
pub(super) fn hold_reads(
    engine: &Engine,
    txn: &TransactionState,
    holder: Holder,
    writes: &[RecordWrite],
    acquired: &mut Acquired,
) -> Result<(), TransactionError> {
    for (record, seen) in &txn.reads {
        if is_written(writes, *record) {
            if !is_newest(engine, *record, *seen, true) {
                return Err(TransactionError::Conflict);
            }
            continue;
        }
        let reader = (holder, !txn.needs_applied);
        let shared = engine.holds.share(*record, *seen, reader);
        shared.map_err(
            |refused| match record.word().load().has(HELD | STAGING | STAGED) {
                true => TransactionError::Conflict,
                // Others read what a transaction in slices holds.
                false => engine.reason_of(*record, refused),
            },
        )?;
        acquired.shared.push(*record);
    }
    Ok(())
}

fn check_ranges(
    engine: &Engine,
    txn: &TransactionState,
    epoch: Epoch,
    writes: &[RecordWrite],
) -> Result<(), TransactionError> {
    let mine = |record| is_written(writes, record);
    let mut scans = txn.scans.iter();
    let same = scans.all(|scan| scan_unchanged(engine, scan, &mine))
        && (epoch == txn.epoch || no_deadline_passed(engine, txn, epoch));
    if same {
        Ok(())
    } else {
        Err(TransactionError::Conflict)
    }
}
