//! An administrator who changes the members: removes nodes, adds them again, and hands over the
//! leadership. At the end all nodes are members.

use std::time::Duration;

use ::simulation::draw;

use super::reached::Point;
use super::volume::SimulatedDisk;
use super::world::{SimulatedEvent, World, all};
use crate::membership::{ChangeAnswer, MembershipChange};
use crate::status::{Role, Status};

/// The interval at which the administrator looks at the members.
const PAUSE: Duration = Duration::from_millis(20);

impl World {
    pub(super) fn administer(&mut self) {
        self.after(PAUSE, SimulatedEvent::Administrator);
        self.hear_of_change();
        if !self.run_end.opened || self.admin.pending.is_some() {
            return;
        }
        if self.is_calm() || self.random.u8(..6) == 0 {
            return self.mend();
        }
        if draw::chance(&mut self.random, self.plan.faults.change) {
            let nodes = self.nodes.len();
            let node = self.random.usize(..nodes);
            let id = self.nodes[node].id;
            let change = match self.random.u8(..3) {
                0 if self.may_lose() && !self.admin.out.contains(&node) => {
                    self.admin.out.push(node);
                    MembershipChange::Remove(id)
                }
                0 | 1 => MembershipChange::Transfer(Some(id)),
                _ => MembershipChange::Transfer(None),
            };
            self.change(change);
        }
    }

    /// Returns `true` if a majority is left if one more node is away for long.
    pub(super) fn may_lose(&self) -> bool {
        let others = (0..self.nodes.len()).filter(|node| !self.admin.out.contains(node));
        let mut roles = others.map(|node| self.status(node).map(|status| status.role));
        let no_vote = [Role::Blank, Role::Learner, Role::Removed];
        if roles.any(|role| role.is_none_or(|role| no_vote.contains(&role))) {
            return false;
        }
        let spares = self.nodes.len() - self.plan.founders;
        let founders = self
            .admin
            .out
            .iter()
            .filter(|node| **node < self.plan.founders);
        spares == 0 && founders.count() < (self.plan.founders - 1) / 2
            || spares > 0 && self.admin.out.is_empty() && self.admin.enlarged
    }

    fn hear_of_change(&mut self) {
        let Some((change, answer)) = &self.admin.pending else {
            return;
        };
        let outcome = answer.lock().clone();
        let change = *change;
        // The node that was asked may be gone.
        let leader = self.leader();
        if outcome.is_none() && leader.is_some() && self.random.u8(..200) > 0 {
            return;
        }
        self.admin.pending = None;
        let told = outcome
            .clone()
            .map(|done| done.map_err(|error| error.to_string()));
        self.note(format_args!("{change:?}: {told:?}"));
        match (change, outcome) {
            (MembershipChange::Add(node), Some(Ok(()))) => {
                let node = usize::from(node.0) - 1;
                self.nodes[node].lost_disk = false;
                self.admin.out.retain(|out| *out != node);
                self.reached.hit(Point::Added);
            }
            (MembershipChange::Remove(_), Some(Ok(()))) => self.reached.hit(Point::Removed),
            (MembershipChange::Transfer(_), Some(Ok(()))) => self.reached.hit(Point::HandedOver),
            _ => {}
        }
    }

    pub(super) fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|node| self.nodes[*node].leads())
    }

    fn change(&mut self, change: MembershipChange) {
        let Some(leader) = self.leader() else { return };
        self.note(format_args!("node {} is told to {change:?}", leader + 1));
        let answer = ChangeAnswer::default();
        let running = self.nodes[leader].running.as_mut().expect("it leads");
        running.member.change(change, ChangeAnswer::clone(&answer));
        self.admin.pending = Some((change, answer));
        self.plan_turn(leader, Duration::ZERO);
    }

    fn status(&self, node: usize) -> Option<Status> {
        let running = self.nodes[node].running.as_ref()?;
        Some(running.shared.status.lock().clone())
    }

    /// Returns `true` if every node is a member with a vote.
    pub(super) fn is_whole(&self) -> bool {
        let Some(status) = self.leader().and_then(|leader| self.status(leader)) else {
            return false;
        };
        let is_voter = |node: usize| {
            self.status(node).is_some_and(|own| {
                let mut members = status.members.iter();
                members.any(|one| one.raft_id == own.raft_id && one.voter)
            })
        };
        self.admin.pending.is_none()
            && status.members.len() == self.nodes.len()
            && (0..self.nodes.len()).all(is_voter)
    }

    /// Adds a node that is not a member.
    fn mend(&mut self) {
        if !self.enlarge() {
            return;
        }
        let Some(leader) = self.leader() else { return };
        let Some(status) = self.status(leader) else {
            return;
        };
        if status.applied != status.last {
            return;
        }
        // Nodes that wait come first: others need their votes.
        let is_blank = |node: &usize| {
            self.status(*node)
                .is_some_and(|one| one.role == Role::Blank)
        };
        if let Some(node) = (0..self.nodes.len()).find(is_blank) {
            // Until the node's new vote has replaced the old one, the group cannot lose another
            // node.
            if !self.admin.out.contains(&node) {
                self.admin.out.push(node);
            }
            return self.change(MembershipChange::Add(self.nodes[node].id));
        }
        for node in 0..self.nodes.len() {
            let Some(own) = self.status(node) else {
                continue;
            };
            let id = self.nodes[node].id;
            let of_node = status.members.iter().filter(|one| one.node == id);
            let numbers: Vec<_> = of_node.map(|one| (one.raft_id, one.voter)).collect();
            if numbers == [(own.raft_id, true)] {
                self.admin.out.retain(|out| *out != node);
                continue;
            }
            // An addition was given up; its learner is removed together with the node.
            if numbers.contains(&(own.raft_id, true)) {
                if node == leader {
                    return self.change(MembershipChange::Transfer(None));
                }
                if !self.admin.out.contains(&node) {
                    if !self.may_lose() {
                        return;
                    }
                    self.admin.out.push(node);
                }
                return self.change(MembershipChange::Remove(id));
            }
            // While a learner receives a snapshot, a change whose outcome was not waited for goes on.
            if numbers.contains(&(own.raft_id, false)) && own.receiving.is_some() {
                continue;
            }
            // The node was removed, or never got its vote: it starts anew.
            if self.random.u8(..10) == 0 {
                return self.wipe(node);
            }
        }
    }

    /// Adds the spare nodes to the cluster's file: each node is started again with it.
    fn enlarge(&mut self) -> bool {
        if self.admin.enlarged {
            return true;
        }
        let known = all(&self.plan);
        let next = self.nodes.iter().position(|one| one.nodes != known);
        let Some(node) = next else {
            self.admin.enlarged = true;
            return true;
        };
        if self.nodes.iter().all(|one| one.running.is_some()) {
            self.nodes[node].nodes = known;
            self.crash(node);
        }
        false
    }

    /// Wipes the disk of a node, which starts with an empty one.
    pub(super) fn wipe(&mut self, node: usize) {
        self.note(format_args!("node {} loses its disk", node + 1));
        self.reached.hit(Point::LostDisk);
        if self.nodes[node].running.is_some() {
            self.crash(node);
        }
        self.nodes[node].volume = SimulatedDisk::default();
        self.nodes[node].lost_disk = true;
        if !self.admin.out.contains(&node) {
            self.admin.out.push(node);
        }
    }
}
