//! Tokens: the place of a partition key on Cassandra's ring.
//!
//! A partition key of one column is the column's value. One of several columns has, for each of
//! them, `[short]` length, value, a zero byte.
//!
//! The token is the first half of Murmur3 (x64, 128 bits, seed 0) of the key, with a difference
//! that Cassandra cannot give up any more: the last bytes, up to fifteen that fill no block, count
//! as signed. The smallest number is not a token of any key, so that it is replaced by the largest.

use crate::bound::{Bound, BoundValues};

/// A place on the ring.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub i64);

impl Token {
    /// The token of no key, except the empty one, which cannot be stored.
    pub const MIN: Token = Token(i64::MIN);

    /// Returns the token of a partition key, as Cassandra's `Murmur3Partitioner` computes it.
    #[must_use]
    pub fn of_key(key: &[u8]) -> Token {
        if key.is_empty() {
            return Token::MIN;
        }
        let hash = murmur3(key);
        Token(if hash == i64::MIN { i64::MAX } else { hash })
    }
}

impl std::str::FromStr for Token {
    type Err = std::num::ParseIntError;

    /// Parses a token in the form of `system.local` and `system.peers`.
    fn from_str(text: &str) -> Result<Token, Self::Err> {
        text.parse().map(Token)
    }
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;
const BLOCK: usize = 16;

fn murmur3(key: &[u8]) -> i64 {
    let (mut h1, mut h2) = (0u64, 0u64);
    let mut blocks = key.chunks_exact(BLOCK);
    for block in &mut blocks {
        let (k1, k2) = block.split_at(BLOCK / 2);
        h1 ^= mix1(word(k1));
        h1 = h1.rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix2(word(k2));
        h2 = h2.rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let tail = blocks.remainder();
    let (t1, t2) = tail.split_at(tail.len().min(BLOCK / 2));
    h2 ^= mix2(signed_word(t2));
    h1 ^= mix1(signed_word(t1));

    let len = key.len() as u64;
    (h1, h2) = (h1 ^ len, h2 ^ len);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2)) as i64
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("half a block"))
}

/// Returns the bytes that fill no block: each as a signed number, shifted to its place.
fn signed_word(bytes: &[u8]) -> u64 {
    let places = bytes.iter().enumerate();
    places.fold(0, |word, (place, &byte)| {
        word ^ (i64::from(byte as i8) as u64) << (8 * place)
    })
}

fn mix1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ h >> 33
}

/// The reason why a request's values give no partition key. Such a request can go to any node,
/// which will report what is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// The statement does not give the whole key by markers.
    #[error("the statement's markers do not give the whole partition key")]
    NoColumns,
    /// There are fewer values than markers, or a value is null or not set.
    #[error("no value for the partition key's column at marker {0}")]
    NoValue(u16),
    /// No value has the name of this column of the key, from 0 on; or that value is null or not
    /// set.
    #[error("no value has the name of the partition key's column {0}")]
    NoName(u16),
    /// A value is longer than 65,535 bytes.
    #[error("a value of {0} bytes is too long for a partition key")]
    TooLong(usize),
}

/// Returns the partition key that `values` give: those at the markers `columns`, one for each
/// column of the key ([`PreparedMetadata::partition_key`](crate::response::PreparedMetadata)). A
/// key of several columns is assembled in `scratch`, which is overwritten.
///
/// # Errors
/// The values give none.
pub fn partition_key<'k>(
    values: &BoundValues<'k>,
    columns: &[u16],
    scratch: &'k mut Vec<u8>,
) -> Result<&'k [u8], KeyError> {
    joined(columns, scratch, |&marker, _| {
        part(values.get(marker.into()), KeyError::NoValue(marker))
    })
}

/// As [`partition_key`], for values that have names: those of the key's columns are `names`, which
/// are the names of their markers. Of several values of one name the first one counts, as for
/// nodes.
///
/// # Errors
/// The values give none.
pub fn named_partition_key<'k>(
    values: &BoundValues<'k>,
    names: &[String],
    scratch: &'k mut Vec<u8>,
) -> Result<&'k [u8], KeyError> {
    joined(names, scratch, |name, place| {
        part(values.by_name(name), KeyError::NoName(place))
    })
}

