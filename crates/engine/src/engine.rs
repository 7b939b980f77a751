//! The state that the workers of one engine share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::change::SYSTEM_GENERATION;
use base::clock::Clock;
use base::limits::Limits;
use base::transaction::Kind;
use base::{Epoch, Tid, TransactionId};
use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::commit::counts;
use crate::epoch::Epochs;
use crate::floors::Floors;
use crate::garbage::Bag;
use crate::holds::{Holds, Prepared};
use crate::index::{Index, TREE_BYTES_PER_RECORD};
use crate::origin::Origins;
use crate::read_atomic::Declared;
use crate::record::{Content, RecordRef, VersionRef};
use crate::snapshot::Snapshots;
use crate::worker::Stop;

/// Options of an engine.
#[derive(Clone)]
pub struct Options {
    /// The number of workers that there can be at once, the janitor's not counted.
    pub workers: usize,
    /// The clock behind the epochs' stamps.
    pub clock: Arc<dyn Clock>,
    /// Sizes that clients control.
    pub limits: Limits,
}

/// The unit in which sums of deadlines are counted: fine enough for a mean, and coarse enough for the
/// sum over as many keys as fit into memory.
const DEADLINE_UNIT_MS: u64 = 64;
/// The latest deadline in such a sum, in that unit, in the year 2109; later ones count as this one.
const LATEST_DEADLINE: u64 = 1 << 36;

/// A change of the numbers of keys.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct KeyCount {
    keys: i64,
    /// Those of them that have a deadline.
    expiring: i64,
    /// The sum of their deadlines, in [`DEADLINE_UNIT_MS`].
    deadlines: i64,
}

impl KeyCount {
    /// Counts a version, `sign` times: 1 when it comes, -1 when it goes. Absences and versions of
    /// another generation do not count.
    #[inline]
    pub(crate) fn add(&mut self, version: VersionRef, generation: u16, sign: i64) {
        if !counts(version, generation) {
            return;
        }
        self.keys += sign;
        if let Some(deadline) = version.deadline() {
            self.expiring += sign;
            let units = (deadline / DEADLINE_UNIT_MS).min(LATEST_DEADLINE);
            self.deadlines = self.deadlines.wrapping_add(sign * units as i64);
        }
    }
}

/// A worker's own counters and garbage; others read the counters now and then.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) bag: Mutex<Bag>,
    /// The generation that `keys` counts.
    pub(crate) generation: AtomicU64,
    /// Keys made minus keys deleted, in two's complement.
    pub(crate) keys: AtomicU64,
    /// As `keys`, of those that have a deadline.
    pub(crate) expiring: AtomicU64,
    /// The sum of their deadlines, in [`DEADLINE_UNIT_MS`], in two's complement.
    pub(crate) deadlines: AtomicU64,
    /// Bytes allocated minus bytes freed, in two's complement.
    pub(crate) bytes: AtomicU64,
    /// Records made minus records removed, in two's complement.
    pub(crate) records: AtomicU64,
    /// Versions of read-atomic keys put behind newer ones minus those taken away, in two's
    /// complement.
    pub(crate) kept: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    /// Locked while the worker stages a transaction (module [`crate::stage`]).
    pub(crate) staging: Arc<Mutex<()>>,
}

impl Place {
    /// Adds to the number of keys of a generation; those of earlier ones are gone.
    pub(crate) fn count_keys(&self, generation: u16, by: KeyCount) {
        if self.generation.load(Ordering::Relaxed) != u64::from(generation) {
            for counter in [&self.keys, &self.expiring, &self.deadlines] {
                counter.store(0, Ordering::Relaxed);
            }
            self.generation
                .store(u64::from(generation), Ordering::Release);
        }
        Place::count(&self.keys, by.keys);
        if by.expiring != 0 || by.deadlines != 0 {
            Place::count(&self.expiring, by.expiring);
            Place::count(&self.deadlines, by.deadlines);
        }
    }

    /// Adds to a counter that only this place's worker writes.
    pub(crate) fn count(counter: &AtomicU64, by: i64) {
        let sum = counter.load(Ordering::Relaxed).wrapping_add(by as u64);
        counter.store(sum, Ordering::Relaxed);
    }
}

/// Figures of an engine. Sums over workers, each read at its own moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Keys; those that have expired and were not yet reclaimed count.
    pub keys: u64,
    /// Those of them that have a deadline.
    pub expiring: u64,
    /// The mean of their deadlines, in milliseconds since the Unix epoch; 0 without one.
    pub mean_deadline_ms: u64,
    /// Records in the index, deleted ones that wait for reclamation among them.
    pub records: u64,
    /// Bytes of records, versions and index.
    pub memory_bytes: u64,
    /// Transactions that committed.
    pub commits: u64,
    /// Attempts that met a conflict.
    pub conflicts: u64,
    /// Keys removed because they had expired.
    pub expired: u64,
    /// The number of times that the machine's clock was seen to have been set.
    pub clock_steps: u64,
    /// Versions of read-atomic keys that are kept behind newer ones.
    pub kept_versions: u64,
}

