//! Commands on lists.

use base::nested::NestedItem;
use base::partition::OwnedReply;
use base::planted::{self, Bug};
use base::transaction::ValueCall;
use base::{OpError, database};
use resp::{Args, Writer};

use super::arguments::{int, is, wait_seconds};
use super::values::value;
use crate::blocked_clients::AwaitedKind;
use crate::command::CommandKind::{Blocking, Sequence, Store};
use crate::command::{
    BlockingCommand, CommandDefinition, CompoundStop, KeyTurns, WaitFinding, WaitTerms, commands,
};
use crate::refusal::Refusal;
use crate::transaction_keys::TransactionKeys;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "list";
    "lpush" -3 "write denyoom fast" ONE("RW insert") "list" ""
        "1.0.0" "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        Store(value::<{ values::lists::LPUSH }>), "Adds elements at the head of a list; answers its length.";
    "rpush" -3 "write denyoom fast" ONE("RW insert") "list" ""
        "1.0.0" "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        Store(value::<{ values::lists::RPUSH }>), "Adds elements at the tail of a list; answers its length.";
    "lpushx" -3 "write denyoom fast" ONE("RW insert") "list" ""
        "2.2.0" "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        Store(value::<{ values::lists::LPUSHX }>), "As LPUSH, if the list exists.";
    "rpushx" -3 "write denyoom fast" ONE("RW insert") "list" ""
        "2.2.0" "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        Store(value::<{ values::lists::RPUSHX }>), "As RPUSH, if the list exists.";
    "lpop" -2 "write fast" ONE("RW access delete") "list" ""
        "1.0.0" "O(N) where N is the number of elements returned",
        Store(value::<{ values::lists::LPOP }>), "Removes elements from the head of a list, and answers them.";
    "rpop" -2 "write fast" ONE("RW access delete") "list" ""
        "1.0.0" "O(N) where N is the number of elements returned",
        Store(value::<{ values::lists::RPOP }>), "Removes elements from the tail of a list, and answers them.";
    "llen" 2 "readonly fast" ONE("RO") "list" ""
        "1.0.0" "O(1)",
        Store(value::<{ values::lists::LLEN }>), "How many elements a list has.";
    "lindex" 3 "readonly" ONE("RO access") "list" ""
        "1.0.0" "O(N) where N is the number of elements up to the one that is asked for.",
        Store(value::<{ values::lists::LINDEX }>), "The element at an index.";
    "lset" 4 "write denyoom" ONE("RW update") "list" ""
        "1.0.0" "O(N) where N is the length of the list.",
        Store(value::<{ values::lists::LSET }>), "Replaces the element at an index.";
    "lrange" 4 "readonly" ONE("RO access") "list" ""
        "1.0.0" "O(S+N) where S is the distance of the first element from the head, and N is the number of elements answered.",
        Store(value::<{ values::lists::LRANGE }>), "The elements from one index to another.";
    "linsert" 5 "write denyoom" ONE("RW insert") "list" ""
        "2.2.0" "O(N) where N is the number of elements before the pivot.",
        Store(value::<{ values::lists::LINSERT }>), "Inserts an element before or after another one; answers the length.";
    "lrem" 4 "write" ONE("RW delete") "list" ""
        "1.0.0" "O(N+M) where N is the length of the list and M is the number of elements removed.",
        Store(value::<{ values::lists::LREM }>), "Removes elements that are equal to one; answers how many.";
    "ltrim" 4 "write" ONE("RW delete") "list" ""
        "1.0.0" "O(N) where N is the number of elements to be removed by the operation.",
        Store(value::<{ values::lists::LTRIM }>), "Removes all elements but those from one index to another.";
    "lpos" -3 "readonly" ONE("RO access") "list" ""
        "6.0.6" "O(N) where N is the number of elements in the list, or MAXLEN.",
        Store(value::<{ values::lists::LPOS }>), "The indexes of elements that are equal to one.";
    "lmpop" -4 "write movablekeys" COUNTED_FIRST("RW access delete") "list" ""
        "7.0.0" "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
        Sequence(lmpop), "Removes elements from the first of several lists that has some, and answers them.";
    "lmove" 5 "write denyoom" FIRST_TWO("RW access delete; RW insert") "list" ""
        "6.2.0" "O(1)",
        Sequence(lmove), "Moves an element from an end of a list to an end of another one, and answers it.";
    "rpoplpush" 3 "write denyoom" FIRST_TWO("RW access delete; RW insert") "list" ""
        "1.2.0" "O(1)",
        Sequence(rpoplpush), "Moves the last element of a list to the head of another one, and answers it.";
    "blpop" -3 "write blocking" ALL_BUT_LAST("RW access delete") "list blocking" ""
        "2.0.0" "O(N) where N is the number of provided keys.",
        Blocking(BLPOP), "Removes the first element of the first of several lists that has some; waits for one.";
    "brpop" -3 "write blocking" ALL_BUT_LAST("RW access delete") "list blocking" ""
        "2.0.0" "O(N) where N is the number of provided keys.",
        Blocking(BRPOP), "Removes the last element of the first of several lists that has some; waits for one.";
    "blmpop" -5 "write blocking movablekeys" COUNTED("RW access delete") "list blocking" ""
        "7.0.0" "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
        Blocking(BLMPOP), "As LMPOP; waits for elements.";
    "blmove" 6 "write denyoom blocking" FIRST_TWO("RW access delete; RW insert") "list blocking" ""
        "6.2.0" "O(1)",
        Blocking(BLMOVE), "As LMOVE; waits for an element.";
    "brpoplpush" 4 "write denyoom blocking" FIRST_TWO("RW access delete; RW insert") "list blocking" ""
        "2.2.0" "O(1)",
        Blocking(BRPOPLPUSH), "As RPOPLPUSH; waits for an element.";
};

