//! A collection as one block of bytes.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | the form of the elements: [`BlockForm`] |
//! | 4 | the number of elements, little-endian |
//! | … | the elements, in their order |
//!
//! An element is one blob or two, as the form says. A blob is its length (LEB128, as few bytes as possible) and
//! its bytes.
//!
//! Blocks come from this module, or were checked by [`PackedView::check`]: reading one stops where it is malformed.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use crate::leb128::{push_bytes, push_number};

/// The form of the elements of a block, as its first byte has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum BlockForm {
    /// Each is one blob.
    Single = 0,
    /// Each is two blobs.
    Pairs = 1,
    /// Each is two blobs; the second one begins with a deadline (module `hash`).
    ExpiringPairs = 2,
    /// Each is one blob, the decimal digits of an integer of 64 bits; they are in numeric order.
    Integers = 3,
}

impl BlockForm {
    const ALL: [BlockForm; 4] = [
        BlockForm::Single,
        BlockForm::Pairs,
        BlockForm::ExpiringPairs,
        BlockForm::Integers,
    ];

    fn has_pairs(self) -> bool {
        matches!(self, BlockForm::Pairs | BlockForm::ExpiringPairs)
    }
}

const HEADER: usize = 5;
const EMPTY: [u8; HEADER] = [0; HEADER];

/// A block that is read.
#[derive(Clone, Copy)]
pub(crate) struct PackedView<'v> {
    bytes: &'v [u8],
}

/// An element of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element<'v> {
    /// Its place in the block.
    pub(crate) place: Range<usize>,
    /// Its first blob.
    pub(crate) first: &'v [u8],
    /// Its second blob; empty if it has only one.
    pub(crate) second: &'v [u8],
}

impl<'v> PackedView<'v> {
    /// Where the first element begins.
    pub(crate) const FIRST: usize = HEADER;

    /// Returns the view of a block; no bytes are a block without elements.
    pub(crate) fn new(bytes: &'v [u8]) -> PackedView<'v> {
        PackedView { bytes }
    }

    /// Returns the form of the elements; `None` if there are no bytes.
    #[inline]
    pub(crate) fn form(self) -> Option<BlockForm> {
        let number = usize::from(*self.bytes.first()?);
        BlockForm::ALL.get(number).copied()
    }

    /// Returns the number of elements.
    #[inline]
    pub(crate) fn len(self) -> usize {
        let count = self.bytes.get(1..HEADER);
        count.map_or(0, |count| {
            u32::from_le_bytes(count.try_into().expect("it has four bytes")) as usize
        })
    }

    /// Returns the elements in their order.
    #[inline]
    pub(crate) fn iter(self) -> Elements<'v> {
        Elements {
            bytes: self.bytes,
            at: HEADER,
            pairs: self.form().is_some_and(BlockForm::has_pairs),
        }
    }

    /// Returns the first element with this first blob, and its position.
    pub(crate) fn find(self, first: &[u8]) -> Option<(usize, Element<'v>)> {
        self.find_behind(0, first)
    }

    /// Returns the first element whose first blob has these bytes behind so many others, and its position.
    #[inline]
    pub(crate) fn find_behind(self, skipped: usize, bytes: &[u8]) -> Option<(usize, Element<'v>)> {
        let mut elements = self.iter();
        let mut position = 0;
        loop {
            let start = elements.at;
            let own = elements.blob()?;
            if own.get(skipped..).is_some_and(|own| is_same(own, bytes)) {
                elements.at = start;
                return Some((position, elements.next()?));
            }
            if elements.pairs {
                elements.skip_blob()?;
            }
            position += 1;
        }
    }

    /// Returns the element at a position.
    pub(crate) fn nth(self, position: usize) -> Option<Element<'v>> {
        self.iter().nth(position)
    }

    /// Returns `true` if the block is well-formed, of this form, and has elements.
    #[allow(dead_code)]
    pub(crate) fn check(self, form: BlockForm) -> bool {
        let (mut count, mut end) = (0, HEADER);
        for element in self.iter() {
            (count, end) = (count + 1, element.place.end);
        }
        self.form() == Some(form) && count == self.len() && count > 0 && end == self.bytes.len()
    }
}

/// Returns the blobs that bytes consist of, each as an element with one blob.
#[inline]
pub(crate) fn blobs(bytes: &[u8]) -> Elements<'_> {
    Elements {
        bytes,
        at: 0,
        pairs: false,
    }
}