/// An in-memory transactional engine.
pub struct Engine {
    pub(crate) index: Index,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) snapshots: Snapshots,
    pub(crate) floors: Floors,
    /// The record that every transaction reads and a flush writes: its value is the number of
    /// the generation whose versions are visible.
    pub(crate) generation: RecordRef,
    /// The number of the generation, kept up by commits of flushes.
    pub(crate) generation_now: AtomicU64,
    /// Records that the janitor should look at.
    pub(crate) queue: SegQueue<RecordRef>,
    pub(crate) places: Box<[CachePadded<Place>]>,
    pub(crate) free_places: Mutex<Vec<usize>>,
    pub(crate) expired: AtomicU64,
    /// The oldest generation of which versions may still be in memory.
    pub(crate) oldest_generation: AtomicU64,
    pub(crate) limits: Limits,
    /// Bytes of memory beyond which no transaction is admitted that needs more; 0: no bound.
    pub(crate) memory_limit: AtomicU64,
    pub(crate) holds: Arc<Holds>,
    /// The state kept of prepared transactions. Each has a system record, too; the thread that has
    /// that record locked inserts and removes it.
    pub(crate) prepared: Mutex<HashMap<TransactionId, Prepared>>,
    pub(crate) origins: Origins,
    pub(crate) read_atomic: Declared,
    /// The number of workers that there can be; the places behind theirs are the driven engine's
    /// own.
    pub(crate) workers: usize,
    /// Of a driven engine: locked while an entry is applied, and by readers that must not see a
    /// half-applied entry.
    pub(crate) applying: Mutex<()>,
    pub(crate) has_applier: AtomicBool,
}

/// The place of the janitor, which is not handed out.
pub(crate) const JANITOR: usize = 0;

/// Additional places of a driven engine: the applier's, and that of the restorer of holds.
const OWN_PLACES: usize = 2;

impl Engine {
    /// Returns an empty engine.
    #[must_use]
    pub fn new(options: &Options) -> Arc<Engine> {
        Self::build(options, false)
    }

    /// Returns an empty engine whose applier alone moves the epoch and publishes: that of a
    /// replica, whose epochs are the indexes of its log; see [`crate::apply`].
    #[must_use]
    pub fn driven(options: &Options) -> Arc<Engine> {
        Self::build(options, true)
    }

    fn build(options: &Options, driven: bool) -> Arc<Engine> {
        let places = options.workers + 1 + if driven { OWN_PLACES } else { 0 };
        let epochs = Epochs::new(places, Arc::clone(&options.clock), driven);
        epochs.occupy(JANITOR);
        let generation = RecordRef::new(b"");
        Self::set_generation(generation, Tid::ZERO, 0);
        let holds = Arc::new(Holds::new());
        Arc::new(Engine {
            index: Index::new(Arc::clone(&holds)),
            epochs: Arc::new(epochs),
            snapshots: Snapshots::default(),
            floors: Floors::new(),
            generation,
            generation_now: AtomicU64::new(0),
            queue: SegQueue::new(),
            places: (0..places)
                .map(|_| CachePadded::new(Place::default()))
                .collect(),
            free_places: Mutex::new((1..=options.workers).rev().collect()),
            expired: AtomicU64::new(0),
            oldest_generation: AtomicU64::new(0),
            limits: options.limits,
            memory_limit: AtomicU64::new(0),
            holds,
            prepared: Mutex::default(),
            origins: Origins::default(),
            read_atomic: Declared::default(),
            workers: options.workers,
            applying: Mutex::default(),
            has_applier: AtomicBool::new(false),
        })
    }

    /// Returns the epochs, for the journal.
    #[must_use]
    pub fn epochs(&self) -> Arc<Epochs> {
        Arc::clone(&self.epochs)
    }

    /// Returns the limits of this engine.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns a version of the generation record.
    pub(crate) fn generation_version(number: u16) -> VersionRef {
        let value = number.to_le_bytes();
        let content = Content {
            parts: &[&value],
            kind: Kind::String,
            deadline: None,
        };
        VersionRef::new(number, Some(content), None)
    }

