//! Driven engines: those of replicas. All changes come from a log that all replicas share, entry by
//! entry, and one applier publishes them.
//!
//! | what | in a driven engine |
//! |---|---|
//! | epoch | the index of the next entry: the current epoch is the newest applied index + 1 |
//! | TID | of all that entry *i* writes: epoch *i*, sequence 0; the same on every replica |
//! | time | of transactions: the greatest of the entries' stamps and of [`Engine::set_time_ms`] |
//! | time | by which versions go for good, and of snapshots: the greatest of the entries' stamps |
//! | holds | of what the leader has staged (module [`crate::stage`]); a follower has none |
//!
//! An entry is applied in the way of a commit: everything that it writes is locked, then published.
//! So readers, which validate as always, see all of it or nothing. The exclusive holds of the
//! entry's own transaction are seized: a hold becomes the lock, and is thereby given back.
//!
//! Invariants:
//! 1. Entries are applied in order, one at a time, with the engine's mutex `applying` locked.
//! 2. The epoch moves once the whole entry is published: a snapshot of the newest applied epoch
//!    has all of it.
//! 3. Only the applier waits for a lock while it has some; every other thread gives up, so that the
//!    applier gets the locks that it needs. It also waits for readers under two-phase locking:
//!    those that are left when an entry is applied are about to learn that they came too late.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::limits::Limits;
use base::partition::OwnedReply;
use base::{Abort, Change, Epoch, Op, Tid, TransactionId};

use crate::announce::announce;
use crate::database_table::DatabaseTable;
use crate::effects::{keep_last, write_of_change};
use crate::engine::Engine;
use crate::epoch::EpochGuard;
use crate::log::RecordWrite;
use crate::one_shot;
use crate::origin::RecentOrigin;
use crate::publish::{link_late, publish};
use crate::record::{RecordRef, VersionRef};
use crate::retry::pause;
use crate::system_record::{self, is_transaction};
use crate::thread_context::ThreadContext;
use crate::transaction::{ActiveTransaction, TransactionState};
use crate::transaction_error::TransactionError;
use crate::word::{LockRefusal, WordValue};
use crate::worker_slot::WorkerSlot;

/// The number of times that a record is tried, which takes tens of seconds, before its hold counts
/// as a bug.
const TRIES: u32 = 500_000;
/// The number of keys of an entry that are fetched ahead of their use.
const FETCHED: usize = 64;
/// An entry of up to this many writes counts as fetched before ([`Applier::prefetch`]).
const FETCHED_BEFORE: usize = 16;

/// Publishes the entries of the log.
pub struct Applier {
    pub(crate) thread: ThreadContext,
    txn: TransactionState,
    pub(crate) recent: RecentOrigin,
    writes: Vec<RecordWrite>,
    locked: Vec<WordValue>,
    /// Hashes of the keys of `writes`, to find keys that come twice.
    hashes: Vec<u64>,
}

impl Engine {
    /// Returns the applier of a driven engine; `None` if there is one already.
    ///
    /// # Panics
    /// Panics if the engine is not driven.
    #[must_use]
    pub fn applier(self: &Arc<Self>) -> Option<Applier> {
        assert!(self.epochs.is_driven(), "the engine moves by itself");
        if self.has_applier.swap(true, Ordering::SeqCst) {
            return None;
        }
        let mut thread = self.register_in(self.applier_slot());
        // Those of this node's options may differ from those of other replicas.
        thread.limits = Limits::default();
        Some(Applier {
            thread,
            txn: TransactionState::default(),
            recent: RecentOrigin::default(),
            writes: Vec::new(),
            locked: Vec::new(),
            hashes: Vec::new(),
        })
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        let engine = &self.thread.engine;
        engine.has_applier.store(false, Ordering::SeqCst);
    }
}