const BLPOP: BlockingCommand = BlockingCommand {
    plan: None,
    terms: pop_terms,
    execute: |args, turns, keys, writer| pop_first(ListSide::Left, args, turns, keys, writer),
};
const BRPOP: BlockingCommand = BlockingCommand {
    plan: None,
    terms: pop_terms,
    execute: |args, turns, keys, writer| pop_first(ListSide::Right, args, turns, keys, writer),
};
const BLMPOP: BlockingCommand = BlockingCommand {
    plan: None,
    terms: |args| {
        let pop = ManyPop::parse(args, 2)?;
        Ok(Some(WaitTerms {
            awaits: AwaitedKind::List,
            timeout: wait_seconds(args.at(1))?,
            keys: 3..3 + pop.keys,
        }))
    },
    execute: |args, turns, keys, writer| {
        let pop = ManyPop::parse(args, 2)?;
        pop_many((args, 2), &pop, turns, keys, writer)
    },
};
const BLMOVE: BlockingCommand = BlockingCommand {
    plan: None,
    terms: |args| {
        Move::parse(args)?;
        move_terms(args.at(5))
    },
    execute: |args, turns, keys, writer| {
        let sides = Move::parse(args)?;
        sides.execute(args, turns, keys, writer)
    },
};
const BRPOPLPUSH: BlockingCommand = BlockingCommand {
    plan: None,
    terms: |args| move_terms(args.at(3)),
    execute: |args, turns, keys, writer| Move::RIGHT_TO_LEFT.execute(args, turns, keys, writer),
};

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListSide {
    Left,
    Right,
}

impl ListSide {
    fn parse(arg: &[u8]) -> Result<ListSide, Refusal> {
        match () {
            () if is(arg, "left") => Ok(ListSide::Left),
            () if is(arg, "right") => Ok(ListSide::Right),
            () => Err(Refusal::Syntax),
        }
    }

