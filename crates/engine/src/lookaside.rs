//! A hash table of records in front of the ordered index.
//!
//! A point look-up in an ordered map of a million keys misses the cache once a level. This table
//! answers most look-ups with one miss, and lets them overlap: all keys of a transaction can be
//! prefetched before the first is needed. It also answers that a key has no record, unless the
//! table has just grown or the key's bucket has ever been too full: only then the map is asked.
//!
//! | bytes | field |
//! |---|---|
//! | 64 | a bucket, one cache line: seven entries, then a word that is not zero once an entry of the bucket was lost |
//! | 8 | an entry: 16 bits of the hash, then 48 bits of a record's address; zero is empty |
//!
//! Invariants:
//! 1. An entry is added only under the record's lock and while the record is not dead, or while it
//!    is held under two-phase locking, so that it cannot die; a record's entry is removed after it
//!    was marked dead, under the same lock. So no entry of the current
//!    table ever leads to a freed record.
//! 2. A table that was outgrown is dropped when every worker that could be reading it has left.
//! 3. In a complete table every record that a commit may lock has an entry, or its bucket is marked
//!    as having lost one: a record gets its entry after it entered the map and before any
//!    transaction writes it; a table becomes complete when a walk through the map, begun after the
//!    table was put in place, has given every record in it an entry.

#![allow(unsafe_code)]

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

use parking_lot::Mutex;

use crate::record::RecordRef;

const ENTRIES: usize = 7;
const ADDRESS: u64 = (1 << 48) - 1;
/// Average entries in a bucket at which the table doubles.
const CROWDED: usize = 4;
const FIRST_BUCKETS: usize = 1024;
/// The most buckets that are looked at for a sample. A table may be nearly empty after many keys were deleted.
const SAMPLED_BUCKETS: usize = 1024;

