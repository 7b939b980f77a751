//! Transactions of very many operations, which run in slices: the thread is in no epoch between two of them, and runs
//! other transactions there.
//!
//! | stage | a slice of it | others meanwhile |
//! |---|---|---|
//! | executing | holds the keys of some operations (module `holds::update`), then executes these | read the keys |
//! | excluding | excludes readers from some of the records that are to be written; encodes the writes for the log | wait for these |
//! | publishing | makes some of the new versions current, ends their holds, and announces them | wait for the others |
//! | releasing | gives back some of the records that were only read | |
//!
//! Between excluding and publishing the transaction commits, within one epoch: it draws its TID, hands all of its
//! changes to the log, and from then on counts as committed. It validates nothing but deadlines: what it has read is held.
//!
//! Invariants:
//! 1. A record is held before it is read. So what was read stays current, and stays in memory, without an epoch.
//! 2. When the TID is drawn, readers are excluded from everything that is written: a transaction that has read an older
//!    version has validated that before, in an epoch that is not later.
//! 3. A view with the TID's epoch in it finds versions that are not published yet in the table of holds. The epoch does
//!    not finish before the transaction counts as committed.
//! 4. Keys count when the transaction commits, so that their number shows all of it or nothing.
//! 5. While it runs, the record of the generation is held as by a reader: a flush waits.
//!
//! A transaction that ends otherwise gives everything back, in slices as well.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use base::database;
use base::epochs::EpochClock;
use base::key_event::KeyListener;
use base::transaction::{Holder, Observed};
use base::versions::shown_key;
use base::{Abort, Op, Reply, Tid};
use hashbrown::{HashMap, HashSet};

use crate::announce::{UnannouncedEffect, announce_noted, announce_write};
use crate::commit::prepare_log;
use crate::engine::Engine;
use crate::log::{Changes, EncodedChanges, RedoLog};
use crate::one_shot;
use crate::prepare::give_way;
use crate::publish::publish_writes;
use crate::record::RecordRef;
use crate::system_record;
use crate::thread_context::ThreadContext;
use crate::transaction::TransactionState;
use crate::transaction_error::TransactionError;
use crate::word::WordValue;
use crate::worker_slot::{KeyCount, WorkerSlot};

/// A transaction of very many operations. See the module's description.
pub struct SlicedTransaction {
    engine: Arc<Engine>,
    holder: Holder,
    txn: TransactionState,
    stage: Stage,
    operations: usize,
    /// The bytes of all versions that it has made.
    made: usize,
    /// Those of them that the engine counts as memory of transactions in slices.
    counted: usize,
    /// The records that are held as by a reader: the generation's, and that of the databases.
    shared: Vec<RecordRef>,
    /// The records with an update hold whose operations are not executed yet.
    fresh: Vec<RecordRef>,
    /// The records with an update hold that their operations have not written.
    unwritten: Vec<RecordRef>,
    /// The least deadline that had not passed of what was read.
    least_deadline: u64,
    /// The words of the records from which readers are excluded, in the order of the writes.
    words: Vec<WordValue>,
    /// The greatest TID of the versions that were read or are replaced.
    newest: Tid,
    /// For each namespace: its generation, and the change of its number of keys.
    counts: HashMap<u16, (u16, KeyCount)>,
    encoded: EncodedChanges,
    /// For each event that was noted the number of the write of its key.
    noted: Vec<usize>,
    /// For each write `true` if an event of its key was noted.
    are_noted: Vec<bool>,
    /// The number of events that are announced.
    announced: usize,
    /// The new ones of the keys with noted events.
    created: HashSet<Box<[u8]>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Executing,
    Excluding,
    /// This many writes are published.
    Publishing(usize),
    Releasing,
    /// Gives everything back.
    Undoing,
    Ended,
}

impl std::fmt::Debug for SlicedTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlicedTransaction")
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

