//! Commands on streams.

mod add;
mod claims;
mod groups;
mod info;
mod pending;
mod reads;

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::number::parse_int;
use base::transaction::{CallError, Kind, OpError, Reply};

use crate::call::{CallOutcome, StoredData, StoredValue, ValueChange, W, calls};
use crate::stream::{ConsumerGroup, EntryId, StreamEditor, StreamEntry, StreamView};
use add::{xadd, xdel, xsetid, xtrim};
pub use claims::unknown_claim_option;
use claims::{xautoclaim, xclaim};
use groups::{
    create as xgroup_create, create_consumer as xgroup_create_consumer,
    delete_consumer as xgroup_delete_consumer, destroy as xgroup_destroy, set_id as xgroup_set_id,
};
use info::{consumers as xinfo_consumers, groups as xinfo_groups, stream as xinfo_stream};
use pending::{xack, xpending};
use reads::{check_xreadgroup, xlen, xrange, xread, xreadgroup, xrevrange};

calls! {
    XLEN = 1024 => xlen;
    XRANGE = 1025 => xrange;
    XREVRANGE = 1026 => xrevrange;
    XREAD = 1027 => xread;
    XPENDING = 1028 => xpending;
    XINFO_STREAM = 1029 => xinfo_stream;
    XINFO_GROUPS = 1030 => xinfo_groups;
    XINFO_CONSUMERS = 1031 => xinfo_consumers;
    XADD = 1032 | W => xadd;
    XDEL = 1033 | W => xdel;
    XTRIM = 1034 | W => xtrim;
    XSETID = 1035 | W => xsetid;
    XGROUP_CREATE = 1036 | W => xgroup_create;
    XGROUP_SETID = 1037 | W => xgroup_set_id;
    XGROUP_DESTROY = 1038 | W => xgroup_destroy;
    XGROUP_CREATECONSUMER = 1039 | W => xgroup_create_consumer;
    XGROUP_DELCONSUMER = 1040 | W => xgroup_delete_consumer;
    XREADGROUP = 1041 | W => xreadgroup;
    XACK = 1042 | W => xack;
    XCLAIM = 1043 | W => xclaim;
    XAUTOCLAIM = 1044 | W => xautoclaim;
    CHECK_XREADGROUP = 1045 => check_xreadgroup;
}

/// The result of a command.
type Executed<'v> = Result<CallOutcome<'v>, OpError>;

/// Returns the bytes of a value, which must be a stream; `None`: the key is absent.
fn bytes_of(value: Option<StoredValue<'_>>) -> Result<Option<&[u8]>, OpError> {
    match value.map(|value| (value.kind, value.data)) {
        None => Ok(None),
        Some((Kind::Stream, StoredData::Bytes(bytes))) => Ok(Some(bytes)),
        Some(_) => Err(OpError::WrongType),
    }
}

/// Returns the stream of a value; `None`: the key is absent.
fn stream_of(value: Option<StoredValue<'_>>) -> Result<Option<StreamView<'_>>, OpError> {
    Ok(bytes_of(value)?.map(StreamView::new))
}

/// Returns a stream and its group with this name.
///
/// # Errors
/// [`CallError::NoKeyOrGroup`]: one of them is absent.
fn group_of<'v>(
    bytes: Option<&'v [u8]>,
    name: &[u8],
) -> Result<(StreamView<'v>, ConsumerGroup<'v>), OpError> {
    let bytes = bytes.ok_or(failed(CallError::NoKeyOrGroup))?;
    let stream = StreamView::new(bytes);
    let group = stream.group(name).map_err(failed)?;
    Ok((stream, group.ok_or(failed(CallError::NoKeyOrGroup))?))
}

fn failed(error: CallError) -> OpError {
    OpError::Call(error)
}

/// Returns the outcome of a command that may have changed the stream, with these events if it has.
fn edited<'v>(reply: Reply<'v>, stream: StreamEditor<'_>, events: &[KeyEvent]) -> CallOutcome<'v> {
    match stream.into_changed() {
        None => CallOutcome::unchanged(reply),
        Some(bytes) => CallOutcome {
            reply,
            change: ValueChange::Set(Kind::Stream, bytes),
            events: match events {
                [] => [KeyEvent::Unannounced].into_iter().collect(),
                events => events.iter().copied().collect(),
            },
        },
    }
}

/// Returns the outcome of a command that may have changed a group; `created`: one of its consumers is new.
fn edited_group<'v>(
    reply: Reply<'v>,
    bytes: Option<&[u8]>,
    group: &ConsumerGroup<'_>,
    created: bool,
) -> CallOutcome<'v> {
    let mut stream = StreamEditor::new(bytes.unwrap_or_default());
    if group.changed {
        stream.put_group(group);
    }
    let events = [KeyEvent::ConsumerCreate];
    edited(reply, stream, &events[..usize::from(created)])
}

fn integer(arg: &[u8]) -> Result<i64, OpError> {
    parse_int(arg).ok_or(OpError::NotInteger)
}

fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// Returns a reply that is an id.
fn id_reply(id: EntryId) -> Reply<'static> {
    let mut reply = NestedReply::default();
    push_id(&mut reply, id);
    Reply::Nested(reply)
}

/// Returns a reply that is no array.
fn nil_array() -> Reply<'static> {
    let mut reply = NestedReply::default();
    reply.push(NestedItem::NilArray);
    Reply::Nested(reply)
}

fn push_id(reply: &mut NestedReply, id: EntryId) {
    reply.bytes(&id.text());
}

/// Adds an entry: its id, and its fields and values.
fn push_entry(reply: &mut NestedReply, entry: StreamEntry<'_>) {
    reply.push(NestedItem::Array(2));
    push_id(reply, entry.id);
    let fields = entry.fields();
    reply.push(NestedItem::Array(fields.clone().count()));
    fields.for_each(|field| reply.bytes(field));
}

/// Adds an array of entries.
fn push_entries(reply: &mut NestedReply, entries: &[StreamEntry<'_>]) {
    reply.push(NestedItem::Array(entries.len()));
    entries.iter().for_each(|entry| push_entry(reply, *entry));
}

#[cfg(test)]
mod tests;
