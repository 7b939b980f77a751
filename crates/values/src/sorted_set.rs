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

use crate::call::{ChangedData, StoredData};
use crate::collection::{CollectionView, map_key};
use crate::collection_editor::CollectionEditor;
use crate::packed::{BlockForm, Elements, PackedEditor, PackedView};
use crate::tree::{KeyOrder, TreeCursor, TreeView};

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
    /// Returns a member with a score as a tree has it.
    pub(crate) fn new(member: &'v [u8], score: &'v [u8]) -> ScoredMember<'v> {
        let score = score_of(score);
        ScoredMember { member, score }
    }

    /// Returns the member of a blob.
    #[inline]
    fn of(blob: &'v [u8]) -> ScoredMember<'v> {
        ScoredMember {
            member: blob.get(SCORE..).unwrap_or_default(),
            score: score_of(blob),
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

/// Returns the score at the beginning of a blob.
#[inline]
fn score_of(blob: &[u8]) -> f64 {
    let bits = blob
        .first_chunk()
        .map_or(SIGN, |score| u64::from_be_bytes(*score));
    f64::from_bits(if bits & SIGN == 0 { !bits } else { bits ^ SIGN })
}

/// A sorted set that is read.
#[derive(Clone, Copy)]
pub(crate) enum SortedSetView<'v> {
    Packed(PackedView<'v>),
    /// By score, and by member.
    Tree(TreeView<'v, KeyOrder>, TreeView<'v, KeyOrder>),
}

impl<'v> SortedSetView<'v> {
    /// Returns the sorted set of a value; no bytes are one without members.
    pub(crate) fn new(data: StoredData<'v>) -> SortedSetView<'v> {
        match data {
            StoredData::Bytes(bytes) => SortedSetView::Packed(PackedView::new(bytes)),
            StoredData::Tree(view) => SortedSetView::of(view),
            StoredData::Editor(editor) => SortedSetView::of(editor.view()),
        }
    }

    fn of(view: CollectionView<'v>) -> SortedSetView<'v> {
        match view {
            CollectionView::Sorted(scores, members) => SortedSetView::Tree(scores, members),
            _ => SortedSetView::Packed(PackedView::new(b"")),
        }
    }

    /// Returns the tree of members and their scores, if there is one.
    pub(crate) fn tree_by_member(self) -> Option<TreeView<'v, KeyOrder>> {
        match self {
            SortedSetView::Packed(_) => None,
            SortedSetView::Tree(_, members) => Some(members),
        }
    }

    /// Returns the number of members.
    pub(crate) fn len(self) -> usize {
        match self {
            SortedSetView::Packed(block) => block.len(),
            SortedSetView::Tree(scores, _) => scores.len(),
        }
    }

    /// Returns the members in their order.
    #[inline]
    pub(crate) fn iter(self) -> SortedMembers<'v> {
        match self {
            SortedSetView::Packed(block) => SortedMembers::Packed(block.iter()),
            SortedSetView::Tree(scores, _) => SortedMembers::Tree(scores.iter()),
        }
    }

    /// Returns the members with this score and greater ones.
    pub(crate) fn at_least(self, least: f64) -> impl Iterator<Item = ScoredMember<'v>> {
        let members = match self {
            SortedSetView::Packed(block) => SortedMembers::Packed(block.iter()),
            SortedSetView::Tree(scores, _) => {
                let (member, score) = (&b""[..], least);
                let first = ScoredMember { member, score }.blob();
                SortedMembers::Tree(scores.cursor_from(&first))
            }
        };
        members.skip_while(move |own| own.score < least)
    }

    /// Returns the score of a member.
    pub(crate) fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            SortedSetView::Packed(_) => self.find(member).map(|(_, score)| score),
            SortedSetView::Tree(_, members) => members.get(&map_key(member)).map(score_of),
        }
    }

    /// Returns the rank and the score of a member.
    pub(crate) fn find(self, member: &[u8]) -> Option<(usize, f64)> {
        match self {
            SortedSetView::Packed(block) => {
                let (rank, own) = block.find_behind(SCORE, member)?;
                Some((rank, score_of(own.first)))
            }
            SortedSetView::Tree(scores, _) => {
                let score = self.score(member)?;
                let rank = scores.rank(&ScoredMember { member, score }.blob());
                Some((rank.ok()?, score))
            }
        }
    }

    /// Returns the rank of the first member for which a condition does not hold; none behind it may meet it.
    pub(crate) fn rank_behind(self, mut holds: impl FnMut(ScoredMember<'v>) -> bool) -> usize {
        let SortedSetView::Tree(scores, _) = self else {
            return self.iter().take_while(|own| holds(*own)).count();
        };
        let (mut behind, mut end) = (0, scores.len());
        while behind < end {
            let middle = behind + (end - behind) / 2;
            let own = scores.nth(middle).map(|(key, _)| ScoredMember::of(key));
            match own.is_some_and(&mut holds) {
                true => behind = middle + 1,
                false => end = middle,
            }
        }
        behind
    }

    /// Calls a function for the members with these ranks, in their order or backwards.
    pub(crate) fn for_each(
        self,
        ranks: Range<usize>,
        backwards: bool,
        mut each: impl FnMut(ScoredMember<'v>),
    ) {
        match self {
            SortedSetView::Packed(block) => {
                let elements = block.iter().skip(ranks.start).take(ranks.len());
                let members = elements.map(|own| ScoredMember::of(own.first));
                if !backwards {
                    return members.for_each(each);
                }
                let members: SmallVec<[ScoredMember<'v>; 32]> = members.collect();
                members.iter().rev().for_each(|own| each(*own));
            }
            SortedSetView::Tree(scores, _) if backwards => {
                let mut cursor = scores.cursor_at(ranks.end);
                for _ in ranks {
                    let Some((key, _)) = cursor.prev() else {
                        return;
                    };
                    each(ScoredMember::of(key));
                }
            }
            SortedSetView::Tree(scores, _) => {
                let members = scores.cursor_at(ranks.start).take(ranks.len());
                members.for_each(|(key, _)| each(ScoredMember::of(key)));
            }
        }
    }
}

/// The members of a sorted set; see [`SortedSetView::iter`].
#[derive(Clone)]
pub(crate) enum SortedMembers<'v> {
    Packed(Elements<'v>),
    Tree(TreeCursor<'v, KeyOrder>),
}

impl<'v> Iterator for SortedMembers<'v> {
    type Item = ScoredMember<'v>;

    #[inline]
    fn next(&mut self) -> Option<ScoredMember<'v>> {
        let blob = match self {
            SortedMembers::Packed(elements) => elements.next()?.first,
            SortedMembers::Tree(cursor) => cursor.next()?.0,
        };
        Some(ScoredMember::of(blob))
    }
}

/// A sorted set that is changed.
pub(crate) enum SortedSetEditor<'v> {
    Packed(PackedEditor<'v>),
    Tree(&'v mut CollectionEditor),
}

impl<'v> SortedSetEditor<'v> {
    /// Begins to change the sorted set of a value; no bytes are one without members.
    pub(crate) fn new(data: StoredData<'v>) -> SortedSetEditor<'v> {
        match data {
            StoredData::Bytes(bytes) => {
                SortedSetEditor::Packed(PackedEditor::new(BlockForm::Single, bytes))
            }
            StoredData::Editor(editor) => SortedSetEditor::Tree(editor),
            StoredData::Tree(_) => unreachable!("a command that writes gets an editor"),
        }
    }

    /// Returns the sorted set as it is now.
    pub(crate) fn view(&self) -> SortedSetView<'_> {
        match self {
            SortedSetEditor::Packed(block) => SortedSetView::Packed(block.view()),
            SortedSetEditor::Tree(editor) => SortedSetView::of(editor.view()),
        }
    }

    /// Gives a member the score that `score` returns for the one that it has, or for `None` if it is new.
    /// `None`, and then also an unchanged score, changes nothing.
    pub(crate) fn set<E>(
        &mut self,
        member: &[u8],
        score: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<(), E> {
        let block = match self {
            SortedSetEditor::Tree(editor) => {
                let old = SortedSetView::of(editor.view()).score(member);
                if let Some(new) = score(old)?.filter(|new| Some(*new) != old) {
                    let blob = ScoredMember { member, score: new }.blob();
                    editor.put(member, &blob[..SCORE]);
                }
                return Ok(());
            }
            SortedSetEditor::Packed(block) => block,
        };
        let found = position(block, member);
        let Some(new) = score(found.as_ref().map(|(_, score)| *score))? else {
            return Ok(());
        };
        let blob = ScoredMember { member, score: new }.blob();
        let element = Some((&blob[..], &b""[..]));
        let old = found.map(|(place, _)| place);
        let at = place_of(block, &blob, old.as_ref());
        match old {
            None => block.replace(at..at, 0, element),
            Some(old) if at == old.start || at == old.end => block.replace(old, 1, element),
            Some(old) if at > old.end => {
                block.replace(at..at, 0, element);
                block.replace(old, 1, None);
            }
            Some(old) => {
                block.replace(old, 1, None);
                block.replace(at..at, 0, element);
            }
        }
        Ok(())
    }

    /// Adds a member that is behind all others.
    pub(crate) fn push(&mut self, member: ScoredMember<'_>) {
        let blob = member.blob();
        match self {
            SortedSetEditor::Packed(block) => block.push(&blob, b""),
            SortedSetEditor::Tree(editor) => drop(editor.put(member.member, &blob[..SCORE])),
        }
    }

    /// Removes a member. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let block = match self {
            SortedSetEditor::Tree(editor) => return editor.remove(member),
            SortedSetEditor::Packed(block) => block,
        };
        let found = position(block, member);
        let is_there = found.is_some();
        if let Some((place, _)) = found {
            block.replace(place, 1, None);
        }
        is_there
    }

    /// Removes the members with these ranks, all of which there must be.
    pub(crate) fn remove_range(&mut self, ranks: Range<usize>) {
        if ranks.is_empty() {
            return;
        }
        let block = match self {
            SortedSetEditor::Tree(editor) => return editor.remove_range(ranks),
            SortedSetEditor::Packed(block) => block,
        };
        let mut elements = block.view().iter().skip(ranks.start);
        let first = elements.next();
        let last = elements.nth(ranks.len().saturating_sub(2));
        let first = first.map_or(0..0, |element| element.place);
        let end = match ranks.len() {
            1 => first.end,
            _ => last.map_or(first.end, |element| element.place.end),
        };
        block.replace(first.start..end, ranks.len(), None);
    }

    /// Returns what was changed; `None`: nothing.
    pub(crate) fn into_changed(self) -> Option<ChangedData> {
        match self {
            SortedSetEditor::Packed(block) => block.into_changed().map(ChangedData::Bytes),
            SortedSetEditor::Tree(editor) => editor.is_changed().then_some(ChangedData::Edited),
        }
    }
}

/// Returns the place of a member's element, and its score.
fn position(block: &PackedEditor<'_>, member: &[u8]) -> Option<(Range<usize>, f64)> {
    let (_, element) = block.view().find_behind(SCORE, member)?;
    Some((element.place.clone(), score_of(element.first)))
}

/// Returns where an element with this blob begins if it is added and the `old` one is not there.
fn place_of(block: &PackedEditor<'_>, blob: &[u8], old: Option<&Range<usize>>) -> usize {
    let mut end = PackedView::FIRST;
    let score = blob.first_chunk::<SCORE>();
    for element in block.view().iter() {
        let is_behind = match element.first.first_chunk().cmp(&score) {
            Ordering::Equal => element.first > blob,
            by_score => by_score.is_gt(),
        };
        if is_behind && old != Some(&element.place) {
            return element.place.start;
        }
        end = element.place.end;
    }
    end
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
            let mut set = SortedSetEditor::new(StoredData::Bytes(&bytes));
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
            let changed = set.into_changed().and_then(ChangedData::into_bytes);
            bytes = changed.unwrap_or(bytes);
            let view = SortedSetView::new(StoredData::Bytes(&bytes));
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
