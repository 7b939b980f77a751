//! Finds the holder of a record at which a transaction has failed. The engine searches only after
//! the failure, so that transactions that meet no hold pay nothing; the answer describes the
//! present state.

use base::Abort;
use base::planted::{self, Bug};
use base::transaction::Holder;

use crate::engine::Engine;
use crate::record::RecordRef;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::word::{HELD, SHARED, STAGED, STAGING};

/// Returns the same, or [`Abort::Held`] if the transaction, which has nothing locked any more, met a
/// hold.
#[cold]
pub(crate) fn with_holder(
    engine: &Engine,
    txn: &TransactionState,
    error: TransactionError,
) -> TransactionError {
    let holder = match &error {
        TransactionError::Conflict => {
            conflicting_holder(engine, txn).inspect(|_| mark_wanted_writes(engine, txn))
        }
        // It ended because of its reads, which may be out of date already.
        TransactionError::Abort(
            Abort::Precondition { .. } | Abort::Failed(_) | Abort::Cancelled,
        ) if has_read_held(txn) => {
            match conflicting_holder(engine, txn) {
                // The holder has been decided since: look again.
                None => return TransactionError::Conflict,
                holder => holder,
            }
        }
        TransactionError::Abort(_) => None,
    };
    match holder {
        Some(by) => TransactionError::Abort(Abort::Held { by }),
        None => error,
    }
}

/// Makes readers that come later give way to this transaction when it tries again.
fn mark_wanted_writes(engine: &Engine, txn: &TransactionState) {
    let marks = &engine.holds.writer_marks;
    for write in &txn.writes {
        let seen = write.record.word().load();
        if seen.has(SHARED) {
            let version = RecordRef::version(seen).tid();
            marks.note(write.record, version, txn.time_ms);
        }
    }
    let needed = txn.writes.iter().map(|write| write.record);
    let needed = needed.chain(txn.reads.iter().map(|(record, _)| *record));
    let needed = needed.filter(|_| txn.needs_applied);
    for record in needed.chain(txn.awaited.iter().copied()) {
        if record.word().load().has(STAGED | STAGING) {
            marks.note_applied(record, txn.time_ms);
        }
    }
}

fn has_read_held(txn: &TransactionState) -> bool {
    !planted::is(Bug::IgnoredHolds)
        && (!txn.awaited.is_empty() || txn.reads.iter().any(|(_, seen)| seen.has(HELD)))
}

/// Returns the oldest holder of the records that the transaction needs, in any order of records in
/// memory. A transaction that is older than this holder is older than all and may wait.
pub(crate) fn conflicting_holder(engine: &Engine, txn: &TransactionState) -> Option<Holder> {
    let holds = &engine.holds;
    let writes = txn.writes.iter();
    let reads = txn.reads.iter();
    let ranges = txn.writes.iter();
    let awaited = txn.awaited.iter();
    let marks = excluding_marks(txn);
    writes
        .filter_map(|write| holder_with(engine, write.record, marks | SHARED))
        .chain(reads.filter_map(|(record, _)| holder_with(engine, *record, marks)))
        .chain(awaited.filter_map(|record| holder_with(engine, *record, STAGED | STAGING)))
        .chain(missing_holder(engine, txn))
        .chain(scanned_holder(engine, txn))
        .chain(ranges.filter_map(|write| holds.range_holder(write.record.key(), None)))
        .min_by_key(|holder| (holder.age, holder.id))
}

/// Returns the marks of records that a transaction cannot read. Others meet a passing hold only for a moment.
fn excluding_marks(txn: &TransactionState) -> u64 {
    match txn.needs_applied {
        true => HELD | STAGING | STAGED,
        false => HELD,
    }
}

/// Returns the holder of a record whose word has one of these marks.
fn holder_with(engine: &Engine, record: RecordRef, marks: u64) -> Option<Holder> {
    let held = record.word().load().has(marks);
    held.then(|| engine.holds.holder(record)).flatten()
}

/// Returns the transaction that is about to write one of the keys that had no record.
fn missing_holder(engine: &Engine, txn: &TransactionState) -> Option<Holder> {
    let index = &engine.index;
    txn.missing_keys().find_map(|key| {
        let record = index.get(index.hash(key), key)?;
        holder_with(engine, record, excluding_marks(txn))
    })
}

/// Returns a transaction that is about to write in one of the ranges that were read.
fn scanned_holder(engine: &Engine, txn: &TransactionState) -> Option<Holder> {
    let mut found = None;
    for scan in &txn.scans {
        engine.index.range(&scan.from, Some(&scan.to), |record| {
            found = holder_with(engine, record, excluding_marks(txn));
            found.is_none()
        });
    }
    found
}
