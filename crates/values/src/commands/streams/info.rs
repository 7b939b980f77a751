//! Commands that describe streams, groups and consumers: `XINFO`.

use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, OpError, Reply};

use super::replies::{Executed, failed, integer, is, push_entries, push_entry, push_id, stream_of};
use crate::call::{CallArguments, CallOutcome, StoredValue};
use crate::stream::{
    EntryId, GroupConsumer, GroupView, PendingEntry, StreamEntry, StreamExtent, StreamView,
};

/// The most entries that `FULL` shows if its call does not say so.
const USUAL_COUNT: usize = 10;
/// The length of the keys of Redis's tree of nodes, in bytes.
const KEY: usize = 16;

fn existing(value: Option<StoredValue<'_>>) -> Result<StreamView<'_>, OpError> {
    stream_of(value)?.ok_or(failed(CallError::NoSuchKey))
}

/// `XINFO STREAM key [FULL [COUNT count]]`.
pub(super) fn stream<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let stream = existing(value)?;
    let full = match *call.args {
        [] => None,
        [full] if is(full, "full") => Some(USUAL_COUNT),
        [full, word, count] if is(full, "full") && is(word, "count") => {
            let count = usize::try_from(integer(count)?).unwrap_or(USUAL_COUNT);
            Some(if count == 0 { usize::MAX } else { count })
        }
        _ => return Err(failed(CallError::SubcommandSyntax)),
    };
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Map(if full.is_some() { 9 } else { 10 }));
    let firsts: Vec<[u8; KEY]> = stream
        .nodes()
        .map(|node| node.first_id.to_bytes())
        .collect();
    push_number(&mut reply, "length", stream.len());
    push_number(&mut reply, "radix-tree-keys", firsts.len());
    push_number(&mut reply, "radix-tree-nodes", tree_nodes(&firsts, 0));
    push_named_id(&mut reply, "last-generated-id", stream.last_id());
    push_named_id(&mut reply, "max-deleted-entry-id", stream.deleted_id());
    push_number(&mut reply, "entries-added", stream.added() as usize);
    push_named_id(&mut reply, "recorded-first-entry-id", stream.first_id());
    match full {
        Some(count) => push_contents(&mut reply, stream, count),
        None => {
            push_number(&mut reply, "groups", stream.group_count());
            for (name, entry) in [
                ("first-entry", stream.first()),
                ("last-entry", stream.last()),
            ] {
                reply.bytes(name.as_bytes());
                match entry {
                    Some(entry) => push_entry(&mut reply, entry),
                    None => reply.push(NestedItem::Nil),
                }
            }
        }
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// Returns the number of nodes that Redis's radix tree has for these keys, which are in their order and agree in
/// their first bytes: a run of bytes that all keys share is one node, and so are a fork and an end.
fn tree_nodes(keys: &[[u8; KEY]], shared: usize) -> usize {
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
        return 1;
    };
    let differs = (shared..KEY).find(|&at| first[at] != last[at]);
    let fork = differs.unwrap_or(KEY);
    let run = usize::from(fork > shared);
    if fork == KEY {
        return run + 1;
    }
    let branches = keys.chunk_by(|a, b| a[fork] == b[fork]);
    run + 1
        + branches
            .map(|keys| tree_nodes(keys, fork + 1))
            .sum::<usize>()
}

fn push_number(reply: &mut NestedReply, name: &str, number: usize) {
    reply.bytes(name.as_bytes());
    reply.push(NestedItem::Int(number as i64));
}

fn push_named_id(reply: &mut NestedReply, name: &str, id: EntryId) {
    reply.bytes(name.as_bytes());
    push_id(reply, id);
}

fn push_number_or_nil(reply: &mut NestedReply, name: &str, number: Option<i64>) {
    reply.bytes(name.as_bytes());
    reply.push(number.map_or(NestedItem::Nil, NestedItem::Int));
}

