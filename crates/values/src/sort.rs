//! The order of elements by `SORT`.

use std::cmp::Ordering;
use std::ops::Range;

use base::transaction::{CallError, Kind, OpError};

use crate::call::{StoredBlock, StoredData};
use crate::hash::HashView;
use crate::packed::{BlockForm, PackedEditor, PackedView};
use crate::score;

/// A pattern of the names of keys, with a star in place of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortPattern<'p> {
    /// `#`: the element itself.
    Element,
    /// A pattern without a star: no key.
    None,
    /// A key, and a field if it is a hash.
    Key {
        /// The name of the key before the element.
        before: &'p [u8],
        /// The name of the key behind the element.
        behind: &'p [u8],
        /// The field, if one is named.
        field: Option<&'p [u8]>,
    },
}

impl<'p> SortPattern<'p> {
    /// Parses a pattern.
    #[must_use]
    pub fn parse(pattern: &'p [u8]) -> SortPattern<'p> {
        if pattern == b"#" {
            return SortPattern::Element;
        }
        let Some(star) = pattern.iter().position(|byte| *byte == b'*') else {
            return SortPattern::None;
        };
        let (before, rest) = (&pattern[..star], &pattern[star + 1..]);
        let arrow = rest.windows(2).position(|both| both == b"->");
        // Without a field behind it, an arrow belongs to the name.
        match arrow.filter(|arrow| arrow + 2 < rest.len()) {
            Some(arrow) => SortPattern::Key {
                before,
                behind: &rest[..arrow],
                field: Some(&rest[arrow + 2..]),
            },
            None => SortPattern::Key {
                before,
                behind: rest,
                field: None,
            },
        }
    }

    /// Returns the name of the key for an element, if it names one.
    #[must_use]
    pub fn key(self, element: &[u8]) -> Option<Vec<u8>> {
        match self {
            SortPattern::Key { before, behind, .. } => Some([before, element, behind].concat()),
            _ => None,
        }
    }

    /// Returns what it names, given the value of its key: a string, or the value of a field.
    #[must_use]
    pub fn found<'v>(
        self,
        element: &'v [u8],
        value: Option<StoredBlock<'v>>,
        time_ms: u64,
    ) -> Option<&'v [u8]> {
        match (self, value) {
            (SortPattern::Element, _) => Some(element),
            (SortPattern::Key { field: None, .. }, Some(value)) => {
                (value.kind == Kind::String).then_some(value.bytes)
            }
            (SortPattern::Key { field, .. }, Some(value)) if value.kind == Kind::Hash => {
                let hash = HashView::new(StoredData::Bytes(value.bytes), time_ms);
                hash.get(field?).map(|field| field.value)
            }
            _ => None,
        }
    }
}

/// By which property elements are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortCriterion {
    /// None: they stay in their order.
    None,
    /// Weights, which are numbers.
    Number,
    /// Weights, which are texts.
    Text,
}

/// An element and its weight; `None`: it has none.
pub type Weighted<'v> = (&'v [u8], Option<&'v [u8]>);

/// Returns the elements of a list, a set or a sorted set; none for an absent key.
///
/// # Errors
/// [`OpError::WrongType`]
pub fn elements(value: Option<StoredBlock<'_>>) -> Result<Vec<&[u8]>, OpError> {
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let blobs = PackedView::new(value.bytes).iter();
    let blobs = blobs.map(|element| element.first);
    match value.kind {
        Kind::List | Kind::Set => Ok(blobs.collect()),
        Kind::SortedSet => Ok(blobs.map(|element| score::split(element).1).collect()),
        _ => Err(OpError::WrongType),
    }
}

