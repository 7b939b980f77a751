//! Lists: an element is one blob, in the order of the list.

use std::ops::Range;

use crate::call::{ChangedData, StoredData};
use crate::collection::CollectionView;
use crate::collection_editor::CollectionEditor;
use crate::list_trees::{ListTreesElements, ListTreesView};
use crate::packed::{BlockForm, Elements, PackedEditor, PackedView};

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
pub(crate) enum ListView<'v> {
    Packed(PackedView<'v>),
    Trees(ListTreesView<'v>),
}

impl<'v> ListView<'v> {
    /// Returns the list of a value; no bytes are a list without elements.
    pub(crate) fn new(data: StoredData<'v>) -> ListView<'v> {
        match data {
            StoredData::Bytes(bytes) => ListView::Packed(PackedView::new(bytes)),
            StoredData::Tree(view) => ListView::of(view),
            StoredData::Editor(editor) => ListView::of(editor.view()),
        }
    }

    fn of(view: CollectionView<'v>) -> ListView<'v> {
        match view {
            CollectionView::List(trees) => ListView::Trees(trees),
            _ => ListView::Packed(PackedView::new(b"")),
        }
    }

    /// Returns the number of elements.
    pub(crate) fn len(self) -> usize {
        match self {
            ListView::Packed(block) => block.len(),
            ListView::Trees(trees) => trees.len(),
        }
    }

    /// Returns the element at a position.
    pub(crate) fn nth(self, position: usize) -> Option<&'v [u8]> {
        match self {
            ListView::Packed(block) => block.nth(position).map(|element| element.first),
            ListView::Trees(trees) => trees.nth(position),
        }
    }

    /// Returns the elements.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'v [u8]> {
        self.range(0..self.len())
    }

    /// Returns the elements at these positions.
    pub(crate) fn range(self, positions: Range<usize>) -> impl Iterator<Item = &'v [u8]> {
        let elements = match self {
            ListView::Packed(block) => {
                let mut elements = block.iter();
                if let Some(before) = positions.start.checked_sub(1) {
                    elements.nth(before);
                }
                ListElements::Packed(elements)
            }
            ListView::Trees(trees) => ListElements::Trees(trees.iter_from(positions.start)),
        };
        elements.take(positions.len())
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

/// The elements of a list.
enum ListElements<'v> {
    Packed(Elements<'v>),
    Trees(ListTreesElements<'v>),
}

impl<'v> Iterator for ListElements<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        match self {
            ListElements::Packed(elements) => elements.next().map(|element| element.first),
            ListElements::Trees(elements) => elements.next(),
        }
    }
}