    fn pop(self) -> u16 {
        match self {
            ListSide::Left => values::lists::LPOP,
            ListSide::Right => values::lists::RPOP,
        }
    }

    fn push(self) -> u16 {
        match self {
            ListSide::Left => values::lists::LPUSH,
            ListSide::Right => values::lists::RPUSH,
        }
    }

    /// Returns the index of the element at this end.
    fn index(self) -> &'static [u8] {
        match self {
            ListSide::Left => b"0",
            ListSide::Right => b"-1",
        }
    }
}

/// Executes a command on the list of a key.
fn call(
    keys: &mut TransactionKeys<'_, '_>,
    key: &[u8],
    (command, args): (u16, &[&[u8]]),
) -> Result<OwnedReply, CompoundStop> {
    let call = ValueCall {
        command,
        seed: 0,
        args: args.into(),
    };
    keys.call(key, call)
}

/// Executes a command that removes elements at the first key of these names that has some. Returns the name and
/// the reply.
fn call_at_first<'a>(
    names: Args<'a>,
    turns: &KeyTurns,
    keys: &mut TransactionKeys<'_, '_>,
    command: (u16, &[&[u8]]),
) -> Result<Option<(&'a [u8], OwnedReply)>, CompoundStop> {
    for name in names.iter() {
        let may_look = turns.has(name);
        if !may_look && !turns.is_first {
            continue;
        }
        match call(keys, name, (values::lists::LLEN, &[])) {
            Ok(OwnedReply::Int(0)) => {}
            Ok(_) if may_look => return Ok(Some((name, call(keys, name, command)?))),
            Ok(_) => {}
            Err(CompoundStop::Refused(Refusal::Failed(OpError::WrongType))) if !turns.is_first => {}
            Err(stop) => return Err(stop),
        }
    }
    Ok(None)
}

fn pop_terms(args: Args<'_>) -> Result<Option<WaitTerms>, Refusal> {
    let last = args.len() - 1;
    Ok(Some(WaitTerms {
        awaits: AwaitedKind::List,
        timeout: wait_seconds(args.at(last))?,
        keys: 1..last,
    }))
}

/// `BLPOP key [key …] timeout`, `BRPOP`.
fn pop_first(
    side: ListSide,
    args: Args<'_>,
    turns: &KeyTurns,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<WaitFinding, CompoundStop> {
    let names = args.range(1..args.len() - 1);
    let command: (u16, &[&[u8]]) = match planted::is(Bug::DoubledPop) && !turns.is_first {
        true => (values::lists::LINDEX, &[side.index()]),
        false => (side.pop(), &[]),
    };
    let Some((key, OwnedReply::Bytes(element))) = call_at_first(names, turns, keys, command)?
    else {
        writer.null_array();
        return Ok(WaitFinding::Nothing);
    };
    writer.array(2);
    writer.bulk(database::client_key(key));
    writer.bulk(&element);
    Ok(WaitFinding::Found)
}

/// The arguments of `LMPOP` and `BLMPOP` behind the number of keys.
struct ManyPop<'a> {
    /// The number of keys.
    keys: usize,
    side: ListSide,
    count: &'a [u8],
}

