//! Sets: an element is a member.
//!
//! 1. As long as a set has had nothing but integers, at most [`MOST_INTEGERS`], its form is [`BlockForm::Integers`], and
//!    members are in numeric order.
//! 2. Else its form is [`BlockForm::Single`], and members are in the order in which they came.

use base::number::parse_int;

use crate::call::{ChangedData, StoredData};
use crate::collection::{CollectionView, map_key, without_hash};
use crate::collection_editor::CollectionEditor;
use crate::packed::{BlockForm, Elements, PackedEditor, PackedView};
use crate::tree::{KeyOrder, TreeCursor, TreeView};

/// The most members of a set that is in numeric order: Redis's `set-max-intset-entries`.
pub(crate) const MOST_INTEGERS: usize = 512;

/// A set that is read.
#[derive(Clone, Copy)]
pub(crate) enum SetView<'v> {
    Packed(PackedView<'v>),
    Tree(TreeView<'v, KeyOrder>),
}

impl<'v> SetView<'v> {
    /// Returns the set of a value; no bytes are a set without members.
    pub(crate) fn new(data: StoredData<'v>) -> SetView<'v> {
        match data {
            StoredData::Bytes(bytes) => SetView::Packed(PackedView::new(bytes)),
            StoredData::Tree(view) => SetView::of(view),
            StoredData::Editor(editor) => SetView::of(editor.view()),
        }
    }

    fn of(view: CollectionView<'v>) -> SetView<'v> {
        match view {
            CollectionView::Set(tree) => SetView::Tree(tree),
            _ => SetView::Packed(PackedView::new(b"")),
        }
    }

    /// Returns the number of members.
    pub(crate) fn len(self) -> usize {
        match self {
            SetView::Packed(block) => block.len(),
            SetView::Tree(tree) => tree.len(),
        }
    }

    /// Returns `true` if the members are integers in their numeric order.
    pub(crate) fn is_of_integers(self) -> bool {
        match self {
            SetView::Packed(block) => block.form() == Some(BlockForm::Integers),
            SetView::Tree(_) => false,
        }
    }

    /// Returns `true` if the set has this member.
    pub(crate) fn contains(self, member: &[u8]) -> bool {
        match self {
            SetView::Packed(block) => {
                let is_possible = !self.is_of_integers() || parse_int(member).is_some();
                is_possible && block.find(member).is_some()
            }
            SetView::Tree(tree) => tree.get(&map_key(member)).is_some(),
        }
    }

    /// Returns the members in their order.
    pub(crate) fn iter(self) -> SetMembers<'v> {
        match self {
            SetView::Packed(block) => SetMembers::Packed(block.iter()),
            SetView::Tree(tree) => SetMembers::Tree(tree.iter()),
        }
    }

    /// Returns the member at a position.
    pub(crate) fn nth(self, position: usize) -> Option<&'v [u8]> {
        match self {
            SetView::Packed(block) => block.nth(position).map(|element| element.first),
            SetView::Tree(tree) => tree.nth(position).map(|(key, _)| without_hash(key)),
        }
    }
}

/// The members of a set; see [`SetView::iter`].
#[derive(Clone)]
pub(crate) enum SetMembers<'v> {
    Packed(Elements<'v>),
    Tree(TreeCursor<'v, KeyOrder>),
}

impl<'v> Iterator for SetMembers<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        match self {
            SetMembers::Packed(elements) => elements.next().map(|element| element.first),
            SetMembers::Tree(cursor) => cursor.next().map(|(key, _)| without_hash(key)),
        }
    }
}

