//! The leader of each partition, as far as this process knows.
//!
//! A partition of one node is led by it. Of a replicated partition the file only says which nodes may
//! lead. The process learns the leader from its own member, from nodes that serve requests, and from
//! nodes that name another one. While no leader is known, and when the supposed one cannot be reached,
//! the members are asked in turn, so that a search ends.
//!
//! Concurrency: all threads of a process share one. Each partition's knowledge is one atomic word that
//! hints at a node to ask; a node that is asked in error says so. So no order between words matters, and
//! all accesses are relaxed.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use base::{NodeId, PartitionId};

use crate::topology::Topology;

/// The leaders of all partitions, as far as they are known.
#[derive(Debug)]
pub struct Leaders {
    /// The partitions, in the order of their ids.
    partitions: Vec<PartitionLeader>,
}

#[derive(Debug)]
struct PartitionLeader {
    of: PartitionId,
    nodes: Vec<NodeId>,
    /// The leader's id; 0 while none is known. Nodes have ids from 1 on.
    leader: AtomicU16,
    /// The member to be asked next while no leader is known.
    next: AtomicUsize,
}

const NO_LEADER: u16 = 0;

impl Leaders {
    /// Creates the list; no leader of a replicated partition is known yet.
    #[must_use]
    pub fn new(topology: &Topology) -> Leaders {
        let entry = |one: &crate::topology::PartitionInfo| PartitionLeader {
            of: one.id,
            nodes: one.nodes.clone(),
            leader: AtomicU16::new(match one.nodes[..] {
                [only] => only.0,
                _ => NO_LEADER,
            }),
            next: AtomicUsize::new(0),
        };
        Leaders {
            partitions: topology.partitions().iter().map(entry).collect(),
        }
    }

    fn entry(&self, of: PartitionId) -> &PartitionLeader {
        let at = self.partitions.binary_search_by_key(&of, |entry| entry.of);
        &self.partitions[at.expect("a partition of this cluster")]
    }

    /// Returns the node that is believed to lead a partition.
    ///
    /// # Panics
    /// If the cluster's file has no such partition. The other methods panic, too.
    #[must_use]
    pub fn leader(&self, of: PartitionId) -> Option<NodeId> {
        let leader = self.entry(of).leader.load(Ordering::Relaxed);
        (leader != NO_LEADER).then_some(NodeId(leader))
    }

    /// Notes the leader of a partition, or that none is known. Impossible news are ignored: a partition
    /// of one node is led by that node, and others by one of their nodes.
    pub fn learn(&self, of: PartitionId, leader: Option<NodeId>) {
        let entry = self.entry(of);
        let may_lead = leader.is_none_or(|leader| entry.nodes.contains(&leader));
        if entry.nodes.len() > 1 && may_lead {
            let leader = leader.map_or(NO_LEADER, |leader| leader.0);
            entry.leader.store(leader, Ordering::Relaxed);
        }
    }

    /// Notes what a node that does not lead has said of the leader.
    pub fn redirect(&self, of: PartitionId, asked: NodeId, leader: Option<NodeId>) {
        match leader {
            Some(leader) => self.learn(of, Some(leader)),
            None => self.doubt(of, asked),
        }
    }

    /// Notes that a node has served a request to a partition. If another node is believed to lead, that
    /// may be newer.
    pub fn served(&self, of: PartitionId, node: NodeId) {
        if self.leader(of).is_none() {
            self.learn(of, Some(node));
        }
    }

    /// Notes that a node does not lead a partition, or cannot be reached, if it was believed to lead.
    pub fn doubt(&self, of: PartitionId, node: NodeId) {
        if self.leader(of) == Some(node) {
            self.learn(of, None);
        }
    }

    /// Returns `true` if several nodes may lead a partition.
    #[must_use]
    pub fn is_replicated(&self, of: PartitionId) -> bool {
        self.entry(of).nodes.len() > 1
    }

    /// Returns the node to ask for a partition: its leader, or the next one to try. `me` knows that it
    /// does not lead, and is not returned if there are others.
    #[must_use]
    pub fn find(&self, of: PartitionId, me: NodeId) -> NodeId {
        if let Some(leader) = self.leader(of).filter(|leader| *leader != me) {
            return leader;
        }
        let entry = self.entry(of);
        let next = || entry.nodes[entry.next.fetch_add(1, Ordering::Relaxed) % entry.nodes.len()];
        let first = next();
        if first == me { next() } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{NodeInfo, even};

    const ONE: PartitionId = PartitionId(1);
    const OTHER: PartitionId = PartitionId(2);

    fn leaders(nodes: u16, replicas: usize) -> Leaders {
        let info = |id: u16| NodeInfo {
            id: NodeId(id),
            client: ([127, 0, 0, 1], 7000 + id).into(),
            tls: None,
            fabric: ([127, 0, 0, 1], 17000 + id).into(),
            replica: Some(([127, 0, 0, 1], 27000 + id).into()),
        };
        let nodes: Vec<NodeInfo> = (1..=nodes).map(info).collect();
        Leaders::new(&Topology::parse(&even(&nodes, replicas, None), "even").unwrap())
    }

    #[test]
    fn a_single_nodes_partition_is_always_its_own() {
        let leaders = leaders(2, 1);
        for doubtful in [None, Some(NodeId(2)), Some(NodeId(9))] {
            leaders.learn(ONE, doubtful);
            leaders.doubt(ONE, NodeId(1));
            assert_eq!(leaders.leader(ONE), Some(NodeId(1)));
            assert_eq!(leaders.find(ONE, NodeId(2)), NodeId(1));
        }
    }

    #[test]
    fn a_search_asks_every_other_member_in_turn_until_one_is_known() {
        let leaders = leaders(6, 3);
        let mut asked: Vec<_> = (0..3).map(|_| leaders.find(OTHER, NodeId(1)).0).collect();
        asked.sort_unstable();
        assert_eq!(asked, [4, 5, 6]);
        let asked: Vec<_> = (0..6).map(|_| leaders.find(OTHER, NodeId(5)).0).collect();
        assert!(!asked.contains(&5) && asked.contains(&4) && asked.contains(&6));
        leaders.learn(OTHER, Some(NodeId(6)));
        assert_eq!(
            (0..3)
                .map(|_| leaders.find(OTHER, NodeId(5)).0)
                .sum::<u16>(),
            18
        );
        assert_eq!(
            leaders.leader(ONE),
            None,
            "the other partition is another matter"
        );
    }

    #[test]
    fn doubt_is_about_the_leader_and_nonsense_is_not_believed() {
        let leaders = leaders(6, 3);
        leaders.learn(ONE, Some(NodeId(2)));
        leaders.doubt(ONE, NodeId(3));
        leaders.learn(ONE, Some(NodeId(4)));
        leaders.redirect(ONE, NodeId(1), None);
        assert_eq!(leaders.leader(ONE), Some(NodeId(2)));
        assert_ne!(leaders.find(ONE, NodeId(2)), NodeId(2), "it knows better");
        leaders.redirect(ONE, NodeId(2), None);
        assert_eq!(leaders.leader(ONE), None);
        leaders.served(ONE, NodeId(3));
        leaders.served(ONE, NodeId(2));
        assert_eq!(leaders.leader(ONE), Some(NodeId(3)));
        leaders.redirect(ONE, NodeId(2), Some(NodeId(1)));
        assert_eq!(leaders.leader(ONE), Some(NodeId(1)));
    }
}
