//! Holds of transactions under two-phase locking, on records and on ranges.
//!
//! | hold | on | excludes |
//! |---|---|---|
//! | exclusive | a record that a prepared transaction will write | readers and writers |
//! | shared | a record that it has read, absent keys and the generation's record too | writers |
//! | range | keys from one to another that it has scanned | writers of a key in it that has no record |
//!
//! A record that lay in a scanned range has a hold of its own, so that a range stops only
//! transactions that write a record for the first time. Readers share, but a later reader gives way
//! to a transaction that wants to write (module `writer_marks`).
//!
//! Thread safety and invariants:
//! 1. A record is in its shard's table if and only if its word has `HELD` or `SHARED`; both change
//!    under the shard's mutex. No thread waits for a word while it has the mutex.
//! 2. A held record stays in the index: its word cannot be locked.
//! 3. A range counts before the scan of its transaction is validated. A transaction that is about
//!    to write a new record has it locked before it looks at the count. So one of the two sees the
//!    other.
//! 4. Holds are given back before [`Holds::releases`] grows: a transaction that met one, and has
//!    read that number before, misses no release.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::transaction::Holder;
use base::{Timestamp, TransactionId};
use crossbeam_utils::CachePadded;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::record::RecordRef;
use crate::word::{HELD, LockRefusal, QUEUED, SHARED, WordValue};
use crate::writer_marks::WriterMarks;

const SHARDS: usize = 64;

/// The holders of a record.
pub(crate) enum Hold {
    Exclusive(Holder),
    /// In the order in which they came, in which they mostly leave as well: every transaction that writes shares
    /// the record of the generation.
    Shared(VecDeque<Holder>),
}

/// Records and their holders.
pub(crate) type HoldShard = HashMap<RecordRef, Hold>;

struct Range {
    holder: Holder,
    from: Vec<u8>,
    /// The end of the range, exclusive.
    to: Vec<u8>,
}

type Listener = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Holds {
    shards: Box<[CachePadded<Mutex<HoldShard>>]>,
    ranges: Mutex<Vec<Range>>,
    /// The number of ranges.
    ranged: CachePadded<AtomicUsize>,
    releases: AtomicU64,
    listeners: RwLock<Vec<Listener>>,
    /// The records that other transactions want to write.
    pub(crate) writer_marks: WriterMarks,
}

impl Hold {
    /// Returns the oldest holder: a transaction that is older than this one is older than all.
    fn oldest(&self) -> Option<Holder> {
        match self {
            Hold::Exclusive(holder) => Some(*holder),
            Hold::Shared(holders) => oldest(holders.iter()),
        }
    }
}

/// Removes the marks of holds from a record's word, under its shard's mutex. Returns `true` if the
/// word has got the mark `QUEUED` because the record was never written.
fn free(record: RecordRef) -> bool {
    let unknown = |seen: WordValue| RecordRef::version(seen).is_never() && !seen.has(QUEUED);
    let before = record
        .word()
        .release_hold(|seen| if unknown(seen) { QUEUED } else { 0 });
    unknown(before)
}

fn oldest<'h>(holders: impl Iterator<Item = &'h Holder>) -> Option<Holder> {
    holders
        .min_by_key(|holder| (holder.age, holder.id))
        .copied()
}

impl Holds {
    pub(crate) fn new() -> Holds {
        Holds {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            ranges: Mutex::default(),
            ranged: CachePadded::default(),
            releases: AtomicU64::new(0),
            listeners: RwLock::default(),
            writer_marks: WriterMarks::default(),
        }
    }

    fn shard(&self, record: RecordRef) -> MutexGuard<'_, HoldShard> {
        // Records are multiples of 16; the multiplication mixes the bits above.
        let mixed = (record.address() >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.shards[(mixed >> 58) as usize].lock()
    }

    /// Holds a record for a reader of `seen`, if that is still current and no transaction writes
    /// it.
    pub(crate) fn share(
        &self,
        record: RecordRef,
        seen: WordValue,
        holder: Holder,
    ) -> Result<(), LockRefusal> {
        let mut shard = self.shard(record);
        record.word().share(seen)?;
        let hold = shard.entry(record).or_insert(Hold::Shared(VecDeque::new()));
        match hold {
            Hold::Shared(holders) => holders.push_back(holder),
            Hold::Exclusive(_) => unreachable!("its word says that it is not held exclusively"),
        }
        Ok(())
    }