impl Applier {
    /// Applies the entry of this index, which comes after the newest applied one. Of several
    /// changes of one key the last one counts.
    ///
    /// # Panics
    /// Panics if it is another index, or if a reader keeps holding a record that the entry writes:
    /// that reader should not have been admitted.
    pub fn apply(&mut self, index: Epoch, stamp_ms: u64, changes: &[Change<'_>]) {
        let engine = Arc::clone(&self.thread.engine);
        let applying = engine.applying.lock();
        expect_next(&engine, index);
        let decided = {
            let _guard = EpochGuard::new(&engine.epochs, self.thread.slot);
            self.gather(changes);
            self.publish(index)
        };
        engine.epochs.drive(index.next(), stamp_ms);
        drop(applying);
        if decided {
            engine.holds.notify();
        }
    }

    /// Applies the entry of a transaction that this engine has staged, and that has passed its holds on: what was
    /// staged becomes current. Returns `false`, and does nothing, if it has not: the entry is to be applied by its
    /// changes.
    ///
    /// # Panics
    /// As [`Applier::apply`].
    pub fn apply_staged(&mut self, index: Epoch, stamp_ms: u64, id: TransactionId) -> bool {
        let engine = Arc::clone(&self.thread.engine);
        let _applying = engine.applying.lock();
        let passed = match engine.prepared.lock().get_mut(&id) {
            Some(staged) => std::mem::take(&mut staged.passed),
            None => Vec::new(),
        };
        if passed.is_empty() {
            return false;
        }
        expect_next(&engine, index);
        {
            let _guard = EpochGuard::new(&engine.epochs, self.thread.slot);
            for record in passed {
                let (seen, version) = lock_staged(&engine, record, id);
                self.writes.push(RecordWrite { record, version });
                self.locked.push(seen);
            }
            self.publish_locked(index);
        }
        engine.epochs.drive(index.next(), stamp_ms);
        true
    }

    /// Starts fetching the memory of keys, ahead of entries that write a few of them each. Those of
    /// greater entries are fetched when they are applied.
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let engine = &self.thread.engine;
        let _guard = EpochGuard::new(&engine.epochs, self.thread.slot);
        self.txn.hash_and_fetch(engine, keys);
    }

    /// Applies an entry that changes nothing.
    ///
    /// # Panics
    /// As [`Applier::apply`].
    pub fn skip(&mut self, index: Epoch, stamp_ms: u64) {
        self.apply(index, stamp_ms, &[]);
    }

