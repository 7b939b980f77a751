//! Holds of transactions under two-phase locking, on records and on ranges.
//!
//! | hold | on | excludes |
//! |---|---|---|
//! | exclusive | a record that a prepared transaction will write | readers and writers |
//! | shared | a record that it has read, absent keys and the generation's record too | writers |
//! | range | keys from one to another that it has scanned | writers of a key in it that has no record |
//! | passing | a record that a transaction of this partition alone is about to write | readers and writers, for a moment |
//! | update | a record that a transaction in slices has read or will write | writers and other holders, and at its end readers (module `update`) |
//!
//! A passing hold ends when the transaction's entry is submitted: then its version joins the record's staged
//! versions (module `staged_chain`), which exclude only transactions that need the current version.
//!
//! A record that lay in a scanned range has a hold of its own, so that a range stops only
//! transactions that write a record for the first time. Readers share, but a later reader gives way
//! to a transaction that wants to write (module `writer_marks`).
//!
//! Thread safety and invariants:
//! 1. A record has a hold in its shard's table if and only if its word has `HELD`, `SHARED` or `STAGING`; both
//!    change under the shard's mutex. No thread waits for a word while it has the mutex.
//! 2. A held record stays in the index: its word cannot be locked.
//! 3. A range counts before the scan of its transaction is validated. A transaction that is about
//!    to write a new record has it locked before it looks at the count. So one of the two sees the
//!    other.
//! 4. Holds are given back before [`Holds::releases`] grows: a transaction that met one, and has
//!    read that number before, misses no release.

mod update;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::planted::{self, Bug};
use base::transaction::Holder;
use base::{Tid, Timestamp, TransactionId};
use crossbeam_utils::CachePadded;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::record::{RecordRef, VersionRef};
use crate::staged_chain::{MOST_BYTES, MOST_VERSIONS, StagedChain, StagedVersion};
use crate::update_hold::UpdateHold;
use crate::word::{DEAD, HELD, LOCK, LockRefusal, QUEUED, SHARED, STAGED, STAGING, WordValue};
use crate::writer_marks::WriterMarks;

const SHARDS: usize = 64;

/// The holders of a record.
pub(crate) enum Hold {
    Exclusive(Holder),
    Passing(Holder),
    /// In the order in which they came, in which they mostly leave as well: every transaction that writes shares
    /// the record of the generation.
    Shared(VecDeque<Holder>),
    Update(UpdateHold),
}

/// Records, their holders and their staged versions.
#[derive(Default)]
pub(crate) struct HoldShard {
    holds: HashMap<RecordRef, Hold>,
    chains: HashMap<RecordRef, StagedChain>,
}

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
    /// The bytes of all staged versions.
    staged_bytes: AtomicUsize,
    /// The numbers of versions that were staged after others, and of those that were dropped.
    followed: AtomicU64,
    dropped: AtomicU64,
    /// The transactions in slices that have committed, and not published all of their versions.
    publishing: Mutex<HashMap<TransactionId, Tid>>,
    listeners: RwLock<Vec<Listener>>,
    /// The records that other transactions want to write.
    pub(crate) writer_marks: WriterMarks,
}

impl Hold {
    /// Returns the oldest holder: a transaction that is older than this one is older than all.
    fn oldest(&self) -> Option<Holder> {
        match self {
            Hold::Exclusive(holder) | Hold::Passing(holder) => Some(*holder),
            Hold::Shared(holders) => oldest(holders.iter()),
            Hold::Update(hold) => Some(hold.holder),
        }
    }
}

impl HoldShard {
    fn newest_staged(&self, record: RecordRef) -> Option<StagedVersion> {
        self.chains.get(&record)?.back().copied()
    }
}

