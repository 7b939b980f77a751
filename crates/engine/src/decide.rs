//! The decision about transactions over several partitions that are prepared here, or must not be
//! prepared any more.
//!
//! Everything is decided under the lock of the transaction's system record, in one transaction of
//! the engine with one TID and one entry of the log:
//!
//! | call | of what state | does |
//! |---|---|---|
//! | commit | prepared | publishes the effects, the system record says committed |
//! | abort | prepared | deletes the system record |
//! | refuse | unknown, refused for a shorter time | writes a refusal with a deadline |
//! | forget | committed | deletes the system record |
//!
//! A commit validates nothing: the records that the transaction has read and replaces have been
//! held since it was prepared. Holds are given back after the entry is in the log, and within the
//! epoch: a reader of a published version depends on this epoch or a later one.
//!
//! Errors leave everything as it was, including the error of a log that has failed.

use base::participant::State;
use base::{Abort, Epoch, Tid, TransactionId};

use crate::commit::newest;
use crate::engine::Place;
use crate::holds::Prepared;
use crate::log::{RedoLog, Write};
use crate::prepare::system_version;
use crate::record::{RecordRef, VersionRef};
use crate::system::{self, Entry};
use crate::word::{QUEUED, Seen};
use crate::worker::{Running, Stop, Worker, forsake};

/// The decision about a transaction.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    Commit,
    Abort,
    Refuse { until_ms: u64 },
    Forget,
}

