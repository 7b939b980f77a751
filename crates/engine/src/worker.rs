//! A worker: one thread's place in an engine, and the state of its transaction.
//!
//! A worker is pinned in an epoch from `begin` to `end`; everything that its transaction loaded
//! from shared memory is valid in between. [`crate::one_shot`] and [`crate::interactive`] call both
//! in pairs, also on panics.

use std::sync::Arc;

use base::epochs::EpochClock;
use base::transaction::Observed;
use base::{Abort, Epoch, Op, Reply, Tid, Timestamp};
use hashbrown::HashMap;

use crate::engine::{Engine, Place};
use crate::garbage::Garbage;
use crate::log::{Edit, RedoLog, Write};
use crate::lookaside::KeyHash;
use crate::memory::MemoryCheck;
use crate::origin::OwnedOrigin;
use crate::record::{RecordRef, VersionRef};
use crate::word::{QUEUED, Refused, Seen};

/// The reason why a transaction cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Another transaction is in the way; this one is tried again from its beginning.
    #[error("another transaction is in the way")]
    Conflict,
    /// The transaction ends without effect.
    #[error(transparent)]
    Abort(#[from] Abort),
}

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

/// The transaction that a worker runs.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) epoch: Epoch,
    /// The transaction's own time, milliseconds since the Unix epoch.
    pub(crate) time_ms: u64,
    pub(crate) generation: u16,
    pub(crate) reads: Vec<(RecordRef, Seen)>,
    /// Keys of which there was no record: all in one buffer, with the end of each.
    pub(crate) missing: Vec<u8>,
    pub(crate) missing_ends: Vec<usize>,
    pub(crate) scans: Vec<ScanRead>,
    pub(crate) writes: Vec<Write>,
    /// The writes that change a part of a long value.
    pub(crate) edits: Vec<Edit>,
    /// The origin that its versions carry, if it is over several partitions.
    pub(crate) origin: Option<Arc<OwnedOrigin>>,
    /// `true` if it has given holds back, so that transactions that met them must be notified.
    pub(crate) gave_back: bool,
    /// The place of a record in `writes`, once there are too many to search through.
    pub(crate) places: HashMap<RecordRef, usize>,
    /// Versions that the transaction made and replaced again; replies may refer to them.
    pub(crate) discarded: Vec<VersionRef>,
    /// `true` if its answers must be the same on all replicas.
    pub(crate) exact: bool,
    /// `true` if an operation has answered the transaction's time, which must then be that of the
    /// commit.
    pub(crate) told_time: bool,
    pub(crate) observed: Epoch,
    /// The TID, once the transaction has committed writes.
    pub(crate) wrote: Tid,
    pub(crate) replies: Vec<Reply<'static>>,
    pub(crate) hashes: Vec<Option<KeyHash>>,
    /// Bytes of all versions that the transaction has made.
    pub(crate) made: usize,
}

/// More writes than this are found by hash.
const SEARCHED: usize = 12;

/// Runs transactions on an engine, one at a time; their changes go to the log `L`.
pub struct Worker<L> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) place: usize,
    pub(crate) log: L,
    pub(crate) state: State,
    /// Words of the records that a commit has locked, in the order of the write set.
    pub(crate) locked: Vec<Seen>,
    pub(crate) last_tid: Tid,
    /// The greatest timestamp that it has drawn, or met in the way of one.
    pub(crate) last_stamp: Timestamp,
    /// Distinguishes ids that it draws for interactive transactions from those of other workers.
    /// These run in an embedded store, which has no other partitions.
    pub(crate) unique: u64,
    pub(crate) random: fastrand::Rng,
    pub(crate) memory: MemoryCheck,
}