/// Removes the marks of holds from a record's word, under its shard's mutex. Returns `true` if the
/// word has got the mark `QUEUED` because the record was never written.
fn free(record: RecordRef) -> bool {
    // A record with staged versions, or which the applier has locked, will be written.
    let unknown =
        |seen: WordValue| RecordRef::version(seen).is_never() && !seen.has(QUEUED | LOCK | STAGED);
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
            staged_bytes: AtomicUsize::new(0),
            followed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            publishing: Mutex::default(),
            listeners: RwLock::default(),
            writer_marks: WriterMarks::default(),
        }
    }

    fn shard(&self, record: RecordRef) -> MutexGuard<'_, HoldShard> {
        // Records are multiples of 16; the multiplication mixes the bits above.
        let mixed = (record.address() >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.shards[(mixed >> 58) as usize].lock()
    }

    /// Holds a record for a reader of `seen`, if that is still the newest version and no transaction writes
    /// it. `uses_staged` is `true` for a reader that may use staged versions.
    pub(crate) fn share(
        &self,
        record: RecordRef,
        seen: WordValue,
        (holder, uses_staged): (Holder, bool),
    ) -> Result<(), LockRefusal> {
        let mut shard = self.shard(record);
        let staged = shard.newest_staged(record).filter(|_| uses_staged);
        let staged = staged.map(|staged| staged.version.address());
        record.word().share(seen, staged)?;
        let entry = shard.holds.entry(record);
        match entry.or_insert(Hold::Shared(VecDeque::new())) {
            Hold::Shared(holders) => holders.push_back(holder),
            Hold::Update(_) => return Err(LockRefusal::Held),
            _ => unreachable!("its word says that it is not held exclusively"),
        }
        Ok(())
    }

    /// Turns the lock of a record into an exclusive hold.
    pub(crate) fn exclude(&self, record: RecordRef, locked: WordValue, holder: Holder) {
        self.hold_locked(record, locked, (Hold::Exclusive(holder), HELD));
    }

    /// Turns the lock of a record into a passing hold.
    pub(crate) fn begin_to_pass(&self, record: RecordRef, locked: WordValue, holder: Holder) {
        self.hold_locked(record, locked, (Hold::Passing(holder), STAGING));
    }

    fn hold_locked(&self, record: RecordRef, locked: WordValue, (hold, mark): (Hold, u64)) {
        let mut shard = self.shard(record);
        let old = shard.holds.insert(record, hold);
        debug_assert!(old.is_none(), "a held record is not locked");
        record.word().unlock(locked, locked.0 & QUEUED | mark);
        drop(shard);
        self.writer_marks.forget(record);
    }

    /// Ends a passing hold: its version is the newest staged one from now on.
    pub(crate) fn pass(&self, record: RecordRef, staged: StagedVersion) {
        let mut shard = self.shard(record);
        let hold = shard.holds.remove(&record);
        debug_assert!(matches!(hold, Some(Hold::Passing(holder)) if holder == staged.holder));
        let chain = shard.chains.entry(record).or_default();
        self.followed
            .fetch_add(u64::from(!chain.is_empty()), Ordering::Relaxed);
        chain.push_back(staged);
        self.staged_bytes
            .fetch_add(staged.bytes(), Ordering::Relaxed);
        record.word().replace_hold(STAGING, STAGED);
    }

    /// Returns `true` if the chain of a record may get another version.
    pub(crate) fn may_pass(&self, record: RecordRef) -> bool {
        self.staged_bytes.load(Ordering::Relaxed) < MOST_BYTES
            && (!record.word().load().has(STAGED)
                || self
                    .shard(record)
                    .chains
                    .get(&record)
                    .is_none_or(|chain| chain.len() < MOST_VERSIONS))
    }

    /// Returns the newest staged version of a record.
    pub(crate) fn newest_staged(&self, record: RecordRef) -> Option<StagedVersion> {
        self.shard(record).newest_staged(record)
    }

    /// Returns `true` if the version of `seen` is the newest staged one of a record that no transaction is about
    /// to write; `own` is `true` for a transaction that has locked it.
    pub(crate) fn is_newest_staged(&self, record: RecordRef, seen: WordValue, own: bool) -> bool {
        let shard = self.shard(record);
        let now = record.word().load();
        let newest = shard.newest_staged(record);
        newest.is_some_and(|staged| staged.version.address() == seen.pointer())
            && !now.has(DEAD | HELD | STAGING)
            && (own || !now.has(LOCK))
    }

    /// Locks a record, and takes the first of its staged versions, which the transaction `id` wrote, to publish
    /// it; `None` if another thread has the record locked for a moment.
    pub(crate) fn lock_staged(
        &self,
        record: RecordRef,
        id: TransactionId,
    ) -> Option<(WordValue, VersionRef)> {
        let mut shard = self.shard(record);
        let chain = shard.chains.get_mut(&record);
        let chain = chain.expect("its transaction is not applied");
        assert_eq!(
            chain.front().map(|first| first.holder.id),
            Some(id),
            "entries are applied in the order in which they were submitted"
        );
        let ends = if chain.len() == 1 { STAGED } else { 0 };
        let locked = record.word().lock_over(ends)?;
        let staged = chain.pop_front()?;
        if chain.is_empty() {
            shard.chains.remove(&record);
        }
        self.staged_bytes
            .fetch_sub(staged.bytes(), Ordering::Relaxed);
        Some((locked, staged.version))
    }

    /// Gives back one holder's hold on a record, if it has one. Returns `true` if the janitor must
    /// get the record: it has got the mark `QUEUED` because it was never written.
    pub(crate) fn release_hold(&self, record: RecordRef, id: TransactionId) -> bool {
        let mut shard = self.shard(record);
        match shard.holds.get_mut(&record) {
            Some(Hold::Shared(holders)) => {
                let place = holders.iter().position(|holder| holder.id == id);
                place.and_then(|place| holders.remove(place));
                debug_assert!(holders.iter().all(|holder| holder.id != id));
                if !holders.is_empty() {
                    return false;
                }
            }
            Some(Hold::Exclusive(holder) | Hold::Passing(holder)) if holder.id == id => {}
            Some(Hold::Update(hold)) if hold.holder.id == id => {}
            // The record may be freed, so that nothing of it is read.
            _ => return false,
        }
        shard.holds.remove(&record);
        free(record)
    }

    /// Turns an exclusive hold, of any holder, into the caller's lock; `None` if there is none. Also returns the
    /// holder of a passing hold. Staged versions that are left are of an earlier leadership, and are forgotten: a
    /// thread may still read them.
    pub(crate) fn seize(&self, record: RecordRef) -> Option<(WordValue, Option<TransactionId>)> {
        let mut shard = self.shard(record);
        if shard.chains.remove(&record).is_some() {
            record.word().replace_hold(STAGED, 0);
        }
        if !record.word().load().has(HELD | STAGING) {
            return None;
        }
        let locked = record.word().lock_over(HELD | STAGING)?;
        let passing = match shard.holds.remove(&record) {
            Some(Hold::Passing(holder)) => Some(holder.id),
            _ => None,
        };
        Some((locked, passing))
    }

    /// Gives back all holds of all transactions; `queue` gets the records that the janitor must
    /// get. Returns the staged versions, those of a record the newest first.
    pub(crate) fn drop_all(&self, mut queue: impl FnMut(RecordRef)) -> Vec<StagedVersion> {
        let mut dropped = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let chains = match planted::is(Bug::KeptChain) {
                true => HashMap::new(),
                false => std::mem::take(&mut shard.chains),
            };
            for (record, chain) in chains {
                dropped.extend(chain.into_iter().rev());
                record.word().replace_hold(STAGED, 0);
                if free(record) {
                    queue(record);
                }
            }
            for (record, _) in shard.holds.drain() {
                if free(record) {
                    queue(record);
                }
            }
        }
        self.staged_bytes.store(0, Ordering::Relaxed);
        self.dropped
            .fetch_add(dropped.len() as u64, Ordering::Relaxed);
        let mut ranges = self.ranges.lock();
        self.ranged.fetch_sub(ranges.len(), Ordering::SeqCst);
        ranges.clear();
        dropped
    }

    /// Removes an exclusive hold from the table; its word must be published before the guard is
    /// dropped.
    pub(crate) fn publishing(&self, record: RecordRef) -> MutexGuard<'_, HoldShard> {
        let mut shard = self.shard(record);
        shard.holds.remove(&record);
        shard
    }

    /// Returns the holder of a record: the oldest one, if there are several; or the transaction whose staged
    /// version is the next to be applied.
    pub(crate) fn holder(&self, record: RecordRef) -> Option<Holder> {
        let shard = self.shard(record);
        let held = shard.holds.get(&record).and_then(Hold::oldest);
        let chain = || shard.chains.get(&record)?.front();
        held.or_else(|| chain().map(|staged| staged.holder))
    }

    /// Calls `act` on a record that cannot leave the index meanwhile, if it is held. Returns `true`
    /// if it is.
    pub(crate) fn while_held(&self, record: RecordRef, act: impl FnOnce()) -> bool {
        let shard = self.shard(record);
        let held = record.word().load().has(HELD | SHARED | STAGING | STAGED);
        debug_assert_eq!(
            held,
            shard.holds.contains_key(&record) || shard.chains.contains_key(&record)
        );
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

    /// Returns the numbers of versions that were staged after others, and of those that were dropped.
    pub(crate) fn staged_counts(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.followed), count(&self.dropped))
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

#[cfg(test)]
mod tests {
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
        holds.share(record, seen, (young, false)).unwrap();
        holds.share(record, seen, (old, false)).unwrap();
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
            holds.share(record, seen, (holder(1, 1), false)),
            Err(LockRefusal::Busy)
        );
        holds.exclude(record, locked, holder(2, 2));
        assert_eq!(
            holds.share(record, seen, (holder(1, 1), false)),
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
