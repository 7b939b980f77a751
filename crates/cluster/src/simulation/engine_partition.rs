//! A partition over a real engine, whose log is a [`MemoryLog`].

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use base::clock::{Clock, ManualClock};
use base::epochs::EpochClock;
use base::limits::Limits;
use base::participant::{
    DurableEpochs, Leadership, Prepare, State, TransactionExecutor, TwoPhaseCommit,
};
use base::partition::OwnedReply;
use base::transaction::Observed;
use base::versions::{Ask, Found, ReadAtomic};
use base::{Abort, Epoch, Op, Reply, TransactionId};
use engine::{Engine, Janitor, Worker};
use fastrand::Rng;

use super::keys::READ_ATOMIC;
use super::memory_log::{MemoryLog, MemoryLogWriter};

/// A partition of the simulation.
pub(super) struct EnginePartition {
    engine: Arc<Engine>,
    worker: Worker<MemoryLogWriter>,
    janitor: Janitor,
    log: Rc<RefCell<MemoryLog>>,
    /// Transactions of this partition alone that met a hold.
    pub(super) held: u64,
    /// Prepares whose timestamp was overtaken.
    pub(super) overtaken: u64,
}

impl EnginePartition {
    /// Opens a partition with the content of its log.
    pub(super) fn open(
        log: &Rc<RefCell<MemoryLog>>,
        clock: &Arc<ManualClock>,
        newest: Epoch,
    ) -> Result<EnginePartition, String> {
        let engine = Engine::new(&engine::Options {
            workers: 1,
            clock: Arc::clone(clock) as Arc<dyn Clock>,
            limits: Limits::default(),
        });
        engine.declare_read_atomic(ReadAtomic::new([READ_ATOMIC.as_bytes()]));
        let mut restorer = engine.restorer().expect("a place is free");
        log.borrow()
            .replay(|tid, change| restorer.apply(tid, change));
        let stamp_ms = log.borrow().stamp_ms();
        let restored = engine.finish_restore(vec![restorer], newest, stamp_ms);
        restored
            .and_then(|()| engine.restore_prepared())
            .map_err(|error| error.to_string())?;
        let worker = engine
            .worker(|_| MemoryLogWriter(Rc::clone(log)))
            .expect("a place is free");
        Ok(EnginePartition {
            janitor: engine.janitor(),
            log: Rc::clone(log),
            worker,
            engine,
            held: 0,
            overtaken: 0,
        })
    }

    /// Puts keys, durably.
    pub(super) fn load(&mut self, ops: &[Op<'_>]) {
        drop(self.worker.execute(ops).expect("nothing is in the way"));
        self.synced(self.begin_sync());
    }

    /// Begins an epoch if time has passed.
    pub(super) fn refresh(&self) {
        self.worker.refresh();
    }

    /// Returns the epoch in which transactions are executed now.
    pub(super) fn current(&self) -> Epoch {
        self.engine.epochs().current()
    }

    /// Ends the current epoch. Returns the last epoch that a sync which begins now makes durable.
    pub(super) fn begin_sync(&self) -> Epoch {
        let epochs = self.engine.epochs();
        epochs.advance(epochs.current());
        epochs.finished()
    }

    /// Handles the end of a sync.
    pub(super) fn synced(&self, epoch: Epoch) {
        let mut log = self.log.borrow_mut();
        log.durable = log.durable.max(epoch);
    }

    /// Removes what is not needed any more.
    pub(super) fn tidy(&mut self) {
        let durable = self.log.borrow().durable;
        self.janitor.tidy(durable, 100);
    }

    /// Ends the process. Returns how many changes are lost, and an epoch from which a new life can go
    /// on: the journal knows at least the durable one, and perhaps later ones that were begun.
    pub(super) fn crash(self, random: &mut Rng) -> (u64, Epoch) {
        let current = self.engine.epochs().current();
        let mut log = self.log.borrow_mut();
        let lost = log.crash();
        let newest = random.u64(log.durable.0..=current.0);
        (lost, Epoch(newest))
    }
}

impl TransactionExecutor for EnginePartition {
    fn execute(
        &mut self,
        ops: &[Op<'_>],
        see: &mut dyn FnMut(&[Reply<'_>], Observed),
    ) -> Result<(), Abort> {
        let outcome = match self.worker.execute(ops) {
            Ok(committed) => {
                see(committed.replies(), committed.observed());
                Ok(())
            }
            Err(abort) => Err(abort),
        };
        self.held += u64::from(matches!(outcome, Err(Abort::Held { .. })));
        outcome
    }

    fn read_versions(
        &mut self,
        asks: &[Ask<'_>],
        see: &mut dyn FnMut(Found<'_>),
    ) -> Result<(), Abort> {
        self.worker.read_versions(asks, see);
        Ok(())
    }

    fn observed(&self) -> Observed {
        self.worker.observed()
    }

    fn time_ms(&self) -> u64 {
        self.worker.time_ms()
    }

    fn releases(&self) -> u64 {
        self.worker.releases()
    }

    fn finished(&self) -> Epoch {
        self.worker.engine().epochs().finished()
    }
}

impl TwoPhaseCommit for EnginePartition {
    fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        let outcome = self.worker.prepare(prepare);
        self.overtaken += u64::from(matches!(outcome, Err(Abort::Overtaken { .. })));
        outcome
    }

    fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.worker.commit(id)
    }

    fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.worker.abort(id)
    }

    fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort> {
        self.worker.refuse(id, until_ms)
    }

    fn forget(&mut self, id: TransactionId) -> Result<(), Abort> {
        self.worker.forget(id)
    }

    fn state(&mut self, id: TransactionId) -> (State, Epoch) {
        self.worker.state(id)
    }

    fn undecided(&mut self) -> Vec<(TransactionId, State)> {
        self.worker.undecided()
    }
}

impl DurableEpochs for EnginePartition {
    fn failed(&self) -> Option<String> {
        None
    }

    fn durable(&self) -> Epoch {
        self.log.borrow().durable
    }
}

impl Leadership for EnginePartition {}
