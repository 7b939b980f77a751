//! A transaction as a value: its time, what it has read and scanned, and what it will write.
//!
//! A transaction begins in an epoch and ends in it; everything that it loaded from shared memory is
//! valid in between. [`ActiveTransaction`] pairs the two, also on panics. One value serves all
//! transactions of a thread, one after another, so that its buffers are allocated once.

use std::sync::Arc;

use base::epochs::EpochClock;
use base::key_event::KeyEvent;
use base::transaction::Observed;
use base::{Epoch, Op, Reply, Tid};
use hashbrown::HashMap;

use crate::access_stamp::{AccessStamp, UseTracking};
use crate::engine::Engine;
use crate::listening::NotedEvent;
use crate::log::{Edit, RecordWrite};
use crate::lookaside::KeyHash;
use crate::origin::OwnedOrigin;
use crate::record::{RecordRef, VersionRef};
use crate::thread_context::ThreadContext;
use crate::transaction_error::TransactionError;
use crate::word::{DEAD, WordValue};

/// More writes than this are found by hash.
const SEARCHED: usize = 12;

/// A range that the transaction read, in the state in which it read it.
pub(crate) struct ScanRead {
    pub(crate) from: Vec<u8>,
    /// The end, exclusive; before the requested end if the scan came to its limit.
    pub(crate) to: Vec<u8>,
    /// The records in the range, including tombstones but not records that were never written.
    pub(crate) records: Vec<RecordRef>,
}

impl ScanRead {
    /// Ends the range behind the last record that was visited, if any.
    pub(crate) fn cut_behind(&mut self, last: Option<RecordRef>) {
        self.to.clear();
        match last {
            // The next key in the order.
            Some(record) => {
                self.to.extend_from_slice(record.key());
                self.to.push(0);
            }
            None => self.to.extend_from_slice(&self.from),
        }
    }
}

/// A transaction, or the buffers for the next one.
#[derive(Default)]
pub(crate) struct TransactionState {
    pub(crate) epoch: Epoch,
    /// The transaction's own time, milliseconds since the Unix epoch.
    pub(crate) time_ms: u64,
    /// The generation that it sees of database 0.
    pub(crate) generation: u16,
    /// The version of the record of the databases, once the transaction has looked for it.
    pub(crate) databases: Option<Option<VersionRef>>,
    /// `true` if it has exchanged databases itself.
    pub(crate) has_swapped: bool,
    /// The records that it has read, and their words at that moment: the generation's first.
    pub(crate) reads: Vec<(RecordRef, WordValue)>,
    /// Keys of which there was no record: all in one buffer, with the end of each.
    missing: Vec<u8>,
    missing_ends: Vec<usize>,
    pub(crate) scans: Vec<ScanRead>,
    /// `true` if it needs applied versions, and does not use staged ones.
    pub(crate) needs_applied: bool,
    /// Records of which it has read a staged version, but needs the applied one.
    pub(crate) awaited: Vec<RecordRef>,
    /// The greatest ticket of the staged versions that it has read; 0 if there are none.
    pub(crate) staged_ticket: u64,
    pub(crate) writes: Vec<RecordWrite>,
    /// The writes that change a part of a long value.
    pub(crate) edits: Vec<Edit>,
    /// What it has done to keys, for the listener; empty while nothing listens.
    pub(crate) events: Vec<NotedEvent>,
    /// The origin that its versions carry, if it is over several partitions.
    pub(crate) origin: Option<Arc<OwnedOrigin>>,
    /// `true` if it has given holds back, so that transactions that met them must be notified.
    pub(crate) released_holds: bool,
    /// The position of a record in `writes`, once there are too many to search through.
    positions: HashMap<RecordRef, usize>,
    /// Versions that the transaction made and replaced again; replies may refer to them.
    discarded: Vec<VersionRef>,
    /// Words of the records that its commit has locked, in the order of the write set.
    pub(crate) locked: Vec<WordValue>,
    /// `true` if its answers must be the same on all replicas.
    pub(crate) is_deterministic: bool,
    /// `true` if an operation has answered the transaction's time, which must then be that of the
    /// commit.
    pub(crate) returned_time: bool,
    /// `true` if its operations note that they use keys.
    pub(crate) notes_use: bool,
    /// The record whose use was noted last.
    used: Option<RecordRef>,
    use_random: fastrand::Rng,
    /// What will be known of the use of keys once it has committed.
    pub(crate) stamps: Vec<(RecordRef, AccessStamp)>,
    /// The greatest epoch of the versions that it has read or written.
    pub(crate) observed: Epoch,
    /// The TID, once the transaction has committed writes.
    pub(crate) wrote: Tid,
    pub(crate) replies: Vec<Reply<'static>>,
    /// Hashes of the operations' keys.
    pub(crate) hashes: Vec<Option<KeyHash>>,
    /// Bytes of all versions that the transaction has made.
    allocated: usize,
}

