//! The status that a member reports.

use std::time::Duration;

use base::NodeId;
use raft::StateRole;

use super::{Failure, Member};
use crate::status::{MemberStatus, Role, Status, node_of};

/// A copy of a member is noted until it was not refused for this many election time-outs.
const COPY_NOTED: u32 = 10;

/// Returns the note about a second process that takes part as a node.
pub(crate) fn copy_of(node: NodeId) -> String {
    format!(
        "two processes take part as node {node}: the second one is refused. Stop it and delete its data \
         directory, which is a copy"
    )
}

impl Member {
    /// Updates the status if something has changed, and from time to time.
    pub(super) fn report_if_due(&mut self) {
        if self.changed || self.now.since >= self.next_report {
            self.next_report = self.now.since + self.options.tick();
            self.report();
        }
    }

    /// Notes that the member cannot write its log at the moment.
    pub(crate) fn note_trouble(&mut self, failure: &Failure) {
        let note = format!("{failure}; it goes on as soon as its log can be written");
        if self.trouble.as_ref() != Some(&note) {
            tracing::error!("{note}");
            self.trouble = Some(note);
            self.report();
        }
    }

    pub(crate) fn trouble_has_passed(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("the log can be written again");
            self.changed = true;
        }
    }

    /// Notes that there is a link to a node, or that the link was refused for this reason.
    pub(crate) fn note_link(&mut self, node: NodeId, refused: Option<String>) {
        let known = match refused {
            Some(why) => self.refused.insert(node, why),
            None => self.refused.remove(&node),
        };
        self.changed |= known.as_ref() != self.refused.get(&node);
    }

    /// Notes that the link of a second process that takes part as a node was refused.
    pub(crate) fn note_copy(&mut self, node: NodeId, now: Duration) {
        self.changed |= self.copies.insert(node, now).is_none();
    }

    /// Returns the note: what the member waits for, and what is wrong.
    fn notes(&self) -> Option<String> {
        let own = self.trouble.as_ref().or(self.note.as_ref());
        let own = own.or(self.snapshots.refused.as_ref()).cloned();
        let refused = self.refused.iter();
        let refused = refused.map(|(node, why)| format!("no link to node {node}: {why}"));
        // A copy tries again at once.
        let recent = self.options.election * COPY_NOTED;
        let copies = self.copies.iter();
        let copies = copies.filter(|(_, refused)| self.now.since < **refused + recent);
        let copies = copies.map(|(node, _)| copy_of(*node));
        let difference = self.compared().1.cloned();
        let notes = own
            .into_iter()
            .chain(difference)
            .chain(refused)
            .chain(copies);
        let notes: Vec<String> = notes.collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    pub(super) fn report(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        let status = self.describe();
        let mut shared = self.shared.status.lock();
        let role_changed = shared.role != status.role || shared.leader != status.leader;
        *shared = status;
        drop(shared);
        if changed || role_changed {
            self.shared.tell();
        }
    }

    fn role(&self) -> Role {
        let Some(raft) = &self.raft else {
            return Role::Blank;
        };
        let raft = &raft.raft;
        let conf = raft.prs().conf();
        match raft.state {
            StateRole::Leader if self.shared.tickets.is_serving() => Role::Leader,
            StateRole::Leader => Role::Elected,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Follower if conf.voters().contains(raft.id) => Role::Follower,
            StateRole::Follower if conf.learners().contains(&raft.id) => Role::Learner,
            // A member that was invited does not know the members before it has its copy.
            StateRole::Follower if conf.voters().ids().is_empty() => Role::Learner,
            StateRole::Follower => Role::Removed,
        }
    }

    fn describe(&self) -> Status {
        let (compared, difference) = self.compared();
        let mut status = Status {
            role: self.role(),
            leader: self.shared.leader(),
            applied: self.applied,
            groups: self.groups,
            entries: self.entries,
            leaderships: self.shared.tickets.leaderships(),
            snapshot_failures: self.snapshot_failures(),
            receiving: self.snapshots.receiving.as_ref().map(|one| one.progress()),
            note: self.notes(),
            log_trouble: self.trouble.clone(),
            compared,
            difference: difference.cloned(),
            ..Status::new(self.options.me)
        };
        let Some(raft) = &self.raft else {
            return status;
        };
        let (raft, log) = (&raft.raft, raft.store());
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
            snapshot: self.snapshots.sending.get(id).map(|one| one.progress()),
        });
        status.members = members.collect();
        status
    }
}
