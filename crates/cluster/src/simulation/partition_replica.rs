//! A machine's part in a partition: all of it, or that of one of several nodes which hold it.
//!
//! Of several nodes, the leader has an engine; the others know at most which node leads. An epoch that
//! the engine has begun is a *ticket* for the caller: it resolves when a sync that began later has
//! ended, which stands for a round of consensus. So reads wait, too: a sync ends only for the leader.
//!
//! | a leader | does |
//! |---|---|
//! | is replaced and knows | drops its engine; open tickets are lost |
//! | is replaced and does not know | goes on, with tickets that will be lost |

use std::collections::BTreeMap;
use std::sync::Arc;

use base::clock::{Clock, ManualClock};
use base::participant::{
    DurableEpochs, Leadership, Prepare, State, TransactionExecutor, TwoPhaseCommit,
};
use base::partition::OwnedReply;
use base::transaction::{Holder, Observed};
use base::versions::{Ask, Found};
use base::{Abort, Epoch, NodeId, Op, Reply, Timestamp, TransactionId};

use super::engine_partition::EnginePartition;

/// A machine's part in a partition.
pub(super) struct PartitionReplica {
    /// `None` if another node leads the partition.
    led: Option<EnginePartition>,
    is_alone: bool,
    clock: Arc<ManualClock>,
    /// The node that leads instead, as far as it is known.
    pub(super) leader: Option<NodeId>,
    leadership: u64,
    /// Tickets that were lost: above the first number, up to the second.
    lost: Vec<(Epoch, Epoch)>,
    /// The durable epoch when the last leadership ended.
    durable: Epoch,
    /// Attempts of which a part is on its way into the log, with their tickets.
    staged: BTreeMap<TransactionId, Epoch>,
    /// How many syncs have brought entries into the log.
    arrived: u64,
    /// Counts of former leaderships.
    held: u64,
    overtaken: u64,
}

impl PartitionReplica {
    /// Creates the only node that holds a partition.
    pub(super) fn alone(partition: EnginePartition, clock: &Arc<ManualClock>) -> PartitionReplica {
        PartitionReplica {
            led: Some(partition),
            is_alone: true,
            ..PartitionReplica::of_several(clock)
        }
    }

    /// Creates one of several nodes, which does not lead.
    pub(super) fn of_several(clock: &Arc<ManualClock>) -> PartitionReplica {
        PartitionReplica {
            led: None,
            is_alone: false,
            clock: Arc::clone(clock),
            leader: None,
            leadership: 0,
            lost: Vec::new(),
            durable: Epoch::ZERO,
            staged: BTreeMap::new(),
            arrived: 0,
            held: 0,
            overtaken: 0,
        }
    }

    /// Makes it the leader.
    pub(super) fn lead(&mut self, partition: EnginePartition) {
        self.leadership += 1;
        self.led = Some(partition);
    }

    /// Returns its newest ticket, if it leads.
    pub(super) fn newest(&self) -> Epoch {
        self.led
            .as_ref()
            .map_or(Epoch::ZERO, EnginePartition::current)
    }

    /// Tells it that it does not lead any more.
    pub(super) fn step_down(&mut self) {
        let Some(partition) = self.led.take() else {
            return;
        };
        self.durable = partition.durable();
        self.lost.push((self.durable, partition.current()));
        self.staged.clear();
        self.held += partition.held;
        self.overtaken += partition.overtaken;
    }

    /// Returns the engine, if it leads or believes so.
    pub(super) fn led(&mut self) -> Option<&mut EnginePartition> {
        self.led.as_mut()
    }

    /// Returns the engine, as the process ends.
    pub(super) fn into_led(self) -> Option<EnginePartition> {
        self.led
    }

    /// Handles the end of a sync.
    pub(super) fn synced(&mut self, epoch: Epoch) {
        if let Some(partition) = &self.led {
            partition.synced(epoch);
            self.staged.retain(|_, ticket| *ticket > epoch);
            self.arrived += 1;
        }
    }

    /// Returns how many transactions of this partition alone met a hold, and how many prepares were
    /// overtaken.
    pub(super) fn met(&self) -> (u64, u64) {
        let led = self.led.as_ref();
        let (held, overtaken) = led.map_or((0, 0), |led| (led.held, led.overtaken));
        (self.held + held, self.overtaken + overtaken)
    }

    fn elsewhere(&self) -> Abort {
        Abort::Elsewhere {
            leader: self.leader,
        }
    }

    /// Returns the epoch that must be durable before an answer that depends on `epoch` is given.
    fn ticket(&self, epoch: Epoch) -> Epoch {
        let current = self.led.as_ref().map(EnginePartition::current);
        current.filter(|_| !self.is_alone).unwrap_or(epoch)
    }

