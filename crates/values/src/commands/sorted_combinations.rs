//! Unions, intersections and differences of sorted sets and sets; the members of a set have the score 1.

use base::nested::NestedReply;
use base::transaction::{Kind, OpError};

use super::sorted_replies::{members_reply, push_member};
use crate::call::{ChangedData, StoredBlock, StoredData};
use crate::packed::PackedView;
use crate::sorted_set::{ScoredMember, SortedSetEditor, SortedSetView};

/// How several sets become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CombinationKind {
    /// The members of all sets.
    Union,
    /// The members that every set has.
    Intersection,
    /// The members of the first set that no other set has.
    Difference,
}

/// How the scores of a member become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScoreAggregate {
    /// Their sum.
    #[default]
    Sum,
    /// The least one.
    Min,
    /// The greatest one.
    Max,
}

/// A combination of sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    /// How the sets become one.
    pub kind: CombinationKind,
    /// For each set the factor of its scores; none: all are 1.
    pub weights: Box<[f64]>,
    /// How the scores of a member become one.
    pub aggregate: ScoreAggregate,
}

/// A set that is combined.
struct CombinedSource<'v> {
    members: Vec<ScoredMember<'v>>,
    weight: f64,
}

impl ScoreAggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            ScoreAggregate::Sum => number_of(one + other),
            ScoreAggregate::Min if other < one => other,
            ScoreAggregate::Max if other > one => other,
            _ => one,
        }
    }
}

/// Returns a number, and 0 in place of NaN: the sum of infinities, or the product of one and 0.
fn number_of(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// Returns the members of a set in the order of their bytes; those of a sorted set with their scores.
fn members_of(source: Option<StoredBlock<'_>>) -> Result<Vec<ScoredMember<'_>>, OpError> {
    let Some(source) = source else {
        return Ok(Vec::new());
    };
    let mut members: Vec<ScoredMember<'_>> = match source.kind {
        Kind::SortedSet => SortedSetView::new(StoredData::Bytes(source.bytes))
            .iter()
            .collect(),
        Kind::Set => {
            let elements = PackedView::new(source.bytes).iter();
            let scored = elements.map(|element| ScoredMember {
                member: element.first,
                score: 1.0,
            });
            scored.collect()
        }
        _ => return Err(OpError::WrongType),
    };
    members.sort_unstable_by_key(|own| own.member);
    Ok(members)
}

/// Returns the score of a member among members in the order of their bytes.
fn score_in(members: &[ScoredMember<'_>], member: &[u8]) -> Option<f64> {
    let found = members.binary_search_by_key(&member, |own| own.member);
    found.ok().map(|at| members[at].score)
}

/// Checks that sources are sorted sets or sets.
///
/// # Errors
/// [`OpError::WrongType`]: one is neither.
pub fn check_sources(sources: &[Option<StoredBlock<'_>>]) -> Result<(), OpError> {
    let kinds = sources.iter().flatten().map(|source| source.kind);
    let are_sets = kinds
        .into_iter()
        .all(|kind| matches!(kind, Kind::SortedSet | Kind::Set));
    are_sets.then_some(()).ok_or(OpError::WrongType)
}

/// Returns the number of members that all sources have, or `limit` if there are more.
///
/// # Errors
/// [`OpError::WrongType`]: a source is neither a sorted set nor a set.
pub fn intersection_size(
    sources: &[Option<StoredBlock<'_>>],
    limit: usize,
) -> Result<usize, OpError> {
    let members = sources.iter().map(|source| members_of(*source));
    let mut members = members.collect::<Result<Vec<_>, _>>()?;
    members.sort_by_key(Vec::len);
    let Some((first, others)) = members.split_first() else {
        return Ok(0);
    };
    let common = first.iter().filter(|own| {
        let mut others = others.iter();
        others.all(|other| score_in(other, own.member).is_some())
    });
    Ok(common.take(limit).count())
}

impl Combination {
    /// Returns the members of the combination.
    ///
    /// # Errors
    /// [`OpError::WrongType`]: a source is neither a sorted set nor a set.
    pub fn reply(
        &self,
        sources: &[Option<StoredBlock<'_>>],
        with_scores: bool,
    ) -> Result<NestedReply, OpError> {
        let members = self.members(sources)?;
        let mut reply = members_reply(members.len(), with_scores);
        let members = members.into_iter();
        members.for_each(|own| push_member(&mut reply, own, with_scores));
        Ok(reply)
    }

    /// Returns the combination as a sorted set, and the number of its members; `None` if it has none.
    ///
    /// # Errors
    /// As [`Combination::reply`].
    pub fn stored(
        &self,
        sources: &[Option<StoredBlock<'_>>],
    ) -> Result<Option<(Vec<u8>, usize)>, OpError> {
        let members = self.members(sources)?;
        let mut stored = SortedSetEditor::new(StoredData::Bytes(b""));
        members.iter().for_each(|own| stored.push(*own));
        let stored = stored.into_changed().and_then(ChangedData::into_bytes);
        Ok(stored.map(|bytes| (bytes, members.len())))
    }

    /// Returns the members in their order.
    fn members<'v>(
        &self,
        sources: &[Option<StoredBlock<'v>>],
    ) -> Result<Vec<ScoredMember<'v>>, OpError> {
        let sources = sources.iter().enumerate().map(|(number, source)| {
            let members = members_of(*source)?;
            let weight = self.weights.get(number).copied().unwrap_or(1.0);
            Ok(CombinedSource { members, weight })
        });
        let mut sources = sources.collect::<Result<Vec<_>, OpError>>()?;
        if self.kind != CombinationKind::Difference {
            // The order in which scores are added is Redis's.
            sources.sort_by_key(|source| source.members.len());
        }
        let mut members = match self.kind {
            CombinationKind::Union => self.union(&sources),
            CombinationKind::Intersection => self.intersection(&sources),
            CombinationKind::Difference => difference(sources),
        };
        members.sort_unstable_by(ScoredMember::compare);
        Ok(members)
    }

    fn union<'v>(&self, sources: &[CombinedSource<'v>]) -> Vec<ScoredMember<'v>> {
        let all = sources.iter().flat_map(|source| {
            let weighted = |own: &ScoredMember<'v>| ScoredMember {
                member: own.member,
                score: number_of(source.weight * own.score),
            };
            source.members.iter().map(weighted)
        });
        let mut all: Vec<ScoredMember<'v>> = all.collect();
        all.sort_by_key(|own| own.member);
        all.dedup_by(|next, kept| {
            let is_same = next.member == kept.member;
            if is_same {
                kept.score = self.aggregate.of(kept.score, next.score);
            }
            is_same
        });
        all
    }

    fn intersection<'v>(&self, sources: &[CombinedSource<'v>]) -> Vec<ScoredMember<'v>> {
        let Some((first, others)) = sources.split_first() else {
            return Vec::new();
        };
        let common = first.members.iter().filter_map(|own| {
            let score = number_of(first.weight * own.score);
            let score = others.iter().try_fold(score, |score, other| {
                let found = score_in(&other.members, own.member)?;
                Some(self.aggregate.of(score, other.weight * found))
            })?;
            let member = own.member;
            Some(ScoredMember { member, score })
        });
        common.collect()
    }
}

fn difference(sources: Vec<CombinedSource<'_>>) -> Vec<ScoredMember<'_>> {
    let mut sources = sources.into_iter();
    let mut members = sources.next().map_or(Vec::new(), |first| first.members);
    for other in sources {
        members.retain(|own| score_in(&other.members, own.member).is_none());
    }
    members
}
