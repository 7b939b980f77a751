//! Commands that read entries.

use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, OpError, Reply};

use super::replies::{
    Executed, edited_group, editor_with_group, failed, group_of, id_reply, integer, is, nil_array,
    push_entries, push_entry, push_id, stream_of,
};
use crate::call::{CallArguments, CallOutcome, StoredValue};
use crate::stream::{EntryId, StreamEntry, StreamView};
use crate::stream_editor::GroupEditor;

/// `XLEN key`.
pub(super) fn xlen<'v>(_: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let length = stream_of(value)?.map_or(0, StreamView::len);
    Ok(CallOutcome::unchanged(Reply::Int(length as i64)))
}

/// `XRANGE key start end [COUNT count]`.
pub(super) fn xrange<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    match call.args {
        [start, end, options @ ..] => range([start, end], options, value, false),
        _ => Err(failed(CallError::Arity)),
    }
}

/// `XREVRANGE key end start [COUNT count]`.
pub(super) fn xrevrange<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    match call.args {
        [end, start, options @ ..] => range([start, end], options, value, true),
        _ => Err(failed(CallError::Arity)),
    }
}

fn range<'v>(
    [start, end]: [&[u8]; 2],
    options: &[&[u8]],
    value: Option<StoredValue<'v>>,
    is_back: bool,
) -> Executed<'v> {
    let start = EntryId::parse_start(start).map_err(failed)?;
    let end = EntryId::parse_end(end).map_err(failed)?;
    let mut count = usize::MAX;
    let (pairs, rest) = options.as_chunks::<2>();
    for [option, value] in pairs {
        match is(option, "count") {
            true => count = usize::try_from(integer(value)?).unwrap_or(0),
            false => return Err(failed(CallError::Syntax)),
        }
    }
    if !rest.is_empty() {
        return Err(failed(CallError::Syntax));
    }
    let entries: Vec<StreamEntry<'_>> = match stream_of(value)? {
        None => Vec::new(),
        Some(_) if count == 0 => return Ok(CallOutcome::unchanged(nil_array())),
        Some(stream) if is_back => stream.range_back(start, end).take(count).collect(),
        Some(stream) => stream.range(start, end).take(count).collect(),
    };
    let mut reply = NestedReply::default();
    push_entries(&mut reply, &entries);
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// Returns the most entries that a read returns; 0 and negative numbers: all.
fn count_of(arg: &[u8]) -> Result<usize, OpError> {
    let count = usize::try_from(integer(arg)?).unwrap_or(0);
    Ok(if count == 0 { usize::MAX } else { count })
}

/// The part of `XREAD` on one key: `id count`. The answer is nil if there are no entries behind the id.
pub(super) fn xread<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [id, count] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let stream = stream_of(value)?;
    let after = match *id {
        b"$" => return Ok(CallOutcome::unchanged(Reply::Nil)),
        b"+" => stream
            .and_then(StreamView::last)
            .and_then(|last| last.id.previous()),
        b">" => return Err(failed(CallError::NewEntriesWithoutGroup)),
        id => Some(EntryId::parse(id).map_err(failed)?),
    };
    let start = after.and_then(EntryId::next);
    let (Some(stream), Some(start)) = (stream, start) else {
        return Ok(CallOutcome::unchanged(Reply::Nil));
    };
    let entries = stream.range(start, EntryId::MAX).take(count_of(count)?);
    let entries: Vec<StreamEntry<'_>> = entries.collect();
    Ok(CallOutcome::unchanged(entries_or_nil(&entries)))
}

/// The last id of a stream, which the id `$` of `XREAD` stands for. That of an absent one is the least id.
pub(super) fn last_id<'v>(_: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let stream = stream_of(value)?;
    let last = stream.map_or(EntryId::MIN, StreamView::last_id);
    Ok(CallOutcome::unchanged(id_reply(last)))
}

