//! The reports of the nodes of a cluster, which are requested at the same time.

use base::{NodeId, PartitionId};
use cluster::Topology;
use cluster::topology::{NodeInfo, PartitionInfo};
use server::replication::{ALONE, LEADER, Member, Report};

use crate::node_connection::{Credentials, NodeConnection};

/// The reports of the nodes of one or all partitions.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) partitions: Vec<PartitionSurvey>,
}

/// A partition and the reports of its nodes.
#[derive(Debug)]
pub(super) struct PartitionSurvey {
    pub(super) partition: PartitionInfo,
    /// In the order of the file: the node, and its report or the reason why there is none.
    pub(super) nodes: Vec<(NodeInfo, Result<Report, String>)>,
}

impl Survey {
    /// Asks all nodes that hold a partition, or those of one partition.
    pub(super) fn take(
        topology: &Topology,
        only: Option<PartitionId>,
        credentials: &Credentials,
    ) -> Survey {
        let wanted = |one: &&PartitionInfo| only.is_none_or(|only| one.id == only);
        let partitions = topology.partitions().iter().filter(wanted);
        let partitions = partitions.map(|one| PartitionSurvey::take(topology, one, credentials));
        Survey {
            partitions: partitions.collect(),
        }
    }

    /// Describes all problems for people.
    pub(super) fn problems(&self) -> Vec<String> {
        let partitions = self.partitions.iter();
        partitions.flat_map(PartitionSurvey::problems).collect()
    }
}

impl PartitionSurvey {
    /// Asks the nodes of a partition.
    pub(super) fn take(
        topology: &Topology,
        partition: &PartitionInfo,
        credentials: &Credentials,
    ) -> PartitionSurvey {
        let infos = partition.nodes.iter().filter_map(|id| topology.node(*id));
        let nodes = std::thread::scope(|scope| {
            let asking: Vec<_> = infos
                .map(|info| (*info, scope.spawn(move || ask(info, credentials))))
                .collect();
            let told = asking.into_iter().map(|(info, asking)| {
                let report = asking.join();
                (info, report.expect("asking a node returns errors"))
            });
            told.collect()
        });
        PartitionSurvey {
            partition: partition.clone(),
            nodes,
        }
    }

    /// Returns the leader's report; if several nodes say that they lead, that of the newest term.
    pub(super) fn leader(&self) -> Option<&Report> {
        let reports = self.reports();
        let leading = reports.filter(|report| report.role == LEADER || report.role == ALONE);
        leading.max_by_key(|report| report.term)
    }

    pub(super) fn reports(&self) -> impl Iterator<Item = &Report> {
        self.nodes.iter().filter_map(|(_, said)| said.as_ref().ok())
    }

    /// Returns a node and its report.
    pub(super) fn node(&self, id: NodeId) -> Option<&(NodeInfo, Result<Report, String>)> {
        self.nodes.iter().find(|(info, _)| info.id == id)
    }

    /// Returns the member that the leader sees on a node; of several, the one with a vote, or the
    /// newest.
    pub(super) fn member(&self, node: NodeId) -> Option<&Member> {
        let members = self.leader()?.members.iter();
        let there = members.filter(|member| member.node == node.0);
        there.max_by_key(|member| (member.active, member.voter, member.id))
    }

    /// Returns `true` if the leader lists the node as a member without a vote.
    pub(super) fn is_learner(&self, node: NodeId) -> bool {
        let leader = self.leader().filter(|leader| leader.role != ALONE);
        leader.is_some_and(|leader| {
            let mut members = leader.members.iter();
            members.any(|member| member.node == node.0 && !member.voter)
        })
    }

    /// Describes the problems of the partition for people.
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
            let is_listed = leader.members.iter().any(|one| one.node == info.id.0);
            let voter = self.member(info.id).is_some_and(|member| member.voter);
            let heard = self.member(info.id).is_some_and(|member| member.active);
            match said {
                Ok(report) if report.role == "blank" => problems.push(format!(
                    "node {} is blank: kumiki cluster add --node {} has it take part again",
                    info.id, info.id
                )),
                Ok(report) if report.role == "stopped" => {
                    problems.push(format!("node {} has stopped: {}", info.id, stopped(report)));
                }
                Ok(report) if report.role == REMOVED || !is_listed => problems.push(format!(
                    "node {} was removed: {}",
                    info.id,
                    self.add_again(info.id)
                )),
                Ok(_) if !voter => problems.push(format!(
                    "node {} has no vote yet: if it is not being added at the moment, kumiki cluster \
                     add --node {} goes on with it, and kumiki cluster remove gives it up",
                    info.id, info.id
                )),
                Ok(report) if !heard && info.id.0 != leader.node => problems.push(format!(
                    "node {} answers here, and the leader, node {}, does not hear it: {}",
                    info.id,
                    leader.node,
                    why_unheard(info.id, report, leader)
                )),
                _ => {}
            }
        }
        for report in self.reports().filter(|one| one.role != "blank") {
            if let Some(note) = &report.note
                && !problems.iter().any(|problem| problem.contains(note))
            {
                problems.push(format!("node {}: {note}", report.node));
            }
        }
        problems
    }

    /// Returns advice for a partition without a leader.
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
        let notes = self.reports().filter_map(|report| {
            let note = report.note.as_deref()?;
            Some(format!("; node {} says: {note}", report.node))
        });
        format!(
            "partition {id} has no leader at the moment, though {answering} of its {all} nodes answer: \
             ask again in a few seconds; if it stays so, look at the nodes' logs{}",
            notes.collect::<String>()
        )
    }

    /// Returns advice for a node that was removed.
    pub(super) fn add_again(&self, node: NodeId) -> String {
        format!(
            "delete its data directory while it is stopped, start it again, and run kumiki cluster add \
             --node {node}; or take it out of the cluster's file"
        )
    }

    /// Returns a node's role: the one that it reports, unless it does not know yet that it was
    /// removed.
    pub(super) fn role<'a>(&self, report: &'a Report) -> &'a str {
        let knows = matches!(report.role.as_str(), "blank" | "stopped" | ALONE);
        match self.leader() {
            Some(leader) if !knows && leader.role != ALONE => {
                let mut members = leader.members.iter();
                match members.any(|member| member.node == report.node) {
                    true => &report.role,
                    false => REMOVED,
                }
            }
            _ => &report.role,
        }
    }
}

/// The role of a node that is no member any more.
pub(super) const REMOVED: &str = "removed";

/// Returns the reason why a node has stopped, and what to do.
pub(super) fn stopped(report: &Report) -> String {
    match report.note.as_deref() {
        // This note already says what to do, and a restart does not help.
        Some(note) if note.contains("kumiki cluster add") => note.to_owned(),
        note => format!(
            "{}; mend that, and restart its process",
            note.unwrap_or("its log says why")
        ),
    }
}

/// Returns the reason why a leader does not hear from a node, as far as one of them reports it.
fn why_unheard(node: NodeId, report: &Report, leader: &Report) -> String {
    let about_node = format!("no link to node {node}:");
    let leaders = leader
        .note
        .as_ref()
        .filter(|note| note.contains(&about_node));
    match report.note.as_ref().or(leaders) {
        Some(note) => note.clone(),
        None => "look at the network between their replica addresses".to_owned(),
    }
}

fn ask(info: &NodeInfo, credentials: &Credentials) -> Result<Report, String> {
    NodeConnection::to_node(info, credentials)?.report()
}
