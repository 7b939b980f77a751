//! Expiry: deadlines of keys, and the operations that change nothing else.

use base::transaction::{Expiry, OpError};
use base::{Op, Reply};

use crate::lookaside::KeyHash;
use crate::record::{VersionContent, VersionRef};
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;

/// Time that stands still for longer than this has stalled: epochs last for a few milliseconds
/// otherwise. So a key's remaining time is never answered as longer than it was given.
const STALL_MS: u64 = 10;

/// Executes an operation on the deadline of a key.
pub(crate) fn execute(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    op: &Op<'_>,
    hash: KeyHash,
) -> Result<Reply<'static>, OpError> {
    let key = op.key().expect("an operation on one key");
    let view = txn.read(&thread.engine, hash, key);
    let Some(live) = view.live else {
        return Ok(if matches!(op, Op::GetExpire { .. }) {
            Reply::Nil
        } else {
            Reply::Int(0)
        });
    };
    match *op {
        Op::GetExpire { expiry, .. } => {
            let value = view.string()?.unwrap_or(b"");
            if expiry != Expiry::Keep {
                let deadline = deadline_of(thread, txn, expiry, None)?;
                // Removing an expiry that is not there changes nothing.
                if deadline.is_some() || live.deadline().is_some() {
                    set_deadline(thread, txn, (hash, key), live, deadline);
                }
            }
            Ok(Reply::Bytes(value))
        }
        Op::Expire { expiry, when, .. } => {
            let new = deadline_of(thread, txn, expiry, live.deadline())?;
            let holds = when.allows(live.deadline(), new);
            if holds {
                set_deadline(thread, txn, (hash, key), live, new);
            }
            Ok(Reply::Int(i64::from(holds)))
        }
        _ => {
            let had = live.deadline().is_some();
            if had {
                set_deadline(thread, txn, (hash, key), live, None);
            }
            Ok(Reply::Int(i64::from(had)))
        }
    }
}

/// Writes the same value with another deadline, or deletes it if that has passed.
fn set_deadline(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    live: VersionRef,
    deadline: Option<u64>,
) {
    if txn.has_passed(deadline) {
        txn.write(thread, hash, key, None);
        return;
    }
    if let Some(tree) = live.tree() {
        let tree = match tree.is_published() {
            true => tree.next((live.address(), live.tid()), tree.edit()),
            false => tree.moved(),
        };
        return txn.write_tree(thread, (hash, key), tree, (live.kind(), deadline));
    }
    let content = VersionContent {
        parts: &[live.value()],
        kind: live.kind(),
        deadline,
    };
    txn.write(thread, hash, key, Some(content));
}

/// Returns the deadline that an operation sets for a key whose deadline is `kept`.
///
/// # Errors
/// Returns [`OpError::BadExpiry`] if it is too far away to be a number.
#[inline]
pub(crate) fn deadline_of(
    thread: &ThreadContext,
    txn: &TransactionState,
    expiry: Expiry,
    kept: Option<u64>,
) -> Result<Option<u64>, OpError> {
    // A deadline that has passed at once is judged by the transaction's time.
    let now = match expiry {
        Expiry::InMs(ms) if ms > 0 => now_ms(thread, txn),
        _ => txn.time_ms,
    };
    expiry.deadline(now, kept)
}

/// Returns the time from which relative deadlines count: the transaction's time, or the clock when
/// that time stands still because an epoch or the group stalls. Where replicas execute the same
/// operations, it is always the transaction's time.
fn now_ms(thread: &ThreadContext, txn: &TransactionState) -> u64 {
    let time_ms = txn.time_ms;
    if txn.is_deterministic {
        return time_ms;
    }
    let clock_ms = thread.engine.epochs.clock_ms();
    if clock_ms > time_ms + STALL_MS {
        clock_ms
    } else {
        time_ms
    }
}
