//! Numbered databases: the keys of database 0 are the clients' keys, and those of another database begin
//! with a prefix that no client's key has.
//!
//! | bytes | field of a qualified key |
//! |---|---|
//! | 16 | [`RESERVED`] |
//! | 1 | 254 |
//! | 2 | the number of the database, big-endian; never 0 |
//! | … | the client's key |
//!
//! Operations, messages and logs carry qualified keys, so that they need no field for the database. Slots,
//! and limits of keys, are of the client's key. Keys of transactions, which begin with [`RESERVED`]
//! as well, have the time in place of the 254 ([`TransactionId::to_bytes`](super::ids::TransactionId)),
//! and come before it until the year 10800.

use super::limits::RESERVED;
use super::operation::Op;

/// The length of the prefix.
pub const PREFIX_BYTES: usize = RESERVED.len() + 3;

/// The byte behind [`RESERVED`] in qualified keys.
const MARK: u8 = 0xfe;

/// The prefix of all qualified keys.
pub const PREFIX_OF_ALL: [u8; RESERVED.len() + 1] = {
    let mut prefix = [0xff; RESERVED.len() + 1];
    prefix[RESERVED.len()] = MARK;
    prefix
};

/// Returns the prefix of a database's keys.
///
/// For database 0 it is that of keys that do not exist: a client's key that begins with [`RESERVED`]
/// is qualified so.
#[must_use]
pub fn prefix(database: u16) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..PREFIX_OF_ALL.len()].copy_from_slice(&PREFIX_OF_ALL);
    prefix[PREFIX_OF_ALL.len()..].copy_from_slice(&database.to_be_bytes());
    prefix
}

/// Returns `true` if a key may be qualified, or reserved otherwise: all other keys are of database 0.
#[inline]
#[must_use]
pub fn may_be_qualified(key: &[u8]) -> bool {
    key.first() == Some(&0xff)
}

/// Returns the database and the client's key of a qualified key; `None` for any other key.
#[inline]
#[must_use]
pub fn split(key: &[u8]) -> Option<(u16, &[u8])> {
    if !may_be_qualified(key) {
        return None;
    }
    let rest = key.strip_prefix(&PREFIX_OF_ALL)?;
    let (number, key) = rest.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*number), key))
}

/// Returns the database of a key.
#[inline]
#[must_use]
pub fn number(key: &[u8]) -> u16 {
    split(key).map_or(0, |(number, _)| number)
}

/// Returns the client's key: `key` without the prefix, if it has one.
#[inline]
#[must_use]
pub fn client_key(key: &[u8]) -> &[u8] {
    split(key).map_or(key, |(_, key)| key)
}

/// Returns a client's key of a database, qualified.
#[must_use]
pub fn qualified(database: u16, key: &[u8]) -> Vec<u8> {
    match is_prefixed(database, key) {
        true => [&prefix(database)[..], key].concat(),
        false => key.to_vec(),
    }
}

/// Returns the key behind all keys of the database of which `key` is a key, or the beginning of one.
#[must_use]
pub fn end_of(key: &[u8]) -> Vec<u8> {
    match split(key) {
        None => RESERVED.to_vec(),
        Some((u16::MAX, _)) => [&RESERVED[..], &[MARK + 1]].concat(),
        Some((database, _)) => prefix(database + 1).to_vec(),
    }
}

/// Returns `true` if operations on clients' keys of a database must be qualified.
#[inline]
#[must_use]
pub fn needs_qualification(database: u16, ops: &[Op<'_>]) -> bool {
    let may_be = |op: &Op<'_>| match op {
        Op::Scan { from, .. } => may_be_qualified(from),
        op => op.key().is_some_and(may_be_qualified),
    };
    database != 0 || ops.iter().any(may_be)
}

