//! A worker as the participant of transactions over several partitions.

use std::sync::atomic::Ordering;

use base::epochs::EpochClock;
use base::participant::{
    DurableEpochs, Leadership, Prepare, State, TransactionExecutor, TwoPhaseCommit,
};
use base::partition::OwnedReply;
use base::transaction::Observed;
use base::versions::{Ask, Found};
use base::{Abort, Epoch, Op, Reply, TransactionId};

use crate::worker::Worker;

impl Worker {
    /// Counts the end of an attempt whose state was `before`.
    fn count_ended(&self, before: &State) {
        if matches!(before, State::Prepared(_)) {
            self.db.prepared.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl TransactionExecutor for Worker {
    fn execute(
        &mut self,
        ops: &[Op<'_>],
        see: &mut dyn FnMut(&[Reply<'_>], Observed),
    ) -> Result<(), Abort> {
        let committed = Worker::execute(self, ops)?;
        see(committed.replies(), committed.observed());
        Ok(())
    }

    fn read_versions(
        &mut self,
        asks: &[Ask<'_>],
        see: &mut dyn FnMut(Found<'_>),
    ) -> Result<(), Abort> {
        self.inner.read_versions(asks, see);
        Ok(())
    }

    fn observed(&self) -> Observed {
        Worker::observed(self)
    }

    fn time_ms(&self) -> u64 {
        self.inner.time_ms()
    }

    fn releases(&self) -> u64 {
        self.db.releases()
    }

    fn finished(&self) -> Epoch {
        self.inner.engine().epochs().finished()
    }
}

impl TwoPhaseCommit for Worker {
    fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        let replies = self.inner.prepare(prepare)?;
        self.db.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(replies)
    }

    fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        let ended = self.inner.commit(id)?;
        self.count_ended(&ended.0);
        Ok(ended)
    }

    fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        let ended = self.inner.abort(id)?;
        self.count_ended(&ended.0);
        Ok(ended)
    }

    fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort> {
        self.inner.refuse(id, until_ms)
    }

    fn forget(&mut self, id: TransactionId) -> Result<(), Abort> {
        self.inner.forget(id)
    }

    fn state(&mut self, id: TransactionId) -> (State, Epoch) {
        self.inner.state(id)
    }

    fn undecided(&mut self) -> Vec<(TransactionId, State)> {
        self.inner.undecided()
    }
}

impl DurableEpochs for Worker {
    fn failed(&self) -> Option<String> {
        let journal = self.db.journal.as_ref();
        journal?.trouble().map(|failed| failed.to_string())
    }

    fn durable(&self) -> Epoch {
        self.db.durable_epoch()
    }
}

impl Leadership for Worker {}
