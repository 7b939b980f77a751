//! Operations that write strings, and the limits of keys and values.

use std::ops::Range;

use base::database;
use base::limits::Limits;
use base::number::{add_decimal as sum_of_decimals, parse_int};
use base::transaction::{Expiry, Kind, OpError, When};
use base::{Op, Reply};

use crate::access::KeyView;
use crate::deadlines::deadline_of;
use crate::log::Edit;
use crate::lookaside::KeyHash;
use crate::record::{VersionContent, VersionRef};
use crate::system_record::is_reserved;
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;

/// A change of a part of a value is logged as that part if the log becomes shorter by this many bytes.
/// Below that, the additional work of a recovery would outweigh the saving.
const EDIT_SAVES: usize = 4096;

/// Executes an operation that sets a value or a part of one.
#[inline]
pub(crate) fn execute(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    op: &Op<'_>,
    hash: KeyHash,
) -> Result<Reply<'static>, OpError> {
    match *op {
        Op::Put {
            key,
            value,
            when,
            expiry,
            get,
        } => set(thread, txn, (hash, key), value, (when, expiry, get)),
        Op::Append { key, value } => {
            let view = txn.read(&thread.engine, hash, key);
            let old = view.string()?.unwrap_or(b"");
            let new = old.len()..old.len() + value.len();
            edit(thread, txn, (hash, key), view, new, &[old, value])?;
            Ok(int(old.len() + value.len()))
        }
        Op::SetRange { key, offset, value } => {
            let view = txn.read(&thread.engine, hash, key);
            let old = view.string()?.unwrap_or(b"");
            if value.is_empty() {
                return Ok(int(old.len()));
            }
            let end = offset.checked_add(value.len()).ok_or(OpError::TooLong)?;
            if end > thread.limits.value {
                return Err(OpError::TooLong);
            }
            let head = &old[..old.len().min(offset)];
            let gap = vec![0; offset - head.len()];
            let tail = old.get(end..).unwrap_or(b"");
            let parts = [head, &gap, value, tail];
            edit(thread, txn, (hash, key), view, offset..end, &parts)?;
            Ok(int(end.max(old.len())))
        }
        Op::Add { key, delta } => add(thread, txn, (hash, key), delta),
        Op::AddDecimal { key, delta } => add_decimal(thread, txn, (hash, key), delta),
        _ => unreachable!("not a setting operation"),
    }
}

/// Sets the value of a key, under conditions; see [`Op::Put`].
pub(crate) fn set(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    value: &[u8],
    (when, expiry, get): (When, Expiry, bool),
) -> Result<Reply<'static>, OpError> {
    let blind = when == When::Always && expiry != Expiry::Keep && !get;
    let view = if blind {
        None
    } else {
        Some(txn.read(&thread.engine, hash, key))
    };
    let old = match view {
        Some(view) if get => view.string()?,
        _ => None,
    };
    let exists = view.is_some_and(|view| view.live.is_some());
    let holds = match when {
        When::Always => true,
        When::Absent => !exists,
        When::Present => exists,
    };
    if holds {
        let kept = view.and_then(KeyView::deadline);
        let deadline = deadline_of(thread, txn, expiry, kept)?;
        if txn.has_passed(deadline) {
            check_limits(&thread.limits, key, value.len())?;
            txn.write(thread, hash, key, None);
        } else {
            put(thread, txn, (hash, key), &[value], deadline)?;
        }
    }
    Ok(match (get, holds) {
        (true, _) => bytes_or_nil(old),
        (false, true) => Reply::Ok,
        (false, false) => Reply::Nil,
    })
}

/// Refuses keys and values that are too long, and keys that are the engine's own.
#[inline]
pub(crate) fn check_limits(limits: &Limits, key: &[u8], value_len: usize) -> Result<(), OpError> {
    if value_len > limits.value {
        return Err(OpError::TooLong);
    }
    let key_len = match database::may_be_qualified(key) {
        false => key.len(),
        true => client_key_length(key)?,
    };
    if key_len > limits.key {
        return Err(OpError::TooLong);
    }
    Ok(())
}

#[cold]
fn client_key_length(key: &[u8]) -> Result<usize, OpError> {
    match database::split(key) {
        None if is_reserved(key) => Err(OpError::Reserved),
        Some((0, _)) => Err(OpError::Reserved),
        None => Ok(key.len()),
        Some((_, key)) => Ok(key.len()),
    }
}

#[inline]
fn put(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    parts: &[&[u8]],
    deadline: Option<u64>,
) -> Result<VersionRef, OpError> {
    let len = parts.iter().map(|part| part.len()).sum();
    check_limits(&thread.limits, key, len)?;
    let content = VersionContent {
        parts,
        kind: Kind::String,
        deadline,
    };
    Ok(txn.write(thread, hash, key, Some(content)))
}

/// Writes `parts`, one behind the other. They are the value of `view` but for the bytes `new`, and for
/// zeros between its end and those.
fn edit(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    view: KeyView,
    new: Range<usize>,
    parts: &[&[u8]],
) -> Result<(), OpError> {
    let writes = txn.writes.len();
    let version = put(thread, txn, (hash, key), parts, view.deadline())?;
    // The transaction's own earlier writes are in no log.
    let is_first = txn.writes.len() > writes;
    let saves = version.value().len() - new.len() >= EDIT_SAVES;
    if is_first && saves && view.live.is_some() && version.origin().is_none() {
        txn.edits.push(Edit {
            record: txn.writes[writes].record,
            base: view.tid,
            offset: new.start,
            length: new.len(),
        });
    }
    Ok(())
}

fn add(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    delta: i64,
) -> Result<Reply<'static>, OpError> {
    let view = txn.read(&thread.engine, hash, key);
    let old = match view.string()? {
        Some(value) => parse_int(value).ok_or(OpError::NotInteger)?,
        None => 0,
    };
    let sum = old.checked_add(delta).ok_or(OpError::Overflow)?;
    let mut text = itoa::Buffer::new();
    let parts = [text.format(sum).as_bytes()];
    put(thread, txn, (hash, key), &parts, view.deadline())?;
    Ok(Reply::Int(sum))
}

fn add_decimal(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    delta: &[u8],
) -> Result<Reply<'static>, OpError> {
    let view = txn.read(&thread.engine, hash, key);
    let sum = sum_of_decimals(view.string()?.unwrap_or(b"0"), delta)?;
    let version = put(thread, txn, (hash, key), &[&sum], view.deadline())?;
    Ok(Reply::Bytes(version.value()))
}

/// Returns a number as a reply.
pub(crate) fn int(n: usize) -> Reply<'static> {
    Reply::Int(n as i64)
}

/// Returns a value as a reply.
pub(crate) fn bytes_or_nil(value: Option<&'static [u8]>) -> Reply<'static> {
    value.map_or(Reply::Nil, Reply::Bytes)
}