/// Orders elements. Those that are equal by their weights, which are numbers, are ordered by their bytes.
///
/// # Errors
/// [`CallError::WeightNotNumber`]
pub fn sort<'v>(
    weighted: Vec<Weighted<'v>>,
    key: SortCriterion,
    descends: bool,
) -> Result<Vec<&'v [u8]>, OpError> {
    let directed = |ordering: Ordering| match descends {
        true => ordering.reverse(),
        false => ordering,
    };
    if key != SortCriterion::Number {
        let mut weighted = weighted;
        if key == SortCriterion::Text {
            weighted.sort_by(|(_, one), (_, other)| directed(one.cmp(other)));
        }
        return Ok(weighted.into_iter().map(|(element, _)| element).collect());
    }
    let number = |(element, weight): Weighted<'v>| {
        let number = weight.map_or(Some(0.0), number_of);
        number.map(|number| (number, element))
    };
    let numbers: Option<Vec<(f64, &[u8])>> = weighted.into_iter().map(number).collect();
    let mut numbers = numbers.ok_or(OpError::Call(CallError::WeightNotNumber))?;
    numbers.sort_by(|(one, element), (other, next)| {
        let ordering = one.partial_cmp(other).unwrap_or(Ordering::Equal);
        directed(ordering.then_with(|| element.cmp(next)))
    });
    Ok(numbers.into_iter().map(|(_, element)| element).collect())
}

/// Returns the number that is a weight. A zero byte ends the text.
fn number_of(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_ascii_start();
    let number = score::parse(text)?;
    let has_digits = text.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    let is_in_range = match number.is_infinite() {
        true => !has_digits,
        false => number.is_normal() || !has_digits,
    };
    is_in_range.then_some(number)
}

/// Returns the positions among `count` elements that a limit selects: a number of them from a position on; a negative
/// number stands for all.
#[must_use]
pub fn limited(count: usize, (from, most): (i64, i64)) -> Range<usize> {
    let from = usize::try_from(from.max(0)).map_or(count, |from| from.min(count));
    match usize::try_from(most) {
        Ok(most) => from..from.saturating_add(most).min(count),
        Err(_) => from..count,
    }
}

/// Returns the list with these elements; `None`: there are none.
pub fn list<'e>(elements: impl Iterator<Item = &'e [u8]>) -> Option<Vec<u8>> {
    let mut list = PackedEditor::new(BlockForm::Single, b"");
    elements.for_each(|element| list.push(element, b""));
    list.into_changed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_keys_and_fields() {
        let key = |before, behind, field| SortPattern::Key {
            before,
            behind,
            field,
        };
        for (pattern, expected) in [
            (&b"#"[..], SortPattern::Element),
            (b"nosort", SortPattern::None),
            (b"w_*", key(&b"w_"[..], &b""[..], None)),
            (b"*", key(b"", b"", None)),
            (b"w_*_*->f", key(b"w_", b"_*", Some(&b"f"[..]))),
            (b"w->*->", key(b"w->", b"->", None)),
            (b"#*", key(b"#", b"", None)),
        ] {
            assert_eq!(SortPattern::parse(pattern), expected);
        }
        assert_eq!(SortPattern::parse(b"a*b").key(b"1"), Some(b"a1b".to_vec()));
    }

    #[test]
    fn numbers_are_those_of_redis() {
        for (text, expected) in [
            (&b""[..], Some(0.0)),
            (b"1.5", Some(1.5)),
            (b" 2", Some(2.0)),
            (b"3\0x", Some(3.0)),
            (b"-inf", Some(f64::NEG_INFINITY)),
            (b"0.0", Some(0.0)),
            (b" ", None),
            (b"2 ", None),
            (b"nan", None),
            (b"1e999", None),
            (b"1e-999", None),
            (b"x", None),
        ] {
            assert_eq!(number_of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn limits_select_positions() {
        for (count, limit, expected) in [
            (5, (0, -1), 0..5),
            (5, (-3, 2), 0..2),
            (5, (2, 2), 2..4),
            (5, (4, i64::MAX), 4..5),
            (5, (9, 3), 5..5),
            (0, (0, -1), 0..0),
        ] {
            assert_eq!(limited(count, limit), expected);
        }
    }
}
