//! Commands on collections (crate `values`), executed on the value of a key.

use base::Reply;
use base::transaction::{Expiry, Kind, OpError, ValueCall};
use values::{CallContext, StoredValue, ValueChange};

use crate::deadlines::deadline_of;
use crate::lookaside::KeyHash;
use crate::record::VersionContent;
use crate::strings::check_limits;
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;

/// Executes a command. The outer error ends the transaction, the inner one is the reply.
pub(crate) fn execute(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    call: &ValueCall<'_>,
) -> Result<Result<Reply<'static>, OpError>, TransactionError> {
    let view = txn.read(&thread.engine, hash, key);
    let stored = view.live.map(|version| StoredValue {
        kind: version.kind(),
        bytes: version.value(),
    });
    let context = CallContext {
        time_ms: txn.time_ms,
    };
    let outcome = match values::execute(call, stored, context) {
        Ok(outcome) => outcome,
        Err(error) => return Ok(Err(error)),
    };
    match outcome.change {
        ValueChange::None => return Ok(Ok(outcome.reply)),
        ValueChange::Set(kind, bytes) => {
            if let Err(error) = check_limits(&thread.limits, key, bytes.len()) {
                return Ok(Err(error));
            }
            let content = VersionContent {
                parts: &[&bytes],
                kind,
                deadline: view.deadline(),
            };
            txn.write(thread, hash, key, Some(content));
        }
        ValueChange::Delete => {
            txn.write(thread, hash, key, None);
        }
    }
    if thread.engine.listening.is_on() {
        let events = outcome.events.iter();
        events.for_each(|event| txn.note_event(key, *event));
    }
    Ok(Ok(outcome.reply))
}

/// Sets the value of a key, of any type.
pub(crate) fn put(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    (kind, value, expiry): (Kind, &[u8], Expiry),
) -> Result<Reply<'static>, OpError> {
    check_limits(&thread.limits, key, value.len())?;
    let kept = match expiry {
        Expiry::Keep => txn.read(&thread.engine, hash, key).deadline(),
        _ => None,
    };
    let deadline = deadline_of(thread, txn, expiry, kept)?;
    let content = VersionContent {
        parts: &[value],
        kind,
        deadline,
    };
    let content = (!txn.has_passed(deadline)).then_some(content);
    txn.write(thread, hash, key, content);
    Ok(Reply::Ok)
}
