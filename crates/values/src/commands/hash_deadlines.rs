//! Commands on the deadlines of a hash's fields.

use base::key_event::KeyEvent;
use base::nested::{NestedItem, NestedReply};
use base::number::parse_int;
use base::transaction::{CallError, ExpireWhen, OpError, Reply};

use super::hashes::{add_value, editor, outcome, view};
use crate::arguments::{int, is};
use crate::call::{CallArguments, CallOutcome, StoredValue, W, calls};
use crate::hash::{HashEditor, HashField};

calls! {
    HEXPIRE = 32 | W => hexpire;
    HPEXPIRE = 33 | W => hpexpire;
    HEXPIREAT = 34 | W => hexpireat;
    HPEXPIREAT = 35 | W => hpexpireat;
    HTTL = 36 => httl;
    HPTTL = 37 => hpttl;
    HEXPIRETIME = 38 => hexpiretime;
    HPEXPIRETIME = 39 => hpexpiretime;
    HPERSIST = 40 | W => hpersist;
    HGETEX = 41 | W => hgetex;
    HSETEX = 42 | W => hsetex;
    HGETDEL = 43 | W => hgetdel;
    REMOVE_PASSED = 44 | W => remove_passed;
}

/// The latest deadline of a field, in milliseconds since the Unix epoch.
const LATEST_MS: u64 = (1 << 46) - 1;

/// The replies for a field.
const NO_FIELD: i64 = -2;
const NO_DEADLINE: i64 = -1;
const NOT_DONE: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;

/// The form of a time among the arguments.
#[derive(Clone, Copy)]
struct TimeForm {
    /// `true`: seconds; `false`: milliseconds.
    seconds: bool,
    /// `true`: from now on; `false`: since the Unix epoch.
    relative: bool,
}

impl TimeForm {
    /// Returns the form that an option of this name has.
    fn of_option(option: &[u8]) -> Option<TimeForm> {
        let all = [
            ("ex", true, true),
            ("px", false, true),
            ("exat", true, false),
            ("pxat", false, false),
        ];
        let own = all.into_iter().find(|(word, ..)| is(option, word))?;
        Some(TimeForm {
            seconds: own.1,
            relative: own.2,
        })
    }

    /// Parses a deadline.
    fn deadline(self, arg: &[u8], time_ms: u64) -> Result<u64, OpError> {
        let given = u64::try_from(int(arg)?);
        let given = given.map_err(|_| OpError::Call(CallError::NegativeExpiry))?;
        let unit = if self.seconds { 1000 } else { 1 };
        let from = if self.relative { time_ms } else { 0 };
        let deadline = given.checked_mul(unit).and_then(|ms| ms.checked_add(from));
        let deadline = deadline.filter(|at| *at <= LATEST_MS);
        deadline.ok_or(OpError::BadExpiry)
    }
}

/// Returns the fields behind `FIELDS` and their number, which are all arguments.
fn fields<'c>(args: &'c [&'c [u8]], not_positive: CallError) -> Result<&'c [&'c [u8]], OpError> {
    let [word, count, fields @ ..] = args else {
        return Err(OpError::Call(CallError::FieldsMissing));
    };
    if !is(word, "fields") {
        return Err(OpError::Call(CallError::FieldsMissing));
    }
    let count = parse_int(count).filter(|count| *count > 0);
    let count = count.ok_or(OpError::Call(not_positive))?;
    match fields.len() as i64 == count {
        true => Ok(fields),
        false => Err(OpError::Call(CallError::FieldCountMismatch)),
    }
}

/// Returns a reply with a number for each field.
fn each(fields: &[&[u8]], mut number: impl FnMut(&[u8]) -> i64) -> Reply<'static> {
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(fields.len()));
    for name in fields {
        reply.push(NestedItem::Int(number(name)));
    }
    Reply::Nested(reply)
}

/// Gives a field, which is there, a deadline, or removes it if that has passed. Returns the event.
fn expire(hash: &mut HashEditor<'_>, name: &[u8], deadline: u64, time_ms: u64) -> KeyEvent {
    match deadline <= time_ms {
        true => {
            hash.remove(name);
            KeyEvent::HashDelete
        }
        false => {
            hash.set_deadline(name, Some(deadline));
            KeyEvent::HashExpire
        }
    }
}

/// `HEXPIRE key seconds [NX | XX | GT | LT] FIELDS count field [field …]`.
fn hexpire<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    expire_fields(call, value, (true, true))
}

/// `HPEXPIRE`, as `HEXPIRE`.
fn hpexpire<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    expire_fields(call, value, (false, true))
}

