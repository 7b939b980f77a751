//! The numbers of types and encodings in Redis's files.
//!
//! | value | encodings that are written | that are only read |
//! |---|---|---|
//! | string | a string | |
//! | list | a number of nodes, each a 2 and a string that is a listpack, or a 1 and a string that is an element | a number of elements, each a string; a string that is a ziplist; a number of strings that are ziplists |
//! | set | a number of members, each a string; a string that is an intset | a string that is a listpack |
//! | sorted set | a number of members, each a string and its score (8 bytes, IEEE 754, little-endian), from the greatest on; a string that is a listpack of members and scores | scores as texts: their length (253, 254, 255: NaN, infinity, minus infinity) and their bytes; a string that is a ziplist |
//! | hash | a number of fields, each a string, with their values; a string that is a listpack | a string that is a zipmap or a ziplist |
//! | stream | see `streams`: the second encoding | the first and the third encoding |
//! | hash with deadlines of fields | the least deadline (8 bytes, little-endian), and a number of fields, each its deadline less the least one plus one, or 0, as a length, its name and its value; the least deadline and a string that is a listpack of fields, values and deadlines | the same without the least deadline: each deadline is itself |

pub(super) const STRING: u8 = 0;
pub(super) const LIST: u8 = 1;
pub(super) const SET: u8 = 2;
pub(super) const SORTED_SET_TEXT: u8 = 3;
pub(super) const HASH: u8 = 4;
pub(super) const SORTED_SET: u8 = 5;
pub(super) const HASH_ZIPMAP: u8 = 9;
pub(super) const LIST_ZIPLIST: u8 = 10;
pub(super) const SET_INTSET: u8 = 11;
pub(super) const SORTED_SET_ZIPLIST: u8 = 12;
pub(super) const HASH_ZIPLIST: u8 = 13;
pub(super) const LIST_ZIPLISTS: u8 = 14;
pub(super) const STREAM: u8 = 15;
pub(super) const HASH_LISTPACK: u8 = 16;
pub(super) const SORTED_SET_LISTPACK: u8 = 17;
pub(super) const LIST_NODES: u8 = 18;
pub(super) const STREAM_2: u8 = 19;
pub(super) const SET_LISTPACK: u8 = 20;
pub(super) const STREAM_3: u8 = 21;
/// Hashes with deadlines of fields: two encodings that only releases before 7.4 wrote, and those of 7.4.
pub(super) const HASH_DEADLINES_EARLY: u8 = 22;
pub(super) const HASH_DEADLINES_LISTPACK_EARLY: u8 = 23;
pub(super) const HASH_DEADLINES: u8 = 24;
pub(super) const HASH_DEADLINES_LISTPACK: u8 = 25;

/// The node of a list that is one element.
pub(super) const NODE_ELEMENT: u64 = 1;
/// The node of a list that is a listpack.
pub(super) const NODE_LISTPACK: u64 = 2;
