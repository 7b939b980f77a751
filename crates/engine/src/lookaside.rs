//! A hash table of records in front of the ordered index.
//!
//! A point look-up in an ordered map of a million keys misses the cache once a level. This table
//! answers most look-ups with one miss, and lets them overlap: all keys of a transaction can be
//! prefetched before the first is needed. It also answers that a key has no record, unless the
//! table has just grown or the key's bucket has ever been too full: only then the map is asked.
//!
//! | bytes | field |
//! |---|---|
//! | 64 | a bucket, one cache line: eight entries |
//! | 8 | an entry: 16 bits of the hash, then 48 bits of a record's address, which is a multiple of 16; zero is empty. The lowest bit of the first one is set once an entry of the bucket was lost, whether the entry is empty or not |
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

const ENTRIES: usize = 8;
/// The bits of an entry that are of the hash: the tag.
const TAG: u64 = !0 << 48;
/// The bit of the first entry of a bucket that is set once one was lost.
const LOST: u64 = 1;
/// Average entries in a bucket at which the table grows, to [`GROWTH`] times its size.
const CROWDED: usize = 5;
const GROWTH: (usize, usize) = (3, 2);
const FIRST_BUCKETS: usize = 1024;
/// The most buckets that are looked at for a sample. A table may be nearly empty after many keys were deleted.
const SAMPLED_BUCKETS: usize = 1024;

#[repr(C, align(64))]
struct Bucket {
    entries: [AtomicU64; ENTRIES],
}

impl Bucket {
    fn has_lost(&self) -> bool {
        self.entries[0].load(Ordering::Acquire) & LOST != 0
    }

    /// Replaces an entry, unless `wanted` says no to it, and keeps the bit beside it. Returns `true` if it was replaced.
    fn replace(slot: &AtomicU64, new: u64, wanted: impl Fn(u64) -> bool) -> bool {
        let replaced = slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |old| {
            wanted(old & !LOST).then_some(new | old & LOST)
        });
        replaced.is_ok()
    }
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

/// One generation of the table: buckets in zeroed, huge-page-friendly memory.
pub(crate) struct HintTable {
    memory: memmap2::MmapMut,
    buckets: usize,
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
            buckets,
            complete: AtomicBool::new(false),
        }
    }

    fn bucket(&self, hash: u64) -> &Bucket {
        // The bits below the tag, as a fraction of their range, times the number of buckets.
        let product = u128::from(hash << 16) * self.buckets as u128;
        self.bucket_at((product >> 64) as usize)
    }

    /// Returns a bucket by its number.
    fn bucket_at(&self, number: usize) -> &Bucket {
        debug_assert!(number < self.buckets);
        let at = number * size_of::<Bucket>();
        // SAFETY: the mapping is page-aligned, zeroed (a valid bucket) and `at` lies within it; it
        // is only ever accessed as atomics.
        unsafe { &*self.memory.as_ptr().add(at).cast::<Bucket>() }
    }
}

fn entry(hash: u64, record: RecordRef) -> u64 {
    debug_assert_eq!(
        record.address() & (TAG | LOST),
        0,
        "user addresses have 48 bits, and are multiples of 16"
    );
    (hash & TAG) | record.address()
}

/// The hash of a key, of which the table uses the 16 highest bits for the tag and the others for the bucket.
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
        if table.complete.load(Ordering::Acquire) && !bucket.has_lost() {
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
        if slots.any(|slot| slot.load(Ordering::Relaxed) & !LOST == new) {
            return;
        }
        let mut slots = bucket.entries.iter();
        if slots.any(|slot| Bucket::replace(slot, new, |old| old == 0)) {
            return;
        }
        // It does not matter which entry a full bucket loses, only that it varies and is known.
        bucket.entries[0].fetch_or(LOST, Ordering::Release);
        let victim = (record.address() >> 5) as usize % ENTRIES;
        Bucket::replace(&bucket.entries[victim], new, |_| true);
    }

    /// Forgets a record. The caller holds its lock and has marked it dead.
    pub(crate) fn forget(&self, hash: KeyHash, record: RecordRef) {
        let old = entry(hash.0, record);
        for slot in &self.table().bucket(hash.0).entries {
            Bucket::replace(slot, 0, |found| found == old);
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

    /// Enlarges the table when it is crowded with `records`, and returns the old one, which must live
    /// until all present workers have left. The new one fills as keys are looked up, and by the
    /// janitor's walk.
    pub(crate) fn grow(&self, records: usize) -> Option<Arc<HintTable>> {
        if records <= self.table().buckets * CROWDED {
            return None;
        }
        let mut owner = self.owner.lock();
        if records <= owner.buckets * CROWDED {
            return None;
        }
        let (times, by) = GROWTH;
        let table = Arc::new(HintTable::new(owner.buckets * times / by));
        self.current
            .store(Arc::as_ptr(&table).cast_mut(), Ordering::Release);
        Some(std::mem::replace(&mut *owner, table))
    }

    /// Visits the records of some buckets from a random one on, until `visit` returns `false`, and at most the
    /// records of [`SAMPLED_BUCKETS`]. They may be dead.
    pub(crate) fn sample(&self, random: u64, mut visit: impl FnMut(RecordRef) -> bool) {
        let table = self.table();
        let first = random as usize;
        for step in 0..SAMPLED_BUCKETS.min(table.buckets) {
            let bucket = table.bucket_at(first.wrapping_add(step) % table.buckets);
            for slot in &bucket.entries {
                let address = slot.load(Ordering::Acquire) & !(TAG | LOST);
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
        self.owner.lock().buckets * size_of::<Bucket>()
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
    let tag = hash.0 & TAG;
    bucket.entries.iter().filter_map(move |slot| {
        let address = (slot.load(Ordering::Acquire) & !LOST) ^ tag;
        let matches = address & TAG == 0 && address != 0;
        // SAFETY: invariant 1: the record has not been freed while this worker is pinned.
        matches.then(|| unsafe { RecordRef::from_address(address) })
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
