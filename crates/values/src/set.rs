//! Sets: an element is a member.
//!
//! 1. As long as a set has had nothing but integers, at most [`MOST_INTEGERS`], its form is [`Form::Integers`], and
//!    members are in numeric order.
//! 2. Else its form is [`Form::Single`], and members are in the order in which they came.

use base::number::parse_int;

use crate::packed::{Form, PackedEditor, PackedView};

/// The most members of a set that is in numeric order: Redis's `set-max-intset-entries`.
pub(crate) const MOST_INTEGERS: usize = 512;

/// A set that is read.
#[derive(Clone, Copy)]
pub(crate) struct SetView<'v>(PackedView<'v>);

impl<'v> SetView<'v> {
    /// Returns the set of a value; no bytes are a set without members.
    pub(crate) fn new(bytes: &'v [u8]) -> SetView<'v> {
        SetView(PackedView::new(bytes))
    }

    /// Returns the number of members.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the members are integers in their numeric order.
    pub(crate) fn is_of_integers(self) -> bool {
        self.0.form() == Some(Form::Integers)
    }

    /// Returns `true` if the set has this member.
    pub(crate) fn contains(self, member: &[u8]) -> bool {
        let is_possible = !self.is_of_integers() || parse_int(member).is_some();
        is_possible && self.0.find(member).is_some()
    }

    /// Returns the members in their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'v [u8]> + Clone {
        self.0.iter().map(|element| element.first)
    }

    /// Returns the member at a position.
    pub(crate) fn nth(self, position: usize) -> Option<&'v [u8]> {
        self.0.nth(position).map(|element| element.first)
    }
}

/// A set that is changed.
pub(crate) struct SetEditor<'v>(PackedEditor<'v>);

impl<'v> SetEditor<'v> {
    /// Begins to change the set of a value; no bytes are a set without members.
    pub(crate) fn new(bytes: &'v [u8]) -> SetEditor<'v> {
        let form = PackedView::new(bytes).form().unwrap_or(Form::Integers);
        SetEditor(PackedEditor::new(form, bytes))
    }

    /// Returns the set as it is now.
    pub(crate) fn view(&self) -> SetView<'_> {
        SetView(self.0.view())
    }

    /// Adds a member. Returns `true` if it is new.
    pub(crate) fn add(&mut self, member: &[u8]) -> bool {
        let view = self.view();
        if view.len() == 0 || view.is_of_integers() {
            return self.add_to_integers(member);
        }
        let is_new = !view.contains(member);
        if is_new {
            self.0.push(member, b"");
        }
        is_new
    }

    /// As [`SetEditor::add`], to a set of which all members are integers.
    fn add_to_integers(&mut self, member: &[u8]) -> bool {
        let Some(number) = parse_int(member) else {
            self.0.set_form(Form::Single);
            self.0.push(member, b"");
            return true;
        };
        let is_behind = |other: &[u8]| parse_int(other).is_none_or(|other| number <= other);
        let view = self.0.view();
        let next = view.iter().find(|element| is_behind(element.first));
        if next.as_ref().is_some_and(|next| next.first == member) {
            return false;
        }
        let (len, place) = (view.len(), next.map(|next| next.place.start));
        self.0.set_form(match len {
            MOST_INTEGERS => Form::Single,
            _ => Form::Integers,
        });
        match place {
            Some(at) => self.0.replace(at..at, 0, Some((member, b""))),
            None => self.0.push(member, b""),
        }
        true
    }

    /// Removes a member. Returns `true` if it was there.
    pub(crate) fn remove(&mut self, member: &[u8]) -> bool {
        let found = self.0.view().find(member);
        let place = found.map(|(_, element)| element.place);
        if let Some(place) = place.clone() {
            self.0.replace(place, 1, None);
        }
        place.is_some()
    }

    /// Removes the member at a position.
    pub(crate) fn remove_at(&mut self, position: usize) {
        let element = self.0.view().nth(position);
        if let Some(place) = element.map(|element| element.place) {
            self.0.replace(place, 1, None);
        }
    }

    /// Removes the members at positions, which are in ascending order.
    pub(crate) fn remove_all_at(&mut self, positions: &[usize]) {
        let mut removed = positions.iter().copied().peekable();
        let is_of_integers = self.view().is_of_integers();
        let members = self.0.view().iter().enumerate();
        let kept = members.filter(|(at, _)| removed.next_if_eq(at).is_none());
        self.0 = packed_of(kept.map(|(_, element)| element.first), is_of_integers);
    }

    /// Returns the bytes of the changed value; `None` if nothing was changed.
    pub(crate) fn into_changed(self) -> Option<Vec<u8>> {
        self.0.into_changed()
    }
}

/// Returns a block of members, of which no two are the same.
pub(crate) fn packed_of<'m, 'n>(
    members: impl Iterator<Item = &'m [u8]>,
    are_integers: bool,
) -> PackedEditor<'n> {
    let form = match are_integers {
        true => Form::Integers,
        false => Form::Single,
    };
    let mut packed = PackedEditor::new(form, b"");
    members.for_each(|member| packed.push(member, b""));
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(bytes: &[u8]) -> Vec<Vec<u8>> {
        let members = SetView::new(bytes).iter();
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
                let mut set = SetEditor::new(&bytes);
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
                            assert_eq!(set.into_changed(), None);
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
                if let Some(changed) = set.into_changed() {
                    bytes = changed;
                }
                if sorted {
                    model.sort_by_key(|member| parse_int(member));
                }
                assert_eq!(members(&bytes), model);
                let view = SetView::new(&bytes);
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
        let mut set = SetEditor::new(b"");
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
