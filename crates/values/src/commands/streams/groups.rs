//! Commands on consumer groups: `XGROUP`.

use base::key_event::KeyEvent;
use base::transaction::{CallError, OpError, Reply};

use super::replies::{Executed, bytes_of, edited, edited_group, failed, integer, is};
use crate::call::{CallArguments, CallOutcome, StoredValue};
use crate::stream::{ConsumerGroup, EntryId, StreamEditor, StreamView};

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

/// Returns the bytes of a stream, which must be there.
fn existing(value: Option<StoredValue<'_>>) -> Result<&[u8], OpError> {
    bytes_of(value)?.ok_or(failed(CallError::GroupNeedsKey))
}

/// Returns a group of a stream, which must have it.
fn existing_group<'v>(bytes: &'v [u8], name: &[u8]) -> Result<ConsumerGroup<'v>, OpError> {
    let group = StreamView::new(bytes).group(name).map_err(failed)?;
    group.ok_or(failed(CallError::NoGroup))
}

/// `XGROUP CREATE key group id | $ [MKSTREAM] [ENTRIESREAD count]`.
pub(super) fn create<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, id, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let given = options.len();
    let options = GroupOptions::parse(options, true)?;
    let bytes = match options.makes_key {
        true => bytes_of(value)?.unwrap_or_default(),
        false => existing(value)?,
    };
    let stream = StreamView::new(bytes);
    if given > 3 {
        return Err(failed(CallError::SubcommandSyntax));
    }
    let last_id = match *id {
        b"$" => stream.last_id(),
        id => EntryId::parse(id).map_err(failed)?,
    };
    if stream.group(name).map_err(failed)?.is_some() {
        return Err(failed(CallError::BusyGroup));
    }
    let group = ConsumerGroup {
        entries_read: options.entries_read,
        ..ConsumerGroup::new(name, last_id)
    };
    let mut stream = StreamEditor::new(bytes);
    stream.put_group(&group);
    Ok(edited(Reply::Ok, stream, &[KeyEvent::GroupCreate]))
}

/// `XGROUP SETID key group id | $ [ENTRIESREAD count]`.
pub(super) fn set_id<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, id, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let given = options.len();
    let options = GroupOptions::parse(options, false)?;
    let bytes = existing(value)?;
    let group = existing_group(bytes, name)?;
    if given > 2 {
        return Err(failed(CallError::SubcommandSyntax));
    }
    let last_id = match *id {
        b"$" => StreamView::new(bytes).last_id(),
        id => EntryId::parse_or_end(id).map_err(failed)?,
    };
    let mut stream = StreamEditor::new(bytes);
    stream.put_group(&ConsumerGroup {
        last_id,
        entries_read: options.entries_read,
        ..group
    });
    Ok(edited(Reply::Ok, stream, &[KeyEvent::GroupSetId]))
}

/// `XGROUP DESTROY key group`.
pub(super) fn destroy<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let bytes = existing(value)?;
    let mut stream = StreamEditor::new(bytes);
    let removed = stream.remove_group(name);
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
    let bytes = existing(value)?;
    let mut group = existing_group(bytes, name)?;
    let (_, created) = group.consumer_or_new(consumer, call.time_ms);
    Ok(edited_group(
        Reply::Int(created.into()),
        Some(bytes),
        &group,
        created,
    ))
}

/// `XGROUP DELCONSUMER key group consumer`.
pub(super) fn delete_consumer<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    let [name, consumer] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let bytes = existing(value)?;
    let mut group = existing_group(bytes, name)?;
    let Some(pending) = group.remove_consumer(consumer) else {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    };
    let mut stream = StreamEditor::new(bytes);
    stream.put_group(&group);
    let reply = Reply::Int(pending as i64);
    Ok(edited(reply, stream, &[KeyEvent::ConsumerDelete]))
}
