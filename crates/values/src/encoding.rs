//! The names of the encodings that Redis has for values.

use base::number::parse_int;
use base::transaction::Kind;

use crate::call::StoredData;
use crate::hash::HashView;
use crate::packed::PackedView;
use crate::scan;
use crate::set::SetView;
use crate::sorted_set::SortedSetView;

/// The longest string that Redis keeps in one piece with its header.
const EMBEDDED: usize = 44;

/// Returns the name of the encoding that Redis has for a value that is set.
#[must_use]
pub fn encoding(kind: Kind, bytes: &[u8]) -> &'static str {
    match kind {
        Kind::String if parse_int(bytes).is_some() => "int",
        Kind::String if bytes.len() <= EMBEDDED => "embstr",
        Kind::String => "raw",
        Kind::Hash => hash_encoding(bytes),
        Kind::List => "quicklist",
        Kind::Set if SetView::new(StoredData::Bytes(bytes)).is_of_integers() => "intset",
        Kind::Set if is_small(bytes) => "listpack",
        Kind::Set => "hashtable",
        Kind::SortedSet if is_small_sorted(bytes) => "listpack",
        Kind::SortedSet => "skiplist",
        Kind::Stream => "stream",
    }
}

fn hash_encoding(bytes: &[u8]) -> &'static str {
    let hash = HashView::new(StoredData::Bytes(bytes), 0);
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

fn is_small_sorted(bytes: &[u8]) -> bool {
    let members = SortedSetView::new(StoredData::Bytes(bytes)).iter();
    scan::is_small(members.map(|own| (own.member, &b""[..])))
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
