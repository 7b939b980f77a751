//! A machine with a node: what survives a crash, and what does not.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::clock::ManualClock;
use base::{Epoch, NodeId, TransactionId};
use fabric::Inbox;
use fabric::sim::Endpoint;
use fastrand::Rng;

use super::environment::{BEGIN_MS, CallerId, Incarnation};
use super::memory_log::MemoryLog;
use super::partition_replica::PartitionReplica;
use crate::node::Node;

/// A machine: the part of it that survives a crash, and the part that does not.
pub(super) struct SimulatedMachine {
    pub(super) id: NodeId,
    pub(super) life: Incarnation,
    /// How far its clock is ahead.
    pub(super) ahead_ms: i64,
    pub(super) clock: Arc<ManualClock>,
    pub(super) log: Rc<RefCell<MemoryLog>>,
    /// The newest epoch that the log knows when it is read again.
    pub(super) newest: Epoch,
    pub(super) slow_disk: bool,
    pub(super) running: Option<MachineProcess>,
}

/// A process.
pub(super) struct MachineProcess {
    pub(super) node: Node<CallerId>,
    pub(super) partition: PartitionReplica,
    pub(super) endpoint: Endpoint,
    pub(super) inbox: Inbox,
    pub(super) is_syncing: bool,
    pub(super) wake_at: Option<Duration>,
    /// Attempts for which it has asked votes, and which it has not decided.
    pub(super) voting: BTreeSet<TransactionId>,
}

impl SimulatedMachine {
    pub(super) fn new(id: NodeId, random: &mut Rng) -> SimulatedMachine {
        SimulatedMachine {
            id,
            life: 0,
            ahead_ms: random.i64(-30..=30),
            clock: Arc::new(ManualClock::new(BEGIN_MS)),
            log: Rc::default(),
            newest: Epoch::ZERO,
            slow_disk: false,
            running: None,
        }
    }

    pub(super) fn set_clock(&self, now: Duration) {
        self.log.borrow_mut().now = now;
        let time = BEGIN_MS + now.as_millis() as u64;
        self.clock.set(time.saturating_add_signed(self.ahead_ms));
    }
}
