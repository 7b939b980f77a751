//! Scans of a collection's elements, in pages (`HSCAN`, `SSCAN`).
//!
//! A scan visits elements in the order of a hash of 32 bits of their names, whatever else changes between its pages. A
//! cursor is the least hash on the next page; 0 begins a scan, and says at its end that no page follows. Elements with
//! the same hash are on one page. So a scan returns each element that is there all the time exactly once. The
//! elements of a small collection are returned at once.

use base::glob;
use base::nested::{NestedItem, NestedReply};
use base::number::parse_cursor;
use base::transaction::{CallError, OpError};

use crate::arguments::{int, is};
use crate::collection::without_hash;
use crate::element_hash::element_hash;
use crate::tree::{KeyOrder, TreeView};

/// The most elements of a small collection, and the longest of their names and values in bytes: those that Redis keeps
/// in one block.
const SMALL: usize = 128;
const SMALL_ELEMENT: usize = 64;
/// The number of elements that are visited if the client does not say so.
const USUAL_COUNT: usize = 10;

/// What a client asks for.
pub(crate) struct ElementsRequest<'c> {
    cursor: u64,
    count: usize,
    pattern: Option<&'c [u8]>,
    /// `true` if only names are shown.
    pub(crate) names_alone: bool,
}

/// A page of a scan.
pub(crate) struct ElementsPage<T> {
    cursor: u64,
    /// The elements that match.
    pub(crate) elements: Vec<T>,
}

/// Parses a cursor. This comes before all other checks.
pub(crate) fn cursor(args: &[&[u8]]) -> Result<u64, OpError> {
    let cursor = args.first().and_then(|arg| parse_cursor(arg));
    cursor.ok_or(OpError::Call(CallError::InvalidCursor))
}

impl<'c> ElementsRequest<'c> {
    /// Parses the options, which follow the cursor. Those of hashes have `NOVALUES`.
    pub(crate) fn parse(args: &[&'c [u8]], of_hash: bool) -> Result<ElementsRequest<'c>, OpError> {
        let syntax = OpError::Call(CallError::Syntax);
        let mut request = ElementsRequest {
            cursor: cursor(args)?,
            count: USUAL_COUNT,
            pattern: None,
            names_alone: false,
        };
        let mut options = args.iter().skip(1);
        while let Some(option) = options.next() {
            if of_hash && is(option, "novalues") {
                request.names_alone = true;
                continue;
            }
            let value = options.next().ok_or(syntax)?;
            if is(option, "count") {
                let count = usize::try_from(int(value)?).map_err(|_| syntax)?;
                request.count = if count == 0 {
                    return Err(syntax);
                } else {
                    count
                };
            } else if is(option, "match") {
                request.pattern = Some(value);
            } else {
                return Err(syntax);
            }
        }
        Ok(request)
    }

    /// Returns the next page of elements, of which a function returns the names.
    pub(crate) fn page<'v, T>(
        &self,
        elements: impl Iterator<Item = T> + Clone,
        is_small: bool,
        name: impl Fn(&T) -> &'v [u8],
    ) -> ElementsPage<T> {
        let matches = |name: &[u8]| {
            let pattern = self.pattern;
            pattern.is_none_or(|pattern| glob::matches(pattern, name, false))
        };
        if is_small {
            let elements = elements.filter(|element| matches(name(element)));
            return ElementsPage {
                cursor: 0,
                elements: elements.collect(),
            };
        }
        let is_left = |hash: &u32| u64::from(*hash) >= self.cursor;
        let hashes = elements.clone().map(|element| element_hash(name(&element)));
        let mut hashes: Vec<u32> = hashes.filter(is_left).collect();
        let (mut last, mut next) = (u32::MAX, None);
        if self.count < hashes.len() {
            let (_, nth, behind) = hashes.select_nth_unstable(self.count - 1);
            last = *nth;
            next = behind.iter().filter(|hash| **hash > last).min().copied();
        }
        let shown = elements.filter(|element| {
            let name = name(element);
            let hash = element_hash(name);
            is_left(&hash) && hash <= last && matches(name)
        });
        ElementsPage {
            cursor: next.map_or(0, u64::from),
            elements: shown.collect(),
        }
    }
}

impl ElementsRequest<'_> {
    /// Returns the next page of the elements of a tree, which has them in the order of their hashes; a function
    /// makes them of their names and values; `None`: an element is absent.
    pub(crate) fn tree_page<'v, T>(
        &self,
        tree: TreeView<'v, KeyOrder>,
        make: impl Fn(&'v [u8], &'v [u8]) -> Option<T>,
    ) -> ElementsPage<T> {
        let Ok(first) = u32::try_from(self.cursor) else {
            return ElementsPage::empty();
        };
        let mut page = ElementsPage::empty();
        let mut last = None;
        let elements = tree.cursor_from(&first.to_be_bytes());
        for (visited, (key, value)) in elements.enumerate() {
            let hash = key.first_chunk().map(|hash| u32::from_be_bytes(*hash));
            if visited >= self.count && hash != last {
                page.cursor = hash.map_or(0, u64::from);
                break;
            }
            last = hash;
            let name = without_hash(key);
            let matches = |pattern| glob::matches(pattern, name, false);
            if self.pattern.is_none_or(matches) {
                page.elements.extend(make(name, value));
            }
        }
        page
    }
}

