//! Guards: fencing at the data; and the time as an operation's answer.
//!
//! A lock service gives out a *token* with each lock, greater than those before it. The client that
//! holds a lock guards its transactions with the token. A partition stores the greatest token that
//! it has seen of each lock, in a system record, and aborts transactions with a smaller one: another
//! client has held the lock since.
//!
//! | the token is | then |
//! |---|---|
//! | below the greatest | the transaction aborts |
//! | the greatest | it goes on, having read the record: others with the same token do not disturb it |
//! | above the greatest, or the first one | it goes on, and writes the record |
//!
//! Invariants:
//! 1. The record is read and written as any record is, so that guards are serializable with
//!    everything else: in the order of transactions the tokens of a lock do not decrease.
//! 2. The greatest token never decreases: nothing deletes the record, and a flush leaves it alone.
//!    So a refusal is final, regardless of concurrent transactions.
//!
//! The time that a transaction returns must be found again after a restart: the log has the time of
//! every write. A transaction that writes nothing else writes a record of its worker's own, so that
//! workers do not conflict there. In a driven engine the owner of the log does this (module
//! [`crate::stage`]).

use base::Abort;

use crate::record::{VersionContent, VersionRef};
use crate::system_record::{self, OTHERS};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;

/// The prefix of the keys of guards.
const GUARDS: [u8; OTHERS.len()] = [0xff; OTHERS.len()];

/// Returns the key of a lock's record.
fn key_of(lock: &[u8]) -> Vec<u8> {
    [&GUARDS, lock].concat()
}

/// Succeeds if no token above this one was seen for the lock.
pub(crate) fn guard(
    thread: &ThreadContext,
    txn: &mut TransactionState,
    lock: &[u8],
    token: u64,
) -> Result<(), TransactionError> {
    let engine = &thread.engine;
    if lock.len() > engine.limits().key.saturating_sub(GUARDS.len()) {
        let what = "the length of a lock's name";
        return Err(TransactionError::Abort(Abort::TooLarge { what }));
    }
    let key = key_of(lock);
    let hash = engine.index.hash(&key);
    let version = txn.read_version(engine, hash, &key);
    let seen = version.filter(|version| !version.is_absent());
    match seen.map(|seen| <[u8; 8]>::try_from(seen.value())) {
        Some(Ok(seen)) if u64::from_le_bytes(seen) == token => return Ok(()),
        Some(Ok(seen)) if u64::from_le_bytes(seen) > token => {
            return Err(TransactionError::Abort(Abort::Stale {
                lock: lock.to_vec(),
                token,
                highest: u64::from_le_bytes(seen),
            }));
        }
        Some(Err(_)) => {
            let lock = lock.escape_ascii();
            let what = format!(
                "the token that was seen for the lock '{lock}' cannot be understood: the log is \
                 damaged, or was written by another version of the program"
            );
            return Err(TransactionError::Abort(Abort::Unsupported { what }));
        }
        Some(Ok(_)) | None => {}
    }
    let record = thread.record_for(hash, &key);
    let content = VersionContent {
        parts: &[&token.to_le_bytes()],
        kind: base::transaction::Kind::String,
        deadline: None,
    };
    let origin = txn.origin.as_ref();
    let version = VersionRef::new(base::change::SYSTEM_GENERATION, Some(content), origin);
    txn.note_write(record, version);
    Ok(())
}

/// Returns the transaction's time, as the answer of an operation.
pub(crate) fn return_time(txn: &mut TransactionState) -> i64 {
    txn.returned_time = true;
    i64::try_from(txn.time_ms).unwrap_or(i64::MAX)
}

/// Makes the log keep the time that was returned, if it would keep nothing else of the transaction.
#[inline]
pub(crate) fn log_returned_time(thread: &ThreadContext, txn: &mut TransactionState) {
    if !txn.returned_time || !txn.writes.is_empty() || thread.engine.epochs.is_driven() {
        return;
    }
    let number = (thread.slot as u32).to_be_bytes();
    let record = thread.record_of(&[&OTHERS[..], &number].concat());
    let version = system_record::new_version(&txn.time_ms.to_le_bytes(), None);
    txn.note_write(record, version);
}
