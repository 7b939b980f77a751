//! Sorted sets: an element is a blob of the score and the member, in the order of these.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | the score, big-endian: the bits of the double, all of them inverted if it is negative, else only the sign |
//! | … | the member |
//!
//! So the order of the blobs' bytes is the order of scores, and of members with the same score. No score is NaN
//! or the negative zero.

use std::cmp::Ordering;
use std::ops::Range;

use smallvec::SmallVec;

use crate::packed::{Element, Elements, Form, PackedEditor, PackedView};

/// The bytes of a score.
pub(crate) const SCORE: usize = 8;
const SIGN: u64 = 1 << 63;

/// A member of a sorted set, with its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScoredMember<'v> {
    pub(crate) member: &'v [u8],
    pub(crate) score: f64,
}

impl<'v> ScoredMember<'v> {
    /// Returns the member of an element.
    #[inline]
    fn of(element: &Element<'v>) -> ScoredMember<'v> {
        let (score, member) = element
            .first
            .split_first_chunk()
            .unwrap_or((&[0; SCORE], b""));
        let bits = u64::from_be_bytes(*score);
        let bits = if bits & SIGN == 0 { !bits } else { bits ^ SIGN };
        ScoredMember {
            member,
            score: f64::from_bits(bits),
        }
    }

    /// Compares two members by the order of sorted sets.
    pub(crate) fn compare(&self, other: &ScoredMember<'_>) -> Ordering {
        let scores = self.score.partial_cmp(&other.score);
        let scores = scores.unwrap_or(Ordering::Equal);
        scores.then_with(|| self.member.cmp(other.member))
    }

    /// Returns the blob of its element.
    fn blob(self) -> SmallVec<[u8; 72]> {
        // The sum makes the negative zero a positive one.
        let bits = (self.score + 0.0).to_bits();
        let bits = if bits & SIGN == 0 { bits ^ SIGN } else { !bits };
        let mut blob = SmallVec::with_capacity(SCORE + self.member.len());
        blob.extend_from_slice(&bits.to_be_bytes());
        blob.extend_from_slice(self.member);
        blob
    }
}

/// A sorted set that is read.
#[derive(Clone, Copy)]
pub(crate) struct SortedSetView<'v>(PackedView<'v>);

impl<'v> SortedSetView<'v> {
    /// Returns the sorted set of a value; no bytes are one without members.
    pub(crate) fn new(bytes: &'v [u8]) -> SortedSetView<'v> {
        SortedSetView(PackedView::new(bytes))
    }

    /// Returns the number of members.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Returns the members in their order.
    #[inline]
    pub(crate) fn iter(self) -> SortedMembers<'v> {
        SortedMembers(self.0.iter())
    }

    /// Returns the members with this score and greater ones.
    pub(crate) fn from_score(self, least: f64) -> impl Iterator<Item = ScoredMember<'v>> {
        self.iter().skip_while(move |own| own.score < least)
    }

    /// Returns the rank and the score of a member.
    pub(crate) fn find(self, member: &[u8]) -> Option<(usize, f64)> {
        let mut members = self.iter().enumerate();
        let found = members.find(|(_, own)| own.member == member);
        found.map(|(rank, own)| (rank, own.score))
    }

    /// Returns the rank of the first member for which a condition does not hold; none behind it may meet it.
    pub(crate) fn rank_behind(self, mut holds: impl FnMut(ScoredMember<'v>) -> bool) -> usize {
        self.iter().take_while(|own| holds(*own)).count()
    }

    /// Calls a function for the members with these ranks, in their order or backwards.
    pub(crate) fn for_each(
        self,
        ranks: Range<usize>,
        backwards: bool,
        mut each: impl FnMut(ScoredMember<'v>),
    ) {
        let members = self.iter().skip(ranks.start).take(ranks.len());
        match backwards {
            false => members.for_each(each),
            true => {
                let members: SmallVec<[ScoredMember<'v>; 32]> = members.collect();
                members.iter().rev().for_each(|own| each(*own));
            }
        }
    }
}

/// The members of a sorted set; see [`SortedSetView::iter`].
#[derive(Clone)]
pub(crate) struct SortedMembers<'v>(Elements<'v>);

impl<'v> Iterator for SortedMembers<'v> {
    type Item = ScoredMember<'v>;

    #[inline]
    fn next(&mut self) -> Option<ScoredMember<'v>> {
        self.0.next().as_ref().map(ScoredMember::of)
    }
}

/// A sorted set that is changed.
pub(crate) struct SortedSetEditor<'v>(PackedEditor<'v>);

impl<'v> SortedSetEditor<'v> {
    /// Begins to change the sorted set of a value; no bytes are one without members.
    pub(crate) fn new(bytes: &'v [u8]) -> SortedSetEditor<'v> {
        SortedSetEditor(PackedEditor::new(Form::Single, bytes))
    }

    /// Returns the sorted set as it is now.
    pub(crate) fn view(&self) -> SortedSetView<'_> {
        SortedSetView(self.0.view())
    }

