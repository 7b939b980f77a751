//! A Bloom filter of keys: it has all keys that were put in, and a few others.
//!
//! | parameter | value |
//! |---|---|
//! | length | 32 bytes, 256 bits |
//! | bits of a key | 4: the words of 32 bits of its hash, each modulo the filter's bits |
//! | hash | SipHash-1-3 of 128 bits with the key 0, 0 over the bytes of the key |
//! | bit n | of byte n / 8, of the value 1 << (n mod 8) |
//!
//! | keys put in | share of others that it has |
//! |---|---|
//! | 4 | 1 in 70,000 |
//! | 8 | 1 in 5,000 |
//! | 16 | 1 in 400 |
//! | 64 | 1 in 6 |
//!
//! Filters lie on disk with versions and travel between nodes, so that none of this may change: a key
//! that was put in must be found by every later release.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

/// Bytes of a filter.
pub const BYTES: usize = 32;

/// Returns a filter that has these keys.
#[must_use]
pub fn of<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> [u8; BYTES] {
    let mut filter = [0; BYTES];
    for key in keys {
        for bit in bits(key, BYTES) {
            filter[bit / 8] |= 1 << (bit % 8);
        }
    }
    filter
}

/// Returns `true` if a filter has a key. A filter without bytes has all keys.
#[must_use]
pub fn has(filter: &[u8], key: &[u8]) -> bool {
    filter.is_empty() || bits(key, filter.len()).all(|bit| filter[bit / 8] & 1 << (bit % 8) != 0)
}

fn bits(key: &[u8], bytes: usize) -> impl Iterator<Item = usize> {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(key);
    let hash = hasher.finish128();
    let words = [hash.h1, hash.h1 >> 32, hash.h2, hash.h2 >> 32];
    words
        .map(|word| word as u32 as usize % (bytes * 8))
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_there_and_few_others_are() {
        let key = |n: u32| n.to_le_bytes();
        for (keys, at_most) in [(4_u32, 10), (8, 50), (16, 500), (64, 30_000)] {
            let own: Vec<_> = (0..keys).map(key).collect();
            let filter = of(own.iter().map(|key| &key[..]));
            assert!(own.iter().all(|key| has(&filter, key)));
            let others = (1000..101_000).filter(|n| has(&filter, &key(*n))).count();
            assert!(others <= at_most, "{keys} keys: {others} of 100,000 others");
        }
        assert!(!has(&of([]), b"key"));
    }

    /// The bits must not change: filters on disks were made by earlier releases.
    #[test]
    fn the_bits_of_a_key_never_change() {
        let set = |key: &[u8]| bits(key, BYTES).collect::<Vec<_>>();
        assert_eq!(set(b""), [13, 93, 3, 208]);
        assert_eq!(set(b"feed:1"), [236, 178, 16, 4]);
    }
}
