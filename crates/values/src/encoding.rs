//! The names of the encodings that Redis has for values.

use base::number::parse_int;
use base::transaction::Kind;

use crate::call::StoredValue;
use crate::hash::HashView;
use crate::packed::PackedView;
use crate::scan;
use crate::set::SetView;

/// The longest string that Redis keeps in one piece with its header.
const EMBEDDED: usize = 44;

/// Returns the name of the encoding that Redis has for a value that is set.
#[must_use]
pub fn encoding(value: StoredValue<'_>) -> &'static str {
    match value.kind {
        Kind::String if parse_int(value.bytes).is_some() => "int",
        Kind::String if value.bytes.len() <= EMBEDDED => "embstr",
        Kind::String => "raw",
        Kind::Hash => hash_encoding(value.bytes),
        Kind::List => "quicklist",
        Kind::Set if SetView::new(value.bytes).is_of_integers() => "intset",
        Kind::Set if is_small(value.bytes) => "listpack",
        Kind::Set => "hashtable",
        Kind::SortedSet if is_small(value.bytes) => "listpack",
        Kind::SortedSet => "skiplist",
        Kind::Stream => "stream",
    }
}

fn hash_encoding(bytes: &[u8]) -> &'static str {
    let hash = HashView::new(bytes, 0);
    match scan::is_small(hash.iter().map(|field| (field.name, field.value))) {
        true if hash.expires() => "listpackex",
        true => "listpack",
        false => "hashtable",
    }
}

fn is_small(bytes: &[u8]) -> bool {
    let elements = PackedView::new(bytes).iter();
    scan::is_small(elements.map(|element| (element.first, element.second)))
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
            let stored = StoredValue {
                kind: Kind::String,
                bytes: value.as_bytes(),
            };
            assert_eq!(encoding(stored), expected, "{value}");
        }
    }
}
