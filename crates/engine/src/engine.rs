//! The state that the workers of one engine share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use base::change::SYSTEM_GENERATION;
use base::clock::Clock;
use base::eviction::EvictionSettings;
use base::key_event::KeyListener;
use base::limits::Limits;
use base::transaction::Kind;
use base::versions::{ReadAtomic, Watcher};
use base::{Abort, Epoch, Op, Tid, TransactionId};
use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::database_table::DatabaseTable;
use crate::epoch::Epochs;
use crate::eviction_state::EvictionState;
use crate::expiring_keys::ExpiringKeys;
use crate::field_deadlines::FieldDeadlines;
use crate::floors::Floors;
use crate::holds::Holds;
use crate::index::RecordIndex;
use crate::listening::KeyListening;
use crate::live_snapshots::LiveSnapshots;
use crate::log::RecordWrite;
use crate::origin::Origins;
use crate::prepared::PreparedTransaction;
use crate::read_atomic_keys::ReadAtomicKeys;
use crate::record::{RecordRef, VersionContent, VersionRef};
use crate::transaction_error::TransactionError;
use crate::word::{LockRefusal, QUEUED, WordValue};
use crate::worker_slot::WorkerSlot;

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

/// An in-memory transactional engine.
pub struct Engine {
    pub(crate) index: RecordIndex,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) snapshots: LiveSnapshots,
    pub(crate) floors: Floors,
    /// The record that every transaction reads and a flush writes: its value is the number of
    /// the generation whose versions are visible.
    pub(crate) generation: RecordRef,
    /// The number of the generation, kept up by commits of flushes.
    pub(crate) generation_now: AtomicU64,
    /// Records that the janitor should look at.
    pub(crate) queue: SegQueue<RecordRef>,
    pub(crate) slots: Box<[CachePadded<WorkerSlot>]>,
    pub(crate) free_slots: Mutex<Vec<usize>>,
    pub(crate) expired: AtomicU64,
    pub(crate) field_deadlines: FieldDeadlines,
    pub(crate) expiring: ExpiringKeys,
    pub(crate) eviction: EvictionState,
    /// The oldest generation of which versions may still be in memory.
    pub(crate) oldest_generation: AtomicU64,
    pub(crate) limits: Limits,
    /// The bytes of the versions of transactions in slices that are not published yet.
    pub(crate) sliced_bytes: AtomicUsize,
    /// Bytes of memory beyond which no transaction is admitted that needs more; 0: no bound.
    pub(crate) memory_limit: AtomicU64,
    /// `true` if the janitor does not remove keys that have expired.
    pub(crate) keeps_expired: AtomicBool,
    pub(crate) holds: Arc<Holds>,
    /// The state kept of prepared transactions. Each has a system record, too; the thread that has
    /// that record locked inserts and removes it.
    pub(crate) prepared: Mutex<HashMap<TransactionId, PreparedTransaction>>,
    pub(crate) origins: Origins,
    /// The databases other than 0 once one was used, kept up by commits.
    pub(crate) databases_now: RwLock<Option<Arc<DatabaseTable>>>,
    /// `true` if two databases are exchanged.
    pub(crate) has_swapped: AtomicBool,
    pub(crate) read_atomic: ReadAtomicKeys,
    pub(crate) listening: KeyListening,
    /// The number of workers that there can be; the slots behind theirs are the driven engine's
    /// own.
    pub(crate) workers: usize,
    /// Of a driven engine: locked while an entry is applied, and by readers that must not see a
    /// half-applied entry.
    pub(crate) applying: Mutex<()>,
    pub(crate) has_applier: AtomicBool,
}

/// The slot of the janitor, which is not handed out.
pub(crate) const JANITOR: usize = 0;

