//! A hash table of hints in front of the ordered index.
//!
//! A point look-up in an ordered map of a million keys misses the cache once a level. This table
//! answers most look-ups with one miss, and lets them overlap: all keys of a transaction can be
//! prefetched before the first is needed. It is lossy: it may forget, it never lies.
//!
//! | bytes | field |
//! |---|---|
//! | 64 | a bucket, one cache line: eight entries |
//! | 8 | an entry: 16 bits of the hash, then 48 bits of a record's address; zero is empty |
//!
//! Invariants:
//! 1. An entry is added only under the record's lock and while the record is not dead; a record's
//!    entry is removed after it was marked dead, under the same lock. So no entry of the current
//!    table ever leads to a freed record.
//! 2. A table that was outgrown is dropped when every worker that could be reading it has left.
//! 3. A full bucket forgets one of its entries.

#![allow(unsafe_code)]

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::record::RecordRef;

const ENTRIES: usize = 8;
const ADDRESS: u64 = (1 << 48) - 1;
/// Average entries in a bucket at which the table doubles.
const CROWDED: usize = 5;
const FIRST_BUCKETS: usize = 1024;

#[repr(C, align(64))]
struct Bucket([AtomicU64; ENTRIES]);

/// One generation of the table: a power of two of buckets in zeroed, huge-page-friendly memory.
pub(crate) struct Table {
    memory: memmap2::MmapMut,
    mask: usize,
}

impl Table {
    fn new(buckets: usize) -> Table {
        let bytes = buckets * size_of::<Bucket>();
        let memory = memmap2::MmapMut::map_anon(bytes).expect("memory for the look-aside table");
        #[cfg(target_os = "linux")]
        // Advice only: where it is refused, pages are small and everything works.
        let _ = memory.advise(memmap2::Advice::HugePage);
        Table {
            memory,
            mask: buckets - 1,
        }
    }

    fn buckets(&self) -> usize {
        self.mask + 1
    }

    fn bucket(&self, hash: u64) -> &Bucket {
        let at = (hash as usize & self.mask) * size_of::<Bucket>();
        // SAFETY: the mapping is page-aligned, zeroed (a valid bucket) and `at` lies within it; it
        // is only ever accessed as atomics.
        unsafe { &*self.memory.as_ptr().add(at).cast::<Bucket>() }
    }
}

fn entry(hash: u64, record: RecordRef) -> u64 {
    debug_assert_eq!(
        record.address() & !ADDRESS,
        0,
        "user addresses have 48 bits"
    );
    (hash & !ADDRESS) | record.address()
}

/// The hash of a key, of which the table uses low bits for the bucket and high bits for the tag.
#[derive(Clone, Copy)]
pub(crate) struct KeyHash(u64);

pub(crate) struct Lookaside {
    current: AtomicPtr<Table>,
    /// Owns what `current` points to, and serialises growth.
    owner: Mutex<Arc<Table>>,
    hasher: foldhash::fast::RandomState,
}

impl Lookaside {
    pub(crate) fn new() -> Lookaside {
        let table = Arc::new(Table::new(FIRST_BUCKETS));
        Lookaside {
            current: AtomicPtr::new(Arc::as_ptr(&table).cast_mut()),
            owner: Mutex::new(table),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.hasher.hash_one(key))
    }

    fn table(&self) -> &Table {
        // SAFETY: the current table is owned by `owner`; one that was replaced meanwhile lives
        // until this worker has left its epoch (invariant 2).
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The record of `key`, if the table remembers it. It may be dead: look in the index then.
    pub(crate) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<RecordRef> {
        self.candidates(hash).find(|record| record.key() == key)
    }

    /// Records in the bucket whose tag matches; almost always one or none.
    fn candidates(&self, hash: KeyHash) -> impl Iterator<Item = RecordRef> + '_ {
        let tag = hash.0 & !ADDRESS;
        self.table()
            .bucket(hash.0)
            .0
            .iter()
            .filter_map(move |slot| {
                let entry = slot.load(Ordering::Acquire);
                let matches = entry & !ADDRESS == tag && entry & ADDRESS != 0;
                // SAFETY: invariant 1: the record has not been freed while this worker is pinned.
                matches.then(|| unsafe { RecordRef::from_address(entry & ADDRESS) })
            })
    }

    /// Remembers a record. The caller holds its lock, and it is not dead.
    pub(crate) fn remember(&self, hash: KeyHash, record: RecordRef) {
        let bucket = self.table().bucket(hash.0);
        let new = entry(hash.0, record);
        if bucket
            .0
            .iter()
            .any(|slot| slot.load(Ordering::Relaxed) == new)
        {
            return;
        }
        let empty = bucket
            .0
            .iter()
            .position(|slot| slot.load(Ordering::Relaxed) == 0);
        // Which one a full bucket forgets does not matter, only that it varies.
        let slot = empty.unwrap_or((record.address() >> 5) as usize % ENTRIES);
        bucket.0[slot].store(new, Ordering::Release);
    }

    /// Forgets a record. The caller holds its lock and has marked it dead.
    pub(crate) fn forget(&self, hash: KeyHash, record: RecordRef) {
        let old = entry(hash.0, record);
        for slot in &self.table().bucket(hash.0).0 {
            let _ = slot.compare_exchange(old, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Doubles the table when it is crowded with `records`, and returns the old one, which must
    /// live until all workers of today have left. The new one fills as keys are looked up.
    pub(crate) fn grow(&self, records: usize) -> Option<Arc<Table>> {
        if records <= self.table().buckets() * CROWDED {
            return None;
        }
        let mut owner = self.owner.lock();
        if records <= owner.buckets() * CROWDED {
            return None;
        }
        let table = Arc::new(Table::new(owner.buckets() * 2));
        self.current
            .store(Arc::as_ptr(&table).cast_mut(), Ordering::Release);
        Some(std::mem::replace(&mut *owner, table))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.owner.lock().buckets() * size_of::<Bucket>()
    }

    /// First of three steps ahead of a look-up: fetches the bucket.
    pub(crate) fn prefetch_bucket(&self, hash: KeyHash) {
        prefetch(std::ptr::from_ref(self.table().bucket(hash.0)).cast());
    }

    /// Second step: fetches the record.
    pub(crate) fn prefetch_record(&self, hash: KeyHash) {
        for record in self.candidates(hash) {
            prefetch(record.address() as *const u8);
        }
    }

    /// Third step: fetches the record's version.
    pub(crate) fn prefetch_version(&self, hash: KeyHash) {
        for record in self.candidates(hash) {
            prefetch(record.word().load().pointer() as *const u8);
        }
    }
}

/// Asks the processor for a cache line; any address will do.
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
