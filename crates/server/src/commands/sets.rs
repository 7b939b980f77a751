//! Commands on sets.

use base::Op;
use base::key_event::KeyEvent;
use base::partition::OwnedReply;
use base::transaction::{Kind, ValueCall};
use resp::{Args, Writer};
use values::set_algebra::SetOperation;

use super::arguments::{int, is};
use super::values::value;
use crate::command::CommandKind::{Compound, Sequence, Store};
use crate::command::{CommandDefinition, CompoundStop, Ops, Planned, commands};
use crate::refusal::{Refusal, write_op_error};
use crate::render::{Computation, Render};
use crate::transaction_keys::TransactionKeys;
use crate::working_set::{WorkingSet, WorkingValue};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "set";
    "sadd" -3 "write denyoom fast" ONE("RW insert") "set" ""
        "1.0.0" "O(N) where N is the number of members.",
        Store(value::<{ values::sets::SADD }>), "Adds members to a set; answers how many are new.";
    "srem" -3 "write fast" ONE("RW delete") "set" ""
        "1.0.0" "O(N) where N is the number of members.",
        Store(value::<{ values::sets::SREM }>), "Removes members; answers how many there were.";
    "smembers" 2 "readonly" ONE("RO access") "set" "nondeterministic_output_order"
        "1.0.0" "O(N) where N is the size of the set.",
        Store(value::<{ values::sets::SMEMBERS }>), "The members of a set.";
    "sismember" 3 "readonly fast" ONE("RO") "set" ""
        "1.0.0" "O(1)",
        Store(value::<{ values::sets::SISMEMBER }>), "Whether a set has a member.";
    "smismember" -3 "readonly fast" ONE("RO access") "set" ""
        "6.2.0" "O(N) where N is the number of members that are asked for.",
        Store(value::<{ values::sets::SMISMEMBER }>), "For each of some members, whether a set has it.";
    "scard" 2 "readonly fast" ONE("RO") "set" ""
        "1.0.0" "O(1)",
        Store(value::<{ values::sets::SCARD }>), "How many members a set has.";
    "spop" -2 "write fast" ONE("RW access delete") "set" "nondeterministic_output"
        "1.0.0" "O(N) where N is the number of members that are removed.",
        Store(value::<{ values::sets::SPOP }>), "Removes and returns members that are drawn at random.";
    "srandmember" -2 "readonly" ONE("RO access") "set" "nondeterministic_output"
        "1.0.0" "O(N) where N is the number of members that are returned.",
        Store(value::<{ values::sets::SRANDMEMBER }>), "Members that are drawn at random.";
    "sscan" -3 "readonly" ONE("RO access") "set" "nondeterministic_output"
        "2.8.0" "O(1) for every call, O(N) for a complete iteration.",
        Store(value::<{ values::sets::SSCAN }>), "The members of a set, a page at a time.";
    "smove" 4 "write fast" FIRST_TWO("RW access delete; RW insert") "set" ""
        "1.0.0" "O(1)",
        Sequence(smove), "Moves a member from one set to another.";
    "sinter" -2 "readonly" ALL("RO access") "set" "nondeterministic_output_order"
        "1.0.0" "O(N*M) where N is the size of the smallest set and M the number of sets.",
        Store(sinter), "The members that all of some sets have.";
    "sintercard" -3 "readonly movablekeys" COUNTED_FIRST("RO access") "set" ""
        "7.0.0" "O(N*M) where N is the size of the smallest set and M the number of sets.",
        Store(sintercard), "How many members all of some sets have.";
    "sunion" -2 "readonly" ALL("RO access") "set" "nondeterministic_output_order"
        "1.0.0" "O(N) where N is the size of all sets.",
        Store(sunion), "The members of several sets.";
    "sdiff" -2 "readonly" ALL("RO access") "set" "nondeterministic_output_order"
        "1.0.0" "O(N) where N is the size of all sets.",
        Store(sdiff), "The members of a set that others do not have.";
    "sinterstore" -3 "write denyoom" ALL("RW update; RO access") "set" ""
        "1.0.0" "O(N*M) where N is the size of the smallest set and M the number of sets.",
        Compound(sinterstore), "Stores the members that all of some sets have.";
    "sunionstore" -3 "write denyoom" ALL("OW update; RO access") "set" ""
        "1.0.0" "O(N) where N is the size of all sets.",
        Compound(sunionstore), "Stores the members of several sets.";
    "sdiffstore" -3 "write denyoom" ALL("OW update; RO access") "set" ""
        "1.0.0" "O(N) where N is the size of all sets.",
        Compound(sdiffstore), "Stores the members of a set that others do not have.";
};