    /// Turns the lock of a record into an exclusive hold.
    pub(crate) fn exclude(&self, record: RecordRef, locked: WordValue, holder: Holder) {
        let mut shard = self.shard(record);
        let old = shard.insert(record, Hold::Exclusive(holder));
        debug_assert!(old.is_none(), "a held record is not locked");
        record.word().unlock(locked, locked.0 & QUEUED | HELD);
        drop(shard);
        self.writer_marks.forget(record);
    }

    /// Gives back one holder's hold on a record, if it has one. Returns `true` if the janitor must
    /// get the record: it has got the mark `QUEUED` because it was never written.
    pub(crate) fn release_hold(&self, record: RecordRef, id: TransactionId) -> bool {
        let mut shard = self.shard(record);
        match shard.get_mut(&record) {
            Some(Hold::Shared(holders)) => {
                let place = holders.iter().position(|holder| holder.id == id);
                place.and_then(|place| holders.remove(place));
                debug_assert!(holders.iter().all(|holder| holder.id != id));
                if !holders.is_empty() {
                    return false;
                }
            }
            Some(Hold::Exclusive(holder)) if holder.id == id => {}
            // The record may be freed, so that nothing of it is read.
            _ => return false,
        }
        shard.remove(&record);
        free(record)
    }

    /// Turns an exclusive hold, of any holder, into the caller's lock.
    pub(crate) fn seize(&self, record: RecordRef) -> Option<WordValue> {
        let mut shard = self.shard(record);
        let locked = record.word().seize()?;
        shard.remove(&record);
        Some(locked)
    }

    /// Gives back all holds of all transactions; `queue` gets the records that the janitor must
    /// get.
    pub(crate) fn drop_all(&self, mut queue: impl FnMut(RecordRef)) {
        for shard in &self.shards {
            for (record, _) in shard.lock().drain() {
                if free(record) {
                    queue(record);
                }
            }
        }
        let mut ranges = self.ranges.lock();
        self.ranged.fetch_sub(ranges.len(), Ordering::SeqCst);
        ranges.clear();
    }

    /// Removes an exclusive hold from the table; its word must be published before the guard is
    /// dropped.
    pub(crate) fn publishing(&self, record: RecordRef) -> MutexGuard<'_, HoldShard> {
        let mut shard = self.shard(record);
        shard.remove(&record);
        shard
    }

    /// Returns the holder of a record: the oldest one, if there are several.
    pub(crate) fn holder(&self, record: RecordRef) -> Option<Holder> {
        self.shard(record).get(&record).and_then(Hold::oldest)
    }

    /// Calls `act` on a record that cannot leave the index meanwhile, if it is held. Returns `true`
    /// if it is.
    pub(crate) fn while_held(&self, record: RecordRef, act: impl FnOnce()) -> bool {
        let shard = self.shard(record);
        let held = record.word().load().has(HELD | SHARED);
        debug_assert_eq!(held, shard.contains_key(&record));
        if held {
            act();
        }
        held
    }

    /// Holds the keys from `from` to `to` (exclusive).
    pub(crate) fn hold_range(&self, holder: Holder, from: &[u8], to: &[u8]) {
        self.ranges.lock().push(Range {
            holder,
            from: from.to_vec(),
            to: to.to_vec(),
        });
        self.ranged.fetch_add(1, Ordering::SeqCst);
    }

    /// Gives back all ranges of one holder.
    pub(crate) fn release_ranges(&self, id: TransactionId) {
        let mut ranges = self.ranges.lock();
        let before = ranges.len();
        ranges.retain(|range| range.holder.id != id);
        self.ranged
            .fetch_sub(before - ranges.len(), Ordering::SeqCst);
    }

    /// Returns `true` if any range is held.
    #[inline]
    pub(crate) fn any_range(&self) -> bool {
        self.ranged.load(Ordering::SeqCst) > 0
    }

    /// Returns the holder of a range with this key in it, `but` for one.
    pub(crate) fn range_holder(&self, key: &[u8], but: Option<TransactionId>) -> Option<Holder> {
        let ranges = self.ranges.lock();
        let around = ranges.iter().filter(|range| {
            Some(range.holder.id) != but && (&range.from[..]..&range.to[..]).contains(&key)
        });
        oldest(around.map(|range| &range.holder))
    }

    /// Returns how often holds have been given back.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    pub(crate) fn listen(&self, listener: Listener) {
        self.listeners.write().push(listener);
    }

    /// Notifies the listeners that holds were given back. The caller is in no epoch and has nothing
    /// locked.
    pub(crate) fn notify(&self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
        for listener in &*self.listeners.read() {
            listener();
        }
    }
}