impl SlicedTransaction {
    /// Begins a transaction, which will bring `bytes` of keys and values.
    pub(crate) fn begin(
        thread: &mut ThreadContext,
        holder: Holder,
        bytes: usize,
        attempt: u32,
    ) -> Result<SlicedTransaction, TransactionError> {
        let engine = Arc::clone(&thread.engine);
        assert!(!engine.epochs.is_driven(), "its changes come from its log");
        let mut txn = TransactionState::default();
        txn.begin(thread);
        let held = txn.admit_bytes(thread, bytes).and_then(|()| {
            give_way(&engine, &txn, holder.id, attempt)?;
            share(&engine, txn.reads[0], holder)
        });
        txn.pause(thread);
        held?;
        Ok(SlicedTransaction {
            holder,
            txn,
            stage: Stage::Executing,
            operations: 0,
            made: 0,
            counted: 0,
            shared: vec![engine.generation],
            fresh: Vec::new(),
            unwritten: Vec::new(),
            least_deadline: u64::MAX,
            words: Vec::new(),
            newest: Tid::ZERO,
            counts: HashMap::new(),
            encoded: EncodedChanges::default(),
            noted: Vec::new(),
            are_noted: Vec::new(),
            announced: 0,
            created: HashSet::new(),
            engine,
        })
    }

    /// Makes room for as many writes, so that it is not made while other transactions wait.
    pub fn reserve(&mut self, writes: usize) {
        self.txn.reserve_writes(writes);
        self.words.reserve(writes);
    }

