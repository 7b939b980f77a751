//! Tables of records, by their addresses.
//!
//! Records that were made one after another mostly lie one after another, and transactions of very many keys often
//! meet them in that order. So the entries of a page of memory lie together in a table, and those of different pages
//! anywhere: most look-ups of such a transaction find what they need in the processor's caches.

use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

use crate::record::RecordRef;

/// A table with an entry for each of some records.
pub(crate) type RecordMap<V> = HashMap<RecordRef, V, BuildHasherDefault<RecordHasher>>;

/// The hash of a record's address. A table takes the place of an entry from the low bits, and compares the seven
/// highest ones before it looks at the entry.
#[derive(Default)]
pub(crate) struct RecordHasher(u64);

const PAGE_BITS: u32 = 12;
/// The low bits of an address that rarely tell two records apart.
const SAME_BITS: u32 = 5;
const TAG: u64 = 0x7f << 57;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a number of the page that an address is in. Its highest bits depend on all bits of the address above those
/// of the page.
pub(crate) fn mixed_page(address: u64) -> u64 {
    (address >> PAGE_BITS).wrapping_mul(FACTOR)
}

fn hash(address: u64) -> u64 {
    let within = (address & ((1 << PAGE_BITS) - 1)) >> SAME_BITS;
    // The shards of the table of holds are told by the highest bits.
    let place = (mixed_page(address) >> 20).wrapping_add(within);
    place & !TAG | (address >> 4).wrapping_mul(FACTOR) & TAG
}

impl Hasher for RecordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a record is hashed by its address");
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = hash(address as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn entries_of_a_page_lie_together_and_pages_lie_anywhere() {
        const PLACES: u64 = 1 << 16;
        let place = |address: u64| hash(address) % PLACES;
        for page in 0..1000 {
            let first = 0x7f00_0000_0000 + page * 4096;
            let places = (0..64).map(|record| place(first + record * 64));
            let places: Vec<u64> = places.collect();
            let span = places[63].wrapping_sub(places[0]) % PLACES;
            assert_eq!(span, 126, "{places:?}");
        }
        // Keys so long that each record has a page of its own.
        for stride in [4096, 16 * 4096, 1 << 20] {
            let places = (0..1000).map(|record| place(0x7f00_0000_0000 + record * stride));
            let places: HashSet<u64> = places.collect();
            assert!(places.len() > 900, "{stride}: {}", places.len());
        }
        let tags = (0..64).map(|record| hash(record * 64) & TAG);
        assert!(tags.collect::<HashSet<u64>>().len() > 32);
    }

    #[test]
    fn a_table_finds_its_records() {
        let records: Vec<RecordRef> = (0..2000_u32)
            .map(|number| RecordRef::new(&number.to_be_bytes()))
            .collect();
        let numbers = records.iter().copied().zip(0..);
        let map: RecordMap<usize> = numbers.collect();
        assert_eq!(map.len(), records.len());
        for (number, record) in records.iter().enumerate() {
            assert_eq!(map.get(record), Some(&number));
        }
    }
}
