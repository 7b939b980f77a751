//! Staging: the leader of a replicated partition executes a transaction before consensus (paper 5:
//! strict two-phase locking, then the log).
//!
//! The operations are executed and hold records exactly as in module [`crate::prepare`]. But
//! nothing is kept and nothing is published: the changes go to the worker's log, with TID zero and
//! the transaction's time, and are forgotten. The owner of the log submits them as an entry. When
//! that is applied (module [`crate::apply`]) the changes come back, on every replica alike.
//!
//! | call | changes of its entry | held until it is applied | and then, until `release` |
//! |---|---|---|---|
//! | `stage` | what the operations write | what they write | and have read, and scanned |
//! | `stage_prepare` | the system record: prepared | the system record | nothing is released: the keys are held until the transaction is decided |
//! | `stage_commit` | the effects; the system record: committed | the system record, the effects' keys | all that was held since it was prepared |
//! | `stage_commit`, read atomic | the same | the same | nothing: only these were held |
//! | `stage_abort` | the system record goes | the system record | the same |
//! | `stage_refuse` | the system record: refused | the system record | – |
//! | `stage_forget` | the system record goes | the system record | – |
//!
//! The system record has everything that a decision needs. Until its entry is applied no other
//! decision is made: an attempt to decide meets [`Abort::Held`].
//!
//! Invariants:
//! 1. A worker that stages never waits for another thread while it has something locked or held.
//! 2. A worker has its place's mutex `staging` locked from before it takes the first lock until all
//!    locks have become holds, and the holds to be released are in the engine's map `prepared`.
//! 3. The holds on an entry's records are complete before its applier can have locked the last of
//!    them; so a thread that releases them afterwards finds all.

use std::sync::Arc;

use base::participant::{Prepare, State};
use base::partition::OwnedReply;
use base::transaction::Holder;
use base::{Abort, Op, Origin, TransactionId};

use crate::decide::{Verdict, WELL_FORMED, applies};
use crate::holds::Prepared;
use crate::log::{RedoLog, Write};
use crate::prepare::{deciding, system_version};
use crate::record::{RecordRef, VersionRef};
use crate::snapshot::Pinned;
use crate::system::{self, Entry};
use crate::word::{QUEUED, Seen};
use crate::worker::{Stop, Worker, forsake};

/// A transaction that was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// One reply for each operation: its answer once the entry is applied, or, without an entry, of
    /// its reads.
    pub replies: Vec<OwnedReply>,
    /// The number of changes that went to the log. If there are none the transaction is done, and
    /// nothing is held; otherwise [`crate::Engine::release`] must follow the application of the
    /// entry, or the news that it was not submitted.
    pub writes: usize,
}

impl<L: RedoLog> Worker<L> {
    /// Executes the operations, holds the records that they read and will write as `holder`, and
    /// appends their writes to the log. A transaction without writes has ended.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened, in which case nothing is held:
    /// [`Abort::Held`], [`Abort::ReadOnly`] when the log takes nothing, or the error of an
    /// operation.
    pub fn stage(&mut self, ops: &[Op<'_>], holder: Holder) -> Result<Staged, Abort> {
        self.expect_driven();
        self.check_count(ops)?;
        self.until_done(|worker, attempt| worker.try_stage(ops, holder, attempt))
    }

    /// Executes the operations, holds the records that they read and will write, and appends the
    /// system record to the log, from which all of it can be restored. The attempt counts as
    /// prepared once that entry is committed.
    ///
    /// # Errors
    /// As [`Worker::prepare`].
    pub fn stage_prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        self.expect_driven();
        self.admit_prepare(prepare)?;
        self.until_done(|worker, attempt| {
            let staging = Arc::clone(&worker.place().staging);
            let _staging = staging.lock();
            worker.try_prepare(prepare, attempt)
        })
    }

    /// Appends a prepared attempt's effects to the log, and that it has committed. Returns the
    /// state before, and `true` if there is an entry to submit: nothing happens if the attempt is
    /// not prepared.
    ///
    /// # Errors
    /// Returns [`Abort::Held`] while another staged entry of the attempt is not applied;
    /// [`Abort::Elsewhere`] if its holds were dropped, because this replica leads no more;
    /// [`Abort::ReadOnly`] if the log takes nothing. Nothing has changed then.
    pub fn stage_commit(&mut self, id: TransactionId) -> Result<(State, bool), Abort> {
        self.stage_decision(id, Verdict::Commit)
    }