/// `HEXPIREAT`, as `HEXPIRE`.
fn hexpireat<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    expire_fields(call, value, (true, false))
}

/// `HPEXPIREAT`, as `HEXPIRE`.
fn hpexpireat<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    expire_fields(call, value, (false, false))
}

fn expire_fields<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
    (seconds, relative): (bool, bool),
) -> Result<CallOutcome<'v>, OpError> {
    let mut hash = editor(call, value)?;
    let [time, options @ ..] = call.args else {
        return Err(OpError::Call(CallError::Arity));
    };
    let deadline = TimeForm { seconds, relative }.deadline(time, call.time_ms)?;
    let conditions = [
        ("nx", ExpireWhen::None),
        ("xx", ExpireWhen::Some),
        ("gt", ExpireWhen::Later),
        ("lt", ExpireWhen::Earlier),
    ];
    let condition = options.first().and_then(|option| {
        let mut all = conditions.into_iter();
        all.find(|(word, _)| is(option, word))
    });
    let (when, options) = match condition {
        Some((_, when)) => (when, &options[1..]),
        None => (ExpireWhen::Always, options),
    };
    let fields = fields(options, CallError::FieldCountNotGreater)?;
    let mut event = None;
    let reply = each(fields, |name| {
        let Some(field) = hash.view().get(name) else {
            return NO_FIELD;
        };
        if !when.allows(field.deadline, Some(deadline)) {
            return NOT_DONE;
        }
        let done = expire(&mut hash, name, deadline, call.time_ms);
        event = Some(done);
        match done {
            KeyEvent::HashDelete => DELETED,
            _ => DONE,
        }
    });
    Ok(outcome(hash, reply, event.as_slice()))
}

/// `HTTL key FIELDS count field [field …]`.
fn httl<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    deadlines(call, value, |left_ms, _| left_ms.div_ceil(1000))
}

/// `HPTTL`, as `HTTL`.
fn hpttl<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    deadlines(call, value, |left_ms, _| left_ms)
}

/// `HEXPIRETIME`, as `HTTL`.
fn hexpiretime<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    deadlines(call, value, |_, at_ms| at_ms.div_ceil(1000))
}

/// `HPEXPIRETIME`, as `HTTL`.
fn hpexpiretime<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    deadlines(call, value, |_, at_ms| at_ms)
}

/// Returns what `shown` makes of the time that each field has left, and of its deadline.
fn deadlines<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
    shown: fn(u64, u64) -> u64,
) -> Result<CallOutcome<'v>, OpError> {
    let hash = view(call, value)?;
    let fields = fields(call.args, CallError::FieldCountNotPositive)?;
    let reply = each(fields, |name| match hash.get(name) {
        None => NO_FIELD,
        Some(HashField { deadline: None, .. }) => NO_DEADLINE,
        Some(HashField {
            deadline: Some(at), ..
        }) => shown(at - call.time_ms, at) as i64,
    });
    Ok(CallOutcome::unchanged(reply))
}

/// `HPERSIST key FIELDS count field [field …]`.
fn hpersist<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut hash = editor(call, value)?;
    let fields = fields(call.args, CallError::FieldCountNotPositive)?;
    let mut event = None;
    let reply = each(fields, |name| match hash.view().get(name) {
        None => NO_FIELD,
        Some(field) if field.deadline.is_none() => NO_DEADLINE,
        Some(_) => {
            hash.set_deadline(name, None);
            event = Some(KeyEvent::HashPersist);
            DONE
        }
    });
    Ok(outcome(hash, reply, event.as_slice()))
}

/// `HGETEX key [EX seconds | PX milliseconds | EXAT time | PXAT time | PERSIST] FIELDS count field [field …]`.
fn hgetex<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut hash = editor(call, value)?;
    let form = call.args.first().and_then(|arg| TimeForm::of_option(arg));
    let (deadline, persists, args) = match (form, call.args) {
        (Some(form), [_, time, args @ ..]) => {
            (Some(form.deadline(time, call.time_ms)?), false, args)
        }
        (None, [option, args @ ..]) if is(option, "persist") => (None, true, args),
        (_, args) => (None, false, args),
    };
    let fields = fields(args, CallError::FieldCountNotPositive)?;
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(fields.len()));
    let mut event = None;
    for name in fields {
        let view = hash.view();
        let field = view.get(name);
        add_value(field, &mut reply);
        let Some(had) = field.map(|field| field.deadline) else {
            continue;
        };
        if let Some(deadline) = deadline {
            event = Some(expire(&mut hash, name, deadline, call.time_ms));
        } else if persists && had.is_some() {
            hash.set_deadline(name, None);
            event = Some(KeyEvent::HashPersist);
        }
    }
    Ok(outcome(hash, Reply::Nested(reply), event.as_slice()))
}

