//! The machines that hold a replicated partition, as a model of consensus.
//!
//! Consensus is modelled by one [`MemoryLog`]. A leader writes into it; when it is replaced, a branch of the
//! log goes on, with everything that was durable and some of the rest, in its order: a random prefix.
//! The old leader, if it does not know yet, goes on writing into a log that no machine reads.

use std::cell::RefCell;
use std::rc::Rc;

use base::{Epoch, PartitionId};

use super::memory_log::MemoryLog;
use crate::topology::{PartitionInfo, Topology};

/// The machines that hold a replicated partition.
pub(super) struct ReplicaGroup {
    pub(super) of: PartitionId,
    /// The numbers of the machines.
    pub(super) members: Vec<usize>,
    pub(super) log: Rc<RefCell<MemoryLog>>,
    /// The machine that leads.
    pub(super) leader: Option<usize>,
    /// Grows with every change of the leader.
    pub(super) term: u64,
    /// No leader has given a ticket above this one that it has led with to its end.
    pub(super) newest: Epoch,
}

impl ReplicaGroup {
    /// Returns the groups of the replicated partitions.
    pub(super) fn of_topology(topology: &Topology) -> Vec<ReplicaGroup> {
        let partitions = topology.partitions().iter();
        let replicated = partitions.filter(|one| topology.is_replicated(one.id));
        let group = |one: &PartitionInfo| ReplicaGroup {
            of: one.id,
            members: one.nodes.iter().map(|id| usize::from(id.0) - 1).collect(),
            log: Rc::default(),
            leader: None,
            term: 0,
            newest: Epoch::ZERO,
        };
        replicated.map(group).collect()
    }
}
