//! Commands on hashes. Those on the deadlines of fields are in [`super::hash_deadlines`].

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::number::{Decimal, add_decimal, parse_decimal, parse_int};
use base::transaction::{CallError, Kind, OpError, Reply};
use fastrand::Rng;

use crate::arguments::{int, is, random_count};
use crate::call::{
    CallArguments, CallOutcome, ChangedData, RANDOM, StoredValue, ValueChange, W, calls, data_of,
};
use crate::hash::{HashEditor, HashField, HashView};
use crate::random::{add_random, drawn};
use crate::scan::{self, ElementsPage, ElementsRequest};

calls! {
    HLEN = 1 => hlen;
    HGET = 2 => hget;
    HGETALL = 3 => hgetall;
    HSET = 4 | W => hset;
    HDEL = 5 | W => hdel;
    HSETNX = 6 | W => hsetnx;
    HMSET = 7 | W => hmset;
    HMGET = 8 => hmget;
    HKEYS = 9 => hkeys;
    HVALS = 10 => hvals;
    HEXISTS = 11 => hexists;
    HSTRLEN = 12 => hstrlen;
    HINCRBY = 13 | W => hincrby;
    HINCRBYFLOAT = 14 | W => hincrbyfloat;
    HRANDFIELD = 15 | RANDOM => hrandfield;
    HSCAN = 16 => hscan;
}

/// Returns the hash of a value at the time of a call.
pub(super) fn view<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<HashView<'v>, OpError> {
    Ok(HashView::new(data_of(value, Kind::Hash)?, call.time_ms))
}

/// Begins to change the hash of a value at the time of a call.
pub(super) fn editor<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<HashEditor<'v>, OpError> {
    Ok(HashEditor::new(data_of(value, Kind::Hash)?, call.time_ms))
}

/// Returns the outcome of a command that has changed a hash in this way, with the events of its changes.
pub(super) fn outcome<'v>(
    hash: HashEditor<'v>,
    reply: Reply<'v>,
    changes: &[KeyEvent],
) -> CallOutcome<'v> {
    let mut outcome = CallOutcome::unchanged(reply);
    let has_expired = hash.has_expired();
    let Some(changed) = hash.into_changed() else {
        return outcome;
    };
    if has_expired {
        outcome.events.push(KeyEvent::HashExpired);
    }
    outcome.events.extend_from_slice(changes);
    outcome.change = match changed {
        ChangedData::Edited => ValueChange::Edited,
        ChangedData::Bytes(bytes) if bytes.is_empty() => {
            outcome.events.push(KeyEvent::Del);
            ValueChange::Delete
        }
        ChangedData::Bytes(bytes) => ValueChange::Set(Kind::Hash, bytes),
    };
    outcome
}

/// Returns the arguments as fields and values.
fn pairs<'c>(call: CallArguments<'c>) -> Result<&'c [[&'c [u8]; 2]], OpError> {
    match call.args.as_chunks::<2>() {
        (pairs, []) => Ok(pairs),
        _ => Err(OpError::Call(CallError::Arity)),
    }
}

/// `HLEN key`.
fn hlen<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let hash = view(call, value)?;
    Ok(CallOutcome::unchanged(Reply::Int(hash.len() as i64)))
}

/// Returns the field that is the first argument.
fn first_field<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<Option<HashField<'v>>, OpError> {
    let hash = view(call, value)?;
    Ok(call.args.first().and_then(|name| hash.get(name)))
}

/// `HGET key field`.
fn hget<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let found = first_field(call, value)?;
    let reply = found.map_or(Reply::Nil, |field| Reply::Bytes(field.value));
    Ok(CallOutcome::unchanged(reply))
}

/// `HEXISTS key field`.
fn hexists<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let found = first_field(call, value)?;
    Ok(CallOutcome::unchanged(Reply::Int(found.is_some().into())))
}

/// `HSTRLEN key field`.
fn hstrlen<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let found = first_field(call, value)?;
    let length = found.map_or(0, |field| field.value.len());
    Ok(CallOutcome::unchanged(Reply::Int(length as i64)))
}

/// Adds a value, or nil in place of one, to a reply.
pub(super) fn add_value(field: Option<HashField<'_>>, reply: &mut NestedReply) {
    match field {
        Some(field) => reply.bytes(field.value),
        None => reply.push(NestedItem::Nil),
    }
}

/// `HMGET key field [field …]`.
fn hmget<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let hash = view(call, value)?;
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(call.args.len()));
    for name in call.args {
        add_value(hash.get(name), &mut reply);
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// Returns a reply that has something of each field.
fn each<'v>(
    hash: HashView<'v>,
    head: fn(usize) -> NestedItem<'static>,
    add: impl Fn(HashField<'v>, &mut NestedReply),
) -> CallOutcome<'v> {
    let mut reply = NestedReply::default();
    reply.push(head(hash.len()));
    hash.iter().for_each(|field| add(field, &mut reply));
    CallOutcome::unchanged(Reply::Nested(reply))
}

fn add_both(field: HashField<'_>, reply: &mut NestedReply) {
    reply.bytes(field.name);
    reply.bytes(field.value);
}

/// `HGETALL key`.
fn hgetall<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    Ok(each(view(call, value)?, NestedItem::Map, add_both))
}

/// `HKEYS key`.
fn hkeys<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    Ok(each(
        view(call, value)?,
        NestedItem::Array,
        |field, reply| reply.bytes(field.name),
    ))
}

/// `HVALS key`.
fn hvals<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    Ok(each(
        view(call, value)?,
        NestedItem::Array,
        |field, reply| reply.bytes(field.value),
    ))
}