fn entries_or_nil(entries: &[StreamEntry<'_>]) -> Reply<'static> {
    if entries.is_empty() {
        return Reply::Nil;
    }
    let mut reply = NestedReply::default();
    push_entries(&mut reply, entries);
    Reply::Nested(reply)
}

/// What `XREADGROUP` reads of one key, and as which consumer.
struct GroupRead<'c> {
    group: &'c [u8],
    consumer: &'c [u8],
    /// The greatest id: new entries. Otherwise those of the consumer behind this one.
    after: EntryId,
    count: usize,
    no_ack: bool,
}

impl<'c> GroupRead<'c> {
    /// Parses `id count group consumer [NOACK]`. `find` looks for the group.
    fn parse<T>(
        args: &[&'c [u8]],
        find: impl FnOnce(&[u8]) -> Result<T, OpError>,
    ) -> Result<(Self, T), OpError> {
        let [id, count, group, consumer, no_ack @ ..] = args else {
            return Err(failed(CallError::Arity));
        };
        let found = find(group)?;
        let after = match *id {
            b">" => EntryId::MAX,
            b"$" => return Err(failed(CallError::LastIdInGroup)),
            b"+" => return Err(failed(CallError::LastEntryInGroup)),
            id => EntryId::parse(id).map_err(failed)?,
        };
        let read = GroupRead {
            group,
            consumer,
            after,
            count: count_of(count)?,
            no_ack: !no_ack.is_empty(),
        };
        Ok((read, found))
    }
}

/// Checks the part of `XREADGROUP` on one key.
pub(super) fn check_xreadgroup<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    GroupRead::parse(call.args, |name| group_of(value, name))?;
    Ok(CallOutcome::unchanged(Reply::Ok))
}

/// The part of `XREADGROUP` on one key: `id count group consumer [NOACK]`. The answer is nil if there are no new
/// entries.
pub(super) fn xreadgroup<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    let (read, stream) = GroupRead::parse(call.args, |name| editor_with_group(value, name))?;
    let consumer = (read.group, read.consumer);
    let mut group = GroupEditor::new(stream, consumer, call.time_ms).map_err(failed)?;
    let reply = match read.after.next() {
        None => new_entries(&mut group, &read, call.time_ms),
        Some(start) => history(&mut group, &read, start, call.time_ms),
    };
    Ok(edited_group(reply.map_err(failed)?, group))
}

/// Delivers entries that the group has not delivered, and moves it behind them.
fn new_entries(
    group: &mut GroupEditor<'_, '_>,
    read: &GroupRead<'_>,
    now_ms: u64,
) -> Result<Reply<'static>, CallError> {
    let (stream, view) = group.views()?;
    let mut position = view.position();
    let Some(start) = position.last_id.next() else {
        return Ok(Reply::Nil);
    };
    let entries = stream.range(start, EntryId::MAX).take(read.count);
    let entries: Vec<StreamEntry<'_>> = entries.collect();
    let (reply, extent) = (entries_or_nil(&entries), stream.extent());
    let ids: Vec<EntryId> = entries.iter().map(|entry| entry.id).collect();
    if ids.is_empty() {
        return Ok(reply);
    }
    ids.iter().for_each(|id| position.advance(extent, *id));
    group.set_position(position);
    if !read.no_ack {
        ids.iter().for_each(|id| group.deliver(*id, (now_ms, 1)));
    }
    group.note_active();
    Ok(reply)
}

/// Delivers pending entries of the consumer again, from an id on.
fn history(
    group: &mut GroupEditor<'_, '_>,
    read: &GroupRead<'_>,
    start: EntryId,
    now_ms: u64,
) -> Result<Reply<'static>, CallError> {
    let (stream, view) = group.views()?;
    let consumer = view.consumer(read.consumer);
    let own = consumer.map(|(key, _)| view.pending_of(key, start).take(read.count));
    let (mut entries, mut shown, mut delivered) = (NestedReply::default(), 0, Vec::new());
    for pending in own.into_iter().flatten() {
        shown += 1;
        match stream.get(pending.id) {
            Some(entry) => {
                delivered.push((pending.id, pending.deliveries.saturating_add(1)));
                push_entry(&mut entries, entry);
            }
            None => {
                entries.push(NestedItem::Array(2));
                push_id(&mut entries, pending.id);
                entries.push(NestedItem::NilArray);
            }
        }
    }
    for (id, deliveries) in delivered {
        group.deliver(id, (now_ms, deliveries));
    }
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(shown));
    reply.append(&entries);
    Ok(Reply::Nested(reply))
}
