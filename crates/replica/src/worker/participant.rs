//! A worker as the participant of transactions over several partitions: each step is an entry.

use base::participant::{
    DurableEpochs, Leadership, Prepare, Sequenced, State, TransactionExecutor, TwoPhaseCommit,
};
use base::partition::OwnedReply;
use base::transaction::Observed;
use base::versions::{Ask, Found};
use base::{Abort, Epoch, NodeId, Op, Reply, TransactionId};

use super::{StagedStep, Worker, observed};

impl Worker {
    /// Returns the ticket of the last lookup; a lost one if the leadership has ended meanwhile.
    fn note_lookup(&mut self) -> Epoch {
        let time_ms = self.inner.observed().time_ms;
        let ticket = self.read_ticket(time_ms, 0);
        let ticket = ticket.unwrap_or_else(|| self.shared.tickets.last_lost());
        self.observed = observed(ticket, time_ms);
        ticket
    }
}

impl TransactionExecutor for Worker {
    fn execute(
        &mut self,
        ops: &[Op<'_>],
        see: &mut dyn FnMut(&[Reply<'_>], Observed),
    ) -> Result<(), Abort> {
        Worker::execute(self, ops, |replies, observed| see(replies, observed))
    }

    fn execute_once(&mut self, ops: &[Op<'_>], of: Sequenced) -> Result<Vec<OwnedReply>, Abort> {
        Worker::execute_once(self, ops, of)
    }

    fn open_session(&mut self) -> Result<u64, Abort> {
        Worker::open_session(self)
    }

    fn opened(&self, number: u64) -> Option<Result<u64, Abort>> {
        Worker::opened(self, number)
    }

    fn read_versions(
        &mut self,
        asks: &[Ask<'_>],
        see: &mut dyn FnMut(Found<'_>),
    ) -> Result<(), Abort> {
        self.begin()?;
        self.inner.read_versions(asks, see);
        self.note_lookup();
        Ok(())
    }

    fn observed(&self) -> Observed {
        self.observed
    }

    /// Returns the partition's time, or the wall clock on a member that does not lead: there the
    /// time stands still between entries, and transactions that are coordinated here should have
    /// the current time.
    fn time_ms(&self) -> u64 {
        let time_ms = self.shared.engine.time_ms();
        if self.shared.tickets.is_serving() {
            time_ms
        } else {
            time_ms.max(self.shared.time.now().wall_ms)
        }
    }

    fn releases(&self) -> u64 {
        self.shared.engine.releases()
    }

    fn finished(&self) -> Epoch {
        self.shared.engine.applied()
    }
}

impl TwoPhaseCommit for Worker {
    fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        self.step(prepare.holder.id, StagedStep::Prepare, |worker| {
            Ok((worker.stage_prepare(prepare)?, true))
        })
    }

    fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        let state = self.step(id, StagedStep::Decision, |worker| worker.stage_commit(id))?;
        Ok((state, self.observed.epoch))
    }

    fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        let state = self.step(id, StagedStep::Decision, |worker| worker.stage_abort(id))?;
        Ok((state, self.observed.epoch))
    }

    fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort> {
        let state = self.step(id, StagedStep::Note, |worker| {
            worker.stage_refuse(id, until_ms)
        })?;
        Ok((state, self.observed.epoch))
    }

    fn forget(&mut self, id: TransactionId) -> Result<(), Abort> {
        self.step(id, StagedStep::Note, |worker| worker.stage_forget(id))
            .map(|_| ())
    }

    fn state(&mut self, id: TransactionId) -> (State, Epoch) {
        // On a member that does not lead, the answer means nothing.
        let _ = self.begin();
        let (state, _) = self.inner.state(id);
        (state, self.note_lookup())
    }

    fn undecided(&mut self) -> Vec<(TransactionId, State)> {
        if self.begin().is_err() {
            return Vec::new();
        }
        let undecided = self.inner.undecided();
        self.note_lookup();
        undecided
    }
}

impl DurableEpochs for Worker {
    fn failed(&self) -> Option<String> {
        self.shared.failed()
    }

    fn durable(&self) -> Epoch {
        self.shared.tickets.resolved()
    }

    fn is_lost(&self, epoch: Epoch) -> bool {
        self.shared.tickets.is_lost(epoch) || epoch > self.durable() && self.failed().is_some()
    }
}

impl Leadership for Worker {
    fn leads(&self) -> Result<(), Option<NodeId>> {
        match Worker::leads(self) {
            Err(Abort::Elsewhere { leader }) => Err(leader),
            _ => Ok(()),
        }
    }

    fn leadership(&self) -> u64 {
        self.shared.tickets.leaderships()
    }
}
