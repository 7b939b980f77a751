//! Validation: the check at commit that everything that the transaction has read is still so.

use base::epochs::EpochClock;
use base::planted::{self, Bug};
use base::{Epoch, Tid, TransactionId};

use crate::engine::Engine;
use crate::log::RecordWrite;
use crate::record::{RecordRef, VersionRef};
use crate::transaction::{ScanRead, TransactionState};
use crate::transaction_error::TransactionError;
use crate::word::{HELD, LOCK, STAGED, STAGING, WordValue};

/// Validates the reads of a transaction that commits in `epoch`. `own` is the write set, sorted by
/// record and locked.
#[inline]
pub(crate) fn validate(
    engine: &Engine,
    txn: &TransactionState,
    epoch: Epoch,
    own: &[RecordWrite],
) -> Result<(), TransactionError> {
    if planted::is(Bug::NoValidation) {
        return Ok(());
    }
    if !txn.awaited.is_empty() {
        return Err(TransactionError::Conflict);
    }
    let mine = |record| is_written(own, record);
    // A lone read is atomic by itself; only the generation to which it belongs must still be
    // there. But a held record may have been overwritten already from the view of other
    // partitions, and a locked one from the view of clients that order the two commits by their
    // reads.
    let alone = own.is_empty()
        && txn.reads.len() + txn.missing_count() <= 2
        && !txn
            .reads
            .last()
            .is_some_and(|(_, seen)| seen.has(HELD | LOCK));
    let reads = if alone && txn.scans.is_empty() {
        1
    } else {
        txn.reads.len()
    };
    let unchanged = |(record, seen): &(RecordRef, WordValue)| {
        is_newest(engine, *record, *seen, false)
            || (is_newest(engine, *record, *seen, true) && mine(*record))
    };
    let is_valid = txn.reads[..reads].iter().all(unchanged)
        && (alone || txn.missing_count() == 0 || still_missing(engine, txn, &mine))
        && txn
            .scans
            .iter()
            .all(|scan| scan_unchanged(engine, scan, &mine))
        && (epoch == txn.epoch || no_deadline_passed(engine, txn, epoch));
    if is_valid {
        Ok(())
    } else {
        Err(TransactionError::Conflict)
    }
}

/// Returns `true` if a read of `seen` still holds, for a transaction that has locked this record itself or (`own` is
/// `false`) has not.
#[inline]
pub(crate) fn is_newest(engine: &Engine, record: RecordRef, seen: WordValue, own: bool) -> bool {
    match record.word().load().has(STAGED) {
        false => record.word().validates(seen, own),
        true => engine.holds.is_newest_staged(record, seen, own),
    }
}

/// Returns `true` if a record is in a write set, which is sorted.
#[inline]
pub(crate) fn is_written(writes: &[RecordWrite], record: RecordRef) -> bool {
    writes
        .binary_search_by_key(&record, |write| write.record)
        .is_ok()
}

/// Returns the greatest TID of the versions of these words.
#[inline]
pub(crate) fn newest<'s>(seen: impl Iterator<Item = &'s WordValue>) -> Tid {
    seen.map(|seen| RecordRef::version(*seen).tid())
        .fold(Tid::ZERO, Tid::max)
}

fn still_missing(
    engine: &Engine,
    txn: &TransactionState,
    mine: &impl Fn(RecordRef) -> bool,
) -> bool {
    txn.missing_keys()
        .all(|key| match engine.index.get(engine.index.hash(key), key) {
            None => true,
            Some(record) => never_written(record, mine(record)),
        })
}

/// Returns `true` if a range has the same records in it. `mine` returns `true` for the records that
/// the transaction itself writes.
pub(crate) fn scan_unchanged(
    engine: &Engine,
    scan: &ScanRead,
    mine: &impl Fn(RecordRef) -> bool,
) -> bool {
    let mut expected = scan.records.iter();
    let mut same = true;
    engine.index.range(&scan.from, Some(&scan.to), |record| {
        let seen = record.word().load();
        same = if RecordRef::version(seen).is_never() && !seen.has(STAGED) {
            never_written(record, mine(record))
        } else {
            expected.next() == Some(&record)
        };
        same
    });
    same && expected.next().is_none()
}

/// Returns `true` if no deadline of a version that was read, or of a field of it, lies between the transaction's time
/// and the stamp of `epoch`, and the transaction has not answered a time that differs from that stamp.
pub(crate) fn no_deadline_passed(engine: &Engine, txn: &TransactionState, epoch: Epoch) -> bool {
    let (before, now) = (txn.time_ms, engine.epochs.stamp_ms(epoch));
    let passed = |deadline: u64| before < deadline && deadline <= now;
    let has_passed = |version: VersionRef| {
        version.deadline().is_some_and(passed)
            || version.next_field_deadline(before).is_some_and(passed)
    };
    let mut versions = txn.reads.iter().map(|(_, seen)| RecordRef::version(*seen));
    now == before || !txn.returned_time && !versions.any(has_passed)
}

/// Fails if one of the new keys lies in a range that another transaction than `except` holds. The
/// write set is locked, and the commit epoch drawn.
#[inline]
pub(crate) fn enters_no_range(
    engine: &Engine,
    writes: &[RecordWrite],
    locked: &[WordValue],
    except: Option<TransactionId>,
) -> Result<(), TransactionError> {
    let new = |seen: &WordValue| RecordRef::version(*seen).is_never();
    let holds = &engine.holds;
    if !locked.iter().any(new) || !holds.any_range() {
        return Ok(());
    }
    let mut new = writes.iter().zip(locked).filter(|(_, seen)| new(seen));
    if new.any(|(write, _)| holds.range_holder(write.record.key(), except).is_some()) {
        return Err(TransactionError::Conflict);
    }
    Ok(())
}

/// Returns `true` if the record was never written, and no transaction is about to write it.
fn never_written(record: RecordRef, own: bool) -> bool {
    let seen = record.word().load();
    let about = if planted::is(Bug::IgnoredHolds) {
        LOCK
    } else {
        LOCK | HELD | STAGING
    };
    RecordRef::version(seen).is_never() && !seen.has(STAGED) && (own || !seen.has(about))
}
