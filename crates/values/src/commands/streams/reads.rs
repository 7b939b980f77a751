//! Commands that read entries.

use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, OpError, Reply};

use super::replies::{
    Executed, bytes_of, edited_group, failed, group_of, id_reply, integer, is, nil_array,
    push_entries, push_entry, push_id, stream_of,
};
use crate::call::{CallArguments, CallOutcome, StoredValue};
use crate::stream::{ConsumerGroup, EntryId, StreamEntry, StreamView};

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
struct GroupRead<'c, 'v> {
    stream: StreamView<'v>,
    group: ConsumerGroup<'v>,
    consumer: &'c [u8],
    /// The greatest id: new entries. Otherwise those of the consumer behind this one.
    after: EntryId,
    count: usize,
    no_ack: bool,
}

impl<'c, 'v> GroupRead<'c, 'v> {
    /// Parses `id count group consumer [NOACK]`.
    fn parse(args: &[&'c [u8]], bytes: Option<&'v [u8]>) -> Result<Self, OpError> {
        let [id, count, group, consumer, no_ack @ ..] = args else {
            return Err(failed(CallError::Arity));
        };
        let (stream, group) = group_of(bytes, group)?;
        let after = match *id {
            b">" => EntryId::MAX,
            b"$" => return Err(failed(CallError::LastIdInGroup)),
            b"+" => return Err(failed(CallError::LastEntryInGroup)),
            id => EntryId::parse(id).map_err(failed)?,
        };
        Ok(GroupRead {
            stream,
            group,
            consumer,
            after,
            count: count_of(count)?,
            no_ack: !no_ack.is_empty(),
        })
    }
}

/// Checks the part of `XREADGROUP` on one key.
pub(super) fn check_xreadgroup<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    GroupRead::parse(call.args, bytes_of(value)?)?;
    Ok(CallOutcome::unchanged(Reply::Ok))
}

/// The part of `XREADGROUP` on one key: `id count group consumer [NOACK]`. The answer is nil if there are no new
/// entries.
pub(super) fn xreadgroup<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    let bytes = bytes_of(value)?;
    let GroupRead {
        stream,
        mut group,
        consumer,
        after,
        count,
        no_ack,
    } = GroupRead::parse(call.args, bytes)?;
    let now_ms = call.time_ms;
    let (consumer, created) = group.consumer_or_new(consumer, now_ms);
    group.see(consumer, now_ms);
    let reply = match after.next() {
        None => {
            let entries = new_entries(stream, &mut group, count);
            if !entries.is_empty() {
                group.note_active(consumer, now_ms);
            }
            if !no_ack {
                let ids = entries.iter().map(|entry| entry.id);
                ids.for_each(|id| group.deliver(id, consumer, now_ms));
            }
            entries_or_nil(&entries)
        }
        Some(start) => history(stream, &mut group, (consumer, start, count), now_ms),
    };
    Ok(edited_group(reply, bytes, &group, created))
}

/// Returns the entries that a group has not delivered, and moves it behind them.
fn new_entries<'v>(
    stream: StreamView<'v>,
    group: &mut ConsumerGroup<'_>,
    count: usize,
) -> Vec<StreamEntry<'v>> {
    let Some(start) = group.last_id.next() else {
        return Vec::new();
    };
    let entries = stream.range(start, EntryId::MAX).take(count);
    let entries: Vec<StreamEntry<'v>> = entries.collect();
    entries
        .iter()
        .for_each(|entry| group.advance(stream, entry.id));
    entries
}

/// Delivers pending entries of a consumer again, from an id on.
fn history(
    stream: StreamView<'_>,
    group: &mut ConsumerGroup<'_>,
    (consumer, start, count): (usize, EntryId, usize),
    now_ms: u64,
) -> Reply<'static> {
    let first = group.pending_from(start);
    let own = group.pending[first..].iter_mut();
    let own = own.filter(|entry| entry.consumer == consumer).take(count);
    let (mut reply, mut shown) = (NestedReply::default(), 0);
    for pending in own {
        shown += 1;
        match stream.get(pending.id) {
            Some(entry) => {
                pending.delivered_ms = now_ms;
                pending.deliveries = pending.deliveries.saturating_add(1);
                group.changed = true;
                push_entry(&mut reply, entry);
            }
            None => {
                reply.push(NestedItem::Array(2));
                push_id(&mut reply, pending.id);
                reply.push(NestedItem::NilArray);
            }
        }
    }
    let mut all = NestedReply::default();
    all.push(NestedItem::Array(shown));
    all.append(&reply);
    Reply::Nested(all)
}
