//! Commands on ranges of sorted sets: by ranks, by scores, and by members where all scores are equal.

use std::ops::Range;

use base::double::parse_bound;
use base::key_event::KeyEvent;
use base::number::parse_int;
use base::transaction::{CallError, Kind, OpError, Reply};

use super::sorted_replies::{changed, members_reply, push_member, view_of};
use crate::call::{
    CallArguments, CallOutcome, ChangedData, StoredBlock, StoredData, StoredValue, data_of,
};
use crate::sorted_set::{SortedSetEditor, SortedSetView};

/// One end of a range of scores.
#[derive(Clone, Copy)]
struct ScoreBound {
    score: f64,
    is_exclusive: bool,
}

/// One end of a range of members.
#[derive(Clone, Copy)]
enum MemberBound<'c> {
    /// Before all members.
    Least,
    Inclusive(&'c [u8]),
    Exclusive(&'c [u8]),
    /// Behind all members.
    Greatest,
}

/// A range of members, from its least one to its greatest one.
#[derive(Clone, Copy)]
enum MemberRange<'c> {
    /// By ranks; negative ones count from the end, or with a reversed order from the beginning.
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Members(MemberBound<'c>, MemberBound<'c>),
}

/// The kind of a range.
#[derive(Clone, Copy, PartialEq)]
enum RangeKind {
    Ranks,
    Scores,
    Members,
}

impl ScoreBound {
    fn parse(text: &[u8]) -> Result<ScoreBound, OpError> {
        let (is_exclusive, number) = match text {
            [b'(', number @ ..] => (true, number),
            number => (false, number),
        };
        let score = parse_bound(number).ok_or(OpError::Call(CallError::BadScoreBound))?;
        Ok(ScoreBound {
            score,
            is_exclusive,
        })
    }
}

