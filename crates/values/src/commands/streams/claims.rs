//! Commands that give pending entries to other consumers: `XCLAIM`, `XAUTOCLAIM`.

use base::nested::{NestedItem, NestedReply};
use base::number::parse_int;
use base::transaction::{CallError, OpError, Reply};

use super::replies::{
    Executed, edited_group, editor_with_group, failed, integer, is, push_entry, push_id,
};
use crate::call::{CallArguments, StoredValue};
use crate::stream::{EntryId, GroupPosition, StreamEntry};
use crate::stream_editor::GroupEditor;

/// The options of `XCLAIM`.
#[derive(Default)]
struct ClaimOptions<'c> {
    ids: Vec<EntryId>,
    force: bool,
    just_id: bool,
    /// Milliseconds before now, or a time.
    idle_ms: Option<i64>,
    time_ms: Option<i64>,
    deliveries: Option<u64>,
    last_id: EntryId,
    /// The argument that is no option.
    unknown: Option<&'c [u8]>,
}

impl<'c> ClaimOptions<'c> {
    /// Parses ids, and the options behind them, up to an argument that is none.
    fn parse(args: &[&'c [u8]]) -> Result<ClaimOptions<'c>, OpError> {
        let ids = args.iter().map_while(|id| EntryId::parse(id).ok());
        let mut options = ClaimOptions {
            ids: ids.collect(),
            ..ClaimOptions::default()
        };
        let number = |arg: &[u8], error| parse_int(arg).ok_or(failed(error));
        let mut at = options.ids.len();
        while let Some(&option) = args.get(at) {
            at += 1;
            let value = args.get(at).copied();
            match value {
                _ if is(option, "force") => options.force = true,
                _ if is(option, "justid") => options.just_id = true,
                Some(value) if is(option, "idle") => {
                    options.idle_ms = Some(number(value, CallError::BadClaimIdle)?);
                    options.time_ms = None;
                    at += 1;
                }
                Some(value) if is(option, "time") => {
                    options.time_ms = Some(number(value, CallError::BadClaimTime)?);
                    options.idle_ms = None;
                    at += 1;
                }
                Some(value) if is(option, "retrycount") => {
                    let count = number(value, CallError::BadClaimRetryCount)?;
                    options.deliveries = u64::try_from(count).ok();
                    at += 1;
                }
                Some(value) if is(option, "lastid") => {
                    options.last_id = EntryId::parse(value).map_err(failed)?;
                    at += 1;
                }
                _ => {
                    options.unknown = Some(option);
                    break;
                }
            }
        }
        Ok(options)
    }

    /// Returns the time of delivery that claimed entries have.
    fn delivered_ms(&self, now_ms: u64) -> u64 {
        let now = now_ms as i64;
        let idle = self.idle_ms.map(|idle| now.wrapping_sub(idle));
        // Redis takes -1 for no time, and corrects times that cannot be.
        match idle.or(self.time_ms) {
            Some(time) if (0..=now).contains(&time) => time as u64,
            _ => now_ms,
        }
    }
}

/// Returns the argument of `XCLAIM`, among those behind the least idle time, that is no option.
#[must_use]
pub fn unknown_claim_option<'c>(args: &[&'c [u8]]) -> Option<&'c [u8]> {
    ClaimOptions::parse(args).ok()?.unknown
}

/// The entries that were claimed, as the reply has them.
#[derive(Default)]
struct ClaimedEntries {
    reply: NestedReply,
    count: usize,
}

impl ClaimedEntries {
    fn push(&mut self, entry: StreamEntry<'_>, just_id: bool) {
        match just_id {
            true => push_id(&mut self.reply, entry.id),
            false => push_entry(&mut self.reply, entry),
        }
        self.count += 1;
    }

    fn add_to(&self, reply: &mut NestedReply) {
        reply.push(NestedItem::Array(self.count));
        reply.append(&self.reply);
    }
}

fn least_idle(arg: &[u8], error: CallError) -> Result<u64, OpError> {
    let idle = parse_int(arg).ok_or(failed(error))?;
    Ok(u64::try_from(idle).unwrap_or(0))
}

