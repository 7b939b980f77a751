//! Commands on consumer groups: `XGROUP`.

use base::key_event::KeyEvent;
use base::transaction::{CallError, OpError, Reply};

use super::replies::{Executed, data_of, edited, editor_of, failed, integer, is};
use crate::call::{CallArguments, CallOutcome, StoredData, StoredValue};
use crate::stream::{EntryId, GroupPosition, GroupView, StreamChange};
use crate::stream_editor::StreamEditor;

/// The options of `XGROUP CREATE` and `XGROUP SETID`.
#[derive(Default)]
struct GroupOptions {
    entries_read: Option<u64>,
    /// A stream that is absent is made.
    makes_key: bool,
}

impl GroupOptions {
    fn parse(args: &[&[u8]], is_create: bool) -> Result<GroupOptions, OpError> {
        let mut options = GroupOptions::default();
        let mut at = 0;
        while let Some(option) = args.get(at) {
            match args.get(at + 1) {
                _ if is_create && is(option, "mkstream") => options.makes_key = true,
                Some(count) if is(option, "entriesread") => {
                    let count = integer(count)?;
                    if count < -1 {
                        return Err(failed(CallError::BadEntriesRead));
                    }
                    options.entries_read = u64::try_from(count).ok();
                    at += 1;
                }
                _ => return Err(failed(CallError::SubcommandSyntax)),
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Returns the editor of a stream, which must be there.
fn existing(value: Option<StoredValue<'_>>) -> Result<StreamEditor<'_>, OpError> {
    editor_of(value)?.ok_or(failed(CallError::GroupNeedsKey))
}

/// Returns a group of a stream, which must have it.
fn existing_group<'s>(
    stream: &'s mut StreamEditor<'_>,
    name: &[u8],
) -> Result<GroupView<'s>, OpError> {
    let found = stream.with_group(name).map_err(failed)?;
    found
        .map(|(_, group)| group)
        .ok_or(failed(CallError::NoGroup))
}

/// `XGROUP CREATE key group id | $ [MKSTREAM] [ENTRIESREAD count]`.
pub(super) fn create<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, id, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let given = options.len();
    let options = GroupOptions::parse(options, true)?;
    let mut stream = match options.makes_key {
        true => StreamEditor::new(data_of(value)?.unwrap_or(StoredData::Bytes(b""))),
        false => existing(value)?,
    };
    if given > 3 {
        return Err(failed(CallError::SubcommandSyntax));
    }
    let last_id = match *id {
        b"$" => stream.view().last_id(),
        id => EntryId::parse(id).map_err(failed)?,
    };
    if stream.with_group(name).map_err(failed)?.is_some() {
        return Err(failed(CallError::BusyGroup));
    }
    let position = GroupPosition {
        last_id,
        entries_read: options.entries_read,
    };
    stream.apply(&StreamChange::PutGroup { name, position });
    Ok(edited(Reply::Ok, stream, &[KeyEvent::GroupCreate]))
}

/// `XGROUP SETID key group id | $ [ENTRIESREAD count]`.
pub(super) fn set_id<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, id, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let given = options.len();
    let options = GroupOptions::parse(options, false)?;
    let mut stream = existing(value)?;
    existing_group(&mut stream, name)?;
    if given > 2 {
        return Err(failed(CallError::SubcommandSyntax));
    }
    let last_id = match *id {
        b"$" => stream.view().last_id(),
        id => EntryId::parse_or_end(id).map_err(failed)?,
    };
    let position = GroupPosition {
        last_id,
        entries_read: options.entries_read,
    };
    stream.apply(&StreamChange::PutGroup { name, position });
    Ok(edited(Reply::Ok, stream, &[KeyEvent::GroupSetId]))
}

/// `XGROUP DESTROY key group`.
pub(super) fn destroy<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let mut stream = existing(value)?;
    let removed = stream.apply(&StreamChange::RemoveGroup { name });
    let reply = Reply::Int(removed.into());
    Ok(edited(reply, stream, &[KeyEvent::GroupDestroy]))
}

/// `XGROUP CREATECONSUMER key group consumer`.
pub(super) fn create_consumer<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    let [name, consumer] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let mut stream = existing(value)?;
    let group = existing_group(&mut stream, name)?;
    if group.consumer(consumer).is_some() {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    }
    stream.apply(&StreamChange::PutConsumer {
        group: name,
        name: consumer,
        seen_ms: call.time_ms,
        active_ms: None,
    });
    Ok(edited(Reply::Int(1), stream, &[KeyEvent::ConsumerCreate]))
}

/// `XGROUP DELCONSUMER key group consumer`.
pub(super) fn delete_consumer<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    let [name, consumer] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let mut stream = existing(value)?;
    let group = existing_group(&mut stream, name)?;
    let Some((key, _)) = group.consumer(consumer) else {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    };
    let pending = group.pending_count_of(key);
    stream.apply(&StreamChange::RemoveConsumer {
        group: name,
        name: consumer,
    });
    let reply = Reply::Int(pending as i64);
    Ok(edited(reply, stream, &[KeyEvent::ConsumerDelete]))
}
