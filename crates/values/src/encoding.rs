//! The names of the encodings that Redis has for values.

use base::number::parse_int;
use base::transaction::Kind;

use crate::call::StoredValue;
use crate::packed::PackedView;

/// The longest string that Redis keeps in one piece with its header.
const EMBEDDED: usize = 44;
/// The most elements, and the longest element in bytes, of collections that Redis keeps in one block.
const BLOCK_ELEMENTS: usize = 128;
const BLOCK_ELEMENT: usize = 64;
/// The longest list that Redis keeps in one block, in the bytes of that block.
const LIST_BYTES: usize = 8192;

/// Returns the name of the encoding that Redis has for a value that is set.
#[must_use]
pub fn encoding(value: StoredValue<'_>) -> &'static str {
    match value.kind {
        Kind::String if parse_int(value.bytes).is_some() => "int",
        Kind::String if value.bytes.len() <= EMBEDDED => "embstr",
        Kind::String => "raw",
        Kind::Hash if is_small(value.bytes) => "listpack",
        Kind::Hash => "hashtable",
        Kind::List if listpack_bytes(value.bytes) <= LIST_BYTES => "listpack",
        Kind::List => "quicklist",
        Kind::Set => "hashtable",
        Kind::SortedSet if is_small(value.bytes) => "listpack",
        Kind::SortedSet => "skiplist",
        Kind::Stream => "stream",
    }
}

fn is_small(bytes: &[u8]) -> bool {
    let view = PackedView::new(bytes);
    let is_short = |blob: &[u8]| blob.len() <= BLOCK_ELEMENT;
    let mut elements = view.iter();
    view.len() <= BLOCK_ELEMENTS
        && elements.all(|element| is_short(element.first) && is_short(element.second))
}

/// Returns the bytes of Redis's block with the elements of a list.
fn listpack_bytes(bytes: &[u8]) -> usize {
    // Six bytes at the beginning, and one at the end.
    let elements = PackedView::new(bytes).iter();
    7 + elements.map(|own| entry_bytes(own.first)).sum::<usize>()
}

/// Returns the bytes of an element in such a block.
fn entry_bytes(element: &[u8]) -> usize {
    let length = match parse_int(element) {
        Some(0..=127) => 1,
        Some(-4096..=4095) => 2,
        Some(-0x8000..=0x7fff) => 3,
        Some(-0x80_0000..=0x7f_ffff) => 4,
        Some(-0x8000_0000..=0x7fff_ffff) => 5,
        Some(_) => 9,
        None => match element.len() {
            length @ ..64 => 1 + length,
            length @ ..4096 => 2 + length,
            length => 5 + length,
        },
    };
    // The length once more, seven bits to a byte.
    let back = (usize::BITS - length.leading_zeros()).div_ceil(7);
    length + back as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::{Form, PackedEditor};

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
            let stored = StoredValue {
                kind: Kind::String,
                bytes: value.as_bytes(),
            };
            assert_eq!(encoding(stored), expected, "{value}");
        }
    }

    #[test]
    fn lists_of_up_to_eight_kilobytes_are_one_block() {
        let list = |elements: &[&[u8]]| {
            let mut editor = PackedEditor::new(Form::Single, b"");
            elements
                .iter()
                .for_each(|element| editor.push(element, b""));
            editor.into_changed().expect("it was changed")
        };
        let shown = |bytes: &[u8]| {
            let kind = Kind::List;
            encoding(StoredValue { kind, bytes })
        };
        // The bytes of an element: its head, itself, and its length.
        let long = [b'x'; 8192 - 7 - 5 - 2];
        assert_eq!(shown(&list(&[&long[..]])), "listpack");
        assert_eq!(shown(&list(&[&long[..], b"1"])), "quicklist");
        assert_eq!(shown(&list(&[&b"1000000"[..]; 1637])), "listpack");
        assert_eq!(shown(&list(&[&b"1000000"[..]; 1638])), "quicklist");
    }
}
