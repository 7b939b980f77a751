//! Commands that take members from the first of several sorted sets that has some.

use base::nested::NestedItem;
use base::partition::OwnedReply;
use base::transaction::{Kind, ValueCall};
use base::{OpError, database};
use resp::{Args, Writer};

use super::arguments::{int, is, wait_seconds};
use crate::blocked_clients::AwaitedKind;
use crate::command::CommandKind::{Blocking, Sequence};
use crate::command::{
    BlockingCommand, CommandDefinition, CompoundStop, KeyTurns, WaitFinding, WaitTerms, commands,
};
use crate::refusal::Refusal;
use crate::transaction_keys::TransactionKeys;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "sorted-set";
    "zmpop" -4 "write movablekeys" COUNTED_FIRST("RW access delete") "sortedset" ""
        "7.0.0" "O(K)+O(M*log(N)) with K keys, N members in the sorted set and M removed ones.",
        Sequence(zmpop), "Removes the members with the least or the greatest scores from the first sorted set that has some, and answers them.";
    "bzmpop" -5 "write blocking movablekeys" COUNTED("RW access delete") "sortedset blocking" ""
        "7.0.0" "O(K)+O(M*log(N)) with K keys, N members in the sorted set and M removed ones.",
        Blocking(BZMPOP), "As ZMPOP; waits for members.";
    "bzpopmin" -3 "write blocking fast" ALL_BUT_LAST("RW access delete") "sortedset blocking" ""
        "5.0.0" "O(log(N)) with N members in the sorted set.",
        Blocking(BZPOPMIN), "Removes the member with the least score from the first of several sorted sets that has some; waits for one.";
    "bzpopmax" -3 "write blocking fast" ALL_BUT_LAST("RW access delete") "sortedset blocking" ""
        "5.0.0" "O(log(N)) with N members in the sorted set.",
        Blocking(BZPOPMAX), "Removes the member with the greatest score from the first of several sorted sets that has some; waits for one.";
};

const BZMPOP: BlockingCommand = BlockingCommand {
    plan: None,
    terms: |args| {
        let pop = MemberPop::parse(args, 2)?;
        Ok(Some(WaitTerms {
            awaits: AwaitedKind::SortedSet,
            timeout: wait_seconds(args.at(1))?,
            keys: 3..3 + pop.keys,
        }))
    },
    execute: |args, turns, keys, writer| {
        let pop = MemberPop::parse(args, 2)?;
        pop_several((args, 2), &pop, turns, keys, writer)
    },
};
const BZPOPMIN: BlockingCommand = BlockingCommand {
    plan: None,
    terms: pop_terms,
    execute: |args, turns, keys, writer| {
        pop_one(values::sorted_sets::ZPOPMIN, args, turns, keys, writer)
    },
};
const BZPOPMAX: BlockingCommand = BlockingCommand {
    plan: None,
    terms: pop_terms,
    execute: |args, turns, keys, writer| {
        pop_one(values::sorted_sets::ZPOPMAX, args, turns, keys, writer)
    },
};

/// The arguments of `ZMPOP` and `BZMPOP` from the number of keys on.
struct MemberPop<'a> {
    /// The number of keys.
    keys: usize,
    command: u16,
    count: &'a [u8],
}

