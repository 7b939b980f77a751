//! Scans of the elements of one collection (`ZSCAN` and its like).
//!
//! Elements come in the order of a hash of 32 bits, and those with the same hash come together. The cursor is the
//! least hash that is still to come: so an element that is there from the beginning of a scan to its end is
//! returned, whatever is added and removed meanwhile. Small collections come as a whole.

use base::glob;
use base::number::parse_int;
use base::transaction::{CallError, OpError};

/// The most elements of a collection that comes as a whole, and the longest of them in bytes.
const SMALL: usize = 128;
const SHORT: usize = 64;

/// The arguments of a scan.
pub(crate) struct ElementScan<'c> {
    cursor: u64,
    pattern: Option<&'c [u8]>,
    count: usize,
}

impl<'c> ElementScan<'c> {
    /// Parses the options behind a cursor.
    pub(crate) fn parse(cursor: u64, mut options: &[&'c [u8]]) -> Result<ElementScan<'c>, OpError> {
        const SYNTAX: OpError = OpError::Call(CallError::Syntax);
        let mut scan = ElementScan {
            cursor,
            pattern: None,
            count: 10,
        };
        while let [option, value, rest @ ..] = options {
            if option.eq_ignore_ascii_case(b"match") {
                scan.pattern = Some(value);
            } else if option.eq_ignore_ascii_case(b"count") {
                let count = parse_int(value).ok_or(OpError::NotInteger)?;
                scan.count = usize::try_from(count).map_err(|_| SYNTAX)?;
                if count == 0 {
                    return Err(SYNTAX);
                }
            } else {
                return Err(SYNTAX);
            }
            options = rest;
        }
        options.is_empty().then_some(scan).ok_or(SYNTAX)
    }

    /// Returns the cursor of the next page, which is 0 at the end, and the elements of this one that match, given
    /// the `len` elements in the collection's order. `key` returns the part that identifies an element.
    pub(crate) fn page<T>(
        &self,
        len: usize,
        elements: impl Iterator<Item = T> + Clone,
        key: impl Fn(&T) -> &[u8],
    ) -> (u64, Vec<T>) {
        let is_small = len <= SMALL && elements.clone().all(|element| key(&element).len() <= SHORT);
        if is_small {
            let matching = elements.filter(|element| self.matches(key(element)));
            return (0, matching.collect());
        }
        let hashed = elements.map(|element| (hash(key(&element)), element));
        let mut hashed: Vec<(u32, T)> = hashed
            .filter(|(hash, _)| u64::from(*hash) >= self.cursor)
            .collect();
        hashed.sort_by_key(|(hash, _)| *hash);
        let mut next = 0;
        if let Some((last, _)) = hashed.get(self.count - 1) {
            let last = *last;
            let end = hashed.partition_point(|(hash, _)| *hash <= last);
            if end < hashed.len() {
                next = u64::from(last) + 1;
            }
            hashed.truncate(end);
        }
        let elements = hashed.into_iter().map(|(_, element)| element);
        let matching = elements.filter(|element| self.matches(key(element)));
        (next, matching.collect())
    }

    fn matches(&self, key: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::matches(pattern, key, false))
    }
}

/// Parses a cursor as C's `strtoul` does: also accepts an empty text, and any sign.
pub(crate) fn parse_cursor(text: &[u8]) -> Result<u64, OpError> {
    const BAD: OpError = OpError::Call(CallError::BadCursor);
    let (is_negative, digits) = match text {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BAD);
    }
    let number = std::str::from_utf8(digits).ok();
    let number: u64 = number.and_then(|text| text.parse().ok()).ok_or(BAD)?;
    Ok(if is_negative {
        number.wrapping_neg()
    } else {
        number
    })
}

/// Returns a hash of an element, which never changes.
fn hash(bytes: &[u8]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_returns_all_elements_that_stay() {
        let mut elements: Vec<Vec<u8>> = (0..1000u32).map(|i| i.to_string().into()).collect();
        for count in [1, 7, 100, 2000] {
            let (mut cursor, mut seen) = (0, Vec::new());
            loop {
                let scan = ElementScan {
                    cursor,
                    pattern: None,
                    count,
                };
                let (next, page) = scan.page(elements.len(), elements.iter(), |element| element);
                assert!(page.len() >= count.min(1));
                seen.extend(page.into_iter().cloned());
                // Others come and go meanwhile.
                elements.rotate_left(3);
                elements.push(format!("other {}", elements.len()).into());
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            seen.retain(|element| !element.starts_with(b"other"));
            seen.sort();
            let before = seen.len();
            seen.dedup();
            assert_eq!((seen.len(), before), (1000, 1000));
        }
    }

    #[test]
    fn cursors_are_numbers_of_c() {
        for (text, expected) in [
            ("", Some(0)),
            ("7", Some(7)),
            ("+7", Some(7)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("x", None),
            ("1 ", None),
            ("-", None),
        ] {
            assert_eq!(parse_cursor(text.as_bytes()).ok(), expected, "{text:?}");
        }
    }
}