/// `HSET key field value [field value …]`.
fn hset<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let pairs = pairs(call)?;
    let mut hash = editor(call, value)?;
    let is_new = |[name, value]: &&[&[u8]; 2]| hash.set(name, value, None);
    let added = pairs.iter().filter(is_new).count();
    Ok(outcome(
        hash,
        Reply::Int(added as i64),
        &[KeyEvent::HashSet],
    ))
}

/// `HMSET key field value [field value …]`.
fn hmset<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let done = hset(call, value)?;
    Ok(CallOutcome {
        reply: Reply::Ok,
        ..done
    })
}

/// `HSETNX key field value`.
fn hsetnx<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let [name, new] = *call.args else {
        return Err(OpError::Call(CallError::Arity));
    };
    let mut hash = editor(call, value)?;
    if hash.view().get(name).is_some() {
        return Ok(outcome(hash, Reply::Int(0), &[]));
    }
    hash.set(name, new, None);
    Ok(outcome(hash, Reply::Int(1), &[KeyEvent::HashSet]))
}

/// `HDEL key field [field …]`.
fn hdel<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut hash = editor(call, value)?;
    let removed = call.args.iter().filter(|name| hash.remove(name)).count();
    let events: &[KeyEvent] = match removed {
        0 => &[],
        _ => &[KeyEvent::HashDelete],
    };
    Ok(outcome(hash, Reply::Int(removed as i64), events))
}

/// `HINCRBY key field increment`.
fn hincrby<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let [name, delta] = *call.args else {
        return Err(OpError::Call(CallError::Arity));
    };
    let delta = int(delta)?;
    let mut hash = editor(call, value)?;
    let old = hash.view().get(name);
    let deadline = old.and_then(|old| old.deadline);
    let number = old.map_or(Some(0), |old| parse_int(old.value));
    let number = number.ok_or(OpError::Call(CallError::HashNotInteger))?;
    let sum = number.checked_add(delta).ok_or(OpError::Overflow)?;
    hash.set(name, sum.to_string().as_bytes(), deadline);
    Ok(outcome(hash, Reply::Int(sum), &[KeyEvent::HashIncrBy]))
}

/// `HINCRBYFLOAT key field increment`.
fn hincrbyfloat<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let [name, delta] = *call.args else {
        return Err(OpError::Call(CallError::Arity));
    };
    if parse_decimal(delta).ok_or(OpError::NotNumber)? == Decimal::Infinite {
        return Err(OpError::Call(CallError::NanOrInfinity));
    }
    let mut hash = editor(call, value)?;
    let old = hash.view().get(name);
    let deadline = old.and_then(|old| old.deadline);
    let sum = add_decimal(old.map_or(b"0", |old| old.value), delta);
    let sum = sum.map_err(|error| match error {
        OpError::NotNumber => OpError::Call(CallError::HashNotFloat),
        error => error,
    })?;
    hash.set(name, &sum, deadline);
    let mut reply = NestedReply::default();
    reply.bytes(&sum);
    Ok(outcome(
        hash,
        Reply::Nested(reply),
        &[KeyEvent::HashIncrByFloat],
    ))
}

/// `HRANDFIELD key [count [WITHVALUES]]`.
fn hrandfield<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let [count, options @ ..] = call.args else {
        let hash = view(call, value)?;
        let mut rng = Rng::with_seed(call.seed);
        let field = match (hash.draw(1, &mut rng), hash.len()) {
            (Some(fields), _) => fields.first().copied(),
            (None, 0) => None,
            (None, fields) => hash.iter().nth(rng.usize(..fields)),
        };
        let reply = field.map_or(Reply::Nil, |field| Reply::Bytes(field.name));
        return Ok(CallOutcome::unchanged(reply));
    };
    let count = random_count(count)?;
    let with_values = match options {
        [] => false,
        [option] if is(option, "withvalues") => true,
        _ => return Err(OpError::Call(CallError::Syntax)),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OpError::Call(CallError::OutOfRange));
    }
    let hash = view(call, value)?;
    let drawn = drawn(count, hash.len())?;
    let mut reply = NestedReply::default();
    reply.push(match with_values {
        true => NestedItem::Pairs(drawn),
        false => NestedItem::Array(drawn),
    });
    let add = |field: &HashField<'_>, reply: &mut NestedReply| {
        reply.bytes(field.name);
        if with_values {
            reply.bytes(field.value);
        }
    };
    match hash.draw(count, &mut Rng::with_seed(call.seed)) {
        Some(fields) => fields.iter().for_each(|field| add(field, &mut reply)),
        None => {
            let fields: Vec<HashField<'_>> = hash.iter().collect();
            add_random(&mut reply, (&fields, count, call.seed), add)?;
        }
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`.
fn hscan<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    scan::cursor(call.args)?;
    let is_there = value.is_some();
    let hash = view(call, value)?;
    let mut shows_values = true;
    let page = match is_there {
        true => {
            let request = ElementsRequest::parse(call.args, true)?;
            shows_values = !request.names_alone;
            match hash.tree() {
                Some(tree) => request.tree_page(tree, |name, bytes| hash.of_tree(name, bytes)),
                None => {
                    let both = hash.iter().map(|field| (field.name, field.value));
                    request.page(hash.iter(), scan::is_small(both), |field| field.name)
                }
            }
        }
        false => ElementsPage::empty(),
    };
    let items = if shows_values { 2 } else { 1 };
    let mut reply = page.reply(items * page.elements.len());
    for field in page.elements {
        reply.bytes(field.name);
        if shows_values {
            reply.bytes(field.value);
        }
    }
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}
