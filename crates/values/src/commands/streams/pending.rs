//! Commands on entries that were delivered and are not acknowledged: `XACK`, `XPENDING`.

use base::nested::{NestedItem, NestedReply};
use base::transaction::{CallError, OpError, Reply};
use smallvec::SmallVec;

use super::replies::{Executed, edited, editor_of, failed, group_of, integer, is, push_id};
use crate::call::{CallArguments, CallOutcome, StoredValue};
use crate::stream::{EntryId, GroupView, PendingEntry, StreamChange};

/// `XACK key group id [id …]`.
pub(super) fn xack<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, ids @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let Some(mut stream) = editor_of(value)? else {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    };
    if stream.with_group(name).map_err(failed)?.is_none() {
        return Ok(CallOutcome::unchanged(Reply::Int(0)));
    }
    let ids = ids.iter().map(|id| EntryId::parse(id));
    let ids: SmallVec<[EntryId; 8]> = ids.collect::<Result<_, _>>().map_err(failed)?;
    let mut remove = |id| stream.apply(&StreamChange::RemovePending { group: name, id });
    let removed = ids.into_iter().filter(|id| remove(*id)).count();
    Ok(edited(Reply::Int(removed as i64), stream, &[]))
}

/// The pending entries that `XPENDING` lists.
struct PendingFilter<'c> {
    idle_ms: u64,
    start: EntryId,
    end: EntryId,
    count: usize,
    consumer: Option<&'c [u8]>,
}

impl<'c> PendingFilter<'c> {
    /// Parses `[IDLE ms] start end count [consumer]`.
    fn parse(args: &[&'c [u8]]) -> Result<PendingFilter<'c>, OpError> {
        let (idle, rest) = match *args {
            [idle, ms, ref rest @ ..] if is(idle, "idle") => (integer(ms)?, rest),
            _ => (0, args),
        };
        let [start, end, count, ref consumer @ ..] = *rest else {
            return Err(failed(CallError::Syntax));
        };
        Ok(PendingFilter {
            idle_ms: u64::try_from(idle).unwrap_or(0),
            count: usize::try_from(integer(count)?).unwrap_or(0),
            start: EntryId::parse_start(start).map_err(failed)?,
            end: EntryId::parse_end(end).map_err(failed)?,
            consumer: consumer.first().copied(),
        })
    }
}

/// `XPENDING key group [[IDLE ms] start end count [consumer]]`.
pub(super) fn xpending<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    let [name, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let filter = match options.len() {
        0 => None,
        3..=6 => Some(PendingFilter::parse(options)?),
        _ => return Err(failed(CallError::Syntax)),
    };
    let (_, group) = group_of(value, name)?;
    let reply = match filter {
        None => summary(&group),
        Some(filter) => list(&group, &filter, call.time_ms),
    };
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

fn summary(group: &GroupView<'_>) -> NestedReply {
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(4));
    reply.push(NestedItem::Int(group.pending_count() as i64));
    let first = group.pending_from(EntryId::MIN).next();
    let (Some(first), Some(last)) = (first, group.last_pending()) else {
        [NestedItem::Nil, NestedItem::Nil, NestedItem::NilArray]
            .iter()
            .for_each(|item| reply.push(*item));
        return reply;
    };
    push_id(&mut reply, first.id);
    push_id(&mut reply, last.id);
    let counts = group.consumers().into_iter();
    let counts = counts.map(|(key, consumer)| (consumer.name, group.pending_count_of(key)));
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    reply.push(NestedItem::Array(counts.len()));
    for (name, count) in counts {
        reply.push(NestedItem::Array(2));
        reply.bytes(&name);
        reply.bytes(count.to_string().as_bytes());
    }
    reply
}

fn list(group: &GroupView<'_>, filter: &PendingFilter<'_>, now_ms: u64) -> NestedReply {
    let entries = match filter.consumer.map(|name| group.consumer(name)) {
        None => group.pending_from(filter.start),
        Some(Some((key, _))) => group.pending_of(key, filter.start),
        Some(None) => Box::new(std::iter::empty()),
    };
    let entries = entries.take_while(|entry| entry.id <= filter.end);
    let entries = entries.filter(|entry| entry.idle_ms(now_ms) >= filter.idle_ms);
    let entries: Vec<PendingEntry> = entries.take(filter.count).collect();
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(entries.len()));
    for entry in entries {
        reply.push(NestedItem::Array(4));
        push_id(&mut reply, entry.id);
        reply.bytes(group.consumer_name(entry.consumer));
        reply.push(NestedItem::Int(entry.idle_ms(now_ms) as i64));
        reply.push(NestedItem::Int(entry.deliveries as i64));
    }
    reply
}
