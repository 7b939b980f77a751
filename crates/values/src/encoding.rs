//! The names of the encodings that Redis has for values.

use base::number::parse_int;
use base::transaction::Kind;

use crate::call::{StoredBlock, StoredData};
use crate::hash::HashView;
use crate::listpack::ListpackWriter;
use crate::packed::{BlockForm, PackedView};
use crate::score::SCORE_BYTES;

/// The longest string that Redis keeps in one piece with its header.
const EMBEDDED: usize = 44;
/// The most fields, members and integers of hashes, sorted sets, sets and sets of integers that Redis keeps in one
/// block.
const HASH_FIELDS: usize = 512;
const SORTED_SET_MEMBERS: usize = 128;
const SET_MEMBERS: usize = 128;
pub(crate) const SET_INTEGERS: usize = 512;
/// The longest element in bytes of such a block, unless it is of a list.
const BLOCK_ELEMENT: usize = 64;
/// The size in bytes from which on a list has several nodes.
pub(crate) const LIST_NODE: usize = 8192;

/// Returns the name of the encoding that Redis 7.4 has for a value that is set.
#[must_use]
pub fn encoding(value: StoredBlock<'_>) -> &'static str {
    let view = PackedView::new(value.bytes);
    match value.kind {
        Kind::String if parse_int(value.bytes).is_some() => "int",
        Kind::String if value.bytes.len() <= EMBEDDED => "embstr",
        Kind::String => "raw",
        Kind::Hash => {
            let expires = view.form() == Some(BlockForm::ExpiringPairs);
            match is_hash_listpack(HashView::new(StoredData::Bytes(value.bytes), 0)) {
                true if expires => "listpackex",
                true => "listpack",
                false => "hashtable",
            }
        }
        Kind::List if is_list_listpack(view) => "listpack",
        Kind::List => "quicklist",
        Kind::Set if is_intset(view) => "intset",
        Kind::Set if view.len() <= SET_MEMBERS && are_short(view) => "listpack",
        Kind::Set => "hashtable",
        Kind::SortedSet if is_sorted_set_listpack(view) => "listpack",
        Kind::SortedSet => "skiplist",
        Kind::Stream => "stream",
    }
}

/// Returns `true` if Redis keeps a hash in one block.
pub(crate) fn is_hash_listpack(hash: HashView<'_>) -> bool {
    let is_short = |blob: &[u8]| blob.len() <= BLOCK_ELEMENT;
    let mut fields = hash.iter();
    hash.len() <= HASH_FIELDS && fields.all(|field| is_short(field.name) && is_short(field.value))
}

/// Returns `true` if Redis keeps a set as integers.
pub(crate) fn is_intset(set: PackedView<'_>) -> bool {
    set.form() == Some(BlockForm::Integers)
}

/// Returns `true` if Redis keeps a sorted set in one block.
pub(crate) fn is_sorted_set_listpack(set: PackedView<'_>) -> bool {
    let mut members = set.iter();
    let is_short = |element: &[u8]| element.len() <= SCORE_BYTES + BLOCK_ELEMENT;
    set.len() <= SORTED_SET_MEMBERS && members.all(|element| is_short(element.first))
}

fn is_list_listpack(list: PackedView<'_>) -> bool {
    // An element takes at least two bytes.
    if list.len() > LIST_NODE / 2 {
        return false;
    }
    let mut block = ListpackWriter::new();
    let mut elements = list.iter();
    elements.all(|element| {
        block.push(element.first);
        block.len() <= LIST_NODE
    })
}

/// Returns `true` if no member is longer than those of a block.
fn are_short(set: PackedView<'_>) -> bool {
    let mut members = set.iter();
    members.all(|member| member.first.len() <= BLOCK_ELEMENT)
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
            let kind = Kind::String;
            assert_eq!(encoding(StoredBlock { kind, bytes }), expected, "{value}");
        }
    }
}
