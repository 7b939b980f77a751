//! Commands on sorted sets.

use base::double::format_double;
use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::number::parse_int;
use base::transaction::{CallError, Kind, OpError, Reply, ValueCall};
use fastrand::Rng;

use super::sorted_additions::{zadd, zincrby};
use super::sorted_ranges::{
    zcount, zlexcount, zrange, zrangebylex, zrangebyscore, zremrangebylex, zremrangebyrank,
    zremrangebyscore, zrevrange, zrevrangebylex, zrevrangebyscore,
};
use super::sorted_replies::{changed, members_reply, push_member, reply_of, view_of};
use crate::arguments::{is, random_count};
use crate::call::{CallArguments, CallOutcome, StoredValue, W, calls, data_of};
use crate::random::{add_random, drawn};
use crate::scan::{self, ElementsPage, ElementsRequest};
use crate::sorted_set::{ScoredMember, SortedSetEditor};

calls! {
    ZCARD = 768 => zcard;
    ZSCORE = 769 => zscore;
    ZMSCORE = 770 => zmscore;
    ZRANK = 771 => zrank;
    ZREVRANK = 772 => zrevrank;
    ZCOUNT = 773 => zcount;
    ZLEXCOUNT = 774 => zlexcount;
    ZRANGE = 775 => zrange;
    ZREVRANGE = 776 => zrevrange;
    ZRANGEBYSCORE = 777 => zrangebyscore;
    ZREVRANGEBYSCORE = 778 => zrevrangebyscore;
    ZRANGEBYLEX = 779 => zrangebylex;
    ZREVRANGEBYLEX = 780 => zrevrangebylex;
    ZSCAN = 781 => zscan;
    ZRANDMEMBER = 782 | ValueCall::RANDOM => zrandmember;
    ZADD = 783 | W => zadd;
    ZINCRBY = 784 | W => zincrby;
    ZREM = 785 | W => zrem;
    ZREMRANGEBYRANK = 786 | W => zremrangebyrank;
    ZREMRANGEBYSCORE = 787 | W => zremrangebyscore;
    ZREMRANGEBYLEX = 788 | W => zremrangebylex;
    ZPOPMIN = 789 | W => zpopmin;
    ZPOPMAX = 790 | W => zpopmax;
}

/// `ZREM key member [member …]`.
fn zrem<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut set = SortedSetEditor::new(data_of(value, Kind::SortedSet)?);
    let removed = call.args.iter().filter(|member| set.remove(member)).count();
    Ok(changed(
        Reply::Int(removed as i64),
        KeyEvent::SortedRemove,
        set,
    ))
}

/// `ZCARD key`.
fn zcard<'v>(
    _: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    Ok(CallOutcome::unchanged(Reply::Int(
        view_of(value)?.len() as i64
    )))
}

/// `ZSCORE key member`.
fn zscore<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let set = view_of(value)?;
    let found = call.args.first().and_then(|member| set.find(member));
    let reply = found.map_or(Reply::Nil, |(_, score)| reply_of(NestedItem::Double(score)));
    Ok(CallOutcome::unchanged(reply))
}

/// `ZMSCORE key member [member …]`.
fn zmscore<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let set = view_of(value)?;
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(call.args.len()));
    for member in call.args {
        let score = set.find(member).map(|(_, score)| score);
        reply.push(score.map_or(NestedItem::Nil, NestedItem::Double));
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `ZRANK key member [WITHSCORE]`.
fn zrank<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    rank(call, value, |rank, _| rank)
}

/// `ZREVRANK key member [WITHSCORE]`.
fn zrevrank<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    rank(call, value, |rank, len| len - 1 - rank)
}

fn rank<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
    shown: fn(usize, usize) -> usize,
) -> Result<CallOutcome<'v>, OpError> {
    let (member, with_score) = match *call.args {
        [member] => (member, false),
        [member, option] if option.eq_ignore_ascii_case(b"withscore") => (member, true),
        [_, _] => return Err(OpError::Call(CallError::Syntax)),
        _ => return Err(OpError::Call(CallError::Arity)),
    };
    let set = view_of(value)?;
    let reply = match (set.find(member), with_score) {
        (None, false) => Reply::Nil,
        (None, true) => reply_of(NestedItem::NilArray),
        (Some((rank, _)), false) => Reply::Int(shown(rank, set.len()) as i64),
        (Some((rank, score)), true) => {
            let mut reply = NestedReply::default();
            reply.push(NestedItem::Array(2));
            reply.push(NestedItem::Int(shown(rank, set.len()) as i64));
            reply.push(NestedItem::Double(score));
            Reply::Nested(reply)
        }
    };
    Ok(CallOutcome::unchanged(reply))
}

