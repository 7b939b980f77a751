//! Intersections, unions and differences of sets.

use base::nested::{NestedItem, NestedReply};
use base::number::parse_int;
use base::transaction::{Kind, OpError};
use hashbrown::HashSet;

use crate::call::{StoredBlock, data_of};
use crate::set::{MOST_INTEGERS, SetView, packed_of};

/// A set of more members is hashed before it is searched.
const SEARCHED: usize = 16;

/// How sets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// The members that all sets have.
    Intersection,
    /// The members of all sets.
    Union,
    /// The members of the first set that no other set has.
    Difference,
}

/// The result of a [`SetOperation`].
#[derive(Debug)]
pub struct CombinedSet<'v> {
    members: Vec<&'v [u8]>,
    are_integers: bool,
}

/// The members of a set that is searched again and again.
enum SearchedSet<'v> {
    Few(SetView<'v>),
    Hashed(HashSet<&'v [u8]>),
}

impl<'v> SearchedSet<'v> {
    fn new(set: SetView<'v>) -> SearchedSet<'v> {
        match set.len() {
            0..=SEARCHED => SearchedSet::Few(set),
            _ => SearchedSet::Hashed(set.iter().collect()),
        }
    }

    fn contains(&self, member: &[u8]) -> bool {
        match self {
            SearchedSet::Few(set) => set.contains(member),
            SearchedSet::Hashed(members) => members.contains(member),
        }
    }
}

impl SetOperation {
    /// Combines sets; `None` is an absent key, and a set without members.
    ///
    /// # Errors
    /// [`OpError::WrongType`]: a value is no set.
    pub fn combine<'v>(self, sets: &[Option<StoredBlock<'v>>]) -> Result<CombinedSet<'v>, OpError> {
        let sets = views(sets)?;
        Ok(CombinedSet::new(match self {
            SetOperation::Intersection => intersection(sets, usize::MAX),
            SetOperation::Union => union(&sets),
            SetOperation::Difference => difference(&sets),
        }))
    }
}

/// Returns the number of members that all sets have, and at most `limit`.
///
/// # Errors
/// [`OpError::WrongType`]: a value is no set.
pub fn intersection_size(sets: &[Option<StoredBlock<'_>>], limit: usize) -> Result<usize, OpError> {
    Ok(intersection(views(sets)?, limit).len())
}

fn views<'v>(sets: &[Option<StoredBlock<'v>>]) -> Result<Vec<SetView<'v>>, OpError> {
    let sets = sets
        .iter()
        .map(|set| data_of(set.map(Into::into), Kind::Set));
    sets.map(|data| data.map(SetView::new)).collect()
}

/// Returns at most `limit` members that all sets have, in the order of the smallest set.
fn intersection<'v>(mut sets: Vec<SetView<'v>>, limit: usize) -> Vec<&'v [u8]> {
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else {
        return Vec::new();
    };
    if smallest.len() == 0 {
        return Vec::new();
    }
    let others: Vec<SearchedSet<'_>> = others.iter().copied().map(SearchedSet::new).collect();
    let is_in_all = |member: &&[u8]| others.iter().all(|set| set.contains(member));
    smallest.iter().filter(is_in_all).take(limit).collect()
}

fn union<'v>(sets: &[SetView<'v>]) -> Vec<&'v [u8]> {
    let mut seen = HashSet::new();
    let members = sets.iter().flat_map(|set| set.iter());
    members.filter(|member| seen.insert(*member)).collect()
}

fn difference<'v>(sets: &[SetView<'v>]) -> Vec<&'v [u8]> {
    let Some((first, others)) = sets.split_first() else {
        return Vec::new();
    };
    let others: Vec<SearchedSet<'_>> = others.iter().copied().map(SearchedSet::new).collect();
    let is_in_none = |member: &&[u8]| !others.iter().any(|set| set.contains(member));
    first.iter().filter(is_in_none).collect()
}

