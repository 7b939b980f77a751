//! A transaction whose operations are executed one list after the other, with the program's code between
//! them: as an interactive one, but in terms of operations, and on the caller's stack.

use base::transaction::Observed;
use base::{Abort, Op, Reply};

use crate::commit::commit;
use crate::log::{RedoLog, wait_ready};
use crate::one_shot;
use crate::transaction::ActiveTransaction;
use crate::transaction_error::TransactionError;
use crate::worker::Worker;

/// A transaction that has begun. It keeps its epoch until it ends, which should be soon. Dropped, it has done
/// nothing.
///
/// What it reads is validated when it commits. Until then two replies may show a state that never existed.
pub struct OpenTransaction<'w, L> {
    active: ActiveTransaction<'w>,
    log: &'w mut L,
}

impl<L: RedoLog> Worker<L> {
    /// Begins a transaction.
    ///
    /// # Errors
    /// The log takes nothing.
    pub fn open(&mut self) -> Result<OpenTransaction<'_, L>, Abort> {
        wait_ready(&mut self.log)?;
        Ok(OpenTransaction {
            active: ActiveTransaction::begin(&mut self.thread, &mut self.txn),
            log: &mut self.log,
        })
    }
}

impl<L: RedoLog> OpenTransaction<'_, L> {
    /// Executes operations, and returns their replies.
    ///
    /// # Errors
    /// After [`Abort::Precondition`] of an operation before all writes of the list, nothing of the list has
    /// happened, and the transaction goes on. After any other error it must be dropped; it is
    /// [`Abort::Unsupported`] for read-atomic keys, whose versions name all keys that a transaction writes.
    pub fn execute(&mut self, ops: &[Op<'_>]) -> Result<&[Reply<'_>], TransactionError> {
        let ActiveTransaction { thread, txn } = &mut self.active;
        let engine = &thread.engine;
        engine.check_count(ops)?;
        let covered = |op: &Op<'_>| op.key().is_some_and(|key| engine.read_atomic.covers(key));
        if engine.read_atomic.any() && ops.iter().any(covered) {
            let what = "read-atomic keys in an open transaction".to_owned();
            return Err(Abort::Unsupported { what }.into());
        }
        let from = txn.replies.len();
        one_shot::run(thread, txn, ops)?;
        Ok(&txn.replies[from..])
    }

    /// Returns the transaction's time: milliseconds since the Unix epoch, the stamp of its epoch.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.active.txn.time_ms
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// As [`Worker::execute`]; a conflict is not tried again.
    pub fn commit(self) -> Result<Observed, TransactionError> {
        let OpenTransaction { active, log } = self;
        commit(active.thread, active.txn, log)?;
        Ok(active.txn.observed())
    }
}