/// Returns the qualified keys of operations on clients' keys of a database, one behind the other, for
/// [`qualify`].
#[must_use]
pub fn qualified_keys(database: u16, ops: &[Op<'_>]) -> Vec<u8> {
    let mut keys = Vec::new();
    let mut add = |key: &[u8]| {
        if is_prefixed(database, key) {
            keys.extend_from_slice(&prefix(database));
        }
        keys.extend_from_slice(key);
    };
    for op in ops {
        match *op {
            Op::Scan { from, to, .. } => {
                add(from);
                to.map(&mut add);
            }
            _ => {
                op.key().map(&mut add);
            }
        }
    }
    keys
}

/// Returns operations on clients' keys of a database with the keys that [`qualified_keys`] has made of
/// theirs.
pub fn qualify<'a: 'k, 'k>(
    database: u16,
    ops: impl IntoIterator<Item = Op<'a>>,
    keys: &'k [u8],
) -> impl Iterator<Item = Op<'k>> {
    let mut rest = keys;
    let mut take = move |key: &[u8]| {
        let prefix = if is_prefixed(database, key) {
            PREFIX_BYTES
        } else {
            0
        };
        let (key, behind) = rest.split_at(prefix + key.len());
        rest = behind;
        key
    };
    ops.into_iter().map(move |op| {
        let mut op: Op<'k> = op;
        match &mut op {
            Op::Scan { from, to, .. } => {
                *from = take(from);
                *to = to.map(&mut take);
            }
            Op::Count { database: of } | Op::FlushDatabase { database: of } => *of = database,
            op => {
                if let Some(key) = op.key_mut() {
                    *key = take(key);
                }
            }
        }
        op
    })
}

/// Returns `true` if a client's key of a database is stored with a prefix.
fn is_prefixed(database: u16, key: &[u8]) -> bool {
    database != 0 || key.starts_with(&RESERVED)
}

#[cfg(test)]
mod tests {
    use super::super::operation::ScanContents;
    use super::*;

    #[test]
    fn qualified_keys_can_be_split() {
        for database in [1, 2, 255, 256, u16::MAX] {
            for key in [&b""[..], b"key", &RESERVED] {
                let stored = qualified(database, key);
                assert_eq!(split(&stored), Some((database, key)));
                assert_eq!(client_key(&stored), key);
                assert!(stored < end_of(&stored) && prefix(database)[..] < end_of(&stored)[..]);
            }
        }
        for key in [&b""[..], b"key", &[0xff; 15]] {
            assert_eq!((split(key), qualified(0, key)), (None, key.to_vec()));
            assert_eq!(end_of(key), RESERVED);
        }
        assert!(end_of(&prefix(1)) == prefix(2) && prefix(1) < prefix(256));
    }

    #[test]
    fn operations_name_keys_of_their_database() {
        let scan = |from, to| Op::Scan {
            from,
            to,
            limit: 3,
            contents: ScanContents::Values,
        };
        let ops = [
            Op::put(b"a", b"1"),
            Op::Count { database: 0 },
            scan(b"", Some(b"b")),
            Op::Now,
            Op::Delete { key: b"" },
            scan(b"c", None),
            Op::FlushDatabase { database: 0 },
            Op::Flush,
        ];
        assert!(needs_qualification(7, &ops) && !needs_qualification(0, &ops));
        let of = |key: &[u8]| qualified(7, key);
        let (a, from, to, empty, c) = (of(b"a"), of(b""), of(b"b"), of(b""), of(b"c"));
        let expected = [
            Op::put(&a, b"1"),
            Op::Count { database: 7 },
            scan(&from, Some(&to)),
            Op::Now,
            Op::Delete { key: &empty },
            scan(&c, None),
            Op::FlushDatabase { database: 7 },
            Op::Flush,
        ];
        let keys = qualified_keys(7, &ops);
        let seven: Vec<Op<'_>> = qualify(7, ops.clone(), &keys).collect();
        assert_eq!(seven, expected);
        let keys = qualified_keys(0, &ops);
        let zero: Vec<Op<'_>> = qualify(0, ops.clone(), &keys).collect();
        assert_eq!(zero, ops);
    }

    #[test]
    fn no_client_names_a_key_of_another_database() {
        let stolen = qualified(3, b"key");
        let get = [Op::Get { key: &stolen }];
        assert!(needs_qualification(0, &get));
        let keys = qualified_keys(0, &get);
        let own: Vec<Op<'_>> = qualify(0, get, &keys).collect();
        assert_eq!(split(own[0].key().unwrap()), Some((0, &stolen[..])));
    }
}
