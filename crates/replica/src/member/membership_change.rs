//! Adds and removes members by command, and hands over the leadership.
//!
//! | command | steps |
//! |---|---|
//! | add a node | a learner under a new number → a snapshot that knows it, behind which the log begins → invited, until it has caught up → it gets its vote, and the node's older numbers go, in one step |
//! | remove a node | its number goes |
//! | add a node that is a learner already, because the leader was lost meanwhile | goes on with it |
//! | transfer | reads and groups stop; the other member gets a message to start an election |

use std::time::Duration;

use base::NodeId;
use raft::GetEntriesContext;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, EntryType};

use super::context::{MemberContext, RaftNode};
use super::founding::Founding;
use super::proposals::Proposals;
use super::snapshot_maker::SnapshotMaker;
use super::snapshot_sender::SnapshotSender;
use super::tenure::LeaderTenure;
use crate::log::RaftLog;
use crate::membership::{ChangeAnswer, ChangeError, MembershipChange};
use crate::messages::MemberMessage;
use crate::status::{node_of, raft_id};

/// A learner that lacks no more entries than this has caught up.
const CAUGHT_UP: u64 = 256;
/// The time that a command may take. Copying may take longer, as long as it makes progress.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of bytes of a snapshot that a slow member loads in a second.
const LOADED_A_SECOND: u64 = 10 << 20;

/// The outcome of a change.
type ChangeResult = Result<(), ChangeError>;

/// The parts of the leader that a change reads or commands.
pub(super) struct ChangeParts<'m> {
    pub(super) context: &'m mut MemberContext,
    pub(super) raft: &'m mut RaftNode,
    pub(super) founding: &'m Founding,
    pub(super) snapshots: &'m mut SnapshotMaker,
    /// The last applied entry.
    pub(super) applied: u64,
}

/// The parts of the leader's own state that a change reads or commands.
pub(super) struct LeaderParts<'m> {
    pub(super) tenure: &'m mut LeaderTenure,
    pub(super) proposals: &'m Proposals,
    pub(super) sender: &'m SnapshotSender,
}

/// The change in progress.
pub(super) struct ChangeInProgress {
    change: MembershipChange,
    step: ChangeStep,
    answer: ChangeAnswer,
    /// The change is given up at this time.
    until: Duration,
    /// The last progress of a copy: the last entry that the member has, and the bytes of a snapshot
    /// that were sent to it.
    progress: (u64, u64),
    /// The time of the next invitation.
    invite_at: Duration,
}

/// The step of a change. The number is the Raft id of the member that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeStep {
    Begin,
    Learner(u64),
    Snapshot(u64),
    Copy(u64),
    Vote(u64),
    Gone,
    Handed,
}

impl ChangeInProgress {
    pub(super) fn new(
        change: MembershipChange,
        answer: ChangeAnswer,
        now: Duration,
    ) -> ChangeInProgress {
        ChangeInProgress {
            change,
            step: ChangeStep::Begin,
            answer,
            until: now + PATIENCE,
            progress: (0, 0),
            invite_at: Duration::ZERO,
        }
    }

    /// Tells the caller the outcome.
    pub(super) fn answer(&self, context: &mut MemberContext, outcome: ChangeResult) {
        *self.answer.lock() = Some(outcome);
        context.changed = true;
        context.shared.notify();
    }

    /// Ends the change, because the leadership is lost.
    pub(super) fn end_by_loss(&self, context: &mut MemberContext) {
        let outcome = match self.change {
            MembershipChange::Transfer(_) => Ok(()),
            _ => Err(ChangeError::LeadershipLost),
        };
        self.answer(context, outcome);
    }