    /// Executes an entry of operations. The outcome depends only on the entries up to this one: its
    /// time is `stamp_ms`, or the greatest stamp before, and its limits are the default ones. The
    /// remains of absent keys are not the same on all replicas, so that an [`Op::Check`] of an
    /// absence never holds. `note_deadline` is called with each deadline of the keys and of the fields
    /// of hashes that the entry writes, in milliseconds since the Unix epoch, before they are published.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why the entry changes nothing. It counts as applied.
    ///
    /// # Panics
    /// As [`Applier::apply`].
    pub fn execute(
        &mut self,
        index: Epoch,
        stamp_ms: u64,
        ops: &[Op<'_>],
        note_deadline: &mut dyn FnMut(u64),
    ) -> Result<Vec<OwnedReply>, Abort> {
        let engine = Arc::clone(&self.thread.engine);
        let _applying = engine.applying.lock();
        expect_next(&engine, index);
        let time_ms = stamp_ms.max(engine.epochs.logged_ms());
        let outcome = self.execute_now(index, time_ms, ops, note_deadline);
        engine.epochs.drive(index.next(), stamp_ms);
        outcome
    }

    fn execute_now(
        &mut self,
        index: Epoch,
        time_ms: u64,
        ops: &[Op<'_>],
        note_deadline: &mut dyn FnMut(u64),
    ) -> Result<Vec<OwnedReply>, Abort> {
        for tries in 0.. {
            let active = ActiveTransaction::begin(&mut self.thread, &mut self.txn);
            active.txn.time_ms = time_ms;
            active.txn.is_deterministic = true;
            let outcome = execute_once(active.thread, active.txn, index, ops, note_deadline);
            drop(active);
            match outcome {
                Ok(replies) => return Ok(replies),
                Err(TransactionError::Abort(abort)) => return Err(abort),
                // The janitor is behind with flushes.
                Err(TransactionError::Conflict) => pause(tries),
            }
        }
        unreachable!("it tries again until it is done")
    }

    /// Makes records and versions of the changes: one for each key.
    fn gather(&mut self, changes: &[Change<'_>]) {
        for some in changes.chunks(FETCHED) {
            if changes.len() > FETCHED_BEFORE {
                let keys = some.iter().filter_map(Change::key);
                self.txn.hash_and_fetch(&self.thread.engine, keys);
            }
            for change in some {
                self.wait_for_sweep(change);
                let write = write_of_change(&self.thread, change, &mut self.recent);
                self.writes.push(write);
            }
        }
        if self.may_repeat() {
            self.drop_repeated();
        }
    }

    /// Returns `true` if a key may come twice among the writes: two have the same hash.
    fn may_repeat(&mut self) -> bool {
        self.hashes.clear();
        let index = &self.thread.engine.index;
        let hashes = self
            .writes
            .iter()
            .map(|write| index.hash(write.record.key()).bits());
        self.hashes.extend(hashes);
        self.hashes.sort_unstable();
        self.hashes.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Keeps the last write of each key.
    fn drop_repeated(&mut self) {
        // By key and not by record: a record may leave, and its key get another one.
        let generation = self.thread.engine.generation;
        keep_last(&mut self.writes, |write| {
            (write.record != generation, write.record.key())
        });
    }

    /// Waits for the janitor if needed. A generation's number comes again after tens of thousands
    /// of flushes, and must not before the janitor has removed the versions that had it.
    fn wait_for_sweep(&self, change: &Change<'_>) {
        let engine = &self.thread.engine;
        let newest = engine.visible_generations().newest();
        let generation = match *change {
            Change::Flush { generation } => generation,
            Change::Put { key, value, .. } if key == system_record::DATABASES => {
                let table = DatabaseTable::decode(value).expect(system_record::WELL_FORMED);
                table.newest()
            }
            _ => return,
        };
        let mut waits = 0;
        while generation != newest
            && generation == engine.oldest_generation.load(Ordering::Acquire) as u16
        {
            pause(waits);
            waits += 1;
        }
    }

    /// Locks and publishes the writes. Returns `true` if they include a decision for which another
    /// thread may be waiting.
    fn publish(&mut self, index: Epoch) -> bool {
        let thread = &self.thread;
        let mut decided = false;
        for write in &mut self.writes {
            let (seen, seized) = lock_to_apply(thread, &mut write.record);
            decided |= seized && is_transaction(write.record.key());
            self.locked.push(seen);
        }
        link_late(thread, &mut self.writes, &mut self.locked, tid_of(index));
        self.publish_locked(index);
        decided
    }

    /// Publishes the writes, whose records are locked.
    fn publish_locked(&mut self, index: Epoch) {
        let thread = &self.thread;
        let flushes = |write: &&RecordWrite| write.record == thread.engine.generation;
        let generation = match self.writes.iter().find(flushes) {
            Some(flush) => flush.version.generation(),
            None => thread.engine.current_generation(),
        };
        if !self.writes.is_empty() {
            publish(
                thread,
                generation,
                &self.writes,
                &self.locked,
                tid_of(index),
            );
            let written = (&self.writes[..], &self.locked[..]);
            announce(&thread.engine, written, &[], tid_of(index));
            WorkerSlot::count(&thread.counters().commits, 1);
        }
        self.writes.clear();
        self.locked.clear();
    }
}

/// Returns the TID of all writes of an entry.
pub(crate) fn tid_of(index: Epoch) -> Tid {
    Tid::new(index, 0)
}

fn expect_next(engine: &Engine, index: Epoch) {
    let applied = engine.applied();
    assert!(
        index == applied.next(),
        "entry {index} cannot be applied after entry {applied}"
    );
}

fn execute_once(
    thread: &mut ThreadContext,
    txn: &mut TransactionState,
    index: Epoch,
    ops: &[Op<'_>],
    note_deadline: &mut dyn FnMut(u64),
) -> Result<Vec<OwnedReply>, TransactionError> {
    one_shot::run(thread, txn, ops)?;
    let replies = one_shot::owned_replies(txn);
    let mut writes = std::mem::take(&mut txn.writes);
    for version in writes.iter().map(|write| write.version) {
        let of_key = version.deadline().filter(|_| !version.is_absent());
        of_key
            .into_iter()
            .chain(version.field_deadlines())
            .for_each(&mut *note_deadline);
    }
    let lock = |write: &mut RecordWrite| lock_to_apply(thread, &mut write.record).0;
    let locked: Vec<WordValue> = writes.iter_mut().map(lock).collect();
    if !writes.is_empty() {
        publish(thread, txn.generation, &writes, &locked, tid_of(index));
        announce(
            &thread.engine,
            (&writes, &locked),
            &txn.events,
            tid_of(index),
        );
        WorkerSlot::count(&thread.counters().commits, 1);
    }
    Ok(replies)
}

/// Locks a record, and takes the staged version that the transaction `id` wrote.
fn lock_staged(engine: &Engine, record: RecordRef, id: TransactionId) -> (WordValue, VersionRef) {
    for tries in 0..TRIES {
        if let Some(taken) = engine.holds.lock_staged(record, id) {
            return taken;
        }
        pause(tries);
    }
    panic!("a thread keeps a record locked")
}

/// Locks a record, or the live one of its key, even if a transaction holds it exclusively. Also
/// returns `true` if one did.
pub(crate) fn lock_to_apply(thread: &ThreadContext, record: &mut RecordRef) -> (WordValue, bool) {
    let holds = &thread.engine.holds;
    for tries in 0..TRIES {
        match record.word().lock() {
            Ok(seen) => return (seen, false),
            Err(LockRefusal::Held) => {
                if let Some((seen, passing)) = holds.seize(*record) {
                    if let Some(id) = passing
                        && let Some(staged) = thread.engine.prepared.lock().get_mut(&id)
                    {
                        // They were made of the version that is replaced.
                        staged.free_effects();
                    }
                    return (seen, true);
                }
            }
            Err(LockRefusal::Dead) => *record = thread.record_of(record.key()),
            Err(LockRefusal::Busy) => {}
        }
        pause(tries);
    }
    let holder = holds.holder(*record).map(|by| by.id);
    panic!("an entry writes what {holder:?} keeps holding")
}