/// `XCLAIM key group consumer min-idle-time id [id …] [IDLE ms] [TIME ms] [RETRYCOUNT count] [FORCE] [JUSTID]
/// [LASTID id]`.
pub(super) fn xclaim<'v>(call: CallArguments<'_>, value: Option<StoredValue<'v>>) -> Executed<'v> {
    let [name, consumer, idle, rest @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let stream = editor_with_group(value, name)?;
    let least_idle = least_idle(idle, CallError::BadClaimLeastIdle)?;
    let options = ClaimOptions::parse(rest)?;
    if options.unknown.is_some() {
        return Err(failed(CallError::UnknownClaimOption));
    }
    let now_ms = call.time_ms;
    let mut group = GroupEditor::new(stream, (name, consumer), now_ms).map_err(failed)?;
    let position = group.views().map_err(failed)?.1.position();
    if options.last_id > position.last_id {
        group.set_position(GroupPosition {
            last_id: options.last_id,
            ..position
        });
    }
    let mut claimed = ClaimedEntries::default();
    for &id in &options.ids {
        let (stream, view) = group.views().map_err(failed)?;
        let Some(entry) = stream.get(id) else {
            group.remove_pending(id);
            continue;
        };
        let deliveries = match view.pending(id) {
            Some(own) if own.idle_ms(now_ms) < least_idle => continue,
            Some(own) => own.deliveries,
            // Its first delivery.
            None if options.force => 1,
            None => continue,
        };
        claimed.push(entry, options.just_id);
        let deliveries = match options.deliveries {
            Some(deliveries) => deliveries,
            None => deliveries.saturating_add(u64::from(!options.just_id)),
        };
        group.deliver(id, (options.delivered_ms(now_ms), deliveries));
        group.note_active();
    }
    let mut reply = NestedReply::default();
    claimed.add_to(&mut reply);
    Ok(edited_group(Reply::Nested(reply), group))
}

/// How `XAUTOCLAIM` looks for entries.
struct AutoClaim {
    least_idle: u64,
    start: EntryId,
    count: usize,
    just_id: bool,
}

impl AutoClaim {
    const USUAL_COUNT: usize = 100;
    /// The most entries that are looked at for each one that may be claimed.
    const LOOKS: usize = 10;

    /// Parses `min-idle-time start [COUNT count] [JUSTID]`.
    fn parse([idle, start]: [&[u8]; 2], options: &[&[u8]]) -> Result<AutoClaim, OpError> {
        let mut claim = AutoClaim {
            least_idle: least_idle(idle, CallError::BadAutoClaimLeastIdle)?,
            start: EntryId::parse_start(start).map_err(failed)?,
            count: AutoClaim::USUAL_COUNT,
            just_id: false,
        };
        let mut at = 0;
        while let Some(option) = options.get(at) {
            match options.get(at + 1) {
                Some(count) if is(option, "count") => {
                    let count = integer(count).ok();
                    let count = count.filter(|count| (1..=i64::MAX / 16).contains(count));
                    claim.count = count.ok_or(failed(CallError::CountNotPositive))? as usize;
                    at += 1;
                }
                _ if is(option, "justid") => claim.just_id = true,
                _ => return Err(failed(CallError::Syntax)),
            }
            at += 1;
        }
        Ok(claim)
    }
}

/// `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`.
pub(super) fn xautoclaim<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Executed<'v> {
    let [name, consumer, idle, start, options @ ..] = call.args else {
        return Err(failed(CallError::Arity));
    };
    let claim = AutoClaim::parse([idle, start], options)?;
    let stream = editor_with_group(value, name)?;
    let now_ms = call.time_ms;
    let mut group = GroupEditor::new(stream, (name, consumer), now_ms).map_err(failed)?;
    let (stream, view) = group.views().map_err(failed)?;
    let (mut claimed, mut given, mut gone) = (ClaimedEntries::default(), Vec::new(), Vec::new());
    let (mut count, mut looks) = (claim.count, claim.count.saturating_mul(AutoClaim::LOOKS));
    let mut all = view.pending_from(claim.start);
    let next = loop {
        let Some(pending) = all.next() else {
            break EntryId::MIN;
        };
        if count == 0 || looks == 0 {
            break pending.id;
        }
        looks -= 1;
        match stream.get(pending.id) {
            None => gone.push(pending.id),
            Some(_) if pending.idle_ms(now_ms) < claim.least_idle => continue,
            Some(entry) => {
                let again = u64::from(!claim.just_id);
                given.push((pending.id, pending.deliveries.saturating_add(again)));
                claimed.push(entry, claim.just_id);
            }
        }
        count -= 1;
    };
    drop(all);
    for (id, deliveries) in given {
        group.deliver(id, (now_ms, deliveries));
        group.note_active();
    }
    gone.iter().for_each(|id| group.remove_pending(*id));
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(3));
    push_id(&mut reply, next);
    claimed.add_to(&mut reply);
    reply.push(NestedItem::Array(gone.len()));
    gone.iter().for_each(|id| push_id(&mut reply, *id));
    Ok(edited_group(Reply::Nested(reply), group))
}
