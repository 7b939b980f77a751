//! A thread's own access to a database.

use std::sync::Arc;
use std::time::Duration;

use base::transaction::{Holder, Observed};
use base::{Abort, Op, Reply};
use engine::{Evicted, SlicedTransaction, Snapshot, SnapshotEntry, TransactionError, Txn};

use crate::db_state::DbState;
use crate::log::JournalLog;

/// The replies of a committed transaction. While they live, the worker holds its epoch, so that
/// they should not live long.
pub use engine::Committed;

/// Runs transactions, one at a time. It can be sent to another thread, but not shared.
pub struct Worker {
    pub(crate) inner: engine::Worker<JournalLog>,
    /// Keeps the journal alive for as long as the worker can write.
    pub(crate) db: Arc<DbState>,
}

impl Worker {
    /// Reads the clock for the time of the epoch. Call it before a batch of [`Worker::execute`],
    /// which does not do so by itself, because that costs time.
    pub fn refresh(&self) {
        self.inner.refresh();
    }

    /// Executes the operations as one transaction, and executes them again as long as it meets
    /// conflicts. The outcome may be shown once [`Committed::observed`] is durable. It does not
    /// wait for prepared transactions.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened; it may be shown once
    /// [`Worker::observed`] is durable. After [`Abort::Held`] try again when
    /// [`crate::Db::releases`] has changed.
    pub fn execute<'w>(&'w mut self, ops: &[Op<'_>]) -> Result<Committed<'w>, Abort> {
        self.inner.execute(ops)
    }

    /// Holds the records that operations read, absent ones too, until [`crate::Db::end_hold`]: no transaction
    /// writes them meanwhile, and others may read them. The operations only read. The hold is in memory alone.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing is held: [`Abort::Held`].
    pub fn hold(&mut self, ops: &[Op<'_>], holder: Holder) -> Result<(), Abort> {
        self.inner.hold(ops, holder)
    }

    /// Evicts keys until `bytes` more can be used, for as long as `most`; see [`engine::Worker::evict`].
    ///
    /// # Errors
    /// As there.
    pub fn evict(&mut self, bytes: u64, most: Duration) -> Result<Evicted, Abort> {
        self.inner.evict(bytes, most)
    }

    /// Has the use of keys noted by the next transactions, which is the default, or not.
    #[inline]
    pub fn note_use(&mut self, notes: bool) {
        self.inner.note_use(notes);
    }

    /// Begins a transaction of very many operations, which runs in slices: the worker may run others between them.
    /// It will bring `bytes` of keys and values.
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why it cannot begin: [`Abort::OutOfMemory`], [`Abort::Held`] by a flush.
    pub fn begin_sliced(
        &mut self,
        holder: Holder,
        bytes: usize,
    ) -> Result<SlicedTransaction, Abort> {
        self.inner.begin_sliced(holder, bytes)
    }

    /// Executes some operations of a transaction in slices; see [`engine::Worker::execute_slice`].
    ///
    /// # Errors
    /// As there.
    pub fn execute_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        ops: &[Op<'_>],
        see: impl FnOnce(&[Reply<'_>]),
    ) -> Result<(), Abort> {
        self.inner.execute_slice(sliced, ops, see)
    }

    /// Continues the commit of a transaction in slices; see [`engine::Worker::commit_slice`]. Its outcome may be shown
    /// once [`SlicedTransaction::observed`] is durable.
    ///
    /// # Errors
    /// As there.
    pub fn commit_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        count: usize,
    ) -> Result<bool, Abort> {
        self.inner.commit_slice(sliced, count)
    }

    /// Runs `body` as one transaction, and runs it again whenever it meets a conflict. Waits for
    /// prepared transactions that are in its way, at most [`crate::Options::hold_timeout`].
    ///
    /// # Errors
    /// Returns an [`Abort`] that says why nothing has happened.
    pub fn transact<T>(
        &mut self,
        mut body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, TransactionError>,
    ) -> Result<(T, Observed), Abort> {
        let (db, worker) = (&self.db, &mut self.inner);
        db.retry_held(|| worker.transact(&mut body))
    }

    /// As [`Worker::transact`], but does not wait for prepared transactions. The outcome may be shown once
    /// [`Observed::epoch`] is durable. The worker keeps its epoch while `body` runs, which should be short.
    ///
    /// # Errors
    /// As [`Worker::execute`]; the error with which `body` gives up.
    pub fn try_transact<T>(
        &mut self,
        body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, TransactionError>,
    ) -> Result<(T, Observed), Abort> {
        self.inner.transact(body)
    }

    /// Returns what the last transaction wrote or observed, after a commit and after an abort.
    #[must_use]
    pub fn observed(&self) -> Observed {
        self.inner.observed()
    }

    /// Waits until `epoch` is durable.
    ///
    /// # Errors
    /// Returns [`Abort::ReadOnly`] if the log has failed before that.
    pub fn wait_durable(&self, epoch: base::Epoch) -> Result<(), Abort> {
        self.db.wait_durable(epoch)
    }

    /// Starts fetching the memory of these keys, ahead of transactions that use them.
    pub fn prefetch(&mut self, keys: &[&[u8]]) {
        self.inner.prefetch(keys.iter().copied());
    }

    /// Visits the keys of the view from `from` to `to` (exclusive) in byte order, looking at
    /// `limit` records at most. Returns the key to go on from, or `None` when the range is done.
    pub fn scan_snapshot(
        &mut self,
        snapshot: &Snapshot,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        visit: &mut dyn FnMut(SnapshotEntry<'_>),
    ) -> Option<Vec<u8>> {
        self.inner.scan_snapshot(snapshot, from, to, limit, visit)
    }

    /// Returns the transactions over several partitions that are prepared in a view; see
    /// [`engine::Worker::prepared_in`].
    pub fn prepared_in(&mut self, snapshot: &Snapshot) -> Vec<(Holder, Option<Vec<Vec<u8>>>)> {
        self.inner.prepared_in(snapshot)
    }

    /// Looks at one key of a view. Returns what `visit` returns, or `None` if the key is not in the view.
    pub fn read_snapshot<T>(
        &mut self,
        snapshot: &Snapshot,
        key: &[u8],
        visit: impl FnOnce(SnapshotEntry<'_>) -> T,
    ) -> Option<T> {
        self.inner.read_snapshot(snapshot, key, visit)
    }

    /// Visits the records from `from` to `to` (exclusive) in byte order. `visit` gets the view's
    /// version of each record, or `None` if its key is not in the view. System records are among
    /// them. Stops after a record for which `visit` returns `false`, and returns the key to go on
    /// from, or `None` when the range is done. The worker holds its epoch meanwhile: stop it soon.
    pub fn walk_snapshot(
        &mut self,
        snapshot: &Snapshot,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut dyn FnMut(Option<SnapshotEntry<'_>>) -> bool,
    ) -> Option<Vec<u8>> {
        self.inner.walk_snapshot(snapshot, from, to, visit)
    }
}