/// A set that is changed.
pub(crate) enum SetEditor<'v> {
    Packed(PackedEditor<'v>),
    Tree(&'v mut CollectionEditor),
}

impl<'v> SetEditor<'v> {
    /// Begins to change the set of a value; no bytes are a set without members.
    pub(crate) fn new(data: StoredData<'v>) -> SetEditor<'v> {
        match data {
            StoredData::Bytes(bytes) => {
                let form = PackedView::new(bytes).form().unwrap_or(BlockForm::Integers);
                SetEditor::Packed(PackedEditor::new(form, bytes))
            }
            StoredData::Editor(editor) => SetEditor::Tree(editor),
            StoredData::Tree(_) => unreachable!("a command that writes gets an editor"),
        }
    }

    /// Returns the set as it is now.
    pub(crate) fn view(&self) -> SetView<'_> {
        match self {
            SetEditor::Packed(block) => SetView::Packed(block.view()),
            SetEditor::Tree(editor) => SetView::of(editor.view()),
        }
    }

    /// Adds a member. Returns `true` if it is new.
    pub(crate) fn add(&mut self, member: &[u8]) -> bool {
        let view = self.view();
        let is_of_integers = view.len() == 0 || view.is_of_integers();
        match self {
            SetEditor::Packed(block) if is_of_integers => add_to_integers(block, member),
            SetEditor::Packed(block) => {
                let is_new = block.view().find(member).is_none();
                if is_new {
                    block.push(member, b"");
                }
                is_new
            }
            SetEditor::Tree(editor) => {
                !SetView::of(editor.view()).contains(member) && editor.put(member, b"")
            }
        }
    }

    /// Removes a member. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let block = match self {
            SetEditor::Tree(editor) => return editor.remove(member),
            SetEditor::Packed(block) => block,
        };
        let found = block.view().find(member);
        let place = found.map(|(_, element)| element.place);
        if let Some(place) = place.clone() {
            block.replace(place, 1, None);
        }
        place.is_some()
    }

    /// Removes the member at a position.
    pub(crate) fn remove_at(&mut self, position: usize) {
        match self {
            SetEditor::Packed(block) => {
                let place = block.view().nth(position).map(|element| element.place);
                place
                    .iter()
                    .for_each(|place| block.replace(place.clone(), 1, None));
            }
            SetEditor::Tree(_) => self.remove_all_at(&[position]),
        }
    }

    /// Removes the members at positions, which are in ascending order and not those of all members.
    pub(crate) fn remove_all_at(&mut self, positions: &[usize]) {
        let view = self.view();
        let is_of_integers = view.is_of_integers();
        match self {
            SetEditor::Packed(block) => {
                let mut removed = positions.iter().copied().peekable();
                let members = block.view().iter().enumerate();
                let kept = members.filter(|(at, _)| removed.next_if_eq(at).is_none());
                *block = packed_of(kept.map(|(_, element)| element.first), is_of_integers);
            }
            SetEditor::Tree(editor) => {
                let set = SetView::of(editor.view());
                let members = positions.iter().filter_map(|at| set.nth(*at));
                let members: Vec<Vec<u8>> = members.map(<[u8]>::to_vec).collect();
                for member in &members {
                    editor.remove(member);
                }
            }
        }
    }

    /// Returns what was changed; `None`: nothing.
    pub(crate) fn into_changed(self) -> Option<ChangedData> {
        match self {
            SetEditor::Packed(block) => block.into_changed().map(ChangedData::Bytes),
            SetEditor::Tree(editor) => editor.is_changed().then_some(ChangedData::Edited),
        }
    }
}

/// Adds a member to a block of which all members are integers. Returns `true` if it is new.
fn add_to_integers(block: &mut PackedEditor<'_>, member: &[u8]) -> bool {
    let Some(number) = parse_int(member) else {
        block.set_form(BlockForm::Single);
        block.push(member, b"");
        return true;
    };
    let is_behind = |other: &[u8]| parse_int(other).is_none_or(|other| number <= other);
    let view = block.view();
    let next = view.iter().find(|element| is_behind(element.first));
    if next.as_ref().is_some_and(|next| next.first == member) {
        return false;
    }
    let (len, place) = (view.len(), next.map(|next| next.place.start));
    block.set_form(match len {
        MOST_INTEGERS => BlockForm::Single,
        _ => BlockForm::Integers,
    });
    match place {
        Some(at) => block.replace(at..at, 0, Some((member, b""))),
        None => block.push(member, b""),
    }
    true
}

