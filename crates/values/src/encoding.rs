//! The names of the encodings that Redis has for values.

use base::number::parse_int;
use base::transaction::Kind;

use crate::packed::PackedView;
use crate::sorted_set::SCORE;

/// The longest string that Redis keeps in one piece with its header.
const EMBEDDED: usize = 44;
/// The most elements, and the longest element in bytes, of collections that Redis keeps in one block.
const BLOCK_ELEMENTS: usize = 128;
const BLOCK_ELEMENT: usize = 64;

/// Returns the name of the encoding that Redis has for a value that is set.
#[must_use]
pub fn encoding(kind: Kind, bytes: &[u8]) -> &'static str {
    match kind {
        Kind::String if parse_int(bytes).is_some() => "int",
        Kind::String if bytes.len() <= EMBEDDED => "embstr",
        Kind::String => "raw",
        Kind::Hash if is_small(bytes, BLOCK_ELEMENT) => "listpack",
        Kind::Hash => "hashtable",
        Kind::List => "quicklist",
        Kind::Set => "hashtable",
        Kind::SortedSet if is_small(bytes, SCORE + BLOCK_ELEMENT) => "listpack",
        Kind::SortedSet => "skiplist",
        Kind::Stream => "stream",
    }
}

/// Returns `true` if a collection has few elements, with blobs of at most `longest` bytes.
fn is_small(bytes: &[u8], longest: usize) -> bool {
    let view = PackedView::new(bytes);
    let is_short = |blob: &[u8]| blob.len() <= longest;
    let mut elements = view.iter();
    view.len() <= BLOCK_ELEMENTS
        && elements.all(|element| is_short(element.first) && is_short(element.second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_those_of_redis() {
        for (value, expected) in [
            ("", "embstr"),
            ("0", "int"),
            ("-1", "int"),
            ("-0", "embstr"),
            ("01", "embstr"),
            ("+1", "embstr"),
            ("9223372036854775807", "int"),
            ("9223372036854775808", "embstr"),
            (&*"x".repeat(44), "embstr"),
            (&*"x".repeat(45), "raw"),
        ] {
            let bytes = value.as_bytes();
            assert_eq!(encoding(Kind::String, bytes), expected, "{value}");
        }
    }
}