    /// Replaces the generation at once: only while no transactions run.
    #[allow(unsafe_code)]
    pub(crate) fn set_generation(record: RecordRef, tid: Tid, number: u16) {
        let seen = record.word().lock().expect("no other thread is here");
        let version = Self::generation_version(number);
        version.set_tid(tid);
        record.word().publish(seen, version.address(), 0);
        // SAFETY: no transactions run, so that none can have seen the old version.
        unsafe { RecordRef::version(seen).free() }
    }

    /// Limits the memory: from now on transactions that need memory are refused
    /// ([`base::Abort::OutOfMemory`]) while more than `bytes` are used, or would be; 0 means no limit.
    /// Entries that are applied from a log are not refused.
    pub fn limit_memory(&self, bytes: u64) {
        self.memory_limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of records, versions and index.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let records = self.sum(|p| &p.records) as usize;
        let index = records * TREE_BYTES_PER_RECORD + self.index.hints().bytes();
        self.sum(|p| &p.bytes)
            .wrapping_add(index as u64)
            .wrapping_add(self.origins.bytes())
    }

    /// Returns sums of the workers' counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let generation = self.current_generation();
        let expiring = self.count(generation, |p| &p.expiring);
        Stats {
            keys: self.count_keys(generation),
            expiring,
            mean_deadline_ms: self
                .count(generation, |p| &p.deadlines)
                .checked_div(expiring)
                .map_or(0, |units| units * DEADLINE_UNIT_MS),
            records: self.sum(|p| &p.records),
            memory_bytes: self.memory_bytes(),
            commits: self.sum(|p| &p.commits),
            conflicts: self.sum(|p| &p.conflicts),
            expired: self.expired.load(Ordering::Relaxed),
            clock_steps: self.epochs.clock_steps(),
            kept_versions: self.sum(|p| &p.kept),
        }
    }

    fn sum(&self, counter: fn(&Place) -> &AtomicU64) -> u64 {
        let places = self.places.iter();
        places.fold(0u64, |sum, p| {
            sum.wrapping_add(counter(p).load(Ordering::Relaxed))
        })
    }

    /// Returns the number of keys of a generation.
    pub(crate) fn count_keys(&self, generation: u16) -> u64 {
        self.count(generation, |p| &p.keys)
    }

    /// Returns the sum of a counter that belongs to a generation.
    fn count(&self, generation: u16, counter: fn(&Place) -> &AtomicU64) -> u64 {
        let of_it =
            |p: &&CachePadded<Place>| p.generation.load(Ordering::Acquire) == u64::from(generation);
        let places = self.places.iter().filter(of_it);
        let sum = places.fold(0u64, |sum, p| {
            sum.wrapping_add(counter(p).load(Ordering::Relaxed))
        });
        // Counters are read one after another: a passing negative sum means none.
        if sum > i64::MAX as u64 { 0 } else { sum }
    }

    /// Returns the generation's number, for threads that run no transaction and may learn of a
    /// flush a moment late.
    pub(crate) fn current_generation(&self) -> u16 {
        self.generation_now.load(Ordering::Acquire) as u16
    }

    /// Returns the number of the generation after `now`.
    ///
    /// # Errors
    /// Returns a conflict with the janitor if it is behind by tens of thousands of flushes:
    /// versions of a generation of that number may still be in memory.
    pub(crate) fn next_generation(&self, now: u16) -> Result<u16, Stop> {
        let next = generation_after(now);
        if next == self.oldest_generation.load(Ordering::Acquire) as u16 {
            return Err(Stop::Conflict);
        }
        Ok(next)
    }

    /// Returns how often transactions over several partitions have given back their holds. A caller
    /// that met [`base::Abort::Held`] tries again when this has changed since before the attempt.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.holds.releases()
    }

    /// Calls `listener` each time after [`Engine::releases`] has grown, from the thread that gave
    /// the holds back: it should be short, and must not register another listener.
    pub fn on_release(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.holds.listen(listener);
    }

    /// Returns the newest epoch up to which deletes may be made final: durable, and finished.
    pub(crate) fn reclaimable(&self, durable: Epoch) -> Epoch {
        use base::epochs::EpochClock;
        durable.min(self.epochs.finished())
    }
}

/// Returns the number of the generation after `now`, which is never that of system records.
pub(crate) fn generation_after(now: u16) -> u16 {
    match now.wrapping_add(1) {
        SYSTEM_GENERATION => 0,
        next => next,
    }
}

impl Drop for Engine {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // Bags first: no other structure has their contents.
        self.places = Box::default();
        self.index.range(b"", None, |record| {
            // SAFETY: no worker is left; this is the engine's reference, the map has its own. The
            // table of holds, which is left, is not looked at any more.
            unsafe { record.release() }
            true
        });
        // SAFETY: as above; the generation record is in no map.
        unsafe { self.generation.release() }
    }
}