impl<'a> ManyPop<'a> {
    /// Parses arguments, of which the one at `at` is the number of keys.
    fn parse(args: Args<'a>, at: usize) -> Result<ManyPop<'a>, Refusal> {
        let positive = |arg, refusal| match int(arg) {
            Ok(number @ 1..) => Ok(number as usize),
            _ => Err(Refusal::Text(refusal)),
        };
        let keys = positive(args.at(at), "ERR numkeys should be greater than 0")?;
        let side_at = at.saturating_add(keys).saturating_add(1);
        let side = ListSide::parse(args.get(side_at).ok_or(Refusal::Syntax)?)?;
        let mut count = None;
        let mut rest = args.from(side_at + 1);
        while let Some(option) = rest.get(0) {
            match rest.get(1) {
                Some(number) if is(option, "count") && count.is_none() => {
                    positive(number, "ERR count should be greater than 0")?;
                    count = Some(number);
                }
                _ => return Err(Refusal::Syntax),
            }
            rest = rest.from(2);
        }
        let count = count.unwrap_or(b"1");
        Ok(ManyPop { keys, side, count })
    }
}

/// Executes `LMPOP` or `BLMPOP`, whose number of keys is at a place among the arguments.
fn pop_many(
    (args, at): (Args<'_>, usize),
    pop: &ManyPop<'_>,
    turns: &KeyTurns,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<WaitFinding, CompoundStop> {
    let names = args.range(at + 1..at + 1 + pop.keys);
    let found = call_at_first(names, turns, keys, (pop.side.pop(), &[pop.count]))?;
    let Some((key, OwnedReply::Nested(elements))) = found else {
        writer.null_array();
        return Ok(WaitFinding::Nothing);
    };
    writer.array(2);
    writer.bulk(database::client_key(key));
    for item in elements.items() {
        match item {
            NestedItem::Array(count) => writer.array(count),
            NestedItem::Bytes(element) => writer.bulk(element),
            _ => {}
        }
    }
    Ok(WaitFinding::Found)
}

/// `LMPOP numkeys key [key …] LEFT|RIGHT [COUNT count]`.
fn lmpop(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let pop = ManyPop::parse(args, 1)?;
    pop_many((args, 1), &pop, &KeyTurns::ALL, keys, writer)?;
    Ok(())
}

/// The ends between which an element moves.
struct Move {
    from: ListSide,
    to: ListSide,
}

impl Move {
    const RIGHT_TO_LEFT: Move = Move {
        from: ListSide::Right,
        to: ListSide::Left,
    };

    /// Parses the arguments of `LMOVE`.
    fn parse(args: Args<'_>) -> Result<Move, Refusal> {
        Ok(Move {
            from: ListSide::parse(args.at(3))?,
            to: ListSide::parse(args.at(4))?,
        })
    }

    /// Moves an element.
    fn execute(
        &self,
        args: Args<'_>,
        turns: &KeyTurns,
        keys: &mut TransactionKeys<'_, '_>,
        writer: &mut Writer<'_>,
    ) -> Result<WaitFinding, CompoundStop> {
        let (from, to) = (args.at(1), args.at(2));
        let element = match call(keys, from, (values::lists::LINDEX, &[self.from.index()])) {
            Ok(OwnedReply::Bytes(element)) if turns.has(from) => element,
            Err(CompoundStop::Refused(Refusal::Failed(OpError::WrongType))) if !turns.is_first => {
                writer.null();
                return Ok(WaitFinding::Nothing);
            }
            Err(stop) => return Err(stop),
            Ok(_) => {
                writer.null();
                return Ok(WaitFinding::Nothing);
            }
        };
        // The events come in this order.
        call(keys, to, (self.to.push(), &[&element]))?;
        call(keys, from, (self.from.pop(), &[]))?;
        writer.bulk(&element);
        Ok(WaitFinding::Found)
    }
}

fn move_terms(timeout: &[u8]) -> Result<Option<WaitTerms>, Refusal> {
    let timeout = wait_seconds(timeout)?;
    Ok(Some(WaitTerms {
        awaits: AwaitedKind::List,
        timeout,
        keys: 1..2,
    }))
}

/// `LMOVE source destination LEFT|RIGHT LEFT|RIGHT`.
fn lmove(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let sides = Move::parse(args)?;
    sides.execute(args, &KeyTurns::ALL, keys, writer)?;
    Ok(())
}

/// `RPOPLPUSH source destination`.
fn rpoplpush(
    args: Args<'_>,
    keys: &mut TransactionKeys<'_, '_>,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    Move::RIGHT_TO_LEFT.execute(args, &KeyTurns::ALL, keys, writer)?;
    Ok(())
}