    /// Goes on with the change. Returns the outcome at the end.
    pub(super) fn advance(
        &mut self,
        parts: &mut ChangeParts<'_>,
        leader: &mut LeaderParts<'_>,
    ) -> Option<ChangeResult> {
        if parts.context.now.since >= self.until {
            let step = format!("{:?}", self.step);
            parts.raft.raft.abort_leader_transfer();
            leader.tenure.resume(&parts.context.shared);
            self.give_up(parts.raft);
            return Some(Err(ChangeError::TooSlow { step }));
        }
        match self.change {
            MembershipChange::Add(node) => self.advance_addition(parts, leader.sender, node),
            MembershipChange::Remove(node) => self.advance_removal(parts.raft, node),
            MembershipChange::Transfer(node) => self.advance_transfer(parts, leader, node),
        }
    }

    fn advance_addition(
        &mut self,
        parts: &mut ChangeParts<'_>,
        sender: &SnapshotSender,
        node: NodeId,
    ) -> Option<ChangeResult> {
        match self.step {
            ChangeStep::Begin => match parts.begun(node) {
                Some((id, 0)) => self.step = ChangeStep::Learner(id),
                Some((id, _)) => self.step = ChangeStep::Copy(id),
                None => {
                    let incarnations = ids_of(parts.raft, node).into_iter().map(|id| id >> 16);
                    let id = raft_id(incarnations.max().unwrap_or(1) + 1, node);
                    self.step = ChangeStep::Learner(id);
                    return propose(parts.raft, &[(ConfChangeType::AddLearnerNode, id)])
                        .err()
                        .map(Err);
                }
            },
            ChangeStep::Learner(id) => {
                if parts.raft.raft.prs().get(id).is_some() {
                    parts.snapshots.request(parts.applied);
                    self.step = ChangeStep::Snapshot(id);
                }
            }
            ChangeStep::Snapshot(id) => {
                if parts.snapshots.is_requested() {
                    // Making a snapshot may take any time.
                    self.until = parts.context.now.since + PATIENCE;
                } else {
                    self.step = ChangeStep::Copy(id);
                }
            }
            ChangeStep::Copy(id) => return self.copy(parts, sender, node, id),
            ChangeStep::Vote(id) => {
                let conf = parts.raft.raft.prs().conf().to_conf_state();
                let alone = ids_of(parts.raft, node) == [id];
                if conf.voters.contains(&id) && conf.voters_outgoing.is_empty() && alone {
                    return Some(Ok(()));
                }
            }
            step => unreachable!("an addition has no step {step:?}"),
        }
        None
    }

    /// Waits until a new member has caught up, and then gives it its vote.
    fn copy(
        &mut self,
        parts: &mut ChangeParts<'_>,
        sender: &SnapshotSender,
        node: NodeId,
        id: u64,
    ) -> Option<ChangeResult> {
        // A member that has taken entries under this number must not come back under it with an
        // empty disk.
        let matched = parts.raft.raft.prs().get(id)?.matched;
        let now = parts.context.now.since;
        if matched == 0 && now >= self.invite_at {
            self.invite_at = now + parts.context.options.tick();
            let invite = MemberMessage::Invite { raft_id: id };
            parts.context.send(node, &invite);
        }
        let other = parts.founding.recent_hello(parts.context, node);
        let other = other.is_some_and(|hello| hello.raft_id != 0 && hello.raft_id != id);
        if other {
            self.give_up(parts.raft);
            return Some(Err(ChangeError::JoinedByItself { node }));
        }
        let sent = sender.progress(id).map_or(0, |(sent, _)| sent);
        if (matched, sent) != self.progress {
            // When all is sent, the other member verifies and loads the snapshot, and sends nothing
            // meanwhile.
            let loading = Duration::from_secs(self.progress.1 / LOADED_A_SECOND);
            self.progress = (matched, sent);
            self.until = now + PATIENCE + loading;
        }
        if matched == 0 || matched + CAUGHT_UP < parts.raft.raft.raft_log.committed {
            return None;
        }
        let mut changes = vec![(ConfChangeType::AddNode, id)];
        let older = ids_of(parts.raft, node).into_iter();
        let older = older.filter(|other| *other != id);
        changes.extend(older.map(|other| (ConfChangeType::RemoveNode, other)));
        self.step = ChangeStep::Vote(id);
        propose(parts.raft, &changes).err().map(Err)
    }

