//! Commands on sets.

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::number::parse_int;
use base::transaction::{CallError, Kind, OpError, Reply};
use fastrand::Rng;

use crate::arguments::random_count;
use crate::call::{
    CallArguments, CallOutcome, RANDOM, StoredData, StoredValue, ValueChange, W, calls, data_of,
};
use crate::random::{add_random, distinct_positions, drawn, few_positions};
use crate::scan::{self, ElementsPage, ElementsRequest};
use crate::set::{SetEditor, SetView};

calls! {
    SCARD = 512 => scard;
    SISMEMBER = 513 => sismember;
    SMISMEMBER = 514 => smismember;
    SMEMBERS = 515 => smembers;
    SADD = 516 | W => sadd;
    SREM = 517 | W => srem;
    SPOP = 518 | W | RANDOM => spop;
    SRANDMEMBER = 519 | RANDOM => srandmember;
    SSCAN = 520 => sscan;
}

/// `SCARD key`.
fn scard<'v>(
    _: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let set = SetView::new(data_of(value, Kind::Set)?);
    Ok(CallOutcome::unchanged(Reply::Int(set.len() as i64)))
}

/// `SISMEMBER key member`.
fn sismember<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let set = SetView::new(data_of(value, Kind::Set)?);
    let is_member = call.args.first().is_some_and(|member| set.contains(member));
    Ok(CallOutcome::unchanged(Reply::Int(is_member.into())))
}

/// `SMISMEMBER key member [member …]`.
fn smismember<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let set = SetView::new(data_of(value, Kind::Set)?);
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(call.args.len()));
    for member in call.args {
        reply.push(NestedItem::Int(set.contains(member).into()));
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `SMEMBERS key`.
fn smembers<'v>(
    _: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let set = SetView::new(data_of(value, Kind::Set)?);
    Ok(CallOutcome::unchanged(all_members(set)))
}

/// Returns the members of a set as a reply.
fn all_members<'v>(set: SetView<'_>) -> Reply<'v> {
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Set(set.len()));
    set.iter().for_each(|member| reply.bytes(member));
    Reply::Nested(reply)
}

/// `SADD key member [member …]`.
fn sadd<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut set = SetEditor::new(data_of(value, Kind::Set)?);
    let added = call.args.iter().filter(|member| set.add(member)).count();
    Ok(outcome(Reply::Int(added as i64), KeyEvent::SetAdd, set))
}

/// `SREM key member [member …]`.
fn srem<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut set = SetEditor::new(data_of(value, Kind::Set)?);
    let removed = call.args.iter().filter(|member| set.remove(member)).count();
    Ok(outcome(
        Reply::Int(removed as i64),
        KeyEvent::SetRemove,
        set,
    ))
}

/// Returns the outcome of a command that may have changed a set.
fn outcome<'v>(reply: Reply<'v>, event: KeyEvent, set: SetEditor<'v>) -> CallOutcome<'v> {
    let is_empty = set.view().len() == 0;
    CallOutcome::changed(reply, event, (Kind::Set, set.into_changed(), is_empty))
}

/// `SPOP key [count]`.
fn spop<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut rng = Rng::with_seed(call.seed);
    let count = match call.args {
        [] => None,
        [count] => Some(count),
        _ => return Err(OpError::Call(CallError::Syntax)),
    };
    let Some(count) = count else {
        let mut set = SetEditor::new(data_of(value, Kind::Set)?);
        let members = set.view();
        if members.len() == 0 {
            return Ok(CallOutcome::unchanged(Reply::Nil));
        }
        let at = rng.usize(..members.len());
        let mut reply = NestedReply::default();
        reply.bytes(members.nth(at).unwrap_or_default());
        set.remove_at(at);
        return Ok(outcome(Reply::Nested(reply), KeyEvent::SetPop, set));
    };
    let count = parse_int(count).and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(OpError::Call(CallError::NotPositive))?;
    let mut set = SetEditor::new(data_of(value, Kind::Set)?);
    let members = set.view();
    if count == 0 || members.len() == 0 {
        return Ok(CallOutcome::unchanged(all_members(SetView::new(
            StoredData::Bytes(b""),
        ))));
    }
    if count >= members.len() {
        let mut outcome = CallOutcome::unchanged(all_members(members));
        outcome.change = ValueChange::Delete;
        outcome.events.extend([KeyEvent::SetPop, KeyEvent::Del]);
        return Ok(outcome);
    }
    let positions = distinct_positions(&mut rng, count, members.len());
    let mut removed = positions.iter().copied().peekable();
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Set(count));
    for (at, member) in members.iter().enumerate() {
        if removed.next_if_eq(&at).is_some() {
            reply.bytes(member);
        }
    }
    set.remove_all_at(&positions);
    Ok(outcome(Reply::Nested(reply), KeyEvent::SetPop, set))
}

/// `SRANDMEMBER key [count]`.
fn srandmember<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let count = match call.args {
        [] => None,
        [count] => Some(random_count(count)?),
        _ => return Err(OpError::Call(CallError::Syntax)),
    };
    let set = SetView::new(data_of(value, Kind::Set)?);
    let Some(count) = count else {
        if set.len() == 0 {
            return Ok(CallOutcome::unchanged(Reply::Nil));
        }
        let at = Rng::with_seed(call.seed).usize(..set.len());
        let member = set.nth(at).map_or(Reply::Nil, Reply::Bytes);
        return Ok(CallOutcome::unchanged(member));
    };
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(drawn(count, set.len())?));
    let few = match set {
        SetView::Packed(_) => None,
        SetView::Tree(_) => {
            let mut rng = Rng::with_seed(call.seed);
            few_positions(&mut rng, count, (set.len(), set.len()), |at| set.nth(at))
        }
    };
    match few {
        Some(members) => members.iter().for_each(|member| reply.bytes(member)),
        None => {
            let members: Vec<&[u8]> = set.iter().collect();
            add_random(&mut reply, (&members, count, call.seed), |member, reply| {
                reply.bytes(member);
            })?;
        }
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`.
fn sscan<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    scan::cursor(call.args)?;
    let is_there = value.is_some();
    let set = SetView::new(data_of(value, Kind::Set)?);
    let page = match set {
        _ if !is_there => ElementsPage::empty(),
        SetView::Tree(tree) => {
            ElementsRequest::parse(call.args, false)?.tree_page(tree, |member, _| Some(member))
        }
        SetView::Packed(_) => {
            let request = ElementsRequest::parse(call.args, false)?;
            let names = || set.iter().map(|member| (member, &b""[..]));
            let is_small = set.is_of_integers() || scan::is_small(names());
            request.page(set.iter(), is_small, |member| member)
        }
    };
    let mut reply = page.reply(page.elements.len());
    page.elements.iter().for_each(|member| reply.bytes(member));
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}
