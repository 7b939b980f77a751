//! A runtime's access to the partition.

use std::time::Duration;

use base::participant::{Participant, Sequenced};
use base::partition::OwnedReply;
use base::transaction::{Holder, Observed};
use base::{Abort, Epoch, Op, Reply};
use store::{Evicted, SlicedTransaction, Snapshot, SnapshotEntry, TransactionError, Txn};

/// Clients of Redis do not number their requests: a repeated one is executed again.
const UNNUMBERED: Sequenced = Sequenced {
    session: 0,
    sequence: 0,
};

/// See the module's description.
#[allow(clippy::large_enum_variant)] // Each runtime has one, for ever.
pub(crate) enum Worker {
    Local(store::Worker),
    Replicated(replica::Worker),
}

impl Worker {
    /// Updates its time; called once before a batch. Its transactions note the use of keys from then on.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        self.note_use(true);
        match self {
            Worker::Local(worker) => worker.refresh(),
            Worker::Replicated(worker) => worker.refresh(),
        }
    }

    /// Has the use of keys noted by the next transactions, or not.
    #[inline]
    pub(crate) fn note_use(&mut self, notes: bool) {
        match self {
            Worker::Local(worker) => worker.note_use(notes),
            Worker::Replicated(worker) => worker.inner().note_use(notes),
        }
    }

    /// Evicts keys until `bytes` more can be used, for as long as `most`.
    ///
    /// # Errors
    /// The [`Abort`] says why nothing can be deleted.
    pub(crate) fn evict(&mut self, bytes: u64, most: Duration) -> Result<Evicted, Abort> {
        match self {
            Worker::Local(worker) => worker.evict(bytes, most),
            Worker::Replicated(worker) => worker.evict(bytes, most),
        }
    }

    /// Returns `true` if an eviction has submitted deletions whose outcome is not known.
    pub(crate) fn awaits_evictions(&self) -> bool {
        matches!(self, Worker::Replicated(worker) if worker.awaits_evictions())
    }

    /// Lets submissions to a replicated partition gather until [`Worker::announce`].
    pub(crate) fn gather(&mut self) {
        if let Worker::Replicated(worker) = self {
            worker.gather();
        }
    }

    /// Returns `true` if the partition does not know yet of all that was submitted.
    pub(crate) fn has_unannounced(&self) -> bool {
        matches!(self, Worker::Replicated(worker) if worker.has_unannounced())
    }

    /// Has the partition take what was submitted.
    pub(crate) fn announce(&mut self) {
        if let Worker::Replicated(worker) = self {
            worker.announce();
        }
    }

    /// Assigns the next transactions to this client, until [`Worker::refresh`].
    #[inline]
    pub(crate) fn serve(&mut self, client: u64) {
        if let Worker::Replicated(worker) = self {
            worker.serve(client);
        }
    }

    /// Executes operations as one transaction. `see` gets the replies, which may be sent once the
    /// returned epoch is durable. Data that is only read may be as old as `stale`, if that is given
    /// and another node leads.
    ///
    /// # Errors
    /// The [`Abort`] says why nothing has happened; [`Worker::observed`] says what that depends on.
    #[inline]
    pub(crate) fn execute(
        &mut self,
        ops: &[Op<'_>],
        stale: Option<Duration>,
        see: impl FnOnce(&[Reply<'_>], Observed),
    ) -> Result<Epoch, Abort> {
        match self {
            Worker::Local(worker) => {
                let done = worker.execute(ops)?;
                let observed = done.observed();
                see(done.replies(), observed);
                Ok(observed.epoch)
            }
            Worker::Replicated(worker) => {
                let see = |replies: &[Reply<'_>], observed: Observed| {
                    see(replies, observed);
                    observed.epoch
                };
                match stale.filter(|_| ops.iter().all(Op::is_read_only)) {
                    Some(bound) => worker.read_stale(ops, bound, see),
                    None => worker.execute(ops, see),
                }
            }
        }
    }

    /// Runs `body`, which should be short, as one transaction, and runs it again whenever it meets a conflict. What
    /// it returns may be shown once the returned epoch is durable.
    ///
    /// # Errors
    /// As [`Worker::execute`]; the error with which `body` gives up.
    pub(crate) fn transact<T>(
        &mut self,
        body: impl for<'t> FnMut(&mut Txn<'t>) -> Result<T, TransactionError>,
    ) -> Result<(T, Epoch), Abort> {
        match self {
            Worker::Local(worker) => {
                let (value, observed) = worker.try_transact(body)?;
                Ok((value, observed.epoch))
            }
            Worker::Replicated(worker) => {
                let value = worker.transact(body)?;
                Ok((value, worker.observed().epoch))
            }
        }
    }

    /// Holds the keys that operations read until [`super::Partition::end_hold`], so that no transaction writes
    /// them. The operations only read. Returns `false` if the partition has no such holds.
    ///
    /// # Errors
    /// [`Abort::Held`]: another transaction holds one of them; nothing is held.
    pub(crate) fn hold(&mut self, ops: &[Op<'_>], holder: Holder) -> Result<bool, Abort> {
        match self {
            Worker::Local(worker) => worker.hold(ops, holder).map(|()| true),
            Worker::Replicated(_) => Ok(false),
        }
    }

    /// Begins a transaction in slices, of a local partition; see [`store::Worker::begin_sliced`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn begin_sliced(
        &mut self,
        holder: Holder,
        bytes: usize,
    ) -> Result<SlicedTransaction, Abort> {
        self.local().begin_sliced(holder, bytes)
    }

    /// Executes some operations of a transaction in slices; see [`store::Worker::execute_slice`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn execute_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        ops: &[Op<'_>],
        see: impl FnOnce(&[Reply<'_>]),
    ) -> Result<(), Abort> {
        self.local().execute_slice(sliced, ops, see)
    }

    /// Continues the commit of a transaction in slices; see [`store::Worker::commit_slice`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn commit_slice(
        &mut self,
        sliced: &mut SlicedTransaction,
        count: usize,
    ) -> Result<bool, Abort> {
        self.local().commit_slice(sliced, count)
    }

    fn local(&mut self) -> &mut store::Worker {
        match self {
            Worker::Local(worker) => worker,
            Worker::Replicated(_) => unreachable!("entries of a log are not made in slices"),
        }
    }

    /// Returns `true` if operations are executed after consensus, so that they must be proposed.
    #[inline]
    pub(crate) fn executes_later(&self, ops: &[Op<'_>]) -> bool {
        match self {
            Worker::Local(_) => false,
            Worker::Replicated(worker) => worker.is_naive() && !ops.iter().all(Op::is_read_only),
        }
    }

    /// Proposes operations, which are executed after consensus. Their outcome is known under the
    /// returned number, once [`Worker::observed`] has come.
    ///
    /// # Errors
    /// The [`Abort`] says why they cannot be proposed.
    pub(crate) fn propose(&mut self, ops: &[Op<'_>]) -> Result<u64, Abort> {
        match self {
            Worker::Local(_) => unreachable!("a local partition executes at once"),
            Worker::Replicated(worker) => worker.propose(ops, UNNUMBERED),
        }
    }

    /// Returns the outcome of what was proposed; only once, and `None` until it is known.
    pub(crate) fn outcome(&mut self, number: u64) -> Option<Result<Vec<OwnedReply>, Abort>> {
        match self {
            Worker::Local(_) => None,
            Worker::Replicated(worker) => worker.outcome(number),
        }
    }

    /// Checks that data found by a walk through a view may be shown here. Returns the epoch that it
    /// waits for.
    ///
    /// # Errors
    /// [`Abort::Elsewhere`] if not.
    pub(crate) fn check_view(&mut self, stale: Option<Duration>) -> Result<Epoch, Abort> {
        match self {
            Worker::Local(_) => Ok(Epoch::ZERO),
            // A transaction that may read now may also read the view, which is older.
            Worker::Replicated(_) => self.execute(&[Op::Count { database: 0 }], stale, |_, _| {}),
        }
    }

    /// Returns the epoch that must be durable before data of this view may be shown.
    ///
    /// # Errors
    /// Returns [`Abort::Elsewhere`] if it may never be shown, because another node leads.
    pub(crate) fn epoch_of(
        &mut self,
        view: Epoch,
        stale: Option<Duration>,
    ) -> Result<Epoch, Abort> {
        match self {
            Worker::Local(_) => Ok(view),
            Worker::Replicated(_) => self.check_view(stale),
        }
    }

    /// Returns what the last transaction observed.
    pub(crate) fn observed(&self) -> Observed {
        match self {
            Worker::Local(worker) => worker.observed(),
            Worker::Replicated(worker) => worker.observed(),
        }
    }

    /// Starts fetching the memory of these keys.
    #[inline]
    pub(crate) fn prefetch(&mut self, keys: &[&[u8]]) {
        match self {
            Worker::Local(worker) => worker.prefetch(keys),
            Worker::Replicated(worker) => worker.prefetch(keys.iter().copied()),
        }
    }

    /// Visits records of a view until `visit` returns `false`. `visit` gets what the view has of each
    /// record, or `None`. Returns the key to continue from, if there are more.
    pub(crate) fn walk_snapshot(
        &mut self,
        snapshot: &Snapshot,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut dyn FnMut(Option<SnapshotEntry<'_>>) -> bool,
    ) -> Option<Vec<u8>> {
        match self {
            Worker::Local(worker) => worker.walk_snapshot(snapshot, from, to, visit),
            Worker::Replicated(worker) => worker.inner().walk_snapshot(snapshot, from, to, visit),
        }
    }

    /// Returns the transactions over several partitions that are prepared in a view; see
    /// [`store::Worker::prepared_in`]. Those of a replicated partition are not looked for.
    pub(crate) fn prepared_in(
        &mut self,
        snapshot: &Snapshot,
    ) -> Vec<(Holder, Option<Vec<Vec<u8>>>)> {
        match self {
            Worker::Local(worker) => worker.prepared_in(snapshot),
            Worker::Replicated(_) => Vec::new(),
        }
    }

    /// Looks at one key of a view. Returns `true` if the view has it.
    pub(crate) fn read_snapshot(
        &mut self,
        snapshot: &Snapshot,
        key: &[u8],
        visit: &mut dyn FnMut(SnapshotEntry<'_>),
    ) -> bool {
        let found = match self {
            Worker::Local(worker) => worker.read_snapshot(snapshot, key, visit),
            Worker::Replicated(worker) => worker.inner().read_snapshot(snapshot, key, visit),
        };
        found.is_some()
    }

    /// Returns the worker as a participant of transactions over several partitions.
    pub(crate) fn participant(&mut self) -> &mut dyn Participant {
        match self {
            Worker::Local(worker) => worker,
            Worker::Replicated(worker) => worker,
        }
    }
}
