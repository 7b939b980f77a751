//! What the server serves: the partition behind it, of whatever kind, and a runtime's way into it.
//!
//! | kind | what a reply waits for | what may become of that |
//! |---|---|---|
//! | local | an epoch, to become durable | the log fails: no later epoch ever will be |
//!
//! Both kinds are told apart by one branch, which always goes the same way: a server serves one
//! partition for as long as it lives.

use std::time::Duration;

use base::participant::{Participant, Prepare, State};
use base::partition::OwnedReply;
use base::transaction::Observed;
use base::{Abort, Epoch, Op, Reply, TransactionId};
use store::{
    CheckpointError, CheckpointRefused, CheckpointReport, CheckpointStatus, Db, Durable,
    RecoveryReport, Snapshot, SnapshotEntry, Stats,
};

use crate::keys::KeysTask;

/// What the server serves.
#[derive(Clone)]
pub enum Partition {
    /// On this node alone.
    Local(Db),
}

impl From<Db> for Partition {
    fn from(db: Db) -> Partition {
        Partition::Local(db)
    }
}

impl Partition {
    /// A worker for one thread, or `None` when all are taken.
    pub(crate) fn worker(&self) -> Option<Worker> {
        match self {
            Partition::Local(db) => db.worker().map(Worker::Local),
        }
    }

    /// The worker with this number, or `None` when someone has it.
    pub(crate) fn worker_at(&self, index: usize) -> Option<Worker> {
        match self {
            Partition::Local(db) => db.worker_at(index).map(Worker::Local),
        }
    }

    /// How far durability has come.
    pub(crate) fn durable(&self) -> Durable {
        match self {
            Partition::Local(db) => db.durable(),
        }
    }

    /// The epoch of [`Partition::durable`].
    #[inline]
    pub(crate) fn durable_epoch(&self) -> Epoch {
        match self {
            Partition::Local(db) => db.durable_epoch(),
        }
    }

    /// Whether an epoch can be lost and a later one not.
    pub(crate) fn can_lose(&self) -> bool {
        match self {
            Partition::Local(_) => false,
        }
    }

    /// Whether it will never be known that `epoch` is durable. Ask this before durability, which can
    /// have passed the epoch.
    pub(crate) fn is_lost(&self, _epoch: Epoch) -> bool {
        match self {
            Partition::Local(_) => false,
        }
    }

    /// Says that someone waits for `epoch`.
    pub(crate) fn request_durable(&self, epoch: Epoch) {
        match self {
            Partition::Local(db) => db.request_durable(epoch),
        }
    }

    /// Makes `epoch` durable on this thread, if it can do that at once. Returns whether it has.
    pub(crate) fn sync_inline(&self, epoch: Epoch) -> bool {
        match self {
            Partition::Local(db) => db.sync_inline(epoch),
        }
    }

    /// Calls `notify` whenever there is news of what replies wait for.
    pub(crate) fn on_durable(&self, notify: Box<dyn Fn() + Send + Sync>) {
        match self {
            Partition::Local(db) => db.on_durable(notify),
        }
    }

    /// Calls `notify` whenever holds have been given back.
    pub(crate) fn on_release(&self, notify: Box<dyn Fn() + Send + Sync>) {
        match self {
            Partition::Local(db) => db.on_release(notify),
        }
    }

    /// How often holds have been given back.
    #[inline]
    pub(crate) fn releases(&self) -> u64 {
        match self {
            Partition::Local(db) => db.releases(),
        }
    }

    /// A consistent view of all keys.
    pub(crate) fn snapshot(&self) -> Snapshot {
        match self {
            Partition::Local(db) => db.snapshot(),
        }
    }

    /// Bytes of all that is in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Partition::Local(db) => db.memory_bytes(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match self {
            Partition::Local(db) => db.stats(),
        }
    }

    /// What was found at the start.
    pub(crate) fn recovery(&self) -> &RecoveryReport {
        match self {
            Partition::Local(db) => db.recovery(),
        }
    }

    /// What is known about checkpoints.
    pub(crate) fn checkpoint_status(&self) -> CheckpointStatus {
        match self {
            Partition::Local(db) => db.checkpoint_status(),
        }
    }

    /// Begins a checkpoint in the background.
    pub(crate) fn request_checkpoint(&self) -> Result<(), CheckpointRefused> {
        match self {
            Partition::Local(db) => db.request_checkpoint(),
        }
    }

    /// Makes a checkpoint, and waits for it.
    pub(crate) fn checkpoint(&self) -> Result<CheckpointReport, CheckpointError> {
        match self {
            Partition::Local(db) => db.checkpoint(),
        }
    }
}

/// A runtime's way into the partition.
#[allow(clippy::large_enum_variant)] // Each runtime has one, for ever.
pub(crate) enum Worker {
    Local(store::Worker),
}