impl<L> std::fmt::Debug for Worker<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Returns a worker whose log is `log(i)`, where *i* is its number, from 0 on; `None` when
    /// there are as many workers as the engine was made for.
    pub fn worker<L: RedoLog>(self: &Arc<Self>, log: impl FnOnce(usize) -> L) -> Option<Worker<L>> {
        let place = self.free_places.lock().pop()?;
        Some(self.seat(place, log(place - 1)))
    }

    /// Returns the worker with number `index`, whose log is `log`; `None` when another thread has
    /// it, or if there is no such worker. For threads that have a logger or a processor of their
    /// own.
    pub fn worker_at<L: RedoLog>(
        self: &Arc<Self>,
        index: usize,
        log: impl FnOnce(usize) -> L,
    ) -> Option<Worker<L>> {
        let mut free = self.free_places.lock();
        let at = free.iter().position(|&place| place == index + 1)?;
        free.remove(at);
        drop(free);
        Some(self.seat(index + 1, log(index)))
    }

    pub(crate) fn seat<L>(self: &Arc<Self>, place: usize, log: L) -> Worker<L> {
        self.epochs.occupy(place);
        Worker {
            engine: Arc::clone(self),
            place,
            log,
            state: State::default(),
            locked: Vec::new(),
            last_tid: Tid::ZERO,
            last_stamp: Timestamp::ZERO,
            unique: place as u64,
            random: fastrand::Rng::with_seed(place as u64),
            memory: MemoryCheck::default(),
        }
    }
}

impl<L> Drop for Worker<L> {
    fn drop(&mut self) {
        if self.place <= self.engine.workers {
            self.engine.free_places.lock().push(self.place);
        }
    }
}

impl<L: RedoLog> Worker<L> {
    /// Returns the engine of this worker.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the worker's log.
    #[must_use]
    pub fn log(&self) -> &L {
        &self.log
    }

    /// Updates the epoch's time from the clock. Call it before a batch of transactions.
    pub fn refresh(&self) {
        self.engine.epochs.refresh();
    }

    /// Returns what the last transaction wrote or observed, after a commit and after an abort.
    #[must_use]
    pub fn observed(&self) -> Observed {
        let State {
            observed,
            wrote,
            time_ms,
            ..
        } = self.state;
        Observed {
            epoch: observed,
            tid: wrote,
            time_ms,
        }
    }