    /// Runs a step of an attempt, which must not overtake another one on its way into the log.
    fn run_step<T>(
        &mut self,
        id: TransactionId,
        run_step: impl FnOnce(&mut EnginePartition) -> Result<T, Abort>,
    ) -> Result<(T, Epoch), Abort> {
        let elsewhere = self.elsewhere();
        let partition = self.led.as_mut().ok_or(elsewhere)?;
        if self.staged.contains_key(&id) {
            let age = Timestamp(u64::MAX);
            let by = Holder { id, age };
            return Err(Abort::Held { by });
        }
        let done = run_step(partition)?;
        let ticket = partition.current();
        if !self.is_alone {
            self.staged.insert(id, ticket);
        }
        Ok((done, ticket))
    }

    fn decide(
        &mut self,
        id: TransactionId,
        run_step: impl FnOnce(&mut EnginePartition) -> Result<(State, Epoch), Abort>,
    ) -> Result<(State, Epoch), Abort> {
        let ((state, epoch), _) = self.run_step(id, run_step)?;
        Ok((state, self.ticket(epoch)))
    }
}

impl TransactionExecutor for PartitionReplica {
    fn execute(
        &mut self,
        ops: &[Op<'_>],
        see: &mut dyn FnMut(&[Reply<'_>], Observed),
    ) -> Result<(), Abort> {
        let elsewhere = self.elsewhere();
        self.led.as_mut().ok_or(elsewhere)?.execute(ops, see)
    }

    fn read_versions(
        &mut self,
        asks: &[Ask<'_>],
        see: &mut dyn FnMut(Found<'_>),
    ) -> Result<(), Abort> {
        let elsewhere = self.elsewhere();
        self.led.as_mut().ok_or(elsewhere)?.read_versions(asks, see)
    }

    fn observed(&self) -> Observed {
        let led = self.led.as_ref();
        let observed = led.map_or(Observed::default(), TransactionExecutor::observed);
        Observed {
            epoch: self.ticket(observed.epoch),
            ..observed
        }
    }

    fn time_ms(&self) -> u64 {
        let led = self.led.as_ref();
        led.map_or_else(|| self.clock.now_ms(), TransactionExecutor::time_ms)
    }

    fn releases(&self) -> u64 {
        self.arrived + self.led.as_ref().map_or(0, TransactionExecutor::releases)
    }

    fn finished(&self) -> Epoch {
        self.led
            .as_ref()
            .map_or(Epoch::ZERO, TransactionExecutor::finished)
    }
}

impl TwoPhaseCommit for PartitionReplica {
    fn prepare(&mut self, prepare: &Prepare<'_>) -> Result<Vec<OwnedReply>, Abort> {
        let prepared = self.run_step(prepare.holder.id, |led| led.prepare(prepare))?;
        Ok(prepared.0)
    }

    fn commit(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.decide(id, |led| led.commit(id))
    }

    fn abort(&mut self, id: TransactionId) -> Result<(State, Epoch), Abort> {
        self.decide(id, |led| led.abort(id))
    }

    fn refuse(&mut self, id: TransactionId, until_ms: u64) -> Result<(State, Epoch), Abort> {
        self.decide(id, |led| led.refuse(id, until_ms))
    }

    fn forget(&mut self, id: TransactionId) -> Result<(), Abort> {
        self.run_step(id, |led| led.forget(id)).map(drop)
    }

    fn state(&mut self, id: TransactionId) -> (State, Epoch) {
        let led = self.led.as_mut().expect("only leaders are asked");
        let (state, epoch) = led.state(id);
        (state, self.ticket(epoch))
    }

    fn undecided(&mut self) -> Vec<(TransactionId, State)> {
        self.led
            .as_mut()
            .map_or(Vec::new(), TwoPhaseCommit::undecided)
    }
}

impl DurableEpochs for PartitionReplica {
    fn failed(&self) -> Option<String> {
        None
    }

    fn durable(&self) -> Epoch {
        self.led
            .as_ref()
            .map_or(self.durable, DurableEpochs::durable)
    }

    fn is_lost(&self, epoch: Epoch) -> bool {
        let mut lost = self.lost.iter();
        lost.any(|(from, to)| *from < epoch && epoch <= *to)
    }
}

impl Leadership for PartitionReplica {
    fn leads(&self) -> Result<(), Option<NodeId>> {
        match self.led {
            Some(_) => Ok(()),
            None => Err(self.leader),
        }
    }

    fn leadership(&self) -> u64 {
        self.leadership
    }
}