    fn advance_removal(&mut self, raft: &mut RaftNode, node: NodeId) -> Option<ChangeResult> {
        let ids = ids_of(raft, node);
        if self.step == ChangeStep::Gone {
            return ids.is_empty().then_some(Ok(()));
        }
        self.step = ChangeStep::Gone;
        let gone = ids.iter().map(|id| (ConfChangeType::RemoveNode, *id));
        propose(raft, &gone.collect::<Vec<_>>()).err().map(Err)
    }

    fn advance_transfer(
        &mut self,
        parts: &mut ChangeParts<'_>,
        leader: &mut LeaderParts<'_>,
        node: Option<NodeId>,
    ) -> Option<ChangeResult> {
        let shared = &parts.context.shared;
        if self.step == ChangeStep::Handed {
            // Raft gives up after an election time-out.
            if parts.raft.raft.lead_transferee.is_none() {
                leader.tenure.resume(shared);
                return Some(Err(ChangeError::NotTakenOver));
            }
            return None;
        }
        // The other member may have gone since it was chosen.
        let Some(successor) = successor(parts.raft, node) else {
            leader.tenure.resume(shared);
            return Some(Err(ChangeError::SuccessorLost));
        };
        // The transactions that were admitted are finished first; no new ones begin.
        leader.tenure.drain(shared);
        if !leader.proposals.are_resolved() || shared.tickets.waiting() != (0, false) {
            return None;
        }
        leader.tenure.give_up_lease(shared);
        parts.raft.transfer_leader(successor);
        self.step = ChangeStep::Handed;
        None
    }

    /// Gives up a learner that did not catch up: it is removed.
    fn give_up(&self, raft: &mut RaftNode) {
        use ChangeStep::{Copy, Learner, Snapshot};
        if let Learner(id) | Snapshot(id) | Copy(id) = self.step {
            // If that fails, the next command for this node does it.
            let _ = propose(raft, &[(ConfChangeType::RemoveNode, id)]);
        }
    }
}

impl ChangeParts<'_> {
    /// Checks that a change can be begun.
    ///
    /// # Errors
    /// Returns the reason why it cannot.
    pub(super) fn check(&self, change: MembershipChange) -> ChangeResult {
        let me = self.context.options.me;
        match change {
            MembershipChange::Add(node) => self.check_addition(node),
            MembershipChange::Remove(node) if node == me => Err(ChangeError::RemovesLeader),
            MembershipChange::Remove(node) => self.check_removal(node),
            MembershipChange::Transfer(Some(node)) if node == me => Err(ChangeError::LeadsAlready),
            MembershipChange::Transfer(node) => match (successor(self.raft, node), node) {
                (Some(_), _) => Ok(()),
                (None, Some(node)) => Err(ChangeError::NoVoter { node }),
                (None, None) => Err(ChangeError::NoOtherVoter),
            },
        }
    }

    fn check_addition(&self, node: NodeId) -> ChangeResult {
        if !self.context.options.nodes.contains(&node) {
            return Err(ChangeError::UnknownNode { node });
        }
        let learner = learner_of(self.raft, node);
        if !self.is_waiting(node) && !learner.is_some_and(|id| is_active(self.raft, id)) {
            return Err(match learner {
                Some(_) => ChangeError::SilentLearner { node },
                None => ChangeError::NotWaiting { node },
            });
        }
        match self.context.dir() {
            Some(_) => Ok(()),
            None => Err(ChangeError::InMemory),
        }
    }

    fn check_removal(&self, node: NodeId) -> ChangeResult {
        let ids = ids_of(self.raft, node);
        if ids.is_empty() {
            return Err(ChangeError::NotMember { node });
        }
        let voters = self.raft.raft.prs().conf().voters().ids();
        let others: Vec<u64> = voters.iter().filter(|id| !ids.contains(id)).collect();
        let alive = others
            .iter()
            .filter(|id| is_active(self.raft, **id))
            .count();
        let others = others.len();
        match alive * 2 <= others {
            true => Err(ChangeError::NoMajority { alive, others }),
            false => Ok(()),
        }
    }

    /// Returns `true` if a node has said recently that its disk is empty.
    fn is_waiting(&self, node: NodeId) -> bool {
        let hello = self.founding.recent_hello(self.context, node);
        hello.is_some_and(|hello| hello.raft_id == 0)
    }

    /// Returns the learner that an earlier command for this node has left, and the last entry that
    /// it is known to have. Returns `None` if the learner has lost its disk since.
    fn begun(&self, node: NodeId) -> Option<(u64, u64)> {
        let id = learner_of(self.raft, node)?;
        let matched = self.raft.raft.prs().get(id)?.matched;
        (matched == 0 || !self.is_waiting(node)).then_some((id, matched))
    }
}

