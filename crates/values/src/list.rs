//! Lists: an element is one blob, in the order of the list.

use std::ops::Range;

use crate::packed::{Element, Elements, Form, PackedEditor, PackedView};

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListEnd {
    /// The head.
    Left,
    /// The tail.
    Right,
}

/// A list that is read.
#[derive(Clone, Copy)]
pub(crate) struct ListView<'v>(PackedView<'v>);

impl<'v> ListView<'v> {
    /// Returns the list of a value; no bytes are a list without elements.
    pub(crate) fn new(bytes: &'v [u8]) -> ListView<'v> {
        ListView(PackedView::new(bytes))
    }

    /// Returns the number of elements.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Returns the element at a position.
    pub(crate) fn nth(self, position: usize) -> Option<&'v [u8]> {
        self.0.nth(position).map(|element| element.first)
    }

    /// Returns the element at a position, with its place.
    pub(crate) fn element(self, position: usize) -> Option<Element<'v>> {
        self.0.nth(position)
    }

    /// Returns the elements: the first blobs.
    pub(crate) fn iter(self) -> Elements<'v> {
        self.0.iter()
    }

    /// Returns the elements at these positions.
    pub(crate) fn range(self, positions: Range<usize>) -> impl Iterator<Item = &'v [u8]> {
        let elements = self.iter().skip(positions.start);
        elements.take(positions.len()).map(|element| element.first)
    }

    /// Returns the position that an index means; negative ones count from the tail.
    pub(crate) fn position(self, index: i64) -> Option<usize> {
        let len = self.len() as i64;
        let index = if index < 0 { index + len } else { index };
        (0..len).contains(&index).then_some(index as usize)
    }

    /// Returns the positions from one index to another, which belongs to them.
    pub(crate) fn positions(self, start: i64, end: i64) -> Range<usize> {
        let len = self.len() as i64;
        let from_head = |index: i64| match index {
            ..0 => index.saturating_add(len).max(0),
            _ => index.min(len),
        };
        let end = match end {
            ..0 => end.saturating_add(len).saturating_add(1).max(0),
            _ => end.saturating_add(1).min(len),
        };
        let start = from_head(start);
        start as usize..end.max(start) as usize
    }

    /// Returns the positions of at most `count` elements at an end.
    pub(crate) fn positions_at(self, end: ListEnd, count: usize) -> Range<usize> {
        let len = self.len();
        let count = count.min(len);
        match end {
            ListEnd::Left => 0..count,
            ListEnd::Right => len - count..len,
        }
    }
}

/// A list that is changed.
pub(crate) struct ListEditor<'v>(PackedEditor<'v>);

impl<'v> ListEditor<'v> {
    /// Begins to change the list of a value; no bytes are a list without elements.
    pub(crate) fn new(bytes: &'v [u8]) -> ListEditor<'v> {
        ListEditor(PackedEditor::new(Form::Single, bytes))
    }

    /// Returns the list as it is now.
    pub(crate) fn view(&self) -> ListView<'_> {
        ListView(self.0.view())
    }

    /// Adds elements at an end, one after the other: at the head the last one comes first.
    pub(crate) fn push(&mut self, end: ListEnd, elements: &[&[u8]]) {
        let blobs = elements.iter().map(|element| (*element, &b""[..]));
        match end {
            ListEnd::Left => {
                let start = self.0.start();
                self.0.splice(start..start, 0, blobs.rev());
            }
            ListEnd::Right => {
                let end = self.0.end();
                self.0.splice(end..end, 0, blobs);
            }
        }
    }

    /// Inserts an element before a position.
    pub(crate) fn insert(&mut self, position: usize, element: &[u8]) {
        let at = match position {
            0 => self.0.start(),
            _ => self.place_of(position - 1..position).end,
        };
        self.0.replace(at..at, 0, Some((element, b"")));
    }

    /// Replaces the element at a position.
    pub(crate) fn set(&mut self, position: usize, element: &[u8]) {
        let place = self.place_of(position..position + 1);
        self.0.replace(place, 1, Some((element, b"")));
    }

    /// Removes the elements at these positions.
    pub(crate) fn remove(&mut self, positions: Range<usize>) {
        if !positions.is_empty() {
            let count = positions.len();
            let place = self.place_of(positions);
            self.0.replace(place, count, None);
        }
    }

    /// Removes the element at this place.
    pub(crate) fn remove_element(&mut self, place: Range<usize>) {
        self.0.replace(place, 1, None);
    }

