//! The status that a member reports.

use raft::StateRole;

use super::context::{MemberContext, RaftNode};
use super::leadership::Leadership;
use super::snapshots::MemberSnapshots;
use super::state_machine::StateMachine;
use crate::status::{MemberStatus, Role, Status, node_of};

/// The parts of a member that its status shows.
pub(super) struct StatusParts<'m> {
    pub(super) raft: &'m RaftNode,
    pub(super) state: &'m StateMachine,
    pub(super) leadership: &'m Leadership,
    pub(super) snapshots: &'m MemberSnapshots,
}

impl StatusParts<'_> {
    fn role(&self, context: &MemberContext) -> Role {
        let raft = &self.raft.raft;
        let conf = raft.prs().conf();
        match raft.state {
            StateRole::Leader if context.shared.tickets.is_serving() => Role::Leader,
            StateRole::Leader => Role::Elected,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower if conf.voters().contains(raft.id) => Role::Follower,
            StateRole::Follower if conf.learners().contains(&raft.id) => Role::Learner,
            // A member that was invited does not know the members before it has its copy.
            StateRole::Follower if conf.voters().ids().is_empty() => Role::Learner,
            StateRole::Follower => Role::Removed,
        }
    }

    /// Writes the status of the member.
    pub(super) fn describe(&self, context: &MemberContext, status: &mut Status) {
        let (raft, log) = (&self.raft.raft, self.raft.store());
        let leadership = self.leadership;
        status.role = self.role(context);
        status.applied = self.state.applied();
        (status.groups, status.entries) = leadership.counts();
        status.snapshot_failures = self.snapshots.maker.failures().clone();
        let (now, election) = (context.now.since, context.options.election);
        status.receiving = self.snapshots.intake.progress(now, election);
        status.compared = leadership.comparison.completed();
        status.difference = leadership.comparison.difference().cloned();
        status.raft_id = raft.id;
        status.term = raft.term;
        status.last = raft.raft_log.last_index();
        status.committed = raft.raft_log.committed;
        status.snapshot = log.snapshot_meta().map_or(0, |meta| meta.index);
        status.syncs = log.syncs();
        status.log_bytes = log.bytes();
        let voters = raft.prs().conf().voters();
        let mut members: Vec<_> = raft.prs().iter().collect();
        members.sort_unstable_by_key(|(id, _)| (node_of(**id), **id));
        let members = members.into_iter().map(|(id, progress)| MemberStatus {
            node: node_of(*id),
            raft_id: *id,
            voter: voters.contains(*id),
            matched: if *id == raft.id {
                status.last
            } else {
                progress.matched
            },
            active: *id == raft.id || progress.recent_active,
            snapshot: leadership.sender.progress(*id),
        });
        status.members = members.collect();
    }
}