/// `ZPOPMIN key [count]`.
fn zpopmin<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    pop(call, value, false)
}

/// `ZPOPMAX key [count]`.
fn zpopmax<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    pop(call, value, true)
}

fn pop<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
    from_end: bool,
) -> Result<CallOutcome<'v>, OpError> {
    let count = match *call.args {
        [] => None,
        [count] => {
            let count = parse_int(count).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(OpError::Call(CallError::NotPositive))?)
        }
        _ => return Err(OpError::Call(CallError::Syntax)),
    };
    let mut set = SortedSetEditor::new(data_of(value, Kind::SortedSet)?);
    let popped = set.view().len().min(count.unwrap_or(1));
    let mut reply = match count {
        Some(_) => members_reply(popped, true),
        None => members_reply(2 * popped, false),
    };
    take(&mut set, popped, from_end, |own| {
        push_member(&mut reply, own, true)
    });
    Ok(changed(Reply::Nested(reply), pop_event(from_end), set))
}

/// Returns the event of removing the members with the least or the greatest scores.
fn pop_event(from_end: bool) -> KeyEvent {
    match from_end {
        true => KeyEvent::SortedPopMax,
        false => KeyEvent::SortedPopMin,
    }
}

/// Removes members with the least or the greatest scores.
fn take(
    set: &mut SortedSetEditor<'_>,
    count: usize,
    from_end: bool,
    each: impl FnMut(ScoredMember<'_>),
) {
    let len = set.view().len();
    let ranks = match from_end {
        true => len - count..len,
        false => 0..count,
    };
    set.view().for_each(ranks.clone(), from_end, each);
    set.remove_range(ranks);
}

/// `ZRANDMEMBER key [count [WITHSCORES]]`.
fn zrandmember<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let (count, with_scores) = match *call.args {
        [] => {
            let set = view_of(value)?;
            let position = Rng::with_seed(call.seed).usize(..set.len().max(1));
            let drawn = set.iter().nth(position);
            let reply = drawn.map_or(Reply::Nil, |own| Reply::Bytes(own.member));
            return Ok(CallOutcome::unchanged(reply));
        }
        [count] => (count, false),
        [count, option] if is(option, "withscores") => (count, true),
        _ => return Err(OpError::Call(CallError::Syntax)),
    };
    let count = random_count(count)?;
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OpError::Call(CallError::OutOfRange));
    }
    let mut members: Vec<ScoredMember<'v>> = view_of(value)?.iter().collect();
    // As in Redis, all of them come backwards.
    members.reverse();
    let mut reply = members_reply(drawn(count, members.len())?, with_scores);
    add_random(&mut reply, (&members, count, call.seed), |own, reply| {
        push_member(reply, *own, with_scores);
    })?;
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `ZSCAN key cursor [MATCH pattern] [COUNT count]`.
fn zscan<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    scan::cursor(call.args)?;
    let is_there = value.is_some();
    let set = view_of(value)?;
    let page = match is_there {
        false => ElementsPage::empty(),
        true => {
            let request = ElementsRequest::parse(call.args, false)?;
            match set.tree_by_member() {
                Some(tree) => {
                    request.tree_page(tree, |key, score| Some(ScoredMember::new(key, score)))
                }
                None => {
                    let names = set.iter().map(|own| (own.member, &b""[..]));
                    request.page(set.iter(), scan::is_small(names), |own| own.member)
                }
            }
        }
    };
    let mut reply = page.reply(2 * page.elements.len());
    for own in &page.elements {
        reply.bytes(own.member);
        push_score_text(&mut reply, own.score);
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// Appends a score as a string. Integers of up to 62 bits have no exponent.
fn push_score_text(reply: &mut NestedReply, score: f64) {
    match score.trunc() == score && score.abs() <= (i64::MAX / 2) as f64 {
        true => reply.bytes((score as i64).to_string().as_bytes()),
        false => reply.bytes(format_double(score).as_bytes()),
    }
}