/// Returns the value of one of the key's columns.
fn part(value: Option<Bound<'_>>, absent: KeyError) -> Result<&[u8], KeyError> {
    match value {
        Some(Bound::Bytes(bytes)) if bytes.len() > usize::from(u16::MAX) => {
            Err(KeyError::TooLong(bytes.len()))
        }
        Some(Bound::Bytes(bytes)) => Ok(bytes),
        Some(Bound::Null | Bound::Unset) | None => Err(absent),
    }
}

/// Returns the key of these columns; `value` returns their values.
fn joined<'k, C>(
    columns: &[C],
    scratch: &'k mut Vec<u8>,
    value: impl Fn(&C, u16) -> Result<&'k [u8], KeyError>,
) -> Result<&'k [u8], KeyError> {
    match columns {
        [] => Err(KeyError::NoColumns),
        [only] => value(only, 0),
        several => {
            scratch.clear();
            for (place, column) in (0..).zip(several) {
                let bytes = value(column, place)?;
                scratch.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
                scratch.extend_from_slice(bytes);
                scratch.push(0);
            }
            Ok(scratch)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::ValueList;
    use crate::envelope::Version;

    #[test]
    fn tokens_are_those_of_cassandra() {
        // From the tests of Cassandra's drivers.
        for (key, token) in [
            (b"123".to_vec(), -7_468_325_962_851_647_638),
            (
                b"\x00\xff\x10\xfa\x99".repeat(10),
                5_837_342_703_291_459_765,
            ),
            (b"\xfe".repeat(8), -8_927_430_733_708_461_935),
            (b"\x10".repeat(8), 1_446_172_840_243_228_796),
            (b"9223372036854775807".to_vec(), 7_162_290_910_810_015_547),
        ] {
            assert_eq!(Token::of_key(&key), Token(token), "{key:?}");
        }
        assert_eq!(Token::of_key(b""), Token::MIN);
    }

    fn values(list: &mut ValueList, values: &[&[u8]]) {
        values
            .iter()
            .for_each(|value| list.push(Bound::Bytes(value)));
    }

    #[test]
    fn a_key_of_one_column_is_its_value() {
        let mut list = ValueList::new();
        values(&mut list, &[b"a", b"b"]);
        let values = list.values(Version::V4);
        let mut scratch = Vec::new();
        assert_eq!(partition_key(&values, &[1], &mut scratch), Ok(&b"b"[..]));
    }

    #[test]
    fn a_key_of_several_columns_is_measured_and_ended() {
        let mut list = ValueList::new();
        values(&mut list, &[b"xyz", b"", b"a"]);
        let values = list.values(Version::V4);
        let mut scratch = b"old".to_vec();
        let key = partition_key(&values, &[2, 1, 0], &mut scratch);
        assert_eq!(key, Ok(&b"\0\x01a\0\0\0\0\0\x03xyz\0"[..]));
    }

    #[test]
    fn a_key_is_found_by_names() {
        let mut list = ValueList::new();
        for (name, value) in [("v", "x"), ("b", "second"), ("a", "first"), ("b", "late")] {
            list.push_named(name, Bound::Bytes(value.as_bytes()));
        }
        list.push_named("null", Bound::Null);
        let values = list.values(Version::V4);
        let key = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut scratch = b"old".to_vec();
            named_partition_key(&values, &names, &mut scratch).map(<[u8]>::to_vec)
        };
        assert_eq!(key(&["b"]), Ok(b"second".to_vec()));
        assert_eq!(
            key(&["a", "b"]),
            Ok(b"\0\x05first\0\0\x06second\0".to_vec())
        );
        assert_eq!(key(&[]), Err(KeyError::NoColumns));
        assert_eq!(key(&["c"]), Err(KeyError::NoName(0)));
        assert_eq!(key(&["a", "null"]), Err(KeyError::NoName(1)));
    }

    #[test]
    fn what_gives_no_key_says_why() {
        let mut list = ValueList::new();
        list.push(Bound::Null);
        list.push(Bound::Unset);
        let long = vec![0; 65_536];
        list.push(Bound::Bytes(&long));
        let values = list.values(Version::V4);
        let error =
            |columns: &[u16]| partition_key(&values, columns, &mut Vec::new()).map(<[u8]>::len);
        assert_eq!(error(&[]), Err(KeyError::NoColumns));
        assert_eq!(error(&[0]), Err(KeyError::NoValue(0)));
        assert_eq!(error(&[1]), Err(KeyError::NoValue(1)));
        assert_eq!(error(&[3]), Err(KeyError::NoValue(3)));
        assert_eq!(error(&[2]), Err(KeyError::TooLong(65_536)));
    }
}
