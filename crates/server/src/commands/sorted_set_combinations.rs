//! Commands on several sorted sets, which may be in different slots, on different nodes.

use std::ops::Range;

use base::Op;
use base::double::parse_double;
use base::key_event::KeyEvent;
use resp::{Args, Writer};
use values::StoredBlock;
use values::commands::{Combination, CombinationKind, ScoreAggregate, check_sources, stored_range};

use super::arguments::{int, is};
use super::sorted_set_results::store;
use crate::command::CommandKind::{Compound, Store};
use crate::command::{CommandDefinition, CompoundStop, Ops, Planned, commands};
use crate::refusal::Refusal;
use crate::render::{CombinedMembers, Computation, Render, SortedSetComputation};
use crate::working_set::WorkingSet;

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "sorted-set";
    "zunion" -3 "readonly movablekeys" COUNTED_FIRST("RO access") "sortedset" ""
        "6.2.0" "O(N*log(N)) where N is the number of members of all sets.",
        Store(zunion), "The union of sorted sets.";
    "zinter" -3 "readonly movablekeys" COUNTED_FIRST("RO access") "sortedset" ""
        "6.2.0" "O(N*log(N)) where N is the number of members of all sets.",
        Store(zinter), "The intersection of sorted sets.";
    "zdiff" -3 "readonly movablekeys" COUNTED_FIRST("RO access") "sortedset" ""
        "6.2.0" "O(N*log(N)) where N is the number of members of all sets.",
        Store(zdiff), "The members of a sorted set that no other one has.";
    "zintercard" -3 "readonly movablekeys" COUNTED_FIRST("RO access") "sortedset" ""
        "7.0.0" "O(N*log(N)) where N is the number of members of all sets.",
        Store(zintercard), "How many members sorted sets have in common.";
    "zunionstore" -4 "write denyoom movablekeys" ONE_AND_COUNTED("OW update; RO access") "sortedset" ""
        "2.0.0" "O(N*log(N)) where N is the number of members of all sets.",
        Compound(zunionstore), "Stores the union of sorted sets; answers how many members it has.";
    "zinterstore" -4 "write denyoom movablekeys" ONE_AND_COUNTED("OW update; RO access") "sortedset" ""
        "2.0.0" "O(N*log(N)) where N is the number of members of all sets.",
        Compound(zinterstore), "Stores the intersection of sorted sets; answers how many members it has.";
    "zdiffstore" -4 "write denyoom movablekeys" ONE_AND_COUNTED("OW update; RO access") "sortedset" ""
        "6.2.0" "O(N*log(N)) where N is the number of members of all sets.",
        Compound(zdiffstore), "Stores the members of a sorted set that no other one has; answers how many there are.";
    "zrangestore" -5 "write denyoom" FIRST_TWO("OW update; RO access") "sortedset" ""
        "6.2.0" "O(log(N)+M) with N members in the source and M stored ones.",
        Compound(zrangestore), "Stores the members in a range; answers how many there are.";
};

/// A command on counted keys.
struct CountedKeys<'a> {
    args: Args<'a>,
    keys: Range<usize>,
}

impl<'a> CountedKeys<'a> {
    /// Finds the keys, whose number is the argument with this index.
    fn parse(command: &str, args: Args<'a>, number: usize) -> Result<CountedKeys<'a>, Refusal> {
        let count = int(args.at(number))?;
        if count < 1 {
            let text = format!("ERR at least 1 input key is needed for '{command}' command");
            return Err(Refusal::Owned(text.into_bytes()));
        }
        let (first, left) = (number + 1, args.len() - number - 1);
        match usize::try_from(count) {
            Ok(count) if count <= left => Ok(CountedKeys {
                args,
                keys: first..first + count,
            }),
            _ => Err(Refusal::Syntax),
        }
    }

    fn keys(&self) -> impl Iterator<Item = &'a [u8]> {
        self.keys.clone().map(|at| self.args.at(at))
    }

    /// Plans to read the keys.
    fn plan_reads(&self, ops: &mut Ops<'a>) {
        ops.extend(self.keys().map(|key| Op::GetAny { key }));
    }

