//! The words of a slot.
//!
//! | word | content |
//! |---|---|
//! | 0 | the state: sequence × 2 + valid (see [`super::state`]) |
//! | 1 | the owner's incarnation; 0 if the slot has no owner |
//! | 2, 3 | the version's id: timestamp, unique |
//! | 4 | the deadline, milliseconds since the Unix epoch; 0 without one |
//! | 5 | bytes of the key (lower 32 bits), of the siblings (upper 32 bits) |
//! | 6 | bytes of the value (lower 32 bits), kind (8 bits), whether there is content (1 bit), and a deadline (1 bit) |
//! | from 7 on | key, siblings (as [`base::change::siblings`]) and value, one behind the other; zeros up to a whole word |
//! | behind that | the checksum (XXH3, 64 bits) of all words before it |
//!
//! Bytes lie in words as in memory, the least significant byte first. The words after the checksum mean
//! nothing.

use base::transaction::Kind;
use base::versions::{Content, Versioned};
use base::{Timestamp, TransactionId};
use twox_hash::XxHash3_64;

use super::state;

/// Words before the bytes.
const HEAD: usize = 7;
/// The least number of words of a slot.
pub(super) const LEAST: usize = HEAD + 1;
/// The words that tell how many words a slot uses.
pub(super) const LENGTHS: [usize; 2] = [5, 6];

const CONTENT: u64 = 1 << 40;
const DEADLINE: u64 = 1 << 41;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "bytes and words are taken for each other as they lie in memory"
);

/// Why a slot's words are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It is not valid.
    Invalid,
    /// The words are not of one publication.
    Torn,
    /// It is not the expected slot, or it has outgrown what was read of it.
    Other,
}

/// Returns the number of words that a version needs; `None` if a slot cannot have as many.
pub(super) fn words(key: &[u8], version: &Versioned<'_>) -> Option<usize> {
    let value = version.content.map_or(0, |content| content.value.len());
    let lengths = [key.len(), version.siblings.len(), value];
    let fits = lengths.iter().all(|len| u32::try_from(*len).is_ok());
    fits.then(|| used(lengths))
}

/// Returns the image of a version.
///
/// # Panics
/// If there is none: see [`words`].
pub(super) fn encode(
    sequence: u64,
    incarnation: u64,
    key: &[u8],
    version: &Versioned<'_>,
) -> Vec<u64> {
    let len = words(key, version).expect("the caller asked whether it fits");
    let (value, kind) = version.content.map_or((&[][..], 0), |it| {
        (it.value, CONTENT | (it.kind as u64) << 32)
    });
    let deadline = version.content.and_then(|it| it.deadline);
    let mut image = Vec::with_capacity(len);
    image.extend([
        state::valid(sequence),
        incarnation,
        version.id.timestamp.0,
        version.id.unique,
        deadline.unwrap_or(0),
        key.len() as u64 | (version.siblings.len() as u64) << 32,
        value.len() as u64 | kind | deadline.map_or(0, |_| DEADLINE),
    ]);
    image.resize(len, 0);
    let mut bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut image[HEAD..]);
    for part in [key, version.siblings, value] {
        let (here, behind) = bytes.split_at_mut(part.len());
        here.copy_from_slice(part);
        bytes = behind;
    }
    image[len - 1] = checksum(&image[..len - 1]);
    image
}

/// Returns the version in a slot's words, if they are a publication for this key by this incarnation.
pub(super) fn decode<'w>(
    words: &'w [u64],
    incarnation: u64,
    key: &[u8],
) -> Result<Versioned<'w>, Doubt> {
    if words.len() < LEAST || words[1] != incarnation {
        return Err(Doubt::Other);
    }
    if !state::is_valid(words[0]) {
        return Err(Doubt::Invalid);
    }
    let [keys, siblings, value] = lengths(LENGTHS.map(|at| words[at]));
    let len = used([keys, siblings, value]);
    if len > words.len() {
        return Err(Doubt::Other);
    }
    if words[len - 1] != checksum(&words[..len - 1]) {
        return Err(Doubt::Torn);
    }
    let bytes: &[u8] = bytemuck::cast_slice(&words[HEAD..len - 1]);
    let (its_key, bytes) = bytes.split_at(keys);
    let (siblings, bytes) = bytes.split_at(siblings);
    let kind = Kind::from_u8((words[6] >> 32) as u8);
    let (true, Some(kind)) = (its_key == key, kind) else {
        return Err(Doubt::Other);
    };
    Ok(Versioned {
        id: TransactionId {
            timestamp: Timestamp(words[2]),
            unique: words[3],
        },
        siblings,
        content: (words[6] & CONTENT != 0).then_some(Content {
            value: &bytes[..value],
            kind,
            deadline: (words[6] & DEADLINE != 0).then_some(words[4]),
        }),
    })
}