/// Returns the Raft ids of a node.
fn ids_of(raft: &RaftNode, node: NodeId) -> Vec<u64> {
    let ids = raft.raft.prs().iter().map(|(id, _)| *id);
    ids.filter(|id| node_of(*id) == node).collect()
}

/// Returns the learner of a node, if there is one.
fn learner_of(raft: &RaftNode, node: NodeId) -> Option<u64> {
    let learners = raft.raft.prs().conf().learners().iter().copied();
    learners.filter(|id| node_of(*id) == node).max()
}

/// Returns `true` if a message came from a member within the last election time-out.
fn is_active(raft: &RaftNode, id: u64) -> bool {
    let progress = raft.raft.prs().get(id);
    id == raft.raft.id || progress.is_some_and(|one| one.recent_active)
}

/// Returns the member that is to lead: the one of `node`, or the one whose log is the most
/// complete.
fn successor(raft: &RaftNode, node: Option<NodeId>) -> Option<u64> {
    let voters = raft.raft.prs().conf().voters().ids();
    let others = voters
        .iter()
        .filter(|id| *id != raft.raft.id && is_active(raft, *id));
    let fit = others.filter(|id| node.is_none_or(|node| node_of(*id) == node));
    fit.max_by_key(|id| (raft.raft.prs().get(*id).map_or(0, |one| one.matched), *id))
}

/// Proposes changes of the members, in one step.
fn propose(raft: &mut RaftNode, changes: &[(ConfChangeType, u64)]) -> ChangeResult {
    let singles = changes.iter().map(|(change_type, node_id)| {
        let mut single = ConfChangeSingle {
            node_id: *node_id,
            ..ConfChangeSingle::default()
        };
        single.set_change_type(*change_type);
        single
    });
    let mut change = ConfChangeV2::default();
    change.set_changes(singles.collect::<Vec<_>>().into());
    let last = raft.raft.raft_log.last_index();
    match raft.propose_conf_change(Vec::new(), change) {
        Ok(()) if took_change(&raft.raft.raft_log, last) => Ok(()),
        Ok(()) => Err(ChangeError::EarlierChange),
        Err(error) => Err(ChangeError::Refused {
            reason: error.to_string(),
        }),
    }
}

/// Returns `true` if the entry that was added to the log behind `last` is a change of members.
/// The library puts an empty entry in its place while an earlier change is not applied.
fn took_change(log: &raft::RaftLog<RaftLog>, last: u64) -> bool {
    let entries = log.slice(
        last + 1,
        log.last_index() + 1,
        None,
        GetEntriesContext::empty(false),
    );
    let mut entries = entries.unwrap_or_default().into_iter();
    entries.any(|entry| entry.get_entry_type() == EntryType::EntryConfChangeV2)
}