/// `HGETDEL key FIELDS count field [field …]`.
fn hgetdel<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut hash = editor(call, value)?;
    let fields = fields(call.args, CallError::FieldCountNotPositive)?;
    let mut reply = NestedReply::default();
    reply.push(NestedItem::Array(fields.len()));
    let mut event = None;
    for name in fields {
        add_value(hash.view().get(name), &mut reply);
        if hash.remove(name) {
            event = Some(KeyEvent::HashDelete);
        }
    }
    Ok(outcome(hash, Reply::Nested(reply), event.as_slice()))
}

/// The most fields that one call of [`REMOVE_PASSED`] removes of a large hash.
const REMOVED_AT_ONCE: usize = 256;

/// Removes fields whose deadlines have passed; no client has this command. Returns 1 if some are left, else 0.
fn remove_passed<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let mut hash = editor(call, value)?;
    let is_more = hash.remove_passed(REMOVED_AT_ONCE);
    Ok(outcome(hash, Reply::Int(is_more.into()), &[]))
}

/// What `HSETEX` does.
#[derive(Default)]
struct SetFields<'c> {
    /// `true`: only if all fields are there; `false`: only if none is.
    condition: Option<bool>,
    deadline: Option<u64>,
    keeps_deadlines: bool,
    pairs: &'c [[&'c [u8]; 2]],
}

impl<'c> SetFields<'c> {
    fn parse(call: CallArguments<'c>) -> Result<SetFields<'c>, OpError> {
        let failed = |error| Err(OpError::Call(error));
        let mut step = SetFields::default();
        let mut args = call.args;
        while let [option, rest @ ..] = args {
            args = rest;
            let is_condition = is(option, "fxx") || is(option, "fnx");
            if is_condition && step.condition.is_some() {
                return failed(CallError::OneFieldCondition);
            } else if is_condition {
                step.condition = Some(is(option, "fxx"));
                continue;
            } else if is(option, "fields") {
                step.pairs = SetFields::parse_pairs(rest)?;
                return Ok(step);
            }
            let form = TimeForm::of_option(option);
            let keeps = is(option, "keepttl");
            if form.is_none() && !keeps {
                return failed(CallError::UnknownArgument);
            } else if step.deadline.is_some() || step.keeps_deadlines {
                return failed(CallError::OneFieldExpiry);
            }
            step.keeps_deadlines = keeps;
            if let (Some(form), [time, rest @ ..]) = (form, args) {
                step.deadline = Some(form.deadline(time, call.time_ms)?);
                args = rest;
            }
        }
        failed(CallError::Arity)
    }

    /// Returns the fields and values behind their number, which are all arguments.
    fn parse_pairs(args: &'c [&'c [u8]]) -> Result<&'c [[&'c [u8]; 2]], OpError> {
        let [count, args @ ..] = args else {
            return Err(OpError::Call(CallError::Arity));
        };
        let count = parse_int(count).filter(|count| *count > 0);
        let count = count.ok_or(OpError::Call(CallError::FieldCountInvalid))?;
        match args.as_chunks::<2>() {
            (pairs, []) if pairs.len() as i64 == count => Ok(pairs),
            _ => Err(OpError::Call(CallError::Arity)),
        }
    }
}

/// `HSETEX key [FNX | FXX] [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] FIELDS count field value
/// [field value …]`.
fn hsetex<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let step = SetFields::parse(call)?;
    let mut hash = editor(call, value)?;
    let mut are_present = step
        .pairs
        .iter()
        .map(|[name, _]| hash.view().get(name).is_some());
    if step
        .condition
        .is_some_and(|present| are_present.any(|is| is != present))
    {
        return Ok(outcome(hash, Reply::Int(NOT_DONE), &[]));
    }
    let has_passed = step.deadline.is_some_and(|at| at <= call.time_ms);
    for [name, value] in step.pairs {
        if has_passed {
            hash.remove(name);
            continue;
        }
        let kept = match step.keeps_deadlines {
            true => hash.view().get(name).and_then(|field| field.deadline),
            false => step.deadline,
        };
        hash.set(name, value, kept);
    }
    let events: &[KeyEvent] = match step.deadline {
        Some(_) if has_passed => &[KeyEvent::HashSet, KeyEvent::HashDelete],
        Some(_) => &[KeyEvent::HashSet, KeyEvent::HashExpire],
        None => &[KeyEvent::HashSet],
    };
    Ok(outcome(hash, Reply::Int(DONE), events))
}