/// Returns a block of members, of which no two are the same.
pub(crate) fn packed_of<'m, 'n>(
    members: impl Iterator<Item = &'m [u8]>,
    are_integers: bool,
) -> PackedEditor<'n> {
    let form = match are_integers {
        true => BlockForm::Integers,
        false => BlockForm::Single,
    };
    let mut packed = PackedEditor::new(form, b"");
    members.for_each(|member| packed.push(member, b""));
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(bytes: &[u8]) -> Vec<Vec<u8>> {
        let members = SetView::new(StoredData::Bytes(bytes)).iter();
        members.map(<[u8]>::to_vec).collect()
    }

    /// Returns a member that is an integer, as a rule.
    fn any_member(random: &mut fastrand::Rng, texts: u32) -> Vec<u8> {
        match random.u32(..1000) < texts {
            true => vec![b'a' + random.u8(..6); random.usize(..4)],
            false => random.i64(-40..40).to_string().into_bytes(),
        }
    }

    #[test]
    fn a_set_is_what_was_done_to_it() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut of_integers = 0;
        for round in 0..300 {
            let (mut model, mut bytes, mut sorted) = (Vec::new(), Vec::new(), true);
            for _ in 0..60 {
                let mut set = SetEditor::new(StoredData::Bytes(&bytes));
                let member = any_member(&mut random, round);
                let at = model.iter().position(|other| *other == member);
                match random.u8(..5) {
                    0 => {
                        assert_eq!(set.remove(&member), at.is_some());
                        at.map(|at| model.remove(at));
                    }
                    1 if !model.is_empty() => {
                        let number = random.usize(..=model.len());
                        let mut removed: Vec<usize> = (0..model.len()).collect();
                        random.shuffle(&mut removed);
                        removed.truncate(number);
                        removed.sort_unstable();
                        set.remove_all_at(&removed);
                        removed.iter().rev().for_each(|at| drop(model.remove(*at)));
                        if model.is_empty() {
                            assert!(set.into_changed().is_none());
                            bytes.clear();
                            sorted = true;
                            continue;
                        }
                    }
                    2 if !model.is_empty() => {
                        let at = random.usize(..model.len());
                        set.remove_at(at);
                        model.remove(at);
                    }
                    _ => {
                        assert_eq!(set.add(&member), at.is_none());
                        if at.is_none() {
                            sorted = parse_int(&member).is_some() && (sorted || model.is_empty());
                            model.push(member);
                        }
                    }
                }
                if let Some(changed) = set.into_changed().and_then(ChangedData::into_bytes) {
                    bytes = changed;
                }
                if sorted {
                    model.sort_by_key(|member| parse_int(member));
                }
                assert_eq!(members(&bytes), model);
                let view = SetView::new(StoredData::Bytes(&bytes));
                assert_eq!(view.len(), model.len());
                assert!(model.iter().all(|member| view.contains(member)));
                assert!(!view.contains(b"nosuch") && !view.contains(b"1000"));
                of_integers += u32::from(view.is_of_integers());
            }
        }
        assert!(of_integers > 1000, "{of_integers}");
    }

    #[test]
    fn many_integers_are_kept_as_they_come() {
        let mut set = SetEditor::new(StoredData::Bytes(b""));
        for number in (0..MOST_INTEGERS).rev() {
            assert!(set.add(number.to_string().as_bytes()));
        }
        assert!(set.view().is_of_integers());
        assert_eq!(set.view().nth(3), Some(&b"3"[..]));
        assert!(set.add(b"-1") && !set.add(b"7") && set.add(b"-2"));
        assert!(!set.view().is_of_integers());
        assert_eq!(set.view().nth(MOST_INTEGERS + 1), Some(&b"-2"[..]));
    }
}