/// The elements of a block; see [`PackedView::iter`].
#[derive(Clone)]
pub(crate) struct Elements<'v> {
    bytes: &'v [u8],
    at: usize,
    pairs: bool,
}

impl<'v> Elements<'v> {
    /// Reads the next blob.
    #[inline]
    fn blob(&mut self) -> Option<&'v [u8]> {
        let length = self.length()?;
        let blob = self.bytes.get(self.at..self.at + length)?;
        self.at += length;
        Some(blob)
    }

    /// Passes over the next blob, which may end behind the block: nothing can be read there.
    #[inline]
    fn skip_blob(&mut self) -> Option<()> {
        self.at += self.length()?;
        Some(())
    }

    /// Reads the length of the next blob.
    #[inline]
    fn length(&mut self) -> Option<usize> {
        let byte = *self.bytes.get(self.at)?;
        if byte < 0x80 {
            self.at += 1;
            return Some(usize::from(byte));
        }
        self.long_length()
    }

    #[cold]
    fn long_length(&mut self) -> Option<usize> {
        let (mut length, mut shift) = (0usize, 0);
        loop {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(length);
            }
            shift += 7;
            if shift > 28 {
                return None;
            }
        }
    }
}

/// Returns `true` if two blobs are equal. Names often begin alike and have the same length: their ends are compared
/// first.
#[inline]
fn is_same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.last_chunk::<8>() == right.last_chunk() && left == right
}

impl<'v> Iterator for Elements<'v> {
    type Item = Element<'v>;

    #[inline]
    fn next(&mut self) -> Option<Element<'v>> {
        let start = self.at;
        let first = self.blob()?;
        let second = if self.pairs { self.blob()? } else { b"" };
        Some(Element {
            place: start..self.at,
            first,
            second,
        })
    }
}

/// A block that is changed: a copy is made at the first change.
pub(crate) struct PackedEditor<'v> {
    bytes: Cow<'v, [u8]>,
    form: BlockForm,
}

impl<'v> PackedEditor<'v> {
    /// Begins to change a block; no bytes are one without elements.
    pub(crate) fn new(form: BlockForm, bytes: &'v [u8]) -> PackedEditor<'v> {
        PackedEditor {
            bytes: Cow::Borrowed(bytes),
            form,
        }
    }

    /// Has the block another form, whose elements have as many blobs, from the next change on.
    pub(crate) fn set_form(&mut self, form: BlockForm) {
        debug_assert_eq!(form.has_pairs(), self.form.has_pairs());
        self.form = form;
    }

    /// Returns the block as it is now.
    pub(crate) fn view(&self) -> PackedView<'_> {
        PackedView::new(&self.bytes)
    }

    /// Returns the length of the block in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the block if it was changed.
    pub(crate) fn into_changed(self) -> Option<Vec<u8>> {
        match self.bytes {
            Cow::Borrowed(_) => None,
            Cow::Owned(bytes) => Some(bytes),
        }
    }

    /// Replaces the `removed` elements at `place` by one with these blobs, or by none.
    pub(crate) fn replace(
        &mut self,
        place: Range<usize>,
        removed: usize,
        element: Option<(&[u8], &[u8])>,
    ) {
        self.splice(place, removed, element.into_iter());
    }

