//! A worker: runs the transactions of one thread, and hands their changes to its log.
//!
//! A worker has the thread's registration, the transaction, and the log. Its methods begin a
//! transaction, let the modules below execute and commit it, end it, and try again after a conflict.

mod eviction;
mod participant;
mod slices;
mod snapshots;
mod staging;

use std::sync::Arc;

use base::transaction::Observed;
use base::{Abort, Op, Reply};

use crate::commit::commit;
use crate::conflict;
use crate::engine::Engine;
use crate::epoch::EpochGuard;
use crate::eviction::EvictionPool;
use crate::interactive::Txn;
use crate::log::{RedoLog, wait_ready};
use crate::one_shot;
use crate::retry::back_off;
use crate::thread_context::ThreadContext;
use crate::transaction::{ActiveTransaction, TransactionState};
use crate::transaction_error::TransactionError;

pub use self::eviction::{Evicted, EvictionRun};

/// Runs transactions on an engine, one at a time; their changes go to the log `L`.
pub struct Worker<L> {
    pub(crate) thread: ThreadContext,
    pub(crate) txn: TransactionState,
    pub(crate) log: L,
    eviction: EvictionPool,
}

impl<L> std::fmt::Debug for Worker<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("slot", &self.thread.slot)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Returns a worker whose log is `log(i)`, where *i* is its number, from 0 on; `None` when
    /// there are as many workers as the engine was made for.
    pub fn worker<L: RedoLog>(self: &Arc<Self>, log: impl FnOnce(usize) -> L) -> Option<Worker<L>> {
        self.register().map(|thread| Worker::new(thread, log))
    }

    /// Returns the worker with number `index`, whose log is `log`; `None` when another thread has
    /// it, or if there is no such worker. For threads that have a logger or a processor of their
    /// own.
    pub fn worker_at<L: RedoLog>(
        self: &Arc<Self>,
        index: usize,
        log: impl FnOnce(usize) -> L,
    ) -> Option<Worker<L>> {
        self.register_at(index)
            .map(|thread| Worker::new(thread, log))
    }
}

/// A committed transaction's replies. While they live, the worker holds its epoch.
pub struct Committed<'w> {
    active: ActiveTransaction<'w>,
}

impl Committed<'_> {
    /// Returns one reply for each operation, in their order.
    #[must_use]
    pub fn replies(&self) -> &[Reply<'_>] {
        &self.active.txn.replies
    }

    /// Returns the epoch that must be durable before the replies may be seen, and the transaction's
    /// time.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.active.txn.observed()
    }

    /// Returns what [`Worker::staged_ticket`] returns afterwards.
    #[must_use]
    pub fn staged_ticket(&self) -> u64 {
        self.active.txn.staged_ticket
    }
}

impl<L: RedoLog> Worker<L> {
    fn new(thread: ThreadContext, log: impl FnOnce(usize) -> L) -> Worker<L> {
        Worker {
            log: log(thread.worker_number()),
            thread,
            txn: TransactionState::default(),
            eviction: EvictionPool::default(),
        }
    }

    /// Returns the engine of this worker.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.thread.engine
    }

    /// Returns the worker's log.
    #[must_use]
    pub fn log(&self) -> &L {
        &self.log
    }

    /// Returns the worker's log.
    pub fn log_mut(&mut self) -> &mut L {
        &mut self.log
    }

    /// Updates the epoch's time from the clock. Call it before a batch of transactions.
    pub fn refresh(&self) {
        self.thread.engine.epochs.refresh();
    }

    /// Returns what the last transaction wrote or observed, after a commit and after an abort.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.txn.observed()
    }

    /// Starts fetching the memory of these keys, ahead of transactions that use them.
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        let engine = &self.thread.engine;
        // The table of hints may be replaced while it is read: stay in an epoch.
        let _guard = EpochGuard::new(&engine.epochs, self.thread.slot);
        self.txn.hash_and_fetch(engine, keys);
    }

    /// Returns the greatest ticket of the staged versions that the last transaction has read
    /// ([`Engine::pass_holds`]); 0 if it has read none. Its outcome may be shown once that has resolved.
    #[must_use]
    pub fn staged_ticket(&self) -> u64 {
        self.txn.staged_ticket
    }

    /// Executes the operations as one transaction, and executes them again as long as it meets
    /// conflicts.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened. [`Worker::observed`] returns the
    /// epoch that the transaction observed until then, which must be durable before the outcome may
    /// be seen.
    pub fn execute<'w>(&'w mut self, ops: &[Op<'_>]) -> Result<Committed<'w>, Abort> {
        self.thread.engine.check_count(ops)?;
        if !ops.iter().all(Op::is_read_only) {
            wait_ready(&mut self.log)?;
        }
        for attempt in 0.. {
            let active = ActiveTransaction::begin(&mut self.thread, &mut self.txn);
            let outcome = match one_shot::run(active.thread, active.txn, ops) {
                Ok(()) => commit(active.thread, active.txn, &mut self.log),
                Err(error) => Err(conflict::with_holder(
                    &active.thread.engine,
                    active.txn,
                    error,
                )),
            };
            match outcome {
                Ok(()) => {
                    active.txn.set_stamps();
                    // It ends with its replies.
                    std::mem::forget(active);
                    break;
                }
                Err(TransactionError::Abort(abort)) => return Err(abort),
                Err(TransactionError::Conflict) => drop(active),
            }
            back_off(&mut self.thread, attempt)?;
        }
        Ok(Committed {
            active: ActiveTransaction {
                thread: &mut self.thread,
                txn: &mut self.txn,
            },
        })
    }

    /// Runs `body` as one transaction, and runs it again whenever it meets a conflict.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened.
    pub fn transact<T>(
        &mut self,
        mut body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, TransactionError>,
    ) -> Result<(T, Observed), Abort> {
        for attempt in 0.. {
            wait_ready(&mut self.log)?;
            self.refresh();
            let active = ActiveTransaction::begin(&mut self.thread, &mut self.txn);
            let value = body(&mut Txn::new(active.thread, active.txn));
            let outcome = match value {
                Ok(value) => commit(active.thread, active.txn, &mut self.log).map(|()| value),
                Err(error) => Err(conflict::with_holder(
                    &active.thread.engine,
                    active.txn,
                    error,
                )),
            };
            match outcome {
                Ok(value) => return Ok((value, active.txn.observed())),
                Err(TransactionError::Abort(abort)) => return Err(abort),
                Err(TransactionError::Conflict) => drop(active),
            }
            back_off(&mut self.thread, attempt)?;
        }
        unreachable!("backing off ends the attempts")
    }

    /// Makes attempts, each in an epoch of its own, until one does not end with a conflict.
    /// Notifies transactions that wait for holds if any were given back.
    fn until_done<T>(
        &mut self,
        mut once: impl FnMut(
            &mut ThreadContext,
            &mut TransactionState,
            &mut L,
            u32,
        ) -> Result<T, TransactionError>,
    ) -> Result<T, Abort> {
        for attempt in 0.. {
            wait_ready(&mut self.log)?;
            self.refresh();
            let active = ActiveTransaction::begin(&mut self.thread, &mut self.txn);
            let outcome = once(active.thread, active.txn, &mut self.log, attempt);
            drop(active);
            if std::mem::take(&mut self.txn.released_holds) {
                self.thread.engine.holds.notify();
            }
            match outcome {
                Ok(done) => return Ok(done),
                Err(TransactionError::Abort(abort)) => return Err(abort),
                Err(TransactionError::Conflict) => back_off(&mut self.thread, attempt)?,
            }
        }
        unreachable!("backing off ends the attempts")
    }
}
