//! A worker that stages the transactions of a replicated partition (module [`crate::stage`]).

use std::sync::Arc;

use base::participant::{Prepare, State};
use base::partition::OwnedReply;
use base::transaction::Holder;
use base::{Abort, Op, TransactionId};

use crate::decide::TransactionDecision;
use crate::epoch::EpochGuard;
use crate::interactive::Txn;
use crate::log::RedoLog;
use crate::prepare;
use crate::prepared::PreparedTransaction;
use crate::stage::{self, Staged};
use crate::system_record;
use crate::transaction_error::TransactionError;
use crate::worker::Worker;

impl<L: RedoLog> Worker<L> {
    /// Executes the operations, holds the records that they read and will write as `holder`, and
    /// appends their writes to the log. A transaction without writes has ended.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened, in which case nothing is held:
    /// [`Abort::Held`], [`Abort::ReadOnly`] when the log takes nothing, or the error of an
    /// operation.
    pub fn stage(
        &mut self,
        ops: &[Op<'_>],
        holder: Holder,
    ) -> Result<Staged<Vec<OwnedReply>>, Abort> {
        self.expect_driven();
        self.thread.engine.check_count(ops)?;
        self.until_done(|thread, txn, log, attempt| {
            stage::stage(thread, txn, log, (ops, holder), attempt)
        })
    }

    /// As [`Worker::stage`], of a transaction whose operations are executed by `body`, which runs again whenever
    /// it meets a conflict.
    ///
    /// # Errors
    /// As [`Worker::stage`]; the error with which `body` gives up.
    pub fn stage_transaction<T>(
        &mut self,
        holder: Holder,
        mut body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, TransactionError>,
    ) -> Result<Staged<T>, Abort> {
        self.expect_driven();
        self.until_done(|thread, txn, log, attempt| {
            stage::stage_transaction(thread, txn, log, (&mut body, holder), attempt)
        })
    }

    /// Executes the operations, holds the records that they read and will write, and appends the
    /// system record to the log, from which all of it can be restored. The attempt counts as
    /// prepared once that entry is committed.
    ///
    /// # Errors
    /// As [`Worker::prepare`].
    pub fn stage_prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        self.expect_driven();
        prepare::check(&self.thread.engine, prepare)?;
        self.until_done(|thread, txn, log, attempt| {
            stage::stage_prepare(thread, txn, log, (prepare, attempt))
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
        self.stage_decision(id, TransactionDecision::Commit)
    }

    /// Appends to the log that a prepared attempt has aborted; as [`Worker::stage_commit`]
    /// otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn stage_abort(&mut self, id: TransactionId) -> Result<(State, bool), Abort> {
        self.stage_decision(id, TransactionDecision::Abort)
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
        self.stage_decision(id, TransactionDecision::Refuse { until_ms })
    }

    /// Appends to the log that a committed attempt is forgotten; as [`Worker::stage_commit`]
    /// otherwise.
    ///
    /// # Errors
    /// As above.
    pub fn stage_forget(&mut self, id: TransactionId) -> Result<(State, bool), Abort> {
        self.stage_decision(id, TransactionDecision::Forget)
    }

    /// Gives back the system record of an attempt of which an entry was staged that will never be
    /// submitted. Wakes the transactions that wait. The attempt's other holds are left alone: see
    /// [`crate::Engine::release`].
    pub fn unstage(&mut self, id: TransactionId) {
        self.expect_driven();
        let engine = Arc::clone(&self.thread.engine);
        let is_staged = |prepared: &PreparedTransaction| prepared.is_staged;
        if engine.prepared.lock().get(&id).is_some_and(is_staged) {
            engine.release(id);
        }
        {
            let _pinned = EpochGuard::new(&engine.epochs, self.thread.slot);
            let key = system_record::key(id);
            let Some(record) = engine.index.get(engine.index.hash(&key), &key) else {
                return;
            };
            if engine.holds.release_hold(record, id) {
                engine.queue.push(record);
            }
        }
        engine.holds.notify();
    }

    fn expect_driven(&self) {
        assert!(
            self.thread.engine.epochs.is_driven(),
            "only a driven engine has an applier to bring back what is staged"
        );
    }

    fn stage_decision(
        &mut self,
        id: TransactionId,
        decision: TransactionDecision,
    ) -> Result<(State, bool), Abort> {
        self.expect_driven();
        self.until_done(|thread, txn, log, _| stage::stage_decision(thread, txn, log, id, decision))
    }
}