impl<'c> MemberBound<'c> {
    fn parse(text: &'c [u8]) -> Result<MemberBound<'c>, OpError> {
        match text {
            [b'-'] => Ok(MemberBound::Least),
            [b'+'] => Ok(MemberBound::Greatest),
            [b'[', member @ ..] => Ok(MemberBound::Inclusive(member)),
            [b'(', member @ ..] => Ok(MemberBound::Exclusive(member)),
            _ => Err(OpError::Call(CallError::BadMemberBound)),
        }
    }

    /// Returns `true` if a member is before a range that begins here.
    fn is_behind(self, member: &[u8]) -> bool {
        match self {
            MemberBound::Least => false,
            MemberBound::Inclusive(first) => member < first,
            MemberBound::Exclusive(before) => member <= before,
            MemberBound::Greatest => true,
        }
    }

    /// Returns `true` if a member is not behind a range that ends here.
    fn is_not_before(self, member: &[u8]) -> bool {
        match self {
            MemberBound::Least => false,
            MemberBound::Inclusive(last) => member <= last,
            MemberBound::Exclusive(behind) => member < behind,
            MemberBound::Greatest => true,
        }
    }
}

impl<'c> MemberRange<'c> {
    fn parse(kind: RangeKind, [least, greatest]: [&'c [u8]; 2]) -> Result<Self, OpError> {
        let rank = |text| parse_int(text).ok_or(OpError::NotInteger);
        Ok(match kind {
            RangeKind::Ranks => MemberRange::Ranks(rank(least)?, rank(greatest)?),
            RangeKind::Scores => {
                MemberRange::Scores(ScoreBound::parse(least)?, ScoreBound::parse(greatest)?)
            }
            RangeKind::Members => {
                MemberRange::Members(MemberBound::parse(least)?, MemberBound::parse(greatest)?)
            }
        })
    }

    /// Returns the ranks of the members in the range; those of a range by ranks count backwards if `reversed`.
    fn ranks(&self, set: SortedSetView<'_>, reversed: bool) -> Range<usize> {
        let (start, end) = match self {
            MemberRange::Ranks(first, last) => {
                return ranks_of((*first, *last), set.len(), reversed);
            }
            MemberRange::Scores(least, greatest) => (
                set.rank_behind(|own| match least.is_exclusive {
                    true => own.score <= least.score,
                    false => own.score < least.score,
                }),
                set.rank_behind(|own| match greatest.is_exclusive {
                    true => own.score < greatest.score,
                    false => own.score <= greatest.score,
                }),
            ),
            MemberRange::Members(least, greatest) => (
                set.rank_behind(|own| least.is_behind(own.member)),
                set.rank_behind(|own| greatest.is_not_before(own.member)),
            ),
        };
        start..end.max(start)
    }
}

/// Returns the ranks from one to another, which count from the end if they are negative, of `len` members.
fn ranks_of((first, last): (i64, i64), len: usize, reversed: bool) -> Range<usize> {
    let len = len as i64;
    let absolute = |rank: i64| {
        if rank < 0 {
            rank.saturating_add(len)
        } else {
            rank
        }
    };
    let (first, last) = (absolute(first).max(0), absolute(last).min(len - 1));
    if first > last {
        return 0..0;
    }
    match reversed {
        true => (len - 1 - last) as usize..(len - first) as usize,
        false => first as usize..last as usize + 1,
    }
}

/// A call of a command that reads a range.
struct RangeQuery<'c> {
    range: MemberRange<'c>,
    reversed: bool,
    with_scores: bool,
    offset: i64,
    limit: i64,
}

/// The options that a command has by its name.
#[derive(Clone, Copy, Default)]
struct RangeForm {
    kind: Option<RangeKind>,
    reversed: Option<bool>,
    stores: bool,
}

impl<'c> RangeQuery<'c> {
    /// Parses the bounds and the options behind them.
    fn parse(form: RangeForm, args: &[&'c [u8]]) -> Result<RangeQuery<'c>, OpError> {
        const SYNTAX: OpError = OpError::Call(CallError::Syntax);
        let Some((bounds, mut options)) = args.split_first_chunk::<2>() else {
            return Err(OpError::Call(CallError::Arity));
        };
        let RangeForm {
            mut kind,
            mut reversed,
            stores,
        } = form;
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        let int = |text| parse_int(text).ok_or(OpError::NotInteger);
        while let [option, rest @ ..] = options {
            options = rest;
            match (option.to_ascii_lowercase().as_slice(), rest) {
                (b"withscores", _) if !stores => with_scores = true,
                (b"limit", [first, count, rest @ ..]) => {
                    (offset, limit) = (int(first)?, int(count)?);
                    options = rest;
                }
                (b"rev", _) if reversed.is_none() => reversed = Some(true),
                (b"bylex", _) if kind.is_none() => kind = Some(RangeKind::Members),
                (b"byscore", _) if kind.is_none() => kind = Some(RangeKind::Scores),
                _ => return Err(SYNTAX),
            }
        }
        let (kind, reversed) = (kind.unwrap_or(RangeKind::Ranks), reversed == Some(true));
        if limit != -1 && kind == RangeKind::Ranks {
            return Err(OpError::Call(CallError::LimitOfRanks));
        }
        if with_scores && kind == RangeKind::Members {
            return Err(OpError::Call(CallError::ScoresByLex));
        }
        let bounds = match reversed && kind != RangeKind::Ranks {
            true => [bounds[1], bounds[0]],
            false => *bounds,
        };
        Ok(RangeQuery {
            range: MemberRange::parse(kind, bounds)?,
            reversed,
            with_scores,
            offset: if kind == RangeKind::Ranks { 0 } else { offset },
            limit,
        })
    }

    /// Returns the ranks of the members in the range that the options leave.
    fn ranks(&self, set: SortedSetView<'_>) -> Range<usize> {
        let ranks = self.range.ranks(set, self.reversed);
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let skipped = offset.min(ranks.len());
        let count = limit.min(ranks.len() - skipped);
        match self.reversed {
            true => ranks.end - skipped - count..ranks.end - skipped,
            false => ranks.start + skipped..ranks.start + skipped + count,
        }
    }
}

fn read_range<'v>(
    form: RangeForm,
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let query = RangeQuery::parse(form, call.args)?;
    let set = view_of(value)?;
    let ranks = query.ranks(set);
    let mut reply = members_reply(ranks.len(), query.with_scores);
    set.for_each(ranks, query.reversed, |own| {
        push_member(&mut reply, own, query.with_scores);
    });
    Ok(CallOutcome::unchanged(Reply::Nested(reply)))
}

/// Returns the form of a range whose kind and order the command's name says.
fn fixed(kind: RangeKind, reversed: bool) -> RangeForm {
    RangeForm {
        kind: Some(kind),
        reversed: Some(reversed),
        stores: false,
    }
}

/// `ZRANGE key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`.
pub(super) fn zrange<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    read_range(RangeForm::default(), call, value)
}

/// `ZREVRANGE key start stop [WITHSCORES]`.
pub(super) fn zrevrange<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    read_range(fixed(RangeKind::Ranks, true), call, value)
}