impl TransactionState {
    /// Enters an epoch and begins a transaction in it.
    #[inline]
    pub(crate) fn begin(&mut self, thread: &ThreadContext) {
        let engine = &thread.engine;
        let epoch = engine.epochs.pin(thread.slot);
        let seen = engine.generation.word().load();
        let version = RecordRef::version(seen);
        self.epoch = epoch;
        self.time_ms = engine.epochs.stamp_ms(epoch);
        self.generation = version.generation();
        self.databases = None;
        self.has_swapped = false;
        self.notes_use = thread.notes_use && engine.eviction.tracking() != UseTracking::None;
        self.used = None;
        self.observed = version.epoch();
        self.wrote = Tid::ZERO;
        self.staged_ticket = 0;
        self.reads.push((engine.generation, seen));
    }

    /// Ends the transaction and leaves the epoch. Writes that did not commit are undone.
    #[inline]
    pub(crate) fn end(&mut self, thread: &ThreadContext) {
        self.replies.clear();
        if !(self.discarded.is_empty() && self.writes.is_empty()) {
            self.take_back(thread);
        }
        self.edits.clear();
        self.events.clear();
        self.stamps.clear();
        self.reads.clear();
        self.missing.clear();
        self.missing_ends.clear();
        self.scans.clear();
        self.awaited.clear();
        self.needs_applied = false;
        if !self.positions.is_empty() {
            self.positions.clear();
        }
        self.origin = None;
        self.is_deterministic = false;
        self.allocated = 0;
        self.returned_time = false;
        thread.engine.epochs.unpin(thread.slot);
    }

    /// Leaves the epoch, and keeps the transaction. Everything that it has read is held, so that it stays as it is.
    pub(crate) fn pause(&mut self, thread: &ThreadContext) {
        thread.engine.epochs.unpin(thread.slot);
    }

    /// Enters an epoch again, after [`TransactionState::pause`]. The transaction's time stays.
    pub(crate) fn resume(&mut self, thread: &ThreadContext) {
        self.epoch = thread.engine.epochs.pin(thread.slot);
    }

    /// Makes room for as many further writes.
    pub(crate) fn reserve_writes(&mut self, count: usize) {
        self.writes.reserve(count);
        self.positions.reserve(count);
    }

    /// Removes a version that the transaction made and replaced again.
    pub(crate) fn pop_discarded(&mut self) -> Option<VersionRef> {
        self.discarded.pop()
    }

    /// Frees the versions that are not published.
    #[cold]
    fn take_back(&mut self, thread: &ThreadContext) {
        for version in self.discarded.drain(..) {
            version.free_unpublished();
        }
        for write in self.writes.drain(..) {
            write.version.free_unpublished();
            thread.engine.abandon(write.record);
        }
    }

    /// Returns what the last transaction wrote or observed, after a commit and after an abort.
    #[inline]
    pub(crate) fn observed(&self) -> Observed {
        Observed {
            epoch: self.observed,
            tid: self.wrote,
            time_ms: self.time_ms,
        }
    }

    /// Notes the commit of writes with this TID.
    #[inline]
    pub(crate) fn note_commit(&mut self, tid: Tid) {
        self.observed = tid.epoch();
        self.wrote = tid;
    }

    /// Notes that the transaction depends on everything up to `epoch`.
    #[inline]
    pub(crate) fn observe(&mut self, epoch: Epoch) {
        self.observed = self.observed.max(epoch);
    }

    /// Sets what is known of the use of keys, after the commit.
    pub(crate) fn set_stamps(&mut self) {
        for (record, stamp) in self.stamps.drain(..) {
            record.set_stamp(stamp);
        }
    }

    /// Notes that an operation uses the key of a record. Its use counts once if it is read and then written.
    #[inline]
    pub(crate) fn note_use(&mut self, engine: &Engine, record: RecordRef) {
        if self.notes_use {
            self.note_use_now(engine, record);
        }
    }

    /// As [`TransactionState::note_use`], also if the transaction does not note other uses.
    #[cold]
    pub(crate) fn note_use_now(&mut self, engine: &Engine, record: RecordRef) {
        if self.used.replace(record) != Some(record) {
            let random = &mut self.use_random;
            engine.eviction.note_use(record, self.time_ms, random);
        }
    }

    /// Notes that a key had no record.
    pub(crate) fn note_missing(&mut self, key: &[u8]) {
        self.missing.extend_from_slice(key);
        self.missing_ends.push(self.missing.len());
    }

    /// Returns the number of keys that had no record.
    pub(crate) fn missing_count(&self) -> usize {
        self.missing_ends.len()
    }