/// Additional slots of a driven engine: the applier's, and that of the thread that restores holds.
const DRIVEN_SLOTS: usize = 2;

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
        let slots = options.workers + 1 + if driven { DRIVEN_SLOTS } else { 0 };
        let epochs = Epochs::new(slots, Arc::clone(&options.clock), driven);
        epochs.occupy(JANITOR);
        let generation = RecordRef::new(b"");
        Self::set_generation(generation, Tid::ZERO, 0);
        let holds = Arc::new(Holds::new());
        Arc::new(Engine {
            index: RecordIndex::new(Arc::clone(&holds)),
            epochs: Arc::new(epochs),
            snapshots: LiveSnapshots::default(),
            floors: Floors::new(),
            generation,
            generation_now: AtomicU64::new(0),
            queue: SegQueue::new(),
            slots: (0..slots)
                .map(|_| CachePadded::new(WorkerSlot::default()))
                .collect(),
            free_slots: Mutex::new((1..=options.workers).rev().collect()),
            expired: AtomicU64::new(0),
            field_deadlines: FieldDeadlines::default(),
            expiring: ExpiringKeys::default(),
            eviction: EvictionState::default(),
            oldest_generation: AtomicU64::new(0),
            limits: options.limits,
            sliced_bytes: AtomicUsize::new(0),
            memory_limit: AtomicU64::new(0),
            keeps_expired: AtomicBool::new(false),
            holds,
            prepared: Mutex::default(),
            origins: Origins::default(),
            databases_now: RwLock::default(),
            has_swapped: AtomicBool::new(false),
            read_atomic: ReadAtomicKeys::default(),
            listening: KeyListening::default(),
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

    /// Returns the slot of the applier of a driven engine.
    pub(crate) fn applier_slot(&self) -> usize {
        self.workers + 1
    }

    /// Returns the slot of the thread that restores the holds of a driven engine.
    pub(crate) fn holds_restorer_slot(&self) -> usize {
        self.workers + 2
    }

    /// Returns the limits of this engine.
    #[must_use]
    #[inline]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns a version of the generation record.
    pub(crate) fn generation_version(number: u16) -> VersionRef {
        let value = number.to_le_bytes();
        let content = VersionContent {
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

    /// Sets how keys are evicted; from now on their use is tracked as the policy needs it.
    pub fn set_eviction(&self, settings: &EvictionSettings) {
        self.eviction.set(settings, self.epochs.time_ms());
    }

    /// Returns how keys are evicted.
    #[must_use]
    pub fn eviction(&self) -> EvictionSettings {
        self.eviction.settings()
    }

    /// Has the janitor remove keys that have expired, which is the default, or leave them. No transaction sees
    /// them in either case.
    pub fn remove_expired(&self, removes: bool) {
        self.keeps_expired.store(!removes, Ordering::Relaxed);
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
    pub(crate) fn next_generation(&self, now: u16) -> Result<u16, TransactionError> {
        let next = generation_after(now);
        if next == self.oldest_generation.load(Ordering::Acquire) as u16 {
            return Err(TransactionError::Conflict);
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

    /// Leaves a record that was written in vain to the janitor, if it was never written successfully.
    pub(crate) fn abandon(&self, record: RecordRef) {
        if !RecordRef::version(record.word().load()).is_never() {
            return;
        }
        let seen = loop {
            match record.word().lock() {
                Ok(seen) => break seen,
                Err(LockRefusal::Busy) => std::thread::yield_now(),
                // Its holder will write it or leave it to the janitor, or another thread has removed
                // it.
                Err(LockRefusal::Held | LockRefusal::Dead) => return,
            }
        };
        let queue = RecordRef::version(seen).is_never() && !seen.has(QUEUED);
        record
            .word()
            .unlock(seen, if queue { QUEUED } else { seen.0 & QUEUED });
        if queue {
            self.queue.push(record);
        }
    }

    /// Unlocks a record that was not written, and abandons it.
    pub(crate) fn unlock_unwritten(&self, record: RecordRef, seen: WordValue) {
        record.word().unlock(seen, seen.0 & QUEUED);
        self.abandon(record);
    }

    /// Returns the reason why a record could not be locked: the transaction that holds it, if one
    /// does.
    pub(crate) fn reason_of(&self, record: RecordRef, refused: LockRefusal) -> TransactionError {
        let holder = (refused == LockRefusal::Held).then(|| self.holds.holder(record));
        match holder.flatten() {
            Some(by) => TransactionError::Abort(Abort::Held { by }),
            None => TransactionError::Conflict,
        }
    }

    /// Gives back what [`crate::Worker::hold`] holds under this id. Wakes the transactions that wait. Does
    /// nothing if nothing is held.
    pub fn end_hold(&self, id: TransactionId) {
        let held = self.prepared.lock().remove(&id);
        let Some(mut held) = held else {
            return;
        };
        held.free_effects();
        self.release_hold(id, &held.held, held.ranged);
        self.holds.notify();
    }

    /// Gives back the holds of a transaction on these records, and those on ranges if `ranged`.
    pub(crate) fn release_hold(&self, id: TransactionId, records: &[RecordRef], ranged: bool) {
        for record in records {
            if self.holds.release_hold(*record, id) {
                self.queue.push(*record);
            }
        }
        if ranged {
            self.holds.release_ranges(id);
        }
    }

    /// Refuses transactions of more operations than the limit.
    #[inline]
    pub(crate) fn check_count(&self, ops: &[Op<'_>]) -> Result<(), Abort> {
        if ops.len() > self.limits.transaction_ops {
            return Err(Abort::TooLarge { what: "operations" });
        }
        Ok(())
    }

    /// Refuses transactions that write more than the limit.
    #[inline]
    pub(crate) fn check_size(&self, writes: &[RecordWrite]) -> Result<(), TransactionError> {
        let bytes: usize = writes.iter().map(|write| write.version.bytes()).sum();
        if bytes > self.limits.transaction_bytes {
            return Err(TransactionError::Abort(Abort::TooLarge {
                what: "bytes written",
            }));
        }
        Ok(())
    }

    /// Declares the read-atomic keys. To be called once, before any transaction runs.
    ///
    /// # Panics
    /// Panics if other keys were declared before.
    pub fn declare_read_atomic(&self, keys: ReadAtomic) {
        self.read_atomic.declare(keys);
    }

    /// Ends the current epoch, unless epochs have a length of their own or a transaction of an earlier one is
    /// still on its way.
    pub fn end_epoch(&self) {
        self.epochs.hurry();
    }

    /// Sets the listener for changes of keys, in place of another. It is not called before
    /// [`Engine::listen`].
    pub fn set_key_listener(&self, listener: Arc<dyn KeyListener>) {
        self.listening.set(listener);
    }

    /// Begins to call the listener for changes of keys, or ends it.
    pub fn listen(&self, listens: bool) {
        self.listening.switch(listens, &self.epochs);
    }

    /// Returns `true` if every transaction that commits from now on calls the listener for changes of keys:
    /// those that were on their way when listening began have ended.
    #[must_use]
    pub fn announces_all(&self) -> bool {
        self.listening.is_complete(&self.epochs)
    }

    /// Sets the watcher of writes of read-atomic keys. To be called once, before any transaction
    /// runs; the watcher does not get writes that were restored before.
    ///
    /// # Panics
    /// Panics if a watcher was set before.
    pub fn watch_read_atomic(&self, watcher: Arc<dyn Watcher>) {
        self.read_atomic.watch(watcher);
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
        self.slots = Box::default();
        for record in self.index.take() {
            // SAFETY: no worker is left. The table of holds, which is left, is not looked at any more.
            unsafe { record.free() }
        }
        // SAFETY: as above; the generation record is in no map.
        unsafe { self.generation.free() }
    }
}