    /// Replaces the `removed` elements at `place` by elements with these blobs.
    pub(crate) fn splice<'b>(
        &mut self,
        place: Range<usize>,
        removed: usize,
        elements: impl Iterator<Item = (&'b [u8], &'b [u8])>,
    ) {
        let mut count = self.view().len() - removed;
        let mut encoded: SmallVec<[u8; 128]> = SmallVec::new();
        for (first, second) in elements {
            count += 1;
            push_blob(&mut encoded, first);
            if self.form.has_pairs() {
                push_blob(&mut encoded, second);
            }
        }
        match &mut self.bytes {
            Cow::Owned(bytes) if place.start == bytes.len() => bytes.extend_from_slice(&encoded),
            Cow::Owned(bytes) => drop(bytes.splice(place, encoded)),
            Cow::Borrowed(old) => {
                let (before, behind) = match old.is_empty() {
                    true => (&EMPTY[..], &[][..]),
                    false => (&old[..place.start], &old[place.end..]),
                };
                self.bytes = Cow::Owned([before, &encoded, behind].concat());
            }
        }
        self.set_len(count);
    }

    /// Removes the elements for which `keeps` returns `false`, in one pass. Returns how many these are.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&Element<'_>) -> bool) -> usize {
        let count = self.view().len();
        let mut kept = Vec::new();
        let mut left = 0;
        for element in self.view().iter() {
            if keeps(&element) {
                left += 1;
                kept.extend_from_slice(&self.bytes[element.place]);
            }
        }
        if left < count {
            self.bytes = Cow::Owned([&EMPTY[..], &kept].concat());
            self.set_len(left);
        }
        count - left
    }

    /// Writes the header of a block that is changed.
    fn set_len(&mut self, count: usize) {
        let count = u32::try_from(count).expect("a value has fewer than 2^32 elements");
        let header = &mut self.bytes.to_mut()[..HEADER];
        header[0] = self.form as u8;
        header[1..].copy_from_slice(&count.to_le_bytes());
    }

    /// Returns where the first element begins, or would.
    pub(crate) fn start(&self) -> usize {
        HEADER
    }

    /// Returns where the last element ends.
    pub(crate) fn end(&self) -> usize {
        self.bytes.len().max(HEADER)
    }

    /// Adds an element at the end.
    pub(crate) fn push(&mut self, first: &[u8], second: &[u8]) {
        let (end, count) = (self.end(), self.view().len());
        let Cow::Owned(bytes) = &mut self.bytes else {
            return self.replace(end..end, 0, Some((first, second)));
        };
        push_bytes(bytes, first);
        if self.form.has_pairs() {
            push_bytes(bytes, second);
        }
        self.set_len(count + 1);
    }
}

fn push_blob(to: &mut SmallVec<[u8; 128]>, blob: &[u8]) {
    push_number(to, blob.len() as u64);
    to.extend_from_slice(blob);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes at random places, beside a vector.
    #[test]
    fn a_block_is_what_was_done_to_it() {
        let mut random = fastrand::Rng::with_seed(1);
        for form in BlockForm::ALL {
            let mut model: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let mut block = Vec::new();
            for _ in 0..2000 {
                let mut editor = PackedEditor::new(form, &block);
                for _ in 0..random.usize(1..4) {
                    let mut blob = || vec![random.u8(..); random.usize(..300)];
                    let (first, mut second) = (blob(), blob());
                    if !form.has_pairs() {
                        second.clear();
                    }
                    let at = random.usize(..=model.len());
                    let place = editor.view().nth(at).map(|element| element.place);
                    match (random.u8(..5), place) {
                        (4, _) => {
                            let longest = random.usize(100..400);
                            let before = model.len();
                            model.retain(|own| own.0.len() <= longest);
                            let keeps = |element: &Element<'_>| element.first.len() <= longest;
                            assert_eq!(editor.retain(keeps), before - model.len());
                            editor.push(&first, &second);
                            model.push((first, second));
                        }
                        (0, Some(place)) => {
                            model.remove(at);
                            editor.replace(place, 1, None);
                        }
                        (1, Some(place)) => {
                            model[at] = (first.clone(), second.clone());
                            editor.replace(place, 1, Some((&first, &second)));
                        }
                        (2, Some(place)) => {
                            model.insert(at, (first.clone(), second.clone()));
                            let place = place.start..place.start;
                            editor.replace(place, 0, Some((&first, &second)));
                        }
                        _ => {
                            model.push((first.clone(), second.clone()));
                            editor.push(&first, &second);
                        }
                    }
                }
                let changed = editor.into_changed().expect("it was changed");
                block = changed;
                let view = PackedView::new(&block);
                assert_eq!(view.len(), model.len());
                assert_eq!(view.check(form), !model.is_empty());
                let same = |(element, own): (Element<'_>, &(Vec<u8>, Vec<u8>))| {
                    element.first == own.0 && element.second == own.1
                };
                assert!(view.iter().zip(&model).all(same));
                if model.len() > 40 {
                    model.clear();
                    block.clear();
                }
            }
        }
    }

    #[test]
    fn damaged_blocks_are_noticed() {
        let mut editor = PackedEditor::new(BlockForm::Pairs, b"");
        editor.push(b"field", &[7; 200]);
        editor.push(b"", b"");
        let block = editor.into_changed().expect("it was changed");
        assert!(PackedView::new(&block).check(BlockForm::Pairs));
        assert!(!PackedView::new(&block).check(BlockForm::Single));
        for length in 0..block.len() {
            assert!(!PackedView::new(&block[..length]).check(BlockForm::Pairs));
        }
        let longer = [&block[..], &[0]].concat();
        assert!(!PackedView::new(&longer).check(BlockForm::Pairs));
    }
}