/// Returns the number of words that a slot uses, given those that tell its lengths.
pub(super) fn words_used(told: [u64; 2]) -> usize {
    used(lengths(told))
}

/// Returns `true` if the slot has the image already: the same version, and as much of it.
pub(super) fn is_same(image: &[u64], slot: impl Fn(usize) -> u64) -> bool {
    state::is_valid(slot(0)) && (1..HEAD).all(|at| image[at] == slot(at))
}

/// Returns `true` if a slot is valid, and its version has not expired.
pub(super) fn is_current(slot: impl Fn(usize) -> u64, time_ms: u64) -> bool {
    state::is_valid(slot(0)) && (slot(6) & DEADLINE == 0 || slot(4) > time_ms)
}

fn lengths([keys_and_siblings, value]: [u64; 2]) -> [usize; 3] {
    [
        keys_and_siblings as u32 as usize,
        (keys_and_siblings >> 32) as usize,
        value as u32 as usize,
    ]
}

/// Returns the number of words for these lengths. This cannot overflow: each of them has 32 bits.
fn used(lengths: [usize; 3]) -> usize {
    HEAD + lengths.iter().sum::<usize>().div_ceil(base::memory::WORD) + 1
}

fn checksum(words: &[u64]) -> u64 {
    XxHash3_64::oneshot(bytemuck::cast_slice(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(value: Option<&[u8]>, deadline: Option<u64>) -> Versioned<'_> {
        Versioned {
            id: TransactionId {
                timestamp: Timestamp(7),
                unique: 9,
            },
            siblings: b"\x01\0\0\0s",
            content: value.map(|value| Content {
                value,
                kind: Kind::List,
                deadline,
            }),
        }
    }

    #[test]
    fn versions_come_back() {
        let long = [3; 1000];
        for version in [
            version(None, None),
            version(Some(b""), None),
            version(Some(b"12345678"), Some(0)),
            version(Some(&long), Some(u64::MAX)),
        ] {
            let image = encode(5, 77, b"key", &version);
            assert_eq!(Some(image.len()), words(b"key", &version));
            assert_eq!(decode(&image, 77, b"key"), Ok(version));
            let more = [&image[..], &[1, 2, 3]].concat();
            assert_eq!(decode(&more, 77, b"key"), Ok(version));
            assert_eq!(words_used(LENGTHS.map(|at| image[at])), image.len());
        }
    }

    #[test]
    fn nothing_else_is_believed() {
        let image = encode(
            5,
            77,
            b"key",
            &version(Some(b"a value of some length"), None),
        );
        assert_eq!(decode(&image, 78, b"key"), Err(Doubt::Other));
        assert_eq!(decode(&image, 77, b"kez"), Err(Doubt::Other));
        assert_eq!(decode(&image, 77, b"ke"), Err(Doubt::Other));
        for len in 0..image.len() {
            assert_eq!(
                decode(&image[..len], 77, b"key"),
                Err(Doubt::Other),
                "{len}"
            );
        }
        let mut cleared = image.clone();
        cleared[0] &= !1;
        assert_eq!(decode(&cleared, 77, b"key"), Err(Doubt::Invalid));
        for word in 0..image.len() {
            for bit in 0..64 {
                let mut other = image.clone();
                other[word] ^= 1 << bit;
                assert!(
                    decode(&other, 77, b"key").is_err(),
                    "word {word}, bit {bit}"
                );
            }
        }
    }

    #[test]
    fn a_change_of_the_deadline_or_an_expiry_is_no_repetition() {
        let image = encode(5, 77, b"key", &version(Some(b"v"), Some(3)));
        let same = |other: &Versioned<'_>| {
            let other = encode(6, 77, b"key", other);
            is_same(&other, |at| image[at])
        };
        assert!(same(&version(Some(b"v"), Some(3))));
        assert!(!same(&version(Some(b"v"), Some(4))));
        assert!(!same(&version(None, None)));
        let other = encode(6, 77, b"key", &version(Some(b"v"), Some(3)));
        assert!(!is_same(&other, |at| if at == 0 { 10 } else { image[at] }));
    }
}