impl<T> ElementsPage<T> {
    /// Returns a page without elements, after which none follows.
    pub(crate) fn empty() -> ElementsPage<T> {
        ElementsPage {
            cursor: 0,
            elements: Vec::new(),
        }
    }

    /// Returns the reply's beginning, which says that it has so many items.
    pub(crate) fn reply(&self, items: usize) -> NestedReply {
        let mut reply = NestedReply::default();
        reply.push(NestedItem::Array(2));
        reply.bytes(self.cursor.to_string().as_bytes());
        reply.push(NestedItem::Array(items));
        reply
    }
}

/// Returns `true` if a collection of elements with these names and values is returned at once.
pub(crate) fn is_small<'v>(mut elements: impl Iterator<Item = (&'v [u8], &'v [u8])>) -> bool {
    let mut is_short = |(name, value): (&[u8], &[u8])| name.len().max(value.len()) <= SMALL_ELEMENT;
    elements.by_ref().take(SMALL).all(&mut is_short) && elements.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn request(cursor: u64, count: usize) -> ElementsRequest<'static> {
        ElementsRequest {
            cursor,
            count,
            pattern: None,
            names_alone: false,
        }
    }

    /// Elements come and go between the pages; those that are there all the time are all returned.
    #[test]
    fn a_scan_returns_what_stays() {
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..50 {
            let name = |number: u32| number.to_string().into_bytes();
            let staying: BTreeSet<Vec<u8>> = (0..random.u32(1..400)).map(name).collect();
            let (mut cursor, mut seen, mut pages) = (0, Vec::new(), 0);
            let count = random.usize(1..60);
            loop {
                let passing = (0..random.u32(..200)).map(|_| name(1000 + random.u32(..500)));
                let mut all: Vec<Vec<u8>> = staying.iter().cloned().chain(passing).collect();
                random.shuffle(&mut all);
                let page = request(cursor, count).page(all.iter(), false, |element| element);
                let stay = page.elements.iter().filter(|one| staying.contains(**one));
                seen.extend(stay.map(|one| one.to_vec()));
                pages += 1;
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            let distinct: BTreeSet<Vec<u8>> = seen.iter().cloned().collect();
            assert_eq!((distinct.len(), &distinct), (seen.len(), &staying));
            assert!(pages >= staying.len() / count);
        }
    }

    #[test]
    fn elements_of_one_hash_are_on_one_page() {
        let names = ["a", "b", "c"].map(str::as_bytes);
        let mut hashes = names.map(element_hash);
        hashes.sort_unstable();
        // The same element many times is like many of one hash.
        let many = || names.iter().flat_map(|name| [*name; 5]);
        let page = request(0, 2).page(many(), false, |name| name);
        assert_eq!((page.elements.len(), page.cursor), (5, hashes[1].into()));
        let page = request(page.cursor, 6).page(many(), false, |name| name);
        assert_eq!((page.elements.len(), page.cursor), (10, 0));
        let page = request(u64::MAX, 6).page(many(), false, |name| name);
        assert_eq!((page.elements.len(), page.cursor), (0, 0));
    }

    #[test]
    fn small_collections_are_returned_at_once() {
        let long = [b'x'; SMALL_ELEMENT + 1];
        let elements = |number| std::iter::repeat_n((&b"a"[..], &b"b"[..]), number);
        assert!(is_small(elements(SMALL)) && !is_small(elements(SMALL + 1)));
        assert!(!is_small([(&long[..], &b""[..])].into_iter()));
        assert!(!is_small([(&b""[..], &long[..])].into_iter()));
        let page = request(7, 1).page(elements(3), true, |element| element.0);
        assert_eq!((page.elements.len(), page.cursor), (3, 0));
    }
}
