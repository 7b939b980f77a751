//! What commands on streams share: their values, their outcomes, and the parts of their replies.

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::number::parse_int;
use base::transaction::{CallError, Kind, OpError, Reply};

use crate::call::{CallOutcome, ChangedData, StoredData, StoredValue, ValueChange};
use crate::stream::{EntryId, GroupView, StreamEntry, StreamView};
use crate::stream_editor::{self, GroupEditor, StreamEditor};

/// The result of a command.
pub(super) type Executed<'v> = Result<CallOutcome<'v>, OpError>;

/// Returns the data of a value, which must be a stream; `None`: the key is absent.
pub(super) fn data_of(value: Option<StoredValue<'_>>) -> Result<Option<StoredData<'_>>, OpError> {
    match value {
        None => Ok(None),
        Some(value) if value.kind == Kind::Stream => Ok(Some(value.data)),
        Some(_) => Err(OpError::WrongType),
    }
}

/// Returns the stream of a value; `None`: the key is absent.
pub(super) fn stream_of(value: Option<StoredValue<'_>>) -> Result<Option<StreamView<'_>>, OpError> {
    Ok(data_of(value)?.map(stream_editor::stream_of))
}

/// Returns the editor of the stream of a value; `None`: the key is absent.
pub(super) fn editor_of(
    value: Option<StoredValue<'_>>,
) -> Result<Option<StreamEditor<'_>>, OpError> {
    Ok(data_of(value)?.map(StreamEditor::new))
}

/// Returns the editor of the stream of a value, which has a group with this name.
///
/// # Errors
/// [`CallError::NoKeyOrGroup`]: the stream or the group is absent.
pub(super) fn editor_with_group<'v>(
    value: Option<StoredValue<'v>>,
    name: &[u8],
) -> Result<StreamEditor<'v>, OpError> {
    let mut stream = editor_of(value)?.ok_or(failed(CallError::NoKeyOrGroup))?;
    match stream.with_group(name).map_err(failed)? {
        Some(_) => Ok(stream),
        None => Err(failed(CallError::NoKeyOrGroup)),
    }
}

/// Returns a stream and its group with this name.
///
/// # Errors
/// [`CallError::NoKeyOrGroup`]: one of them is absent.
pub(super) fn group_of<'v>(
    value: Option<StoredValue<'v>>,
    name: &[u8],
) -> Result<(StreamView<'v>, GroupView<'v>), OpError> {
    let stream = stream_of(value)?.ok_or(failed(CallError::NoKeyOrGroup))?;
    let group = stream.group(name).map_err(failed)?;
    Ok((stream, group.ok_or(failed(CallError::NoKeyOrGroup))?))
}

pub(super) fn failed(error: CallError) -> OpError {
    OpError::Call(error)
}

/// Returns the outcome of a command that may have changed the stream, with these events if it has.
pub(super) fn edited<'v>(
    reply: Reply<'v>,
    stream: StreamEditor<'_>,
    events: &[KeyEvent],
) -> CallOutcome<'v> {
    let Some(changed) = stream.into_changed() else {
        return CallOutcome::unchanged(reply);
    };
    CallOutcome {
        reply,
        change: match changed {
            ChangedData::Bytes(bytes) => ValueChange::Set(Kind::Stream, bytes),
            ChangedData::Edited => ValueChange::Edited,
        },
        events: match events {
            [] => [KeyEvent::Unannounced].into_iter().collect(),
            events => events.iter().copied().collect(),
        },
    }
}

/// Returns the outcome of a command of a consumer.
pub(super) fn edited_group<'v>(reply: Reply<'v>, group: GroupEditor<'_, '_>) -> CallOutcome<'v> {
    let (stream, created) = group.finish();
    let events = [KeyEvent::ConsumerCreate];
    edited(reply, stream, &events[..usize::from(created)])
}

pub(super) fn integer(arg: &[u8]) -> Result<i64, OpError> {
    parse_int(arg).ok_or(OpError::NotInteger)
}

pub(super) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// Returns a reply that is an id.
pub(super) fn id_reply(id: EntryId) -> Reply<'static> {
    let mut reply = NestedReply::default();
    push_id(&mut reply, id);
    Reply::Nested(reply)
}

/// Returns a reply that is no array.
pub(super) fn nil_array() -> Reply<'static> {
    let mut reply = NestedReply::default();
    reply.push(NestedItem::NilArray);
    Reply::Nested(reply)
}

pub(super) fn push_id(reply: &mut NestedReply, id: EntryId) {
    reply.bytes(&id.text());
}

/// Adds an entry: its id, and its fields and values.
pub(super) fn push_entry(reply: &mut NestedReply, entry: StreamEntry<'_>) {
    reply.push(NestedItem::Array(2));
    push_id(reply, entry.id);
    let fields = entry.fields();
    reply.push(NestedItem::Array(fields.clone().count()));
    fields.for_each(|field| reply.bytes(field));
}

/// Adds an array of entries.
pub(super) fn push_entries(reply: &mut NestedReply, entries: &[StreamEntry<'_>]) {
    reply.push(NestedItem::Array(entries.len()));
    entries.iter().for_each(|entry| push_entry(reply, *entry));
}