    /// Returns the keys that had no record.
    #[inline]
    pub(crate) fn missing_keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.missing_ends.iter().map(move |&end| {
            let key = &self.missing[start..end];
            start = end;
            key
        })
    }

    /// Returns the position of the version that the transaction itself is about to write to
    /// `record`.
    #[inline]
    pub(crate) fn own_write(&self, record: RecordRef) -> Option<usize> {
        if self.writes.len() <= SEARCHED {
            return self.writes.iter().position(|write| write.record == record);
        }
        self.positions.get(&record).copied()
    }

    /// Notes that the transaction writes `version` to `record`.
    #[inline]
    pub(crate) fn note_write(&mut self, record: RecordRef, version: VersionRef) {
        self.allocated += version.bytes();
        if let Some(at) = self.own_write(record) {
            let old = std::mem::replace(&mut self.writes[at].version, version);
            self.discarded.push(old);
            if !self.edits.is_empty() {
                self.edits.retain(|edit| edit.record != record);
            }
            return;
        }
        self.writes.push(RecordWrite { record, version });
        match self.writes.len() {
            0..=SEARCHED => {}
            n if n == SEARCHED + 1 => {
                let writes = self.writes.iter().enumerate();
                self.positions
                    .extend(writes.map(|(at, write)| (write.record, at)));
            }
            n => {
                self.positions.insert(record, n - 1);
            }
        }
    }

    /// Returns the bytes of all versions that the transaction has made.
    #[inline]
    pub(crate) fn allocated(&self) -> usize {
        self.allocated
    }

    /// Returns the bytes of all versions that the transaction has made since it was last asked.
    pub(crate) fn take_allocated(&mut self) -> usize {
        std::mem::take(&mut self.allocated)
    }

    /// Notes that the transaction has made more nodes of collections.
    pub(crate) fn count_allocated(&mut self, bytes: usize) {
        self.allocated += bytes;
    }

    /// Notes an event of a key that the transaction has changed.
    pub(crate) fn note_event(&mut self, key: &[u8], event: KeyEvent) {
        let key = key.into();
        self.events.push(NotedEvent { key, event });
    }

    /// Returns `true` if a deadline has passed at the transaction's time.
    #[inline]
    pub(crate) fn has_passed(&self, deadline: Option<u64>) -> bool {
        deadline.is_some_and(|deadline| deadline <= self.time_ms)
    }

    /// Returns `true` if the transaction sees this version, of a key of a database that has this
    /// generation.
    #[inline]
    pub(crate) fn sees_of(&self, generation: u16, version: VersionRef) -> bool {
        version.is_key_of(generation) && !self.has_passed(version.deadline())
    }

    /// Refuses an operation that needs `bytes` more memory than there is. Replicas that execute the
    /// same operations must not decide by themselves: there nothing is refused.
    #[inline]
    pub(crate) fn admit_bytes(
        &self,
        thread: &mut ThreadContext,
        bytes: usize,
    ) -> Result<(), TransactionError> {
        if bytes == 0 || self.is_deterministic {
            return Ok(());
        }
        thread.memory.admit(&thread.engine, self.allocated, bytes)
    }

    /// Returns the newest committed version of a key, unless nothing is known of it. The read is
    /// not validated.
    pub(crate) fn newest_version(
        &mut self,
        engine: &Engine,
        hash: KeyHash,
        key: &[u8],
    ) -> Option<VersionRef> {
        let record = engine.index.get(hash, key)?;
        let seen = record.word().load();
        let version = RecordRef::version(seen);
        if seen.has(DEAD) || version.is_never() {
            return None;
        }
        self.observe(version.epoch());
        Some(version)
    }

    /// Hashes these keys and fetches their memory. The thread is in an epoch.
    pub(crate) fn hash_and_fetch<'k>(
        &mut self,
        engine: &Engine,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        self.hashes.clear();
        self.hashes
            .extend(keys.map(|key| Some(engine.index.hash(key))));
        prefetch(engine, &self.hashes);
    }

    /// Hashes the operations' keys, and fetches their memory when there are several.
    #[inline]
    pub(crate) fn hash_and_fetch_operations(&mut self, engine: &Engine, ops: &[Op<'_>]) {
        self.hashes.clear();
        self.hashes.extend(
            ops.iter()
                .map(|op| op.key().map(|key| engine.index.hash(key))),
        );
        if self.hashes.len() > 1 {
            for group in self.hashes.chunks(16) {
                prefetch(engine, group);
            }
        }
    }
}

/// Starts fetching the buckets, records and versions of these keys.
fn prefetch(engine: &Engine, hashes: &[Option<KeyHash>]) {
    let hints = engine.index.hints();
    let hashes = || hashes.iter().flatten().copied();
    hashes().for_each(|hash| hints.prefetch_bucket(hash));
    hashes().for_each(|hash| hints.prefetch_record(hash));
    hashes().for_each(|hash| hints.prefetch_version(hash));
}

/// A transaction that has begun: it ends when this is dropped, also on a panic.
pub(crate) struct ActiveTransaction<'t> {
    pub(crate) thread: &'t mut ThreadContext,
    pub(crate) txn: &'t mut TransactionState,
}

impl<'t> ActiveTransaction<'t> {
    /// Begins a transaction.
    #[inline]
    pub(crate) fn begin(
        thread: &'t mut ThreadContext,
        txn: &'t mut TransactionState,
    ) -> ActiveTransaction<'t> {
        txn.begin(thread);
        ActiveTransaction { thread, txn }
    }
}

impl Drop for ActiveTransaction<'_> {
    #[inline]
    fn drop(&mut self) {
        self.txn.end(self.thread);
    }
}
