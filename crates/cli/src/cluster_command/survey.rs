//! What the nodes of a cluster say, all asked at once.

use base::{NodeId, PartitionId};
use cluster::Topology;
use cluster::topology::{NodeInfo, PartitionInfo};
use server::replication::{ALONE, LEADER, Member, Report};

use crate::ask::Asked;

/// What the nodes of one partition say.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) partitions: Vec<Surveyed>,
}

/// A partition and what its nodes say.
#[derive(Debug)]
pub(super) struct Surveyed {
    pub(super) partition: PartitionInfo,
    /// In the order of the file: the node, and its report or why there is none.
    pub(super) nodes: Vec<(NodeInfo, Result<Report, String>)>,
}

impl Survey {
    /// Asks all nodes that hold a partition, or those of one.
    pub(super) fn take(
        topology: &Topology,
        only: Option<PartitionId>,
        password: Option<&str>,
    ) -> Survey {
        let wanted = |one: &&PartitionInfo| only.is_none_or(|only| one.id == only);
        let partitions = topology.partitions().iter().filter(wanted);
        let partitions = partitions.map(|one| Surveyed::take(topology, one, password));
        Survey {
            partitions: partitions.collect(),
        }
    }

    /// What is wrong, said for people.
    pub(super) fn problems(&self) -> Vec<String> {
        let partitions = self.partitions.iter();
        partitions.flat_map(Surveyed::problems).collect()
    }
}

impl Surveyed {
    /// Asks the nodes of a partition.
    pub(super) fn take(
        topology: &Topology,
        partition: &PartitionInfo,
        password: Option<&str>,
    ) -> Surveyed {
        let infos = partition.nodes.iter().filter_map(|id| topology.node(*id));
        let nodes = std::thread::scope(|scope| {
            let asking: Vec<_> = infos
                .map(|info| (*info, scope.spawn(move || ask(info, password))))
                .collect();
            let told = asking.into_iter().map(|(info, asking)| {
                let report = asking.join();
                (info, report.expect("asking a node returns errors"))
            });
            told.collect()
        });
        Surveyed {
            partition: partition.clone(),
            nodes,
        }
    }

    /// The leader's report: of several who say that they lead, that of the newest term.
    pub(super) fn leader(&self) -> Option<&Report> {
        let reports = self.reports();
        let leading = reports.filter(|report| report.role == LEADER || report.role == ALONE);
        leading.max_by_key(|report| report.term)
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = &Report> {
        self.nodes.iter().filter_map(|(_, said)| said.as_ref().ok())
    }

    /// A node and what it says.
    pub(super) fn node(&self, id: NodeId) -> Option<&(NodeInfo, Result<Report, String>)> {
        self.nodes.iter().find(|(info, _)| info.id == id)
    }

    /// The member that the leader sees on a node; of several, the one with a vote, or the newest.
    pub(super) fn member(&self, node: NodeId) -> Option<&Member> {
        let members = self.leader()?.members.iter();
        let there = members.filter(|member| member.node == node.0);
        there.max_by_key(|member| (member.active, member.voter, member.id))
    }

    /// Whether the leader has a place for the node that has no vote yet.
    pub(super) fn is_learner(&self, node: NodeId) -> bool {
        let leader = self.leader().filter(|leader| leader.role != ALONE);
        leader.is_some_and(|leader| {
            let mut members = leader.members.iter();
            members.any(|member| member.node == node.0 && !member.voter)
        })
    }

    /// What is wrong, said for people.
    pub(super) fn problems(&self) -> Vec<String> {
        let id = self.partition.id;
        let mut problems = Vec::new();
        for (info, said) in &self.nodes {
            match said {
                Err(error) => problems.push(format!("node {}: {error}", info.id)),
                Ok(report) if report.partition != id.0 => problems.push(format!(
                    "node {} says that it holds partition {}: it was started with another file",
                    info.id, report.partition
                )),
                Ok(_) => {}
            }
        }
        let Some(leader) = self.leader() else {
            problems.push(self.without_leader());
            return problems;
        };
        if leader.role == ALONE {
            return problems;
        }
        for (info, said) in &self.nodes {
            let voter = self.member(info.id).is_some_and(|member| member.voter);
            let heard = self.member(info.id).is_some_and(|member| member.active);
            match said {
                Ok(report) if report.role == "blank" || report.role == "removed" => {
                    problems.push(format!(
                        "node {} is {}: kumiki cluster add --node {} has it take part again",
                        info.id, report.role, info.id
                    ));
                }
                Ok(report) if report.role == "stopped" => problems.push(format!(
                    "node {} has stopped: {}; mend that, and restart its process",
                    info.id,
                    report.note.as_deref().unwrap_or("its log says why")
                )),
                Ok(_) if !voter => problems.push(format!(
                    "node {} has no vote yet: if nobody is adding it at the moment, kumiki cluster \
                     add --node {} goes on with it, and kumiki cluster remove gives it up",
                    info.id, info.id
                )),
                Ok(_) if !heard && info.id.0 != leader.node => problems.push(format!(
                    "node {} answers here, and the leader, node {}, does not hear it: look at the \
                     network between their replica addresses",
                    info.id, leader.node
                )),
                _ => {}
            }
        }
        problems
    }

    /// What to do when nobody leads.
    pub(super) fn without_leader(&self) -> String {
        let (id, all) = (self.partition.id, self.nodes.len());
        let answering = self.reports().count();
        let majority = all / 2 + 1;
        if answering < majority {
            return format!(
                "partition {id} has no leader: {answering} of its {all} nodes answer, and {majority} \
                 must; start the others"
            );
        }
        format!(
            "partition {id} has no leader at the moment, though {answering} of its {all} nodes answer: \
             ask again in a few seconds; if it stays so, look at the nodes' logs"
        )
    }
}

fn ask(info: &NodeInfo, password: Option<&str>) -> Result<Report, String> {
    Asked::connect(info.client, password)?.report()
}