impl<'v> CombinedSet<'v> {
    /// Returns the set of members, in numeric order if it is one of integers.
    fn new(mut members: Vec<&'v [u8]>) -> CombinedSet<'v> {
        let are_integers = members.len() <= MOST_INTEGERS
            && members.iter().all(|member| parse_int(member).is_some());
        if are_integers {
            members.sort_by_cached_key(|member| parse_int(member));
        }
        CombinedSet {
            members,
            are_integers,
        }
    }

    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns `true` if there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the members as a reply.
    #[must_use]
    pub fn reply(&self) -> NestedReply {
        let mut reply = NestedReply::default();
        reply.push(NestedItem::Set(self.members.len()));
        self.members.iter().for_each(|member| reply.bytes(member));
        reply
    }

    /// Returns the bytes of the set as a value; `None` if there are no members.
    #[must_use]
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        packed_of(self.members.into_iter(), self.are_integers).into_changed()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::call::{ChangedData, StoredData};
    use crate::set::SetEditor;

    fn any_set(random: &mut fastrand::Rng) -> (BTreeSet<Vec<u8>>, Vec<u8>) {
        let (mut model, mut set) = (BTreeSet::new(), SetEditor::new(StoredData::Bytes(b"")));
        let texts = random.u32(..3);
        for _ in 0..random.usize(..50) {
            let number = random.u32(..60);
            let member = match random.u32(..10) < texts {
                true => format!("m{number}"),
                false => number.to_string(),
            };
            assert_eq!(
                set.add(member.as_bytes()),
                model.insert(member.into_bytes())
            );
        }
        (
            model,
            set.into_changed()
                .and_then(ChangedData::into_bytes)
                .unwrap_or_default(),
        )
    }

    #[test]
    fn sets_are_combined_as_models_are() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..2000 {
            let sets: Vec<_> = (0..random.usize(1..4))
                .map(|_| any_set(&mut random))
                .collect();
            let stored = sets.iter().map(|(_, bytes)| {
                let kind = Kind::Set;
                (!bytes.is_empty()).then_some(StoredBlock { kind, bytes })
            });
            let stored: Vec<_> = stored.collect();
            let mut models = sets.iter().map(|(model, _)| model.clone());
            let first = models.next().expect("there is a set");
            let (mut all, mut any, mut rest) = (first.clone(), first.clone(), first);
            for model in models {
                all = &all & &model;
                any = &any | &model;
                rest = &rest - &model;
            }
            let limit = random.usize(1..10);
            assert_eq!(intersection_size(&stored, limit), Ok(all.len().min(limit)));
            let expected = [
                (SetOperation::Intersection, all),
                (SetOperation::Union, any),
                (SetOperation::Difference, rest),
            ];
            for (operation, expected) in expected {
                let result = operation.combine(&stored).expect("they are sets");
                assert_eq!(result.len(), expected.len());
                let reply: Vec<_> = result
                    .reply()
                    .items()
                    .collect::<Vec<_>>()
                    .iter()
                    .skip(1)
                    .map(|item| match item {
                        NestedItem::Bytes(member) => member.to_vec(),
                        other => panic!("{other:?}"),
                    })
                    .collect();
                let distinct: BTreeSet<_> = reply.iter().cloned().collect();
                assert_eq!(distinct, expected);
                let are_integers = result.are_integers;
                let bytes = result.into_bytes().unwrap_or_default();
                let view = SetView::new(StoredData::Bytes(&bytes));
                assert!(view.iter().eq(reply.iter()));
                assert!(bytes.is_empty() || view.is_of_integers() == are_integers);
                let numbers = reply.iter().map(|member| parse_int(member));
                assert!(!are_integers || numbers.is_sorted());
            }
        }
    }

    #[test]
    fn values_of_other_types_are_refused() {
        let hash = Some(StoredBlock {
            kind: Kind::Hash,
            bytes: b"",
        });
        for sets in [[None, hash], [hash, None]] {
            let wrong = OpError::WrongType;
            assert_eq!(intersection_size(&sets, 1), Err(wrong));
            for operation in [
                SetOperation::Intersection,
                SetOperation::Union,
                SetOperation::Difference,
            ] {
                assert_eq!(operation.combine(&sets).map(|set| set.len()), Err(wrong));
            }
        }
    }
}