    /// Gives a member the score that `score` returns for the one that it has, or for `None` if it is new.
    /// Returns the number that `score` has returned; `None`, and then also an unchanged score, changes nothing.
    pub(crate) fn set<E>(
        &mut self,
        member: &[u8],
        score: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<(), E> {
        let found = self.position(member);
        let Some(new) = score(found.as_ref().map(|(_, score)| *score))? else {
            return Ok(());
        };
        let blob = ScoredMember { member, score: new }.blob();
        let element = Some((&blob[..], &b""[..]));
        let old = found.map(|(place, _)| place);
        match old {
            None => {
                let at = self.place_of(&blob, None);
                self.0.replace(at..at, 0, element);
            }
            Some(old) => {
                let at = self.place_of(&blob, Some(&old));
                if at == old.start || at == old.end {
                    self.0.replace(old, 1, element);
                } else if at > old.end {
                    self.0.replace(at..at, 0, element);
                    self.0.replace(old, 1, None);
                } else {
                    self.0.replace(old, 1, None);
                    self.0.replace(at..at, 0, element);
                }
            }
        }
        Ok(())
    }

    /// Adds a member that is behind all others.
    pub(crate) fn push(&mut self, member: ScoredMember<'_>) {
        self.0.push(&member.blob(), b"");
    }

    /// Removes a member. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let found = self.position(member);
        let is_there = found.is_some();
        if let Some((place, _)) = found {
            self.0.replace(place, 1, None);
        }
        is_there
    }

    /// Removes the members with these ranks, all of which there must be.
    pub(crate) fn remove_range(&mut self, ranks: Range<usize>) {
        if ranks.is_empty() {
            return;
        }
        let mut elements = self.0.view().iter().skip(ranks.start);
        let first = elements.next();
        let last = elements.nth(ranks.len().saturating_sub(2));
        let first = first.map_or(0..0, |element| element.place);
        let end = match ranks.len() {
            1 => first.end,
            _ => last.map_or(first.end, |element| element.place.end),
        };
        self.0.replace(first.start..end, ranks.len(), None);
    }

    /// Returns the bytes of the changed value; `None` if nothing was changed.
    pub(crate) fn into_changed(self) -> Option<Vec<u8>> {
        self.0.into_changed()
    }

    /// Returns the place of a member's element, and its score.
    fn position(&self, member: &[u8]) -> Option<(Range<usize>, f64)> {
        let mut elements = self.0.view().iter();
        let found = elements.find(|element| element.first.get(SCORE..) == Some(member));
        found.map(|element| (element.place.clone(), ScoredMember::of(&element).score))
    }

    /// Returns where an element with this blob begins if it is added and the `old` one is not there.
    fn place_of(&self, blob: &[u8], old: Option<&Range<usize>>) -> usize {
        let mut end = PackedView::FIRST;
        for element in self.0.view().iter() {
            if element.first > blob && old != Some(&element.place) {
                return element.place.start;
            }
            end = element.place.end;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes, beside a sorted vector.
    #[test]
    fn members_are_where_their_scores_are() {
        let mut random = fastrand::Rng::with_seed(4);
        let (mut bytes, mut model) = (Vec::new(), Vec::<(f64, Vec<u8>)>::new());
        for _ in 0..4000 {
            let mut set = SortedSetEditor::new(&bytes);
            for _ in 0..random.usize(1..3) {
                let member = vec![b'a' + random.u8(..20); random.usize(..4)];
                let score = match random.u8(..10) {
                    0 => f64::INFINITY,
                    1 => f64::NEG_INFINITY,
                    2 => -0.0,
                    _ => f64::from(random.i8(-5..5)) / 2.0,
                };
                let old = model.iter().position(|(_, own)| *own == member);
                match random.u8(..8) {
                    0 => {
                        assert_eq!(set.remove(&member), old.is_some());
                        old.map(|at| model.remove(at));
                    }
                    1 => {
                        let start = random.usize(..=model.len());
                        let end = random.usize(start..=model.len().min(start + 3));
                        set.remove_range(start..end);
                        model.drain(start..end);
                    }
                    _ => {
                        let before = old.map(|at| model.remove(at).0);
                        let set_to = set.set(&member, |own| {
                            assert_eq!(own, before);
                            Ok::<_, ()>(Some(score))
                        });
                        assert_eq!(set_to, Ok(()));
                        model.push((score + 0.0, member));
                        model.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
                    }
                }
            }
            bytes = set.into_changed().unwrap_or(bytes);
            let view = SortedSetView::new(&bytes);
            assert_eq!(view.len(), model.len());
            let pairs = view.iter().map(|own| (own.score, own.member.to_vec()));
            assert_eq!(pairs.collect::<Vec<_>>(), model);
            if let Some((score, member)) = model.get(random.usize(..model.len().max(1))) {
                let rank = model.iter().position(|own| own.1 == *member);
                assert_eq!(view.find(member), rank.map(|rank| (rank, *score)));
                let behind = model.partition_point(|own| own.0 <= *score);
                assert_eq!(view.rank_behind(|own| own.score <= *score), behind);
                let mut backwards = Vec::new();
                view.for_each(0..behind, true, |own| backwards.push(own.member.to_vec()));
                let expected = model[..behind].iter().rev().map(|own| own.1.clone());
                assert_eq!(backwards, expected.collect::<Vec<_>>());
            }
        }
    }
}