    /// Removes elements that are equal to this one, at most `most` from an end on. Returns how many.
    pub(crate) fn remove_equal(&mut self, element: &[u8], end: ListEnd, most: usize) -> usize {
        let equal = match end {
            ListEnd::Left => 0,
            // So many of them stay, which come first.
            ListEnd::Right => {
                let equal = self.view().iter().filter(|own| own.first == element);
                equal.count().saturating_sub(most)
            }
        };
        let (mut stay, mut left) = (equal, most);
        self.0.retain(|own| {
            if own.first != element || left == 0 {
                return true;
            }
            if stay > 0 {
                stay -= 1;
                return true;
            }
            left -= 1;
            false
        })
    }

    /// Returns the bytes of the changed value; `None` if nothing was changed.
    pub(crate) fn into_changed(self) -> Option<Vec<u8>> {
        self.0.into_changed()
    }

    /// Returns the place of the elements at these positions.
    fn place_of(&self, positions: Range<usize>) -> Range<usize> {
        let mut elements = self.0.view().iter().skip(positions.start);
        let first = elements.next().map(|element| element.place);
        let first = first.expect("the list has the position");
        match positions.len() {
            ..2 => first,
            count => {
                let last = elements.nth(count - 2).map(|element| element.place);
                first.start..last.expect("the list has the position").end
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes, beside a vector.
    #[test]
    fn a_list_is_what_was_done_to_it() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut model: Vec<Vec<u8>> = Vec::new();
        let mut bytes = Vec::new();
        for _ in 0..3000 {
            let mut editor = ListEditor::new(&bytes);
            let blob = vec![b'a' + random.u8(..4); random.usize(..3)];
            let at = random.usize(..=model.len());
            let end = random.usize(at..=model.len());
            match random.u8(..6) {
                0 => {
                    editor.push(ListEnd::Left, &[&blob, b"second"]);
                    model.splice(0..0, [b"second".to_vec(), blob]);
                }
                1 => {
                    editor.push(ListEnd::Right, &[&blob, b"second"]);
                    model.extend([blob, b"second".to_vec()]);
                }
                2 => {
                    editor.insert(at, &blob);
                    model.insert(at, blob);
                }
                3 if at < model.len() => {
                    editor.set(at, &blob);
                    model[at] = blob;
                }
                4 => {
                    editor.remove(at..end);
                    model.drain(at..end);
                }
                _ => {
                    let most = random.usize(1..4);
                    let from = random.choice([ListEnd::Left, ListEnd::Right]);
                    let from = from.expect("there are two");
                    let mut places: Vec<usize> =
                        (0..model.len()).filter(|&i| model[i] == blob).collect();
                    if from == ListEnd::Right {
                        places.reverse();
                    }
                    places.truncate(most);
                    assert_eq!(editor.remove_equal(&blob, from, most), places.len());
                    places.sort_unstable_by_key(|&i| std::cmp::Reverse(i));
                    places.iter().for_each(|&i| drop(model.remove(i)));
                }
            }
            bytes = editor.into_changed().unwrap_or(bytes);
            let view = ListView::new(&bytes);
            assert_eq!(view.len(), model.len());
            assert!(view.iter().map(|own| own.first).eq(&model));
            if let Some(element) = model.get(at) {
                assert_eq!(view.nth(at), Some(&element[..]));
                let own = view.position(at as i64 - model.len() as i64);
                assert_eq!(own, Some(at));
            }
        }
    }

    #[test]
    fn indexes_are_positions() {
        let mut editor = ListEditor::new(b"");
        editor.push(ListEnd::Right, &[b"a", b"b", b"c"]);
        let bytes = editor.into_changed().expect("it was changed");
        let view = ListView::new(&bytes);
        for (start, end, expected) in [
            (0, -1, 0..3),
            (1, 1, 1..2),
            (-2, 100, 1..3),
            (-100, 0, 0..1),
            (5, 10, 3..3),
            (2, 1, 2..2),
            (i64::MIN, i64::MAX, 0..3),
            (i64::MAX, i64::MIN, 3..3),
        ] {
            assert_eq!(view.positions(start, end), expected, "{start} {end}");
        }
        assert_eq!(view.position(-4), None);
        assert_eq!(view.position(3), None);
        assert_eq!(view.positions_at(ListEnd::Right, 2), 1..3);
        assert_eq!(view.positions_at(ListEnd::Left, 9), 0..3);
    }
}