    /// Parses the options behind the keys; scores can be asked for unless the result is stored.
    fn options(&self, kind: CombinationKind, stores: bool) -> Result<CombinedMembers, Refusal> {
        let mut members = CombinedMembers {
            combination: Combination {
                kind,
                weights: Box::default(),
                aggregate: ScoreAggregate::default(),
            },
            with_scores: false,
        };
        let is_weighted = kind != CombinationKind::Difference;
        let mut at = self.keys.end;
        while let Some(option) = self.args.get(at) {
            let behind = self.args.from(at + 1);
            if is_weighted && behind.len() >= self.keys.len() && is(option, "weights") {
                let weights = behind.iter().take(self.keys.len()).map(parse_double);
                let weights = weights.collect::<Option<_>>();
                members.combination.weights =
                    weights.ok_or(Refusal::Text("ERR weight value is not a float"))?;
                at += self.keys.len();
            } else if is_weighted && !behind.is_empty() && is(option, "aggregate") {
                members.combination.aggregate = aggregate(behind.at(0))?;
                at += 1;
            } else if !stores && is(option, "withscores") {
                members.with_scores = true;
            } else {
                return Err(Refusal::Syntax);
            }
            at += 1;
        }
        Ok(members)
    }

    /// Parses the options of `ZINTERCARD`, and returns the limit.
    fn limit(&self) -> Result<usize, Refusal> {
        let mut limit = usize::MAX;
        let mut options = self.args.from(self.keys.end);
        while !options.is_empty() {
            if options.len() < 2 || !is(options.at(0), "limit") {
                return Err(Refusal::Syntax);
            }
            const NEGATIVE: Refusal = Refusal::Text("ERR LIMIT can't be negative");
            let number = int(options.at(1)).map_err(|_| NEGATIVE)?;
            limit = match usize::try_from(number).map_err(|_| NEGATIVE)? {
                0 => usize::MAX,
                number => number,
            };
            options = options.from(2);
        }
        Ok(limit)
    }
}

fn aggregate(arg: &[u8]) -> Result<ScoreAggregate, Refusal> {
    let all = [
        ("sum", ScoreAggregate::Sum),
        ("min", ScoreAggregate::Min),
        ("max", ScoreAggregate::Max),
    ];
    let own = all.into_iter().find(|(word, _)| is(arg, word));
    own.map(|(_, aggregate)| aggregate).ok_or(Refusal::Syntax)
}

fn zunion<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    combine("zunion", CombinationKind::Union, args, ops)
}

fn zinter<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    combine("zinter", CombinationKind::Intersection, args, ops)
}

fn zdiff<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    combine("zdiff", CombinationKind::Difference, args, ops)
}

fn combine<'a>(
    command: &str,
    kind: CombinationKind,
    args: Args<'a>,
    ops: &mut Ops<'a>,
) -> Planned<'a> {
    let keys = CountedKeys::parse(command, args, 1)?;
    keys.plan_reads(ops);
    let computation = SortedSetComputation::Members(keys.options(kind, false));
    Ok(Render::computed(Computation::SortedSets(computation)))
}

fn zintercard<'a>(args: Args<'a>, ops: &mut Ops<'a>) -> Planned<'a> {
    let keys = CountedKeys::parse("zintercard", args, 1)?;
    keys.plan_reads(ops);
    let computation = SortedSetComputation::IntersectionSize(keys.limit());
    Ok(Render::computed(Computation::SortedSets(computation)))
}

fn zunionstore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let command = ("zunionstore", KeyEvent::SortedUnionStore);
    store_combination(command, CombinationKind::Union, args, set, writer)
}

fn zinterstore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let command = ("zinterstore", KeyEvent::SortedInterStore);
    store_combination(command, CombinationKind::Intersection, args, set, writer)
}

fn zdiffstore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let command = ("zdiffstore", KeyEvent::SortedDiffStore);
    store_combination(command, CombinationKind::Difference, args, set, writer)
}

/// Executes a command, which has a name and an event.
fn store_combination(
    (command, event): (&str, KeyEvent),
    kind: CombinationKind,
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let keys = CountedKeys::parse(command, args, 2)?;
    let sources: Vec<Option<StoredBlock<'_>>> = keys.keys().map(|key| set.stored(key)).collect();
    check_sources(&sources).map_err(Refusal::Failed)?;
    let combination = keys.options(kind, true)?.combination;
    let stored = combination.stored(&sources).map_err(Refusal::Failed)?;
    store(set, args.at(1), stored, event, writer);
    Ok(())
}

fn zrangestore(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let range: Vec<&[u8]> = args.from(3).iter().collect();
    let stored = stored_range(&range, set.stored(args.at(2))).map_err(Refusal::Failed)?;
    store(set, args.at(1), stored, KeyEvent::SortedRangeStore, writer);
    Ok(())
}