impl<L: RedoLog> Worker<L> {
    /// Makes a prepared attempt's effects current and gives its holds back; it is committed then.
    /// Does nothing if the attempt is not prepared. Returns the state before, and the epoch that
    /// must be durable before the result is sent.
    ///
    /// # Errors
    /// Returns [`Abort::ReadOnly`] if the log has failed.
    pub fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.decide(id, Verdict::Commit)
    }

    /// Undoes a prepared attempt and gives its holds back; as [`Worker::commit`]
    /// otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.decide(id, Verdict::Abort)
    }

    /// Makes sure that an unknown attempt will not be prepared before this engine's time is
    /// `until_ms`; as [`Worker::commit`] otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort> {
        self.decide(id, Verdict::Refuse { until_ms })
    }

    /// Forgets a committed attempt: no node will ask for it any more.
    ///
    /// # Errors
    /// As above.
    pub fn forget(&mut self, id: TransactionId) -> Result<(), Abort> {
        self.decide(id, Verdict::Forget).map(|_| ())
    }

    /// Returns the state of an attempt, and the epoch on which that depends.
    pub fn state(&mut self, id: TransactionId) -> (State, Epoch) {
        self.refresh();
        self.begin();
        let running = Running(self);
        let worker = &mut *running.0;
        let key = system::key(id);
        let record = worker
            .engine
            .index
            .get(worker.engine.index.hash(&key), &key);
        let Some(record) = record else {
            return (State::Unknown, worker.state.observed);
        };
        let version = RecordRef::version(record.word().load());
        let observed = worker.state.observed.max(version.epoch());
        worker.state.observed = observed;
        (worker.known(version), observed)
    }

    /// Returns the attempts that are prepared or committed, in the order of their ids.
    pub fn undecided(&mut self) -> Vec<(TransactionId, State)> {
        self.refresh();
        self.begin();
        let running = Running(self);
        let worker = &mut *running.0;
        let (mut found, mut observed) = (Vec::new(), worker.state.observed);
        worker
            .engine
            .index
            .range(&system::RESERVED, Some(&system::OTHERS), |record| {
                let version = RecordRef::version(record.word().load());
                let state = worker.known(version);
                if matches!(state, State::Prepared(_) | State::Committed(_)) {
                    observed = observed.max(version.epoch());
                    found.push((system::id(record.key()).expect(WELL_FORMED), state));
                }
                true
            });
        worker.state.observed = observed;
        found
    }

    /// Returns the id and siblings that the newest version of a key carries: also of a tombstone,
    /// as long as it exists. Holds are not considered.
    pub fn origin_of(&mut self, key: &[u8]) -> Option<(TransactionId, Vec<u8>)> {
        self.refresh();
        self.begin();
        let running = Running(self);
        let index = &running.0.engine.index;
        let record = index.get(index.hash(key), key)?;
        let origin = RecordRef::version(record.word().load()).origin()?;
        Some((origin.id, origin.siblings.to_vec()))
    }

    /// Returns the engine's time in milliseconds since the Unix epoch. It never decreases.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.refresh();
        self.engine.epochs.time_ms()
    }

    /// Returns how often holds have been given back; see [`crate::Engine::releases`].
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.engine.releases()
    }

    /// Returns the state that a version of a system record describes at the transaction's time.
    pub(crate) fn known(&self, version: VersionRef) -> State {
        let passed = |deadline| deadline <= self.state.time_ms;
        if version.is_absent() || version.deadline().is_some_and(passed) {
            return State::Unknown;
        }
        system::state(version.value()).expect(WELL_FORMED)
    }

    fn decide(&mut self, id: TransactionId, verdict: Verdict) -> Result<(State, Epoch), Abort> {
        let (state, epoch) = self.state(id);
        if !applies(verdict, &state) {
            return Ok((state, epoch));
        }
        self.until_done(|worker, _| worker.decide_now(id, verdict))
    }

    /// Locks the system record, reads it, and acts on its state.
    fn decide_now(&mut self, id: TransactionId, verdict: Verdict) -> Result<(State, Epoch), Stop> {
        let record = self.record_of(&system::key(id));
        let Ok(seen) = record.word().lock() else {
            forsake(&self.engine, record);
            return Err(Stop::Conflict);
        };
        let old = RecordRef::version(seen);
        let state = self.known(old);
        let changed = match verdict {
            Verdict::Commit if applies(verdict, &state) => self.publish_prepared(id, record, seen),
            Verdict::Abort if applies(verdict, &state) => self.undo_prepared(id, record, seen),
            Verdict::Refuse { until_ms }
                if applies(verdict, &state) && old.deadline() < Some(until_ms) =>
            {
                let refusal = system_version(&Entry::Refused.encode(), Some(until_ms));
                self.replace(record, seen, refusal)
            }
            Verdict::Forget if applies(verdict, &state) => {
                self.replace(record, seen, VersionRef::new(0, None, None))
            }
            _ => {
                record.word().unlock(seen, seen.0 & QUEUED);
                let epoch = self.state.observed.max(old.epoch());
                self.state.observed = epoch;
                forsake(&self.engine, record);
                return Ok((state, epoch));
            }
        };
        match changed {
            Ok(tid) => {
                self.state.observed = tid.epoch();
                self.state.wrote = tid;
                Ok((state, tid.epoch()))
            }
            Err(stop) => {
                record.word().unlock(seen, seen.0 & QUEUED);
                forsake(&self.engine, record);
                Err(stop)
            }
        }
    }

    /// Replaces the contents of the locked system record, and nothing else.
    fn replace(&mut self, record: RecordRef, seen: Seen, version: VersionRef) -> Result<Tid, Stop> {
        self.log_and_publish(&[Write { record, version }], &[seen], &[])
            .inspect_err(|_| version.free_unpublished())
    }

    /// Commits an attempt. `record` is the system record, locked.
    fn publish_prepared(
        &mut self,
        id: TransactionId,
        record: RecordRef,
        seen: Seen,
    ) -> Result<Tid, Stop> {
        if system::is_unheld(RecordRef::version(seen).value()) {
            return self.publish_unheld(id, (record, seen));
        }
        let mut prepared = self.take_prepared(id);
        let old = RecordRef::version(seen).value();
        let note = match system::state(old).expect(WELL_FORMED) {
            State::Prepared(note) => note,
            _ => unreachable!("it is prepared"),
        };
        let marker = Entry::Committed { note: &note }.encode();
        let mut writes = std::mem::take(&mut prepared.effects);
        let of = |record: &RecordRef| record.word().load();
        let mut words: Vec<Seen> = writes.iter().map(|write| of(&write.record)).collect();
        let read: Vec<Seen> = prepared.held.iter().map(of).collect();
        let own = Write {
            record,
            version: system_version(&marker, None),
        };
        writes.push(own);
        words.push(seen);
        let mut flush = writes.iter().filter(|w| w.record == self.engine.generation);
        if let Some(flush) = flush.next() {
            self.state.generation = flush.version.generation();
        }
        let outcome = self.log_and_publish(&writes, &words, &read);
        if outcome.is_err() {
            own.version.free_unpublished();
            writes.pop();
            prepared.effects = writes;
            self.engine.prepared.lock().insert(id, prepared);
            return outcome;
        }
        Place::count(&self.place().commits, 1);
        self.give_back(id, &prepared.held, prepared.ranged);
        // Effects are given back even if nothing else was held.
        self.state.gave_back = true;
        outcome
    }

    /// Aborts an attempt. `record` is the system record, locked.
    fn undo_prepared(
        &mut self,
        id: TransactionId,
        record: RecordRef,
        seen: Seen,
    ) -> Result<Tid, Stop> {
        if system::is_unheld(RecordRef::version(seen).value()) {
            return self.replace(record, seen, VersionRef::new(0, None, None));
        }
        let prepared = self.take_prepared(id);
        let outcome = self.replace(record, seen, VersionRef::new(0, None, None));
        if outcome.is_err() {
            self.engine.prepared.lock().insert(id, prepared);
            return outcome;
        }
        let written = prepared.effects.iter().map(|write| write.record);
        let held: Vec<RecordRef> = written.chain(prepared.held.iter().copied()).collect();
        self.give_back(id, &held, prepared.ranged);
        outcome
    }

    fn take_prepared(&self, id: TransactionId) -> Prepared {
        let prepared = self.engine.prepared.lock().remove(&id);
        prepared.expect("its system record says so, and restore_prepared was called")
    }

    /// Draws a TID above those of all these words' versions, hands the writes to the log, and
    /// publishes them. On an error nothing has happened.
    pub(crate) fn log_and_publish(
        &mut self,
        writes: &[Write],
        words: &[Seen],
        read: &[Seen],
    ) -> Result<Tid, Stop> {
        let epoch = self.engine.epochs.commit_epoch();
        let tid = self.draw(epoch, newest(words.iter().chain(read)))?;
        self.append(writes, tid)?;
        self.publish(writes, words, tid);
        Ok(tid)
    }
}

pub(crate) const WELL_FORMED: &str = "system records were checked when they were restored";

/// Returns `true` if a verdict changes an attempt of this state.
pub(crate) fn applies(verdict: Verdict, state: &State) -> bool {
    match verdict {
        Verdict::Commit | Verdict::Abort => matches!(state, State::Prepared(_)),
        Verdict::Refuse { .. } => matches!(state, State::Unknown | State::Refused),
        Verdict::Forget => matches!(state, State::Committed(_)),
    }
}
