//! The changes of a transaction, as redo logs keep them.

use super::ids::{Tid, TransactionId};
use super::operation::Kind;

/// The information that a transaction over several partitions stores with each version that it
/// writes, and that every writer of a read-atomic key stores (paper 1, RAMP: timestamp and
/// siblings).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The transaction's id: its commit timestamp, the same in all partitions, and a number that
    /// distinguishes it from others of that timestamp. The ids of a read-atomic key's versions only
    /// grow.
    pub id: TransactionId,
    /// A description of the keys that the transaction wrote; see [`siblings`].
    pub siblings: &'a [u8],
}

/// The description of the keys that were written together with a version, as bytes:
///
/// | bytes | means |
/// |---|---|
/// | each key: its length (4 bytes, little-endian) and itself, one behind the other | these keys (RAMP-Fast, and two-phase commit); nothing: no others |
/// | 255, 255, 255, 255 and a filter | keys that the filter has (RAMP-Hybrid), whose format the reader knows |
/// | 254, 255, 255, 255 | any keys (RAMP-Small) |
pub mod siblings {
    /// In the place of a length: a filter follows.
    const FILTER: u32 = u32::MAX;
    /// In the place of a length: the keys are not described.
    const UNTOLD: u32 = u32::MAX - 1;

    /// A decoded description of the keys.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Siblings<'a> {
        /// The keys are these; see [`iter`].
        Keys(&'a [u8]),
        /// The keys are among those that match this filter.
        Filter(&'a [u8]),
        /// The keys are not described.
        Untold,
    }

    /// Appends a key.
    pub fn push(to: &mut Vec<u8>, key: &[u8]) {
        to.extend_from_slice(&(key.len() as u32).to_le_bytes());
        to.extend_from_slice(key);
    }

    /// Returns siblings that are described by a filter.
    #[must_use]
    pub fn filtered(filter: &[u8]) -> Vec<u8> {
        [&FILTER.to_le_bytes()[..], filter].concat()
    }

    /// Returns siblings that are not described.
    #[must_use]
    pub fn untold() -> Vec<u8> {
        UNTOLD.to_le_bytes().to_vec()
    }

    /// Decodes a description. Returns `None` if the bytes are malformed.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Siblings<'_>> {
        if let Some((head, rest)) = bytes.split_first_chunk::<4>() {
            match u32::from_le_bytes(*head) {
                FILTER => return (!rest.is_empty()).then_some(Siblings::Filter(rest)),
                UNTOLD => return rest.is_empty().then_some(Siblings::Untold),
                _ => {}
            }
        }
        iter(bytes)
            .all(|key| key.is_some())
            .then_some(Siblings::Keys(bytes))
    }

    /// Returns the keys, if they are listed. A `None` in place of a key means that the bytes are
    /// malformed from there on.
    pub fn iter(mut bytes: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
        std::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let parts = bytes
                .split_first_chunk::<4>()
                .and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize));
            match parts {
                Some((key, rest)) => {
                    bytes = rest;
                    Some(Some(key))
                }
                None => {
                    bytes = &[];
                    Some(None)
                }
            }
        })
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn keys_come_back_and_cut_bytes_are_noticed() {
            let mut bytes = Vec::new();
            let keys: [&[u8]; 3] = [b"a", b"", b"long key"];
            keys.iter().for_each(|key| super::push(&mut bytes, key));
            let back: Vec<_> = super::iter(&bytes).collect();
            assert_eq!(back, keys.map(Some));
            for n in [1, 4, 6, bytes.len() - 1] {
                assert_eq!(super::iter(&bytes[..n]).last(), Some(None), "{n} bytes");
            }
        }
    }
}

/// The change of one key, or of all of them. Applying the change of the greatest TID for each key,
/// in any order, gives the state after all of them; an [`Edit`](Change::Edit) and
/// [`Elements`](Change::Elements) are applied to the version that they name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The key now has this value.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Its type.
        kind: Kind,
        /// The generation that it belongs to.
        generation: u16,
        /// The time at which it expires, in milliseconds since the Unix epoch.
        deadline: Option<u64>,
        /// The origin, if a transaction over several partitions wrote it.
        origin: Option<Origin<'a>>,
    },
    /// Only a part of the key's value has changed. The key has no origin.
    Edit {
        /// The key.
        key: &'a [u8],
        /// The TID of the version that is changed.
        base: Tid,
        /// The offset of `bytes` in the value. The value becomes as long as is needed for that, with
        /// zeros between its former end and the offset.
        offset: usize,
        /// The new bytes.
        bytes: &'a [u8],
    },
    /// Only elements of the key's value, a large collection, have changed, or its deadline. The key has no
    /// origin.
    Elements {
        /// The key.
        key: &'a [u8],
        /// The TID of the version that is changed.
        base: Tid,
        /// The time at which the key expires, in milliseconds since the Unix epoch.
        deadline: Option<u64>,
        /// The changes, in the format of crate `values`.
        changes: &'a [u8],
    },
    /// The key is deleted.
    Delete {
        /// The key.
        key: &'a [u8],
        /// The origin, if a transaction over several partitions deleted it.
        origin: Option<Origin<'a>>,
    },
    /// Every key of another generation is deleted.
    Flush {
        /// The generation that is visible from now on.
        generation: u16,
    },
}

impl<'a> Change<'a> {
    /// Returns the key that changes, or [`None`] if all keys do.
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        match *self {
            Change::Put { key, .. }
            | Change::Edit { key, .. }
            | Change::Elements { key, .. }
            | Change::Delete { key, .. } => Some(key),
            Change::Flush { .. } => None,
        }
    }
}

/// The generation of system records, in which a partition stores its own data, such as the
/// transactions that are prepared. Flushes leave them alone, and clients do not see them. No flush
/// gets this number.
pub const SYSTEM_GENERATION: u16 = u16::MAX;
