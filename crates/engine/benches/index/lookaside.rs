//! A lossy hash table of record pointers: one cache line per bucket, eight entries of 16 bits of
//! hash and 48 bits of address. A full bucket forgets one of its entries.

use std::hash::BuildHasher;

use crate::record::{Home, RecordRef, Records, at, map_huge};

const ENTRIES: usize = 8;
/// Records per bucket for which the table is sized.
const FILL: usize = 5;
const ADDRESS: u64 = (1 << 48) - 1;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Bucket([u64; ENTRIES]);

pub struct Lookaside {
    buckets: &'static mut [Bucket],
    hasher: foldhash::fast::FixedState,
}

impl Lookaside {
    pub fn new(records: &Records, home: Home) -> Lookaside {
        let count = (records.len() / FILL).next_power_of_two();
        let buckets = match home {
            Home::Heap => vec![Bucket([0; ENTRIES]); count].leak(),
            // SAFETY: zeroed memory of the right size and alignment that is never unmapped.
            Home::Huge => unsafe {
                std::slice::from_raw_parts_mut(map_huge(count * size_of::<Bucket>()).cast(), count)
            },
        };
        let mut lookaside = Lookaside {
            buckets,
            hasher: foldhash::fast::FixedState::default(),
        };
        records.iter().for_each(|record| lookaside.add(record));
        lookaside
    }

    fn add(&mut self, record: RecordRef) {
        let hash = self.hasher.hash_one(record.key());
        let mask = self.buckets.len() - 1;
        let bucket = &mut self.buckets[hash as usize & mask].0;
        let at = bucket.iter().position(|&entry| entry == 0);
        bucket[at.unwrap_or((hash >> 32) as usize % ENTRIES)] =
            (hash & !ADDRESS) | record.address();
    }

    fn bucket(&self, hash: u64) -> &Bucket {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    fn candidates(&self, hash: u64) -> impl Iterator<Item = RecordRef> {
        let same_tag = move |entry: &&u64| (**entry ^ hash) & !ADDRESS == 0 && **entry != 0;
        let entries = self.bucket(hash).0.iter().filter(same_tag);
        entries.map(|entry| at((entry & ADDRESS) as usize))
    }

    pub fn get(&self, key: &[u8]) -> Option<RecordRef> {
        self.find(self.hasher.hash_one(key), key)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<RecordRef> {
        self.candidates(hash).find(|record| record.key() == key)
    }

    /// Looks up several keys. Fetches all buckets before it reads the first, and all records before
    /// it compares the first, so that the misses overlap.
    pub fn get_batch<const N: usize>(&self, keys: [&[u8]; N]) -> [Option<RecordRef>; N] {
        let hashes = keys.map(|key| self.hasher.hash_one(key));
        for hash in hashes {
            prefetch(std::ptr::from_ref(self.bucket(hash)) as usize);
        }
        for hash in hashes {
            if let Some(record) = self.candidates(hash).next() {
                prefetch(record.address() as usize);
            }
        }
        std::array::from_fn(|i| self.find(hashes[i], keys[i]))
    }
}

fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint without effect on memory, for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(address);
}