/// Adds what `FULL` shows: at most `count` entries, and as many pending ones of each group and consumer.
fn push_contents(reply: &mut NestedReply, stream: StreamView<'_>, count: usize) {
    let entries = stream.range(EntryId::MIN, EntryId::MAX).take(count);
    let entries: Vec<StreamEntry<'_>> = entries.collect();
    reply.bytes(b"entries");
    push_entries(reply, &entries);
    let groups: Vec<GroupView<'_>> = stream.groups().collect();
    let extent = stream.extent();
    reply.bytes(b"groups");
    reply.push(NestedItem::Array(groups.len()));
    for group in &groups {
        reply.push(NestedItem::Map(7));
        reply.bytes(b"name");
        reply.bytes(group.name());
        push_position(reply, extent, group);
        push_number(reply, "pel-count", group.pending_count());
        let pending: Vec<_> = group.pending_from(EntryId::MIN).take(count).collect();
        reply.bytes(b"pending");
        reply.push(NestedItem::Array(pending.len()));
        for entry in pending {
            reply.push(NestedItem::Array(4));
            push_id(reply, entry.id);
            reply.bytes(group.consumer_name(entry.consumer));
            push_delivery(reply, entry);
        }
        reply.bytes(b"consumers");
        reply.push(NestedItem::Array(group.consumer_count()));
        for consumer in group.consumers() {
            push_consumer(reply, group, consumer, count);
        }
    }
}

/// Adds a consumer with at most `count` of its pending entries.
fn push_consumer(
    reply: &mut NestedReply,
    group: &GroupView<'_>,
    (key, consumer): (usize, GroupConsumer),
    count: usize,
) {
    let pending = group.pending_count_of(key);
    reply.push(NestedItem::Map(5));
    reply.bytes(b"name");
    reply.bytes(&consumer.name);
    push_number(reply, "seen-time", consumer.seen_ms as usize);
    let active = consumer.active_ms.map_or(-1, |ms| ms as i64);
    push_number_or_nil(reply, "active-time", Some(active));
    push_number(reply, "pel-count", pending);
    reply.bytes(b"pending");
    reply.push(NestedItem::Array(pending.min(count)));
    for entry in group.pending_of(key, EntryId::MIN).take(count) {
        reply.push(NestedItem::Array(3));
        push_id(reply, entry.id);
        push_delivery(reply, entry);
    }
}

fn push_delivery(reply: &mut NestedReply, entry: PendingEntry) {
    reply.push(NestedItem::Int(entry.delivered_ms as i64));
    reply.push(NestedItem::Int(entry.deliveries as i64));
}

/// Adds how far a group has read.
fn push_position(reply: &mut NestedReply, stream: StreamExtent, group: &GroupView<'_>) {
    let position = group.position();
    push_named_id(reply, "last-delivered-id", position.last_id);
    let read = position.entries_read.map(|read| read as i64);
    push_number_or_nil(reply, "entries-read", read);
    push_number_or_nil(reply, "lag", stream.lag(position));
}

/// `XINFO GROUPS key`.
pub(super) fn groups<'v>(_: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let stream = existing(value)?;
    let groups: Vec<GroupView<'_>> = stream.groups().collect();
    let extent = stream.extent();
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(groups.len()));
    for group in &groups {
        reply.push(NestedItem::Map(6));
        reply.bytes(b"name");
        reply.bytes(group.name());
        push_number(&mut reply, "consumers", group.consumer_count());
        push_number(&mut reply, "pending", group.pending_count());
        push_position(&mut reply, extent, group);
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `XINFO CONSUMERS key group`.
pub(super) fn consumers<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    let [name] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let group = existing(value)?.group(name).map_err(failed)?;
    let group = group.ok_or(failed(CallError::NoGroup))?;
    let since = |ms: u64| call.time_ms.saturating_sub(ms) as usize;
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(group.consumer_count()));
    for (key, consumer) in group.consumers() {
        reply.push(NestedItem::Map(4));
        reply.bytes(b"name");
        reply.bytes(&consumer.name);
        push_number(&mut reply, "pending", group.pending_count_of(key));
        push_number(&mut reply, "idle", since(consumer.seen_ms));
        let inactive = consumer.active_ms.map_or(-1, |ms| since(ms) as i64);
        push_number_or_nil(&mut reply, "inactive", Some(inactive));
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}