    /// Returns what the transaction has observed or written.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.txn.observed()
    }

    /// Returns the memory that it takes besides that of its keys and versions, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<WordValue>() + self.encoded.bytes.capacity()
    }

    /// Refuses operations that a transaction in slices cannot execute, or too many.
    pub(crate) fn admit(&mut self, ops: &[Op<'_>]) -> Result<(), Abort> {
        assert!(self.stage == Stage::Executing, "it executes no more");
        self.operations += ops.len();
        if self.operations > self.engine.limits.transaction_ops {
            return Err(Abort::TooLarge { what: "operations" });
        }
        let keys = &self.engine.read_atomic;
        for op in ops {
            match op.key() {
                Some(key) if keys.covers(key) => return Err(read_atomic(key)),
                Some(_) => {}
                None => return Err(without_key()),
            }
        }
        Ok(())
    }

    /// Holds the keys of operations.
    pub(crate) fn hold_keys(
        &mut self,
        thread: &ThreadContext,
        ops: &[Op<'_>],
    ) -> Result<(), TransactionError> {
        self.txn.resume(thread);
        let held = self.hold_all(thread, ops);
        self.txn.pause(thread);
        held
    }

    fn hold_all(&mut self, thread: &ThreadContext, ops: &[Op<'_>]) -> Result<(), TransactionError> {
        let engine = &thread.engine;
        let is_swapped = self.txn.is_swapped(engine);
        self.txn.hash_and_fetch_operations(engine, ops);
        for (at, op) in ops.iter().enumerate() {
            let Some(key) = op.key() else {
                continue;
            };
            if database::may_be_qualified(key) || is_swapped {
                self.hold_databases(thread)?;
            }
            let record = match is_swapped {
                false => thread.record_for(self.txn.hashes[at].expect("it has a key"), key),
                true => thread.record_of(&self.txn.stored_key(engine, key)),
            };
            let held = engine.holds.hold_to_update(record, self.holder);
            let is_fresh = held.map_err(|refused| engine.reason_of(record, refused))?;
            self.fresh.extend(is_fresh.then_some(record));
        }
        Ok(())
    }

    /// Holds the record of the databases, which there is.
    fn hold_databases(&mut self, thread: &ThreadContext) -> Result<(), TransactionError> {
        if self.shared.len() > 1 {
            return Ok(());
        }
        let engine = &thread.engine;
        let record = thread.record_of(&system_record::DATABASES);
        share(engine, (record, record.word().load()), self.holder)?;
        self.shared.push(record);
        Ok(())
    }

    /// Executes operations whose keys are held. `see` gets the replies.
    pub(crate) fn execute(
        &mut self,
        thread: &mut ThreadContext,
        ops: &[Op<'_>],
        see: impl FnOnce(&[Reply<'_>]),
    ) -> Result<(), TransactionError> {
        let txn = &mut self.txn;
        txn.resume(thread);
        let (writes, events) = (txn.writes.len(), txn.events.len());
        let executed = one_shot::run(thread, txn, ops);
        for (_, seen) in &txn.reads[1..] {
            let version = RecordRef::version(*seen);
            self.newest = self.newest.max(version.tid());
            let deadlines = version.deadline().into_iter();
            let deadlines = deadlines.chain(version.next_field_deadline(txn.time_ms));
            let ahead = deadlines.filter(|deadline| *deadline > txn.time_ms);
            self.least_deadline = ahead.fold(self.least_deadline, u64::min);
        }
        if executed.is_ok() {
            see(&txn.replies);
        }
        txn.replies.clear();
        txn.reads.truncate(1);
        let bytes = txn.take_allocated();
        self.made += bytes;
        self.counted += bytes;
        self.engine.sliced_bytes.fetch_add(bytes, Ordering::Relaxed);
        for noted in &txn.events[events..] {
            let index = &self.engine.index;
            let record = index.get(index.hash(&noted.key), &noted.key);
            let write = record.and_then(|record| txn.own_write(record));
            let write = write.expect("its operation has written");
            self.noted.push(write);
            self.are_noted.resize(txn.writes.len(), false);
            self.are_noted[write] = true;
        }
        self.sort_fresh(writes);
        self.txn.pause(thread);
        executed?;
        if self.made > self.engine.limits.transaction_bytes {
            let what = "bytes written";
            return Err(TransactionError::Abort(Abort::TooLarge { what }));
        }
        Ok(())
    }

    /// Notes which records were not written when their operations were executed. `writes` is the number of writes
    /// before that.
    fn sort_fresh(&mut self, writes: usize) {
        let added = self.txn.writes[writes..].iter().map(|write| write.record);
        if !added.eq(self.fresh.iter().copied()) {
            let is_unwritten = |record: &&RecordRef| self.txn.own_write(**record).is_none();
            self.unwritten
                .extend(self.fresh.iter().filter(is_unwritten));
        }
        self.fresh.clear();
    }

    /// Counts bytes no longer as memory of transactions in slices.
    fn discount(&mut self, bytes: usize) {
        let bytes = bytes.min(self.counted);
        self.counted -= bytes;
        self.engine.sliced_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns `true` if it has committed.
    #[must_use]
    pub fn has_committed(&self) -> bool {
        matches!(
            self.stage,
            Stage::Publishing(_) | Stage::Releasing | Stage::Ended
        )
    }

    /// Returns `true` if readers are excluded from everything that is written, so that it can commit.
    pub(crate) fn can_commit(&self) -> bool {
        self.words.len() == self.txn.writes.len()
    }

    /// Excludes readers from some more records.
    pub(crate) fn exclude(
        &mut self,
        thread: &ThreadContext,
        log: &mut impl RedoLog,
        count: usize,
    ) -> Result<(), Abort> {
        if self.stage == Stage::Executing {
            self.stage = Stage::Excluding;
            self.txn.edits.sort_unstable_by_key(|edit| edit.record);
        }
        self.txn.resume(thread);
        let from = self.words.len();
        let to = self.txn.writes.len().min(from.saturating_add(count));
        for at in from..to {
            self.exclude_one(&thread.engine, at);
        }
        self.txn.reads.truncate(1);
        let refused = self.enters_range(from);
        if refused.is_none() && log.keeps_changes() {
            let writes = &self.txn.writes[from..to];
            prepare_log(log, writes);
            let changes = Changes {
                writes,
                edits: &self.txn.edits,
                generation: thread.engine.generation,
            };
            log.encode(changes, &mut self.encoded);
        }
        self.txn.pause(thread);
        refused.map_or(Ok(()), |by| Err(Abort::Held { by }))
    }

    /// Excludes readers from the record of a write, and counts its key.
    fn exclude_one(&mut self, engine: &Engine, at: usize) {
        let write = self.txn.writes[at];
        let (record, id) = (write.record, self.holder.id);
        let seen = engine.holds.exclude_readers(record, write.version, id);
        self.words.push(seen);
        let old = RecordRef::version(seen);
        self.newest = self.newest.max(old.tid());
        let generation = self.txn.generation_of(engine, record.key());
        let counted = self.counts.entry(database::number(record.key()));
        let (_, keys) = counted.or_insert((generation, KeyCount::default()));
        keys.add((record, write.version), generation, 1);
        keys.add((record, old), generation, -1);
    }

    /// Returns the transaction that holds a range with one of the new keys in it, of those from which readers were
    /// excluded last.
    fn enters_range(&self, from: usize) -> Option<Holder> {
        let holds = &self.engine.holds;
        if !holds.any_range() {
            return None;
        }
        let pairs = self.txn.writes[from..].iter().zip(&self.words[from..]);
        let mut new = pairs.filter(|(_, seen)| RecordRef::version(**seen).is_never());
        new.find_map(|(write, _)| holds.range_holder(write.record.key(), None))
    }

    /// Commits. On a conflict nothing has happened, and it may be tried again.
    pub(crate) fn commit(
        &mut self,
        thread: &mut ThreadContext,
        log: &mut impl RedoLog,
    ) -> Result<(), TransactionError> {
        self.txn.resume(thread);
        let committed = self.commit_in_epoch(thread, log);
        self.txn.pause(thread);
        committed
    }

    fn commit_in_epoch(
        &mut self,
        thread: &mut ThreadContext,
        log: &mut impl RedoLog,
    ) -> Result<(), TransactionError> {
        let engine = Arc::clone(&thread.engine);
        let epoch = engine.epochs.commit_epoch();
        let stamp_ms = engine.epochs.stamp_ms(epoch);
        if self.least_deadline <= stamp_ms {
            let attempts = 1;
            return Err(TransactionError::Abort(Abort::Conflict { attempts }));
        }
        self.stage = Stage::Publishing(0);
        if self.txn.writes.is_empty() {
            return Ok(());
        }
        let tid = thread.draw_tid(epoch, self.newest);
        let tid = tid.inspect_err(|_| self.stage = Stage::Excluding)?;
        if let Err(failure) = log.append_encoded(tid, stamp_ms, &self.encoded) {
            self.stage = Stage::Excluding;
            return Err(TransactionError::Abort(failure.into()));
        }
        engine.holds.begin_publication(self.holder.id, tid);
        for (namespace, (generation, keys)) in self.counts.drain() {
            thread.counters().count_keys_of(namespace, generation, keys);
        }
        WorkerSlot::count(&thread.counters().commits, 1);
        self.txn.note_commit(tid);
        Ok(())
    }

    /// Continues after the commit. Returns `true` if nothing is left.
    pub(crate) fn finish(&mut self, thread: &ThreadContext, count: usize) -> bool {
        match self.stage {
            Stage::Publishing(from) => self.publish(thread, from, count),
            Stage::Releasing => self.release(count),
            Stage::Ended => return true,
            Stage::Executing | Stage::Excluding | Stage::Undoing => {
                unreachable!("it has committed")
            }
        }
        self.stage == Stage::Ended
    }

    fn publish(&mut self, thread: &ThreadContext, from: usize, count: usize) {
        let to = self.txn.writes.len().min(from.saturating_add(count));
        let (writes, words) = (&self.txn.writes[from..to], &self.words[from..to]);
        let guard = thread.pin();
        let mut bytes = 0;
        publish_writes(thread, (writes, words), self.txn.wrote, |write, _| {
            bytes += write.version.bytes();
        });
        if let Some(listener) = self.engine.listening.listener() {
            // Invariant 2 of module `listening`.
            fence(Ordering::SeqCst);
            self.announce(&*listener, from..to);
        }
        drop(guard);
        self.discount(bytes);
        self.stage = Stage::Publishing(to);
        if to == self.txn.writes.len() {
            self.engine.holds.end_publication(self.holder.id);
            self.txn.writes.clear();
            self.stage = Stage::Releasing;
        }
    }

    /// Announces writes that have been published, and the noted events up to the first one whose key is not published.
    fn announce(&mut self, listener: &dyn KeyListener, published: Range<usize>) {
        let (engine, tid) = (&self.engine, self.txn.wrote);
        for at in published.clone() {
            let pair = (self.txn.writes[at], self.words[at]);
            let is_noted = self.are_noted.get(at) == Some(&true);
            let left = announce_write(engine, listener, pair, is_noted, tid);
            if let Some(UnannouncedEffect::New) = left {
                self.created.insert(pair.0.record.key().into());
            }
        }
        let is_published = |at: &usize| *at < published.end;
        while self.noted.get(self.announced).is_some_and(is_published) {
            let noted = &self.txn.events[self.announced];
            let is_new = self.created.remove(&noted.key);
            announce_noted(engine, listener, noted, is_new, tid);
            self.announced += 1;
        }
    }

    /// Gives the holds of some records back that were only read, and frees versions that no other transaction has seen.
    fn release(&mut self, count: usize) {
        let id = self.holder.id;
        for _ in 0..count {
            if let Some(version) = self.txn.pop_discarded() {
                version.free_unpublished();
            } else if let Some(record) = self.unwritten.pop().or_else(|| self.fresh.pop()) {
                self.engine.release_hold(id, &[record], false);
            } else {
                let shared = std::mem::take(&mut self.shared);
                self.engine.release_hold(id, &shared, false);
                self.engine.holds.shrink();
                self.engine.holds.notify();
                self.discount(usize::MAX);
                self.stage = Stage::Ended;
                return;
            }
        }
    }

    /// Begins to give everything back: it has not committed, and will not.
    pub fn begin_undo(&mut self) {
        if matches!(self.stage, Stage::Executing | Stage::Excluding) {
            self.stage = Stage::Undoing;
        }
    }

    /// Gives some more back after [`SlicedTransaction::begin_undo`]. Returns `true` if nothing is left. Wakes the
    /// transactions that wait then.
    pub fn undo(&mut self, count: usize) -> bool {
        let id = self.holder.id;
        for _ in 0..count {
            let Some(write) = self.txn.writes.pop() else {
                self.release(count);
                break;
            };
            write.version.free_unpublished();
            self.engine.release_hold(id, &[write.record], false);
        }
        self.stage == Stage::Ended
    }
}

impl Drop for SlicedTransaction {
    /// Gives everything back, unless it has committed: then it goes on holding what it has not published.
    fn drop(&mut self) {
        self.begin_undo();
        if self.stage == Stage::Undoing {
            self.undo(usize::MAX);
        }
    }
}

/// Holds a record as a reader of a word.
fn share(
    engine: &Engine,
    (record, seen): (RecordRef, WordValue),
    holder: Holder,
) -> Result<(), TransactionError> {
    let shared = engine.holds.share(record, seen, (holder, false));
    shared.map_err(|refused| engine.reason_of(record, refused))
}

#[cold]
fn read_atomic(key: &[u8]) -> Abort {
    let what = format!(
        "the key {} is declared read atomic, and a transaction in slices cannot write such a key, because it has no \
         versions that name all keys that it writes: execute the operations as one list, or in several transactions",
        shown_key(key)
    );
    Abort::Unsupported { what }
}

#[cold]
fn without_key() -> Abort {
    let what = "a transaction in slices holds the keys of its operations, and one of these has no key: execute it in a \
                transaction of its own"
        .to_owned();
    Abort::Unsupported { what }
}
