//! `SORT` and `SORT_RO`. The keys that the patterns of `BY` and `GET` name may be on any node: they are read when it is
//! known which these are.

use base::database;
use base::key_event::KeyEvent;
use base::transaction::Kind;
use resp::{Args, Writer};
use values::sort::{self, SortCriterion, SortPattern};

use super::arguments::{int, is};
use crate::command::CommandKind::Compound;
use crate::command::{CommandDefinition, CompoundStop, commands};
use crate::refusal::{Refusal, write_op_error};
use crate::working_set::{Need, WorkingSet, WorkingValue};

/// The commands of this family.
pub(super) const COMMANDS: &[CommandDefinition] = commands! { "generic";
    "sort" -2 "write denyoom movablekeys" SORT("RO access; OW update") "set sortedset list dangerous" ""
        "1.0.0" "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
        Compound(sort), "The elements of a list, a set or a sorted set in an order; stores them if a key is given.";
    "sort_ro" -2 "readonly movablekeys" SORT_READ_ONLY("RO access") "set sortedset list dangerous" ""
        "7.0.0" "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
        Compound(sort_ro), "The elements of a list, a set or a sorted set in an order.";
};

/// The options.
struct SortOptions<'a> {
    descends: bool,
    are_texts: bool,
    limit: (i64, i64),
    by: Option<SortPattern<'a>>,
    /// Elements stay in their order: a pattern of `BY` has named no key.
    stays: bool,
    get: Vec<SortPattern<'a>>,
    store: Option<&'a [u8]>,
}

impl<'a> SortOptions<'a> {
    fn parse(args: Args<'a>, may_store: bool) -> Result<SortOptions<'a>, Refusal> {
        let mut options = SortOptions {
            descends: false,
            are_texts: false,
            limit: (0, -1),
            by: None,
            stays: false,
            get: Vec::new(),
            store: None,
        };
        let mut at = 2;
        while let Some(option) = args.get(at) {
            at += 1;
            match (args.get(at), args.get(at + 1)) {
                _ if is(option, "asc") => options.descends = false,
                _ if is(option, "desc") => options.descends = true,
                _ if is(option, "alpha") => options.are_texts = true,
                (Some(from), Some(most)) if is(option, "limit") => {
                    options.limit = (int(from)?, int(most)?);
                    at += 2;
                }
                (Some(key), _) if is(option, "store") && may_store => {
                    options.store = Some(key);
                    at += 1;
                }
                (Some(pattern), _) if is(option, "by") => {
                    let pattern = SortPattern::parse(pattern);
                    options.stays |= !matches!(pattern, SortPattern::Key { .. });
                    options.by = Some(pattern);
                    at += 1;
                }
                (Some(pattern), _) if is(option, "get") => {
                    options.get.push(SortPattern::parse(pattern));
                    at += 1;
                }
                _ => return Err(Refusal::Syntax),
            }
        }
        Ok(options)
    }
}

fn sort(args: Args<'_>, set: &mut WorkingSet, writer: &mut Writer<'_>) -> Result<(), CompoundStop> {
    let options = SortOptions::parse(args, true)?;
    execute(args.at(1), &options, set, writer)
}

fn sort_ro(
    args: Args<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let options = SortOptions::parse(args, false)?;
    execute(args.at(1), &options, set, writer)
}

fn execute(
    key: &[u8],
    options: &SortOptions<'_>,
    set: &mut WorkingSet,
    writer: &mut Writer<'_>,
) -> Result<(), CompoundStop> {
    let found = sorted(key, options, set)?;
    let Some(to) = options.store else {
        writer.array(found.len());
        found.into_iter().for_each(|found| match found {
            Some(bytes) => writer.bulk(bytes),
            None => writer.null(),
        });
        return Ok(());
    };
    let count = found.len();
    let bytes = sort::list(found.into_iter().map(Option::unwrap_or_default));
    let value = bytes.map(|bytes| WorkingValue {
        kind: Kind::List,
        bytes,
        deadline: None,
    });
    let event = match value {
        Some(_) => KeyEvent::SortStore,
        None => KeyEvent::Del,
    };
    let done = match value.is_some() || set.value(to).is_some() {
        true => set.set(to, value).map(|()| set.note(to, event)),
        false => Ok(()),
    };
    match done {
        Ok(()) => writer.int(count as i64),
        Err(error) => write_op_error(error, "sort", writer),
    }
    Ok(())
}

/// Returns the elements in their order, or what the patterns of `GET` name for each of them.
fn sorted<'v>(
    key: &[u8],
    options: &SortOptions<'_>,
    set: &'v WorkingSet,
) -> Result<Vec<Option<&'v [u8]>>, CompoundStop> {
    let database = database::number(key);
    let value = set.stored(key);
    let mut elements = sort::elements(value).map_err(Refusal::Failed)?;
    let is_set = value.is_some_and(|value| value.kind == Kind::Set);
    let (by, order) = match (options.stays, options.are_texts) {
        // The elements of a set have no order: the result must be the same wherever it is computed.
        (true, _) if is_set => (None, SortCriterion::Text),
        (true, _) => (None, SortCriterion::None),
        (false, true) => (options.by, SortCriterion::Text),
        (false, false) => (options.by, SortCriterion::Number),
    };
    if order == SortCriterion::None && options.descends {
        elements.reverse();
    }
    if let Some(pattern) = by {
        require(set, database, &[pattern], &elements)?;
    }
    let weighted = elements.into_iter().map(|element| match by {
        Some(pattern) => (element, found(set, database, pattern, element)),
        None => (element, Some(element)),
    });
    let ordered = sort::sort(weighted.collect(), order, options.descends);
    let ordered = ordered.map_err(Refusal::Failed)?;
    let shown = &ordered[sort::limited(ordered.len(), options.limit)];
    if options.get.is_empty() {
        return Ok(shown.iter().map(|element| Some(*element)).collect());
    }
    require(set, database, &options.get, shown)?;
    let of_each = shown.iter().flat_map(|element| {
        let patterns = options.get.iter();
        patterns.map(|pattern| found(set, database, *pattern, element))
    });
    Ok(of_each.collect())
}

/// Checks that the keys that patterns name for elements have been read.
fn require(
    set: &WorkingSet,
    database: u16,
    patterns: &[SortPattern<'_>],
    elements: &[&[u8]],
) -> Result<(), Need> {
    let keys = elements.iter().flat_map(|element| {
        let keys = patterns.iter().filter_map(|pattern| pattern.key(element));
        keys.map(|key| database::qualified(database, &key))
    });
    let keys: Vec<Vec<u8>> = keys.collect();
    set.require(keys.iter().map(|key| &key[..]))
}

/// Returns what a pattern names for an element.
fn found<'v>(
    set: &'v WorkingSet,
    database: u16,
    pattern: SortPattern<'_>,
    element: &'v [u8],
) -> Option<&'v [u8]> {
    let key = pattern.key(element);
    let key = key.map(|key| database::qualified(database, &key));
    let value = key.and_then(|key| set.stored(&key));
    pattern.found(element, value, set.time_ms())
}