/// Returns the holder of a system record until its staged entry is applied. Every transaction may
/// wait for this holder, which waits for none.
pub(crate) fn deciding(id: TransactionId) -> Holder {
    let age = Timestamp(u64::MAX);
    Holder { id, age }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use base::planted::{self, Bug};

    use super::*;
    use crate::word::LOCK;

    fn holder(age: u64, unique: u64) -> Holder {
        let timestamp = Timestamp(unique);
        Holder {
            id: TransactionId { timestamp, unique },
            age: Timestamp(age),
        }
    }

    #[test]
    fn the_oldest_of_several_readers_is_named_and_the_last_one_ends_the_hold() {
        let (holds, record) = (Holds::new(), RecordRef::new(b"k"));
        let seen = record.word().load();
        let [old, young] = [holder(3, 9), holder(7, 1)];
        holds.share(record, seen, young).unwrap();
        holds.share(record, seen, old).unwrap();
        assert_eq!(holds.holder(record), Some(old));
        assert_eq!(record.word().lock().err(), Some(LockRefusal::Held));
        assert!(!holds.release_hold(record, old.id));
        assert_eq!(holds.holder(record), Some(young));
        assert!(record.word().validates(seen, false), "readers do no harm");
        assert!(
            holds.release_hold(record, young.id),
            "never written: queued"
        );
        let now = record.word().load();
        assert!(now.has(QUEUED) && !now.has(SHARED | LOCK));
        assert_eq!(holds.holder(record), None);
    }

    #[test]
    fn an_exclusive_hold_stops_readers_writers_and_validation() {
        let (holds, record) = (Holds::new(), RecordRef::new(b"k"));
        let seen = record.word().load();
        let locked = record.word().lock().unwrap();
        assert_eq!(
            holds.share(record, seen, holder(1, 1)),
            Err(LockRefusal::Busy)
        );
        holds.exclude(record, locked, holder(2, 2));
        assert_eq!(
            holds.share(record, seen, holder(1, 1)),
            Err(LockRefusal::Held)
        );
        assert_eq!(record.word().lock().err(), Some(LockRefusal::Held));
        let ignored = planted::is(Bug::IgnoredHolds);
        assert_eq!(record.word().validates(seen, false), ignored);
        assert!(holds.while_held(record, || {}));
        assert!(holds.release_hold(record, holder(2, 2).id));
        assert!(!holds.while_held(record, || unreachable!("given back")));
        assert!(record.word().lock().is_ok());
    }

    #[test]
    fn ranges_have_a_begin_an_end_and_an_owner() {
        let holds = Holds::new();
        let [one, two] = [holder(1, 1), holder(2, 2)];
        assert!(!holds.any_range());
        holds.hold_range(two, b"b", b"d");
        holds.hold_range(one, b"c", b"f");
        let by = |key: &[u8], but| holds.range_holder(key, but);
        assert_eq!(by(b"a", None), None);
        assert_eq!(by(b"b", None), Some(two));
        assert_eq!(by(b"c", None), Some(one), "the older one");
        assert_eq!(by(b"c", Some(one.id)), Some(two));
        assert_eq!(by(b"d", Some(one.id)), None);
        holds.release_ranges(one.id);
        assert_eq!(by(b"f", None), None);
        assert_eq!(by(b"e", None), None);
        holds.release_ranges(two.id);
        assert!(!holds.any_range());
    }
}