impl Worker {
    /// Brings its time up to date; once before a batch.
    #[inline]
    pub(crate) fn refresh(&self) {
        match self {
            Worker::Local(worker) => worker.refresh(),
        }
    }

    /// Executes operations as one transaction. `see` gets the replies, which may be told once the
    /// epoch that is returned is durable. What is only read may be as old as `stale`, if that is
    /// given and another node leads.
    ///
    /// # Errors
    /// The [`Abort`] says why nothing has happened; [`Worker::observed`] what that depends on.
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
        }
    }

    /// Whether operations are executed once they have gone through consensus, so that they are to be
    /// proposed.
    #[inline]
    pub(crate) fn executes_later(&self, _ops: &[Op<'_>]) -> bool {
        match self {
            Worker::Local(_) => false,
        }
    }

    /// Has operations go through consensus before they are executed. Their outcome is known under
    /// the number that is returned, once [`Worker::observed`] has come.
    ///
    /// # Errors
    /// The [`Abort`] says why that does not begin.
    pub(crate) fn propose(&mut self, _ops: &[Op<'_>]) -> Result<u64, Abort> {
        match self {
            Worker::Local(_) => unreachable!("a local partition executes at once"),
        }
    }

    /// What became of what was proposed; once, and only when that is known.
    pub(crate) fn outcome(&mut self, _number: u64) -> Option<Result<Vec<OwnedReply>, Abort>> {
        match self {
            Worker::Local(_) => None,
        }
    }

    /// Whether what a walk through a view would find may be shown here.
    ///
    /// # Errors
    /// [`Abort::Elsewhere`] if not.
    pub(crate) fn check_view(&mut self, _stale: Option<Duration>) -> Result<Epoch, Abort> {
        match self {
            Worker::Local(_) => Ok(Epoch::ZERO),
        }
    }

    /// When what a walk through a view has found may be shown.
    ///
    /// # Errors
    /// [`Abort::Elsewhere`] if never, because another node leads.
    pub(crate) fn epoch_of(
        &mut self,
        keys: &KeysTask,
        stale: Option<Duration>,
    ) -> Result<Epoch, Abort> {
        match self {
            Worker::Local(_) => Ok(keys.epoch()),
        }
    }

    /// What the last transaction observed.
    pub(crate) fn observed(&self) -> Observed {
        match self {
            Worker::Local(worker) => worker.observed(),
        }
    }

    /// Starts fetching the memory of these keys.
    #[inline]
    pub(crate) fn prefetch(&mut self, keys: &[&[u8]]) {
        match self {
            Worker::Local(worker) => worker.prefetch(keys),
        }
    }

    /// Visits keys of a view, `limit` records at most. Returns the key to go on from, if there is
    /// more.
    pub(crate) fn scan_snapshot(
        &mut self,
        snapshot: &Snapshot,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
        visit: &mut dyn FnMut(SnapshotEntry<'_>),
    ) -> Option<Vec<u8>> {
        match self {
            Worker::Local(worker) => worker.scan_snapshot(snapshot, from, to, limit, visit),
        }
    }

    fn participant(&self) -> &dyn Participant {
        match self {
            Worker::Local(worker) => worker,
        }
    }

    fn participant_mut(&mut self) -> &mut dyn Participant {
        match self {
            Worker::Local(worker) => worker,
        }
    }
}

impl Participant for Worker {
    fn execute(
        &mut self,
        ops: &[Op<'_>],
        see: &mut dyn FnMut(&[Reply<'_>], Observed),
    ) -> Result<(), Abort> {
        self.participant_mut().execute(ops, see)
    }

    fn observed(&self) -> Observed {
        self.participant().observed()
    }

    fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        self.participant_mut().prepare(prepare)
    }

    fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.participant_mut().commit(id)
    }

    fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.participant_mut().abort(id)
    }

    fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort> {
        self.participant_mut().refuse(id, until_ms)
    }

    fn forget(&mut self, id: TransactionId) -> Result<(), Abort> {
        self.participant_mut().forget(id)
    }

    fn state(&mut self, id: TransactionId) -> (State, Epoch) {
        self.participant_mut().state(id)
    }

    fn undecided(&mut self) -> Vec<(TransactionId, State)> {
        self.participant_mut().undecided()
    }

    fn time_ms(&self) -> u64 {
        self.participant().time_ms()
    }

    fn releases(&self) -> u64 {
        self.participant().releases()
    }

    fn finished(&self) -> Epoch {
        self.participant().finished()
    }

    fn failed(&self) -> Option<String> {
        self.participant().failed()
    }

    fn durable(&self) -> Epoch {
        self.participant().durable()
    }

    fn is_lost(&self, epoch: Epoch) -> bool {
        self.participant().is_lost(epoch)
    }
}