    /// Starts fetching the memory of these keys, ahead of transactions that use them.
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        // The table of hints may be replaced while it is read: stay in an epoch.
        self.engine.epochs.pin(self.place);
        self.fetch(keys);
        self.engine.epochs.unpin(self.place);
    }

    /// Fetches as [`Worker::prefetch`], within an epoch.
    pub(crate) fn fetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let mut hashes = std::mem::take(&mut self.state.hashes);
        hashes.clear();
        hashes.extend(keys.map(|key| Some(self.engine.index.hash(key))));
        self.prefetch_hashes(&hashes);
        self.state.hashes = hashes;
    }

    /// Fetches as [`Worker::fetch`], for callers that look at origins, too.
    pub(crate) fn fetch_with_origins<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        self.fetch(keys);
        let hints = self.engine.index.hints();
        let hashes = || self.state.hashes.iter().flatten().copied();
        hashes().for_each(|hash| hints.prefetch_origin_name(hash));
        hashes().for_each(|hash| hints.prefetch_origin(hash));
    }

    fn prefetch_hashes(&self, hashes: &[Option<KeyHash>]) {
        let hints = self.engine.index.hints();
        let hashes = || hashes.iter().flatten().copied();
        hashes().for_each(|hash| hints.prefetch_bucket(hash));
        hashes().for_each(|hash| hints.prefetch_record(hash));
        hashes().for_each(|hash| hints.prefetch_version(hash));
    }

    /// Hashes the operations' keys into `state.hashes` and prefetches them when there are several.
    pub(crate) fn hash_and_fetch(&mut self, ops: &[Op<'_>]) {
        let mut hashes = std::mem::take(&mut self.state.hashes);
        hashes.clear();
        hashes.extend(
            ops.iter()
                .map(|op| op.key().map(|key| self.engine.index.hash(key))),
        );
        if hashes.len() > 1 {
            for group in hashes.chunks(16) {
                self.prefetch_hashes(group);
            }
        }
        self.state.hashes = hashes;
    }

    /// Enters an epoch and begins a transaction in it.
    pub(crate) fn begin(&mut self) {
        let engine = &self.engine;
        let epoch = engine.epochs.pin(self.place);
        let seen = engine.generation.word().load();
        let version = RecordRef::version(seen);
        let state = &mut self.state;
        state.epoch = epoch;
        state.time_ms = engine.epochs.stamp_ms(epoch);
        state.generation = version.generation();
        state.observed = version.epoch();
        state.wrote = Tid::ZERO;
        state.reads.push((engine.generation, seen));
    }

    /// Ends the transaction and leaves the epoch. Writes that did not commit are undone.
    pub(crate) fn end(&mut self) {
        let state = &mut self.state;
        state.replies.clear();
        for version in state.discarded.drain(..) {
            version.free_unpublished();
        }
        for write in state.writes.drain(..) {
            write.version.free_unpublished();
            forsake(&self.engine, write.record);
        }
        state.edits.clear();
        state.reads.clear();
        state.missing.clear();
        state.missing_ends.clear();
        state.scans.clear();
        if !state.places.is_empty() {
            state.places.clear();
        }
        state.origin = None;
        state.exact = false;
        state.made = 0;
        state.told_time = false;
        self.engine.epochs.unpin(self.place);
    }

    /// Returns the place of the version that the transaction itself is about to write to `record`.
    pub(crate) fn own_write(&self, record: RecordRef) -> Option<usize> {
        let state = &self.state;
        if state.writes.len() <= SEARCHED {
            return state.writes.iter().position(|write| write.record == record);
        }
        state.places.get(&record).copied()
    }

    /// Notes that the transaction writes `version` to `record`.
    pub(crate) fn note_write(&mut self, record: RecordRef, version: VersionRef) {
        self.state.made += version.bytes();
        if let Some(at) = self.own_write(record) {
            let old = std::mem::replace(&mut self.state.writes[at].version, version);
            self.state.discarded.push(old);
            if !self.state.edits.is_empty() {
                self.state.edits.retain(|edit| edit.record != record);
            }
            return;
        }
        let state = &mut self.state;
        state.writes.push(Write { record, version });
        match state.writes.len() {
            0..=SEARCHED => {}
            n if n == SEARCHED + 1 => {
                let writes = state.writes.iter().enumerate();
                state
                    .places
                    .extend(writes.map(|(i, write)| (write.record, i)));
            }
            n => {
                state.places.insert(record, n - 1);
            }
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.engine.places[self.place]
    }

    /// Retires memory that has just become unreachable.
    pub(crate) fn retire(&self, garbage: Garbage) {
        let mut bag = self.place().bag.lock();
        bag.put(&self.engine.epochs, garbage);
        let freed = bag.take_freed();
        drop(bag);
        if freed > 0 {
            Place::count(&self.place().bytes, -(freed as i64));
        }
    }
}

/// Ends the transaction when dropped, also on a panic.
pub(crate) struct Running<'w, L: RedoLog>(pub(crate) &'w mut Worker<L>);

impl<L: RedoLog> Drop for Running<'_, L> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Leaves a record that was written in vain to the janitor, if it was never written successfully.
pub(crate) fn forsake(engine: &Engine, record: RecordRef) {
    if !RecordRef::version(record.word().load()).is_never() {
        return;
    }
    let seen = loop {
        match record.word().lock() {
            Ok(seen) => break seen,
            Err(Refused::Busy) => std::thread::yield_now(),
            // Its holder will write it or leave it to the janitor, or another thread has removed
            // it.
            Err(Refused::Held | Refused::Dead) => return,
        }
    };
    let queue = RecordRef::version(seen).is_never() && !seen.has(QUEUED);
    record
        .word()
        .unlock(seen, if queue { QUEUED } else { seen.0 & QUEUED });
    if queue {
        engine.queue.push(record);
    }
}
