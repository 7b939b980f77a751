//! A worker and transactions of very many operations, which it runs in slices (module [`crate::sliced`]).

use base::transaction::Holder;
use base::{Abort, Op, Reply, database};

use crate::commit::commit;
use crate::log::{RedoLog, wait_ready};
use crate::retry::back_off;
use crate::sliced::SlicedTransaction;
use crate::transaction_error::TransactionError;
use crate::worker::Worker;

impl<L: RedoLog> Worker<L> {
    /// Begins a transaction in slices, which will bring `bytes` of keys and values.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why it cannot begin: [`Abort::OutOfMemory`], [`Abort::Held`] by a flush.
    pub fn begin_sliced(
        &mut self,
        holder: Holder,
        bytes: usize,
    ) -> Result<SlicedTransaction, Abort> {
        wait_ready(&mut self.log)?;
        self.refresh();
        self.until_settled(|worker, attempt| {
            SlicedTransaction::begin(&mut worker.thread, holder, bytes, attempt)
        })
    }

    /// Executes some operations of a transaction in slices; `see` gets their replies. The worker is in an epoch
    /// meanwhile: keep slices small (some thousand operations).
    ///
    /// # Errors
    /// Returns an [`Abort`]. After [`Abort::Held`] none of the operations was executed, and they may be tried again;
    /// after others the transaction must be undone. [`Abort::Unsupported`]: operations without a key, or on read-atomic
    /// keys.
    pub fn execute_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        ops: &[Op<'_>],
        see: impl FnOnce(&[Reply<'_>]),
    ) -> Result<(), Abort> {
        sliced.admit(ops)?;
        let mut keys = ops.iter().filter_map(Op::key);
        if keys.any(database::may_be_qualified) && self.engine().database_table().is_none() {
            self.until_done(|thread, txn, log, _| {
                txn.make_databases(thread);
                commit(thread, txn, log)
            })?;
        }
        self.until_settled(|worker, _| sliced.hold_keys(&worker.thread, ops))?;
        match sliced.execute(&mut self.thread, ops, see) {
            Ok(()) => Ok(()),
            Err(TransactionError::Abort(abort)) => Err(abort),
            Err(TransactionError::Conflict) => Err(Abort::Conflict { attempts: 1 }),
        }
    }

    /// Commits a transaction in slices of about `count` writes. Returns `true` when it has committed and all of it is
    /// visible.
    ///
    /// # Errors
    /// Returns an [`Abort`]. After [`Abort::Held`] it may be tried again; after others the transaction must be undone.
    /// [`Abort::Conflict`]: a key has expired since it was read.
    pub fn commit_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        count: usize,
    ) -> Result<bool, Abort> {
        if sliced.has_committed() {
            return Ok(sliced.finish(&self.thread, count));
        }
        if !sliced.can_commit() {
            let excluded = sliced.exclude(&self.thread, &mut self.log, count);
            return excluded.map(|()| false);
        }
        wait_ready(&mut self.log)?;
        self.refresh();
        self.until_settled(|worker, _| sliced.commit(&mut worker.thread, &mut worker.log))?;
        Ok(false)
    }

    /// Makes attempts until one does not end with a conflict.
    fn until_settled<T>(
        &mut self,
        mut once: impl FnMut(&mut Self, u32) -> Result<T, TransactionError>,
    ) -> Result<T, Abort> {
        for attempt in 0.. {
            match once(self, attempt) {
                Ok(done) => return Ok(done),
                Err(TransactionError::Abort(abort)) => return Err(abort),
                Err(TransactionError::Conflict) => back_off(&mut self.thread, attempt)?,
            }
        }
        unreachable!("backing off ends the attempts")
    }
}