impl<'a> MemberPop<'a> {
    /// Parses arguments, of which the one at `at` is the number of keys.
    fn parse(args: Args<'a>, at: usize) -> Result<MemberPop<'a>, Refusal> {
        let positive = |arg, refusal| match int(arg) {
            Ok(number @ 1..) => Ok(number as usize),
            _ => Err(Refusal::Text(refusal)),
        };
        let keys = positive(args.at(at), "ERR numkeys should be greater than 0")?;
        let end = at.saturating_add(keys).saturating_add(1);
        let command = match args.get(end) {
            Some(arg) if is(arg, "min") => values::sorted_sets::ZPOPMIN,
            Some(arg) if is(arg, "max") => values::sorted_sets::ZPOPMAX,
            _ => return Err(Refusal::Syntax),
        };
        let options = args.from(end + 1);
        let count = match (options.get(0), options.get(1)) {
            (None, _) => b"1",
            (Some(option), Some(count)) if is(option, "count") => {
                positive(count, "ERR count should be greater than 0")?;
                count
            }
            _ => return Err(Refusal::Syntax),
        };
        match options.len() {
            ..=2 => Ok(MemberPop {
                keys,
                command,
                count,
            }),
            _ => Err(Refusal::Syntax),
        }
    }
}

/// Executes a command that removes members at the first key of these names that has some. Returns the name and
/// the members with their scores.
fn pop_at_first<'a>(
    names: Args<'a>,
    turns: &KeyTurns,
    keys: &mut TransactionKeys<'_, '_>,
    (command, count): (u16, &[u8]),
) -> Result<Option<(&'a [u8], OwnedReply)>, CompoundStop> {
    for name in names.iter() {
        let may_look = turns.has(name);
        match keys.kind(name)? {
            Some(Kind::SortedSet) if may_look => {
                let call = ValueCall {
                    command,
                    seed: 0,
                    args: [count].into(),
                };
                return Ok(Some((name, keys.call(name, call)?)));
            }
            Some(Kind::SortedSet) | None => {}
            Some(_) if turns.is_first => return Err(Refusal::Failed(OpError::WrongType).into()),
            Some(_) => {}
        }
    }
    Ok(None)
}

fn pop_terms(args: Args<'_>) -> Result<Option<WaitTerms>, Refusal> {
    let last = args.len() - 1;
    Ok(Some(WaitTerms {
        awaits: AwaitedKind::SortedSet,
        timeout: wait_seconds(args.at(last))?,
        keys: 1..last,
    }))
}

/// `BZPOPMIN key [key …] timeout`, `BZPOPMAX`.
fn pop_one(
    command: u16,
    args: Args<'_>,
    turns: &KeyTurns,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<WaitFinding, CompoundStop> {
    let names = args.range(1..args.len() - 1);
    let found = pop_at_first(names, turns, keys, (command, b"1"))?;
    let Some((key, OwnedReply::Nested(members))) = found else {
        writer.null_array();
        return Ok(WaitFinding::Nothing);
    };
    writer.array(3);
    writer.bulk(database::client_key(key));
    for item in members.items() {
        match item {
            NestedItem::Bytes(member) => writer.bulk(member),
            NestedItem::Double(score) => writer.double(score),
            _ => {}
        }
    }
    Ok(WaitFinding::Found)
}

/// Executes `ZMPOP` or `BZMPOP`, whose number of keys is at a place among the arguments.
fn pop_several(
    (args, at): (Args<'_>, usize),
    pop: &MemberPop<'_>,
    turns: &KeyTurns,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<WaitFinding, CompoundStop> {
    let names = args.range(at + 1..at + 1 + pop.keys);
    let found = pop_at_first(names, turns, keys, (pop.command, pop.count))?;
    let Some((key, OwnedReply::Nested(members))) = found else {
        writer.null_array();
        return Ok(WaitFinding::Nothing);
    };
    writer.array(2);
    writer.bulk(database::client_key(key));
    for item in members.items() {
        match item {
            NestedItem::Pairs(pairs) => writer.array(pairs),
            NestedItem::Bytes(member) => {
                writer.array(2);
                writer.bulk(member);
            }
            NestedItem::Double(score) => writer.double(score),
            _ => {}
        }
    }
    Ok(WaitFinding::Found)
}

/// `ZMPOP numkeys key [key …] MIN|MAX [COUNT count]`.
fn zmpop(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let pop = MemberPop::parse(args, 1)?;
    pop_several((args, 1), &pop, &KeyTurns::ALL, keys, writer)?;
    Ok(())
}