    /// Appends to the log that a prepared attempt has aborted; as [`Worker::stage_commit`]
    /// otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn stage_abort(&mut self, id: TransactionId) -> Result<(State, bool), Abort> {
        self.stage_decision(id, Verdict::Abort)
    }

    /// Appends to the log that an unknown attempt must not be prepared before this engine's time is
    /// `until_ms`; as [`Worker::stage_commit`] otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn stage_refuse(
        &mut self,
        id: TransactionId,
        until_ms: u64,
    ) -> Result<(State, bool), Abort> {
        self.stage_decision(id, Verdict::Refuse { until_ms })
    }

    /// Appends to the log that a committed attempt is forgotten; as [`Worker::stage_commit`]
    /// otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn stage_forget(&mut self, id: TransactionId) -> Result<(State, bool), Abort> {
        self.stage_decision(id, Verdict::Forget)
    }

    /// Gives back the system record of an attempt of which an entry was staged that will never be
    /// submitted. Wakes the transactions that wait. The attempt's other holds are left alone: see
    /// [`crate::Engine::release`].
    pub fn unstage(&mut self, id: TransactionId) {
        self.expect_driven();
        let engine = Arc::clone(&self.engine);
        let is_staged = |prepared: &Prepared| prepared.is_staged;
        if engine.prepared.lock().get(&id).is_some_and(is_staged) {
            engine.release(id);
        }
        {
            let _pinned = Pinned::new(&engine, self.place);
            let key = system::key(id);
            let Some(record) = engine.index.get(engine.index.hash(&key), &key) else {
                return;
            };
            if engine.holds.give_back(record, id) {
                engine.queue.push(record);
            }
        }
        engine.holds.notify();
    }

    fn expect_driven(&self) {
        assert!(
            self.engine.epochs.is_driven(),
            "only a driven engine has an applier to bring back what is staged"
        );
    }

    fn try_stage(&mut self, ops: &[Op<'_>], holder: Holder, attempt: u32) -> Result<Staged, Stop> {
        let outcome = self.run(ops).and_then(|()| {
            let (replies, writes) = (self.owned_replies(), self.state.writes.len());
            let done = if writes == 0 {
                self.finish()
            } else {
                let staging = Arc::clone(&self.place().staging);
                let _staging = staging.lock();
                self.hold_all(holder, None, attempt)
            };
            done.map(|()| Staged { replies, writes })
        });
        outcome.map_err(|stop| self.give_up_reads(stop))
    }

    fn stage_decision(
        &mut self,
        id: TransactionId,
        verdict: Verdict,
    ) -> Result<(State, bool), Abort> {
        self.expect_driven();
        self.until_done(|worker, _| {
            let staging = Arc::clone(&worker.place().staging);
            let _staging = staging.lock();
            worker.decide_staged(id, verdict)
        })
    }

    /// Locks the system record, reads it, and appends the changes that follow.
    fn decide_staged(
        &mut self,
        id: TransactionId,
        verdict: Verdict,
    ) -> Result<(State, bool), Stop> {
        let record = self.record_of(&system::key(id));
        let seen = match record.word().lock() {
            Ok(seen) => seen,
            Err(refused) => {
                forsake(&self.engine, record);
                return Err(self.refused(record, refused));
            }
        };
        let old = RecordRef::version(seen);
        let state = self.known(old);
        let outcome = match verdict {
            _ if !applies(verdict, &state) => Ok(false),
            Verdict::Commit if system::is_unheld(old.value()) => self.stage_unheld(id, record, old),
            Verdict::Refuse { until_ms } if old.deadline() >= Some(until_ms) => Ok(false),
            _ => self
                .changes_of(id, verdict, record, old)
                .and_then(|writes| {
                    let logged = self.append_staged(&writes);
                    writes.iter().for_each(|w| w.version.free_unpublished());
                    logged.map(|()| true)
                }),
        };
        match outcome {
            Ok(true) => self.engine.holds.exclude(record, seen, deciding(id)),
            _ => self.put_back(record, seen),
        }
        outcome.map(|appended| (state, appended))
    }

    pub(crate) fn put_back(&self, record: RecordRef, seen: Seen) {
        record.word().unlock(seen, seen.0 & QUEUED);
        forsake(&self.engine, record);
    }

    /// Commits an attempt that has held nothing until now. Its writes are held until they are
    /// applied, so that they come before or after any other staged writes of these keys.
    fn stage_unheld(
        &mut self,
        id: TransactionId,
        own: RecordRef,
        old: VersionRef,
    ) -> Result<bool, Stop> {
        let Ok(Entry::Pending {
            note,
            siblings,
            effects,
        }) = system::decode(old.value())
        else {
            panic!("{WELL_FORMED}");
        };
        let (mut writes, locked) = self.lock_effects(id, siblings, &effects)?;
        let version = system_version(&Entry::Committed { note }.encode(), None);
        writes.push(Write {
            record: own,
            version,
        });
        let logged = self.append_staged(&writes);
        version.free_unpublished();
        writes.pop();
        if let Err(stop) = logged {
            self.unlock_effects(&writes, &locked);
            return Err(stop);
        }
        let held = writes.iter().map(|write| write.record).collect();
        let staged = Prepared {
            effects: Vec::new(),
            held,
            ranged: false,
            is_staged: true,
        };
        self.engine.prepared.lock().insert(id, staged);
        for (write, seen) in writes.iter().zip(locked) {
            self.engine.holds.exclude(write.record, seen, deciding(id));
            write.version.free_unpublished();
        }
        Ok(true)
    }

    /// Returns the writes of a verdict that applies. `record` is the system record, and `old` its
    /// version.
    fn changes_of(
        &self,
        id: TransactionId,
        verdict: Verdict,
        record: RecordRef,
        old: VersionRef,
    ) -> Result<Vec<Write>, Stop> {
        let holds = matches!(verdict, Verdict::Commit | Verdict::Abort);
        if holds
            && !system::is_unheld(old.value())
            && !self.engine.prepared.lock().contains_key(&id)
        {
            return Err(Stop::Abort(Abort::Elsewhere { leader: None }));
        }
        let own = |version| Write { record, version };
        Ok(match verdict {
            Verdict::Commit => {
                let Ok(Entry::Prepared { note, kept }) = system::decode(old.value()) else {
                    panic!("{WELL_FORMED}");
                };
                let origin = self.engine.origins.share(Origin {
                    id,
                    siblings: kept.siblings,
                });
                let effects = kept.effects.iter();
                let mut writes: Vec<Write> =
                    effects.map(|effect| self.effect(effect, &origin)).collect();
                let marker = Entry::Committed { note }.encode();
                writes.push(own(system_version(&marker, None)));
                writes
            }
            Verdict::Refuse { until_ms } => {
                let refusal = Entry::Refused.encode();
                vec![own(system_version(&refusal, Some(until_ms)))]
            }
            Verdict::Abort | Verdict::Forget => vec![own(VersionRef::new(0, None, None))],
        })
    }
}