#[repr(C, align(64))]
struct Bucket {
    entries: [AtomicU64; ENTRIES],
    lost: AtomicU64,
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// The table's answer for a key.
pub(crate) enum HintLookup {
    /// Its record, which may be dead: ask the map then.
    Record(RecordRef),
    /// It has none that was ever written.
    Nothing,
    /// The map must be asked.
    Unknown,
}

/// One generation of the table: a power of two of buckets in zeroed, huge-page-friendly memory.
pub(crate) struct HintTable {
    memory: memmap2::MmapMut,
    mask: usize,
    /// `true` if a key that is not in the table has no record (invariant 3).
    complete: AtomicBool,
}

impl HintTable {
    fn new(buckets: usize) -> HintTable {
        let bytes = buckets * size_of::<Bucket>();
        let memory = memmap2::MmapMut::map_anon(bytes).expect("memory for the look-aside table");
        #[cfg(target_os = "linux")]
        // This is only advice: where it is refused, pages are small and everything works.
        let _ = memory.advise(memmap2::Advice::HugePage);
        HintTable {
            memory,
            mask: buckets - 1,
            complete: AtomicBool::new(false),
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

impl KeyHash {
    /// Returns the bits, which are the same for equal keys.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

pub(crate) struct Lookaside {
    current: AtomicPtr<HintTable>,
    /// Owns the table to which `current` points, and serialises growth.
    owner: Mutex<Arc<HintTable>>,
    hasher: foldhash::fast::RandomState,
}

impl Lookaside {
    pub(crate) fn new() -> Lookaside {
        let table = Arc::new(HintTable::new(FIRST_BUCKETS));
        Lookaside {
            current: AtomicPtr::new(Arc::as_ptr(&table).cast_mut()),
            owner: Mutex::new(table),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.hasher.hash_one(key))
    }

    fn table(&self) -> &HintTable {
        // SAFETY: the current table is owned by `owner`; one that was replaced meanwhile lives
        // until this worker has left its epoch (invariant 2).
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Returns the table's answer for `key`.
    pub(crate) fn find(&self, hash: KeyHash, key: &[u8]) -> HintLookup {
        let table = self.table();
        let bucket = table.bucket(hash.0);
        if let Some(record) = candidates(bucket, hash).find(|record| record.key() == key) {
            return HintLookup::Record(record);
        }
        if table.complete.load(Ordering::Acquire) && bucket.lost.load(Ordering::Acquire) == 0 {
            return HintLookup::Nothing;
        }
        HintLookup::Unknown
    }

    fn candidates(&self, hash: KeyHash) -> impl Iterator<Item = RecordRef> + '_ {
        candidates(self.table().bucket(hash.0), hash)
    }

    /// Gives a record its entry. The caller has its lock or keeps it held, it is not dead, and it
    /// is in the map.
    pub(crate) fn remember(&self, hash: KeyHash, record: RecordRef) {
        // Either the walk that completes a table sees the record in the map, or this sees the
        // table that the walk is about: the walk has such a fence, too.
        fence(Ordering::SeqCst);
        let bucket = self.table().bucket(hash.0);
        let new = entry(hash.0, record);
        let mut slots = bucket.entries.iter();
        if slots.any(|slot| slot.load(Ordering::Relaxed) == new) {
            return;
        }
        for slot in &bucket.entries {
            let empty = slot.compare_exchange(0, new, Ordering::Release, Ordering::Relaxed);
            if empty.is_ok() {
                return;
            }
        }
        // It does not matter which entry a full bucket loses, only that it varies and is known.
        bucket.lost.store(1, Ordering::Release);
        let victim = (record.address() >> 5) as usize % ENTRIES;
        bucket.entries[victim].store(new, Ordering::Release);
    }

    /// Forgets a record. The caller holds its lock and has marked it dead.
    pub(crate) fn forget(&self, hash: KeyHash, record: RecordRef) {
        let old = entry(hash.0, record);
        for slot in &self.table().bucket(hash.0).entries {
            let _ = slot.compare_exchange(old, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Returns the current table, if it is not complete: to be walked for.
    pub(crate) fn incomplete(&self) -> Option<Arc<HintTable>> {
        let owner = self.owner.lock();
        let table = (!owner.complete.load(Ordering::Acquire)).then(|| Arc::clone(&owner));
        fence(Ordering::SeqCst);
        table
    }

    /// Notes that a walk which began after [`Lookaside::incomplete`] returned `table` has given
    /// every record in the map an entry.
    pub(crate) fn completed(&self, table: &HintTable) {
        table.complete.store(true, Ordering::Release);
    }

    /// Doubles the table when it is crowded with `records`, and returns the old one, which must live
    /// until all present workers have left. The new one fills as keys are looked up, and by the
    /// janitor's walk.
    pub(crate) fn grow(&self, records: usize) -> Option<Arc<HintTable>> {
        if records <= self.table().buckets() * CROWDED {
            return None;
        }
        let mut owner = self.owner.lock();
        if records <= owner.buckets() * CROWDED {
            return None;
        }
        let table = Arc::new(HintTable::new(owner.buckets() * 2));
        self.current
            .store(Arc::as_ptr(&table).cast_mut(), Ordering::Release);
        Some(std::mem::replace(&mut *owner, table))
    }

    /// Visits the records of some buckets from a random one on, until `visit` returns `false`, and at most the
    /// records of [`SAMPLED_BUCKETS`]. They may be dead.
    pub(crate) fn sample(&self, random: u64, mut visit: impl FnMut(RecordRef) -> bool) {
        let table = self.table();
        let first = random as usize;
        for step in 0..SAMPLED_BUCKETS.min(table.buckets()) {
            let bucket = table.bucket(first.wrapping_add(step) as u64);
            for slot in &bucket.entries {
                let address = slot.load(Ordering::Acquire) & ADDRESS;
                if address == 0 {
                    continue;
                }
                // SAFETY: invariant 1: the record has not been freed while this worker is pinned.
                let record = unsafe { RecordRef::from_address(address) };
                if !visit(record) {
                    return;
                }
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.owner.lock().buckets() * size_of::<Bucket>()
    }

    /// Fetches the bucket: the first of three steps ahead of a look-up.
    pub(crate) fn prefetch_bucket(&self, hash: KeyHash) {
        prefetch(std::ptr::from_ref(self.table().bucket(hash.0)).cast());
    }

    /// Fetches the record: the second step.
    pub(crate) fn prefetch_record(&self, hash: KeyHash) {
        for record in self.candidates(hash) {
            prefetch(record.address() as *const u8);
        }
    }

    /// Fetches the record's version: the third step.
    pub(crate) fn prefetch_version(&self, hash: KeyHash) {
        for record in self.candidates(hash) {
            prefetch(record.word().load().pointer() as *const u8);
        }
    }

    /// Fetches the place behind the value that names the version's origin: the first of two more
    /// steps, for callers that will look at origins.
    pub(crate) fn prefetch_origin_name(&self, hash: KeyHash) {
        for record in self.candidates(hash) {
            let version = RecordRef::version(record.word().load());
            version
                .origin_pointer()
                .into_iter()
                .for_each(|at| prefetch(at.as_ptr().cast()));
        }
    }

    /// Fetches the origin itself: the second of them.
    pub(crate) fn prefetch_origin(&self, hash: KeyHash) {
        for record in self.candidates(hash) {
            let version = RecordRef::version(record.word().load());
            version.origin_address().into_iter().for_each(prefetch);
        }
    }
}

/// Returns the records in the bucket whose tag matches; almost always one or none.
fn candidates(bucket: &Bucket, hash: KeyHash) -> impl Iterator<Item = RecordRef> + '_ {
    let tag = hash.0 & !ADDRESS;
    bucket.entries.iter().filter_map(move |slot| {
        let entry = slot.load(Ordering::Acquire);
        let matches = entry & !ADDRESS == tag && entry & ADDRESS != 0;
        // SAFETY: invariant 1: the record has not been freed while this worker is pinned.
        matches.then(|| unsafe { RecordRef::from_address(entry & ADDRESS) })
    })
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