/// A list that is changed.
pub(crate) enum ListEditor<'v> {
    Packed(PackedEditor<'v>),
    Trees(&'v mut CollectionEditor),
}

impl<'v> ListEditor<'v> {
    /// Begins to change the list of a value; no bytes are a list without elements.
    pub(crate) fn new(data: StoredData<'v>) -> ListEditor<'v> {
        match data {
            StoredData::Bytes(bytes) => {
                ListEditor::Packed(PackedEditor::new(BlockForm::Single, bytes))
            }
            StoredData::Editor(editor) => ListEditor::Trees(editor),
            StoredData::Tree(_) => unreachable!("a command that writes gets an editor"),
        }
    }

    /// Returns the list as it is now.
    pub(crate) fn view(&self) -> ListView<'_> {
        match self {
            ListEditor::Packed(block) => ListView::Packed(block.view()),
            ListEditor::Trees(editor) => ListView::of(editor.view()),
        }
    }

    /// Adds elements at an end, one after the other: at the head the last one comes first.
    pub(crate) fn push(&mut self, end: ListEnd, elements: &[&[u8]]) {
        let blobs = elements.iter().map(|element| (*element, &b""[..]));
        match (self, end) {
            (ListEditor::Packed(block), ListEnd::Left) => {
                let start = block.start();
                block.splice(start..start, 0, blobs.rev());
            }
            (ListEditor::Packed(block), ListEnd::Right) => {
                let end = block.end();
                block.splice(end..end, 0, blobs);
            }
            (ListEditor::Trees(editor), ListEnd::Left) => {
                elements
                    .iter()
                    .for_each(|element| editor.insert(0, element));
            }
            (ListEditor::Trees(editor), ListEnd::Right) => {
                for element in elements {
                    let len = editor.view().len();
                    editor.insert(len, element);
                }
            }
        }
    }

    /// Inserts an element before a position.
    pub(crate) fn insert(&mut self, position: usize, element: &[u8]) {
        match self {
            ListEditor::Packed(block) => {
                let at = match position {
                    0 => block.start(),
                    _ => place_of(block, position - 1..position).end,
                };
                block.replace(at..at, 0, Some((element, b"")));
            }
            ListEditor::Trees(editor) => editor.insert(position, element),
        }
    }

    /// Replaces the element at a position.
    pub(crate) fn set(&mut self, position: usize, element: &[u8]) {
        match self {
            ListEditor::Packed(block) => {
                let place = place_of(block, position..position + 1);
                block.replace(place, 1, Some((element, b"")));
            }
            ListEditor::Trees(editor) => editor.replace(position, element),
        }
    }

    /// Removes the elements at these positions.
    pub(crate) fn remove(&mut self, positions: Range<usize>) {
        if positions.is_empty() {
            return;
        }
        match self {
            ListEditor::Packed(block) => {
                let count = positions.len();
                let place = place_of(block, positions);
                block.replace(place, count, None);
            }
            ListEditor::Trees(editor) => editor.remove_range(positions),
        }
    }

    /// Removes elements that are equal to this one, at most `most` from an end on. Returns how many.
    pub(crate) fn remove_equal(&mut self, element: &[u8], end: ListEnd, most: usize) -> usize {
        let equal = self.view().iter().enumerate();
        let equal = equal.filter(|(_, own)| *own == element).map(|(at, _)| at);
        let mut removed: Vec<usize> = match end {
            ListEnd::Left => equal.take(most).collect(),
            ListEnd::Right => {
                let equal: Vec<usize> = equal.collect();
                equal[equal.len().saturating_sub(most)..].to_vec()
            }
        };
        let count = removed.len();
        match self {
            ListEditor::Packed(block) => {
                let mut at = 0..;
                let mut next = removed.iter().peekable();
                block.retain(|_| {
                    let at = at.next();
                    next.next_if(|next| Some(**next) == at).is_none()
                });
            }
            ListEditor::Trees(editor) => {
                while let Some(at) = removed.pop() {
                    editor.remove_range(at..at + 1);
                }
            }
        }
        count
    }

    /// Returns what was changed; `None`: nothing.
    pub(crate) fn into_changed(self) -> Option<ChangedData> {
        match self {
            ListEditor::Packed(block) => block.into_changed().map(ChangedData::Bytes),
            ListEditor::Trees(editor) => editor.is_changed().then_some(ChangedData::Edited),
        }
    }
}

/// Returns the place of the elements at these positions.
fn place_of(block: &PackedEditor<'_>, positions: Range<usize>) -> Range<usize> {
    let mut elements = block.view().iter().skip(positions.start);
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
            let mut editor = ListEditor::new(StoredData::Bytes(&bytes));
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
            let changed = editor.into_changed().and_then(ChangedData::into_bytes);
            bytes = changed.unwrap_or(bytes);
            let view = ListView::new(StoredData::Bytes(&bytes));
            assert_eq!(view.len(), model.len());
            assert!(view.iter().eq(&model));
            if let Some(element) = model.get(at) {
                assert_eq!(view.nth(at), Some(&element[..]));
                let own = view.position(at as i64 - model.len() as i64);
                assert_eq!(own, Some(at));
            }
        }
    }

    #[test]
    fn indexes_are_positions() {
        let mut editor = ListEditor::new(StoredData::Bytes(b""));
        editor.push(ListEnd::Right, &[b"a", b"b", b"c"]);
        let bytes = editor.into_changed().and_then(ChangedData::into_bytes);
        let bytes = bytes.expect("it was changed");
        let view = ListView::new(StoredData::Bytes(&bytes));
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
