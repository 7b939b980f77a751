//! Commands on collections (crate `values`), executed on the value of a key.

use base::Reply;
use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, Expiry, Kind, OpError, ValueCall};
use values::{CallOutcome, CollectionEditor, StoredBlock, StoredData, StoredValue, ValueChange};

use crate::access::KeyView;
use crate::deadlines::deadline_of;
use crate::lookaside::KeyHash;
use crate::record::VersionRef;
use crate::strings::check_limits;
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::version_tree::VersionTree;

/// Executes a command. The outer error ends the transaction, the inner one is the reply.
pub(crate) fn execute(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    call: &ValueCall<'_>,
) -> Result<Result<Reply<'static>, OpError>, TransactionError> {
    if let Err(error) = check_kind(thread, key, None) {
        return Ok(Err(error));
    }
    let view = txn.read(&thread.engine, hash, key);
    let tree = view
        .live
        .and_then(|version| Some((version, version.tree()?)));
    let done = match tree {
        None => {
            let stored = view.live.map(|version| StoredBlock {
                kind: version.kind(),
                bytes: version.value(),
            });
            let outcome = match values::editor_for_many(call, stored) {
                Some(editor) => execute_many(editor, call, txn.time_ms),
                None => values::execute(call, stored.map(Into::into), txn.time_ms),
            };
            outcome.and_then(|outcome| finish(thread, txn, (hash, key), view, outcome))
        }
        Some((version, tree)) if call.is_read_only() => {
            let data = StoredData::Tree(tree.view());
            let kind = version.kind();
            let outcome = values::execute(call, Some(StoredValue { kind, data }), txn.time_ms);
            outcome.map(|outcome| match tree.is_published() {
                true => outcome.reply,
                // The transaction may change the nodes later.
                false => owned(outcome.reply),
            })
        }
        Some((version, tree)) => edit(thread, txn, (hash, key), view, (version, tree), call),
    };
    Ok(done)
}

/// Executes a command with many arguments by an editor, of whose block it makes its change.
#[cold]
fn execute_many(
    mut editor: CollectionEditor,
    call: &ValueCall<'_>,
    time_ms: u64,
) -> Result<CallOutcome<'static>, OpError> {
    let kind = editor.kind();
    let data = StoredData::Editor(&mut editor);
    let outcome = values::execute(call, Some(StoredValue { kind, data }), time_ms)?;
    let mut outcome = with_own_reply(outcome);
    if outcome.change == ValueChange::Edited {
        outcome.change = ValueChange::Set(kind, editor.view().to_packed(kind));
    }
    Ok(outcome)
}

/// Executes a command that may write on a large collection.
fn edit(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    view: KeyView,
    (version, tree): (VersionRef, &'static VersionTree),
    call: &ValueCall<'_>,
) -> Result<Reply<'static>, OpError> {
    let kind = version.kind();
    if let Some(editor) = tree.editor() {
        let before = editor.allocated();
        let data = StoredData::Editor(editor);
        let outcome = values::execute(call, Some(StoredValue { kind, data }), txn.time_ms)?;
        let outcome = with_own_reply(outcome);
        let allocated = tree.editor().map_or(0, |editor| editor.allocated());
        txn.count_allocated(allocated.saturating_sub(before));
        return finish(thread, txn, (hash, key), view, outcome);
    }
    let mut editor = tree.edit();
    let data = StoredData::Editor(&mut editor);
    let outcome = values::execute(call, Some(StoredValue { kind, data }), txn.time_ms)?;
    let outcome = with_own_reply(outcome);
    if outcome.change == ValueChange::Edited {
        txn.count_allocated(editor.allocated());
        let place = (version.address(), version.tid());
        txn.write_tree(
            thread,
            (hash, key),
            tree.next(place, editor),
            (kind, view.deadline()),
        );
    }
    finish(thread, txn, (hash, key), view, outcome)
}

/// Writes the change of an outcome, and notes its events.
fn finish(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    view: KeyView,
    outcome: CallOutcome<'static>,
) -> Result<Reply<'static>, OpError> {
    match outcome.change {
        ValueChange::None => return Ok(outcome.reply),
        ValueChange::Edited => {}
        ValueChange::Set(kind, bytes) => {
            check_limits(&thread.limits, key, bytes.len())?;
            txn.write_stored(thread, (hash, key), (kind, &bytes), view.deadline());
        }
        ValueChange::Delete => {
            txn.write(thread, hash, key, None);
        }
    }
    if thread.engine.listening.is_on() {
        let events = outcome.events.iter();
        events.for_each(|event| txn.note_event(key, *event));
    }
    Ok(outcome.reply)
}

/// Refuses another type than a string for a read-atomic key. `None`: a collection.
fn check_kind(thread: &ThreadContext, key: &[u8], kind: Option<Kind>) -> Result<(), OpError> {
    match kind != Some(Kind::String) && thread.engine.read_atomic.covers(key) {
        true => Err(OpError::Call(CallError::ReadAtomic)),
        false => Ok(()),
    }
}

/// Returns an outcome whose reply borrows nothing.
fn with_own_reply(outcome: CallOutcome<'_>) -> CallOutcome<'static> {
    CallOutcome {
        reply: owned(outcome.reply),
        change: outcome.change,
        events: outcome.events,
    }
}

/// Returns a reply that borrows nothing.
fn owned(reply: Reply<'_>) -> Reply<'static> {
    match reply {
        Reply::Bytes(bytes) => {
            let mut nested = NestedReply::default();
            nested.push(NestedItem::Bytes(bytes));
            Reply::Nested(nested)
        }
        Reply::Nested(nested) => Reply::Nested(nested),
        Reply::Int(number) => Reply::Int(number),
        Reply::Ok => Reply::Ok,
        Reply::Nil => Reply::Nil,
        Reply::Error(error) => Reply::Error(error),
        other => unreachable!("no command answers {other:?}"),
    }
}

/// Sets the value of a key, of any type.
pub(crate) fn put(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    (hash, key): (KeyHash, &[u8]),
    (kind, value, expiry): (Kind, &[u8], Expiry),
) -> Result<Reply<'static>, OpError> {
    check_limits(&thread.limits, key, value.len())?;
    check_kind(thread, key, Some(kind))?;
    let kept = match expiry {
        Expiry::Keep => txn.read(&thread.engine, hash, key).deadline(),
        _ => None,
    };
    let deadline = deadline_of(thread, txn, expiry, kept)?;
    match txn.has_passed(deadline) {
        true => drop(txn.write(thread, hash, key, None)),
        false => txn.write_stored(thread, (hash, key), (kind, value), deadline),
    }
    Ok(Reply::Ok)
}