/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`.
pub(super) fn zrangebyscore<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    read_range(fixed(RangeKind::Scores, false), call, value)
}

/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`.
pub(super) fn zrevrangebyscore<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    read_range(fixed(RangeKind::Scores, true), call, value)
}

/// `ZRANGEBYLEX key min max [LIMIT offset count]`.
pub(super) fn zrangebylex<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    read_range(fixed(RangeKind::Members, false), call, value)
}

/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`.
pub(super) fn zrevrangebylex<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    read_range(fixed(RangeKind::Members, true), call, value)
}

/// Returns the sorted set that `ZRANGESTORE` stores, and the number of its members; `None` if it has none. The
/// arguments are those behind the keys.
///
/// # Errors
/// Returns an error if the arguments are refused, or if the source is no sorted set.
pub fn stored_range(
    args: &[&[u8]],
    source: Option<StoredBlock<'_>>,
) -> Result<Option<(Vec<u8>, usize)>, OpError> {
    let form = RangeForm {
        stores: true,
        ..RangeForm::default()
    };
    let query = RangeQuery::parse(form, args)?;
    let source = view_of(source.map(Into::into))?;
    let ranks = query.ranks(source);
    let count = ranks.len();
    let mut stored = SortedSetEditor::new(StoredData::Bytes(b""));
    source.for_each(ranks, false, |own| stored.push(own));
    let stored = stored.into_changed().and_then(ChangedData::into_bytes);
    Ok(stored.map(|bytes| (bytes, count)))
}

/// `ZCOUNT key min max`.
pub(super) fn zcount<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    count(RangeKind::Scores, call, value)
}

/// `ZLEXCOUNT key min max`.
pub(super) fn zlexcount<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    count(RangeKind::Members, call, value)
}

fn count<'v>(
    kind: RangeKind,
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let range = range_of(kind, call)?;
    let ranks = range.ranks(view_of(value)?, false);
    Ok(CallOutcome::unchanged(Reply::Int(ranks.len() as i64)))
}

/// `ZREMRANGEBYRANK key start stop`.
pub(super) fn zremrangebyrank<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    remove_range(RangeKind::Ranks, KeyEvent::SortedRemoveByRank, call, value)
}

/// `ZREMRANGEBYSCORE key min max`.
pub(super) fn zremrangebyscore<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    remove_range(
        RangeKind::Scores,
        KeyEvent::SortedRemoveByScore,
        call,
        value,
    )
}

/// `ZREMRANGEBYLEX key min max`.
pub(super) fn zremrangebylex<'v>(
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    remove_range(RangeKind::Members, KeyEvent::SortedRemoveByLex, call, value)
}

fn remove_range<'v>(
    kind: RangeKind,
    event: KeyEvent,
    call: CallArguments<'_>,
    value: Option<StoredValue<'v>>,
) -> Result<CallOutcome<'v>, OpError> {
    let range = range_of(kind, call)?;
    let mut set = SortedSetEditor::new(data_of(value, Kind::SortedSet)?);
    let ranks = range.ranks(set.view(), false);
    let removed = ranks.len() as i64;
    set.remove_range(ranks);
    Ok(changed(Reply::Int(removed), event, set))
}

/// Returns the range of a command that has no options.
fn range_of<'c>(kind: RangeKind, call: CallArguments<'c>) -> Result<MemberRange<'c>, OpError> {
    match *call.args {
        [least, greatest] => MemberRange::parse(kind, [least, greatest]),
        _ => Err(OpError::Call(CallError::Arity)),
    }
}
