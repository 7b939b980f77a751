//! The libraries of functions: a system record, whose content the engine does not know.
//!
//! A transaction over all partitions stores the libraries in each of them, with a *generation* that is
//! greater than all before. A transaction that calls a function checks in each partition that there are
//! none of a later generation than those that it uses.
//!
//! Invariants:
//! 1. The record is read and written as any record is, so that changes of the libraries are serializable
//!    with everything else.
//! 2. The generation of a partition grows: nothing deletes the record, and a flush leaves it alone.
//! 3. A partition that lacks a generation gets the next one: only a later one than expected is refused.

use base::change::SYSTEM_GENERATION;
use base::transaction::{Kind, OpError};
use base::{Abort, Reply};

use crate::engine::Engine;
use crate::record::{VersionContent, VersionRef};
use crate::system_record::{DATABASES, OTHERS};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;

/// The key of the record.
const KEY: [u8; OTHERS.len()] = {
    let mut key = OTHERS;
    key[OTHERS.len() - 1] = 1;
    key
};
const _: () = assert!(KEY[OTHERS.len() - 1] != DATABASES[OTHERS.len() - 1]);

/// Returns the value of the record: the generation, and the libraries behind it.
pub(crate) fn read<'p>(
    engine: &Engine,
    txn: &mut TransactionState,
) -> Result<Option<&'p [u8]>, TransactionError> {
    let version = txn.read_version(engine, engine.index.hash(&KEY), &KEY);
    let stored = version.filter(|version| !version.is_absent());
    Ok(stored.map(VersionRef::value))
}

/// Succeeds if the generation of the record is this one or an earlier one. `at` is the number of the operation.
pub(crate) fn check(
    engine: &Engine,
    txn: &mut TransactionState,
    at: usize,
    generation: u64,
) -> Result<Reply<'static>, TransactionError> {
    match generation_of(engine, txn)? > generation {
        true => Err(TransactionError::Abort(Abort::Precondition { op: at })),
        false => Ok(Reply::Ok),
    }
}

/// Writes the record, if its generation grows by that. `at` is the number of the operation.
pub(crate) fn set(
    thread: &ThreadContext,
    txn: &mut TransactionState,
    at: usize,
    (generation, libraries): (u64, &[u8]),
) -> Result<Reply<'static>, TransactionError> {
    let engine = &thread.engine;
    if generation_of(engine, txn)? >= generation {
        return Err(TransactionError::Abort(Abort::Precondition { op: at }));
    }
    if libraries.len() > thread.limits.value {
        return Ok(Reply::Error(OpError::TooLong));
    }
    let record = thread.record_of(&KEY);
    let content = VersionContent {
        parts: &[&generation.to_le_bytes(), libraries],
        kind: Kind::String,
        deadline: None,
    };
    let version = VersionRef::new(SYSTEM_GENERATION, Some(content), txn.origin.as_ref());
    txn.note_write(record, version);
    Ok(Reply::Ok)
}

/// Returns the generation of the record, 0 if it was never written.
fn generation_of(engine: &Engine, txn: &mut TransactionState) -> Result<u64, TransactionError> {
    let Some(value) = read(engine, txn)? else {
        return Ok(0);
    };
    let generation = value.first_chunk().copied().map(u64::from_le_bytes);
    generation.ok_or_else(|| {
        let what =
            "the libraries of functions cannot be understood: the log is damaged, or was written \
             by another version of the program"
                .to_owned();
        TransactionError::Abort(Abort::Unsupported { what })
    })
}