fn sinter<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan_combination(SetOperation::Intersection, args, ops)
}

fn sunion<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan_combination(SetOperation::Union, args, ops)
}

fn sdiff<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    plan_combination(SetOperation::Difference, args, ops)
}

fn plan_combination<'a>(operation: SetOperation, args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    ops.extend(args.from(1).iter().map(|key| Op::GetAny { key }));
    Ok(Render::computed(Computation::Sets(operation)))
}

fn sintercard<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    const NO_KEYS: Refusal = Refusal::Text("ERR numkeys should be greater than 0");
    const TOO_MANY_KEYS: Refusal =
        Refusal::Text("ERR Number of keys can't be greater than number of args");
    const NEGATIVE_LIMIT: Refusal = Refusal::Text("ERR LIMIT can't be negative");
    let keys = int(args.at(1))
        .ok()
        .and_then(|keys| usize::try_from(keys).ok());
    let keys = keys.filter(|keys| *keys > 0).ok_or(NO_KEYS)?;
    if keys > args.len() - 2 {
        return Err(TOO_MANY_KEYS);
    }
    let mut limit = usize::MAX;
    let mut options = args.from(2 + keys).iter();
    while let Some(option) = options.next() {
        let value = options.next().filter(|_| is(option, "limit"));
        let given = int(value.ok_or(Refusal::Syntax)?).ok();
        let given = given.and_then(|limit| usize::try_from(limit).ok());
        limit = match given.ok_or(NEGATIVE_LIMIT)? {
            0 => usize::MAX,
            limit => limit,
        };
    }
    let keys = args.from(2).iter().take(keys);
    ops.extend(keys.map(|key| Op::GetAny { key }));
    let size = Computation::IntersectionSize { limit };
    Ok(Render::computed(size))
}

fn sinterstore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    store(SetOperation::Intersection, args, set, writer)
}

fn sunionstore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    store(SetOperation::Union, args, set, writer)
}

fn sdiffstore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    store(SetOperation::Difference, args, set, writer)
}

/// Stores the combination of sets in a key.
fn store(
    operation: SetOperation,
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let (to, sources) = (args.at(1), args.from(2));
    let sources: Vec<_> = sources.iter().map(|key| set.stored(key)).collect();
    let combined = operation.combine(&sources).map_err(Refusal::Failed)?;
    let size = combined.len();
    let new = combined.into_bytes().map(|bytes| WorkingValue {
        kind: Kind::Set,
        bytes,
        deadline: None,
    });
    let event = match (&new, operation) {
        (None, _) if set.value(to).is_none() => {
            writer.int(0);
            return Ok(());
        }
        (None, _) => KeyEvent::Del,
        (_, SetOperation::Intersection) => KeyEvent::SetInterStore,
        (_, SetOperation::Union) => KeyEvent::SetUnionStore,
        (_, SetOperation::Difference) => KeyEvent::SetDiffStore,
    };
    match set.set(to, new) {
        Ok(()) => {
            set.note(to, event);
            writer.int(size as i64);
        }
        Err(error) => write_op_error(error, "store", writer),
    }
    Ok(())
}

fn smove(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let is_moved = move_member(args.at(1), args.at(2), args.at(3), keys)?;
    writer.int(is_moved.into());
    Ok(())
}

/// Returns `true` if the set `from` had the member, which the set `to` has now.
fn move_member(
    from: &[u8],
    to: &[u8],
    member: &[u8],
    keys: &mut TransactionKeys<'_, '_>,
) -> Result<bool, CompoundStop> {
    let call = |command| ValueCall {
        command,
        seed: 0,
        args: [member].into(),
    };
    if keys.kind(from)?.is_none() {
        return Ok(false);
    }
    // Both must be sets, and this one may have the member.
    let contains = || call(values::sets::SISMEMBER);
    let is_there = keys.call(from, contains())? == OwnedReply::Int(1);
    keys.call(to, contains())?;
    if !is_there || from == to {
        return Ok(is_there);
    }
    keys.call(from, call(values::sets::SREM))?;
    keys.call(to, call(values::sets::SADD))?;
    Ok(true)
}
