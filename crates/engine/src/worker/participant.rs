//! A worker as a participant of transactions over several partitions.

use base::limits::RESERVED;
use base::participant::{Prepare, State};
use base::partition::OwnedReply;
use base::transaction::Holder;
use base::versions::{Ask, Found};
use base::{Abort, Epoch, Op, TransactionId};

use crate::decide::{self, TransactionDecision};
use crate::log::RedoLog;
use crate::prepare;
use crate::read_versions;
use crate::record::RecordRef;
use crate::system_record;
use crate::transaction::ActiveTransaction;
use crate::worker::Worker;

impl<L: RedoLog> Worker<L> {
    /// Executes the operations, holds the records that they read and will write, and keeps their
    /// writes. The attempt counts as prepared once [`Worker::observed`] is durable.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why it is not prepared, in which case it has left nothing:
    /// [`Abort::Refused`] if its state is not unknown or its siblings are malformed,
    /// [`Abort::Held`], [`Abort::Overtaken`], or the error of an operation.
    pub fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        prepare::check(&self.thread.engine, prepare)?;
        self.until_done(|thread, txn, log, attempt| {
            prepare::prepare(thread, txn, log, prepare, attempt)
        })
    }

    /// Holds the records that operations read, absent ones too, until [`crate::Engine::end_hold`]: no
    /// transaction writes them meanwhile, and others may read them. The operations only read. The hold is in
    /// memory alone.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing is held: [`Abort::Held`].
    pub fn hold(&mut self, ops: &[Op<'_>], holder: Holder) -> Result<(), Abort> {
        self.thread.engine.check_count(ops)?;
        self.until_done(|thread, txn, _, attempt| {
            prepare::hold(thread, txn, (ops, holder), attempt)
        })
    }

    /// Makes a prepared attempt's effects current and gives its holds back; it is committed then.
    /// Does nothing if the attempt is not prepared. Returns the state before, and the epoch that
    /// must be durable before the result is sent.
    ///
    /// # Errors
    /// Returns [`Abort::ReadOnly`] if the log has failed.
    pub fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.decide(id, TransactionDecision::Commit)
    }

    /// Undoes a prepared attempt and gives its holds back; as [`Worker::commit`]
    /// otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.decide(id, TransactionDecision::Abort)
    }

    /// Makes sure that an unknown attempt will not be prepared before this engine's time is
    /// `until_ms`; as [`Worker::commit`] otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort> {
        self.decide(id, TransactionDecision::Refuse { until_ms })
    }

    /// Forgets a committed attempt: no node will ask for it any more.
    ///
    /// # Errors
    /// As above.
    pub fn forget(&mut self, id: TransactionId) -> Result<(), Abort> {
        self.decide(id, TransactionDecision::Forget).map(|_| ())
    }

    fn decide(
        &mut self,
        id: TransactionId,
        decision: TransactionDecision,
    ) -> Result<(State, Epoch), Abort> {
        let (state, epoch) = self.state(id);
        if !decide::applies(decision, &state) {
            return Ok((state, epoch));
        }
        self.until_done(|thread, txn, log, _| decide::decide(thread, txn, log, id, decision))
    }

    /// Returns the state of an attempt, and the epoch on which that depends.
    pub fn state(&mut self, id: TransactionId) -> (State, Epoch) {
        self.refresh();
        let active = ActiveTransaction::begin(&mut self.thread, &mut self.txn);
        let (index, txn) = (&active.thread.engine.index, &mut *active.txn);
        let key = system_record::key(id);
        let Some(record) = index.get(index.hash(&key), &key) else {
            return (State::Unknown, txn.observed);
        };
        let version = RecordRef::version(record.word().load());
        txn.observe(version.epoch());
        (system_record::state_at(version, txn.time_ms), txn.observed)
    }

    /// Returns the attempts that are prepared or committed, in the order of their ids.
    pub fn undecided(&mut self) -> Vec<(TransactionId, State)> {
        self.refresh();
        let active = ActiveTransaction::begin(&mut self.thread, &mut self.txn);
        let (index, txn) = (&active.thread.engine.index, &mut *active.txn);
        let mut found = Vec::new();
        index.range(
            &RESERVED,
            Some(&system_record::BEHIND_TRANSACTIONS),
            |record| {
                let version = RecordRef::version(record.word().load());
                let state = system_record::state_at(version, txn.time_ms);
                if matches!(state, State::Prepared(_) | State::Committed(_)) {
                    txn.observe(version.epoch());
                    let id = system_record::id(record.key()).expect(system_record::WELL_FORMED);
                    found.push((id, state));
                }
                true
            },
        );
        found
    }

    /// Returns the id and siblings that the newest version of a key carries: also of a tombstone,
    /// as long as it exists. Holds are not considered.
    pub fn origin_of(&mut self, key: &[u8]) -> Option<(TransactionId, Vec<u8>)> {
        self.refresh();
        let active = ActiveTransaction::begin(&mut self.thread, &mut self.txn);
        let index = &active.thread.engine.index;
        let record = index.get(index.hash(key), key)?;
        let origin = RecordRef::version(record.word().load()).origin()?;
        Some((origin.id, origin.siblings.to_vec()))
    }

    /// Looks at versions of read-atomic keys, each by itself; `see` gets an answer for each, in the
    /// order of the questions. Never waits, even if the keys are held.
    pub fn read_versions(&mut self, asks: &[Ask<'_>], see: &mut dyn FnMut(Found<'_>)) {
        self.refresh();
        let active = ActiveTransaction::begin(&mut self.thread, &mut self.txn);
        let (engine, txn) = (&active.thread.engine, &mut *active.txn);
        read_versions::fetch(engine, txn, asks);
        for (at, ask) in asks.iter().enumerate() {
            let hash = txn.hashes[at].expect("each has a key");
            see(read_versions::find(engine, txn, ask, hash));
        }
    }

    /// Returns the engine's time in milliseconds since the Unix epoch. It never decreases.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.refresh();
        self.thread.engine.epochs.time_ms()
    }

    /// Returns how often holds have been given back; see [`crate::Engine::releases`].
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.thread.engine.releases()
    }
}
