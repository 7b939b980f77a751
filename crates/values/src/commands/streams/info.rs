//! Commands that describe streams, groups and consumers: `XINFO`.

use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, OpError, Reply};

use super::replies::{Executed, failed, integer, is, push_entries, push_entry, push_id, stream_of};
use crate::call::{CallArguments, CallOutcome, StoredValue};
use crate::stream::{ConsumerGroup, EntryId, PendingEntry, StreamEntry, StreamView};

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
    let groups: Vec<ConsumerGroup<'_>> = stream.groups().collect();
    reply.bytes(b"groups");
    reply.push(NestedItem::Array(groups.len()));
    for group in &groups {
        reply.push(NestedItem::Map(7));
        reply.bytes(b"name");
        reply.bytes(group.name);
        push_position(reply, stream, group);
        push_number(reply, "pel-count", group.pending.len());
        let pending: Vec<_> = group.pending.iter().take(count).collect();
        reply.bytes(b"pending");
        reply.push(NestedItem::Array(pending.len()));
        for entry in pending {
            reply.push(NestedItem::Array(4));
            push_id(reply, entry.id);
            let consumer = group.consumers.get(entry.consumer);
            reply.bytes(consumer.map_or(b"", |consumer| consumer.name));
            push_delivery(reply, entry);
        }
        reply.bytes(b"consumers");
        reply.push(NestedItem::Array(group.consumers.len()));
        let counts = group.pending_counts();
        (0..counts.len()).for_each(|at| push_consumer(reply, group, (at, counts[at]), count));
    }
}

/// Adds a consumer with at most `count` of its pending entries.
fn push_consumer(
    reply: &mut NestedReply,
    group: &ConsumerGroup<'_>,
    (at, pending): (usize, usize),
    count: usize,
) {
    let consumer = &group.consumers[at];
    reply.push(NestedItem::Map(5));
    reply.bytes(b"name");
    reply.bytes(consumer.name);
    push_number(reply, "seen-time", consumer.seen_ms as usize);
    let active = consumer.active_ms.map_or(-1, |ms| ms as i64);
    push_number_or_nil(reply, "active-time", Some(active));
    push_number(reply, "pel-count", pending);
    reply.bytes(b"pending");
    reply.push(NestedItem::Array(pending.min(count)));
    let own = group.pending.iter().filter(|entry| entry.consumer == at);
    for entry in own.take(count) {
        reply.push(NestedItem::Array(3));
        push_id(reply, entry.id);
        push_delivery(reply, entry);
    }
}

fn push_delivery(reply: &mut NestedReply, entry: &PendingEntry) {
    reply.push(NestedItem::Int(entry.delivered_ms as i64));
    reply.push(NestedItem::Int(entry.deliveries as i64));
}

/// Adds how far a group has read.
fn push_position(reply: &mut NestedReply, stream: StreamView<'_>, group: &ConsumerGroup<'_>) {
    push_named_id(reply, "last-delivered-id", group.last_id);
    let read = group.entries_read.map(|read| read as i64);
    push_number_or_nil(reply, "entries-read", read);
    push_number_or_nil(reply, "lag", stream.lag(group));
}

/// `XINFO GROUPS key`.
pub(super) fn groups<'v>(_: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let stream = existing(value)?;
    let groups: Vec<ConsumerGroup<'_>> = stream.groups().collect();
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(groups.len()));
    for group in &groups {
        reply.push(NestedItem::Map(6));
        reply.bytes(b"name");
        reply.bytes(group.name);
        push_number(&mut reply, "consumers", group.consumers.len());
        push_number(&mut reply, "pending", group.pending.len());
        push_position(&mut reply, stream, group);
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
    reply.push(NestedItem::Array(group.consumers.len()));
    for (consumer, pending) in group.consumers.iter().zip(group.pending_counts()) {
        reply.push(NestedItem::Map(4));
        reply.bytes(b"name");
        reply.bytes(consumer.name);
        push_number(&mut reply, "pending", pending);
        push_number(&mut reply, "idle", since(consumer.seen_ms));
        let inactive = consumer.active_ms.map_or(-1, |ms| since(ms) as i64);
        push_number_or_nil(&mut reply, "inactive", Some(inactive));
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}
