//! Commands on consumer groups: `XGROUP`.

use base::key_event::KeyEvent;
use base::transaction::{CallError, Kind, OpError, Reply};

use super::{Executed, edited, edited_group, failed, integer, is, stream_of};
use crate::call::{Call, Outcome, StoredValue, bytes_of};
use crate::stream::{ConsumerGroup, StreamEditor, StreamId, StreamView};

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

/// Returns the stream of a value, which must be there.
fn existing(value: Option<StoredValue<'_>>) -> Result<StreamView<'_>, OpError> {
    stream_of(value)?.ok_or(failed(CallError::GroupNeedsKey))
}

/// Returns a group of the stream of a value, both of which must be there.
fn existing_group<'v>(
    value: Option<StoredValue<'v>>,
    name: &[u8],
) -> Result<(StreamView<'v>, ConsumerGroup<'v>), OpError> {
    let stream = existing(value)?;
    let group = stream.group(name).map_err(failed)?;
    Ok((stream, group.ok_or(failed(CallError::NoGroup))?))
}

/// `XGROUP CREATE key group id | $ [MKSTREAM] [ENTRIESREAD count]`.
pub(super) fn create<'v>(call: Call<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, id, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let given = options.len();
    let options = GroupOptions::parse(options, true)?;
    let stream = match options.makes_key {
        true => stream_of(value)?.unwrap_or(StreamView::new(b"")),
        false => existing(value)?,
    };
    if given > 3 {
        return Err(failed(CallError::SubcommandSyntax));
    }
    let last_id = match *id {
        b"$" => stream.last_id(),
        id => StreamId::parse(id).map_err(failed)?,
    };
    if stream.group(name).map_err(failed)?.is_some() {
        return Err(failed(CallError::BusyGroup));
    }
    let group = ConsumerGroup {
        entries_read: options.entries_read,
        ..ConsumerGroup::new(name, last_id)
    };
    let mut stream = StreamEditor::new(bytes_of(value, Kind::Stream)?);
    stream.put_group(&group);
    Ok(edited(Reply::Ok, stream, &[KeyEvent::GroupCreate]))
}

/// `XGROUP SETID key group id | $ [ENTRIESREAD count]`.
pub(super) fn set_id<'v>(call: Call<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, id, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let given = options.len();
    let options = GroupOptions::parse(options, false)?;
    let (stream, group) = existing_group(value, name)?;
    if given > 2 {
        return Err(failed(CallError::SubcommandSyntax));
    }
    let last_id = match *id {
        b"$" => stream.last_id(),
        id => StreamId::parse_or_end(id).map_err(failed)?,
    };
    let mut stream = StreamEditor::new(bytes_of(value, Kind::Stream)?);
    stream.put_group(&ConsumerGroup {
        last_id,
        entries_read: options.entries_read,
        ..group
    });
    Ok(edited(Reply::Ok, stream, &[KeyEvent::GroupSetId]))
}

/// `XGROUP DESTROY key group`.
pub(super) fn destroy<'v>(call: Call<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name] = call.args else {
        return Err(failed(CallError::Arity));
    };
    existing(value)?;
    let mut stream = StreamEditor::new(bytes_of(value, Kind::Stream)?);
    let removed = stream.remove_group(name);
    let reply = Reply::Int(removed.into());
    Ok(edited(reply, stream, &[KeyEvent::GroupDestroy]))
}

/// `XGROUP CREATECONSUMER key group consumer`.
pub(super) fn create_consumer<'v>(call: Call<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, consumer] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let (_, mut group) = existing_group(value, name)?;
    let (_, created) = group.consumer_or_new(consumer, call.time_ms);
    Ok(edited_group(
        Reply::Int(created.into()),
        value,
        &group,
        created,
    ))
}

/// `XGROUP DELCONSUMER key group consumer`.
pub(super) fn delete_consumer<'v>(call: Call<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, consumer] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let (_, mut group) = existing_group(value, name)?;
    let Some(pending) = group.remove_consumer(consumer) else {
        return Ok(Outcome::unchanged(Reply::Int(0)));
    };
    let mut stream = StreamEditor::new(bytes_of(value, Kind::Stream)?);
    stream.put_group(&group);
    let reply = Reply::Int(pending as i64);
    Ok(edited(reply, stream, &[KeyEvent::ConsumerDelete]))
}
