//! Adds and removes members by command, and hands over the leadership.
//!
//! | command | steps |
//! |---|---|
//! | add a node | a learner under a new number → a snapshot that knows it, behind which the log begins → invited, until it has caught up → it gets its vote, and the node's older numbers go, in one step |
//! | remove a node | its number goes |
//! | add a node that is a learner already, because the leader was lost meanwhile | goes on with it |
//! | transfer | reads and groups stop; the other member gets a message to start an election |

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::NodeId;
use parking_lot::Mutex;
use raft::GetEntriesContext;
use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, EntryType};

use super::Member;
use crate::log::Log;
use crate::messages::Envelope;
use crate::status::{node_of, raft_id};

/// A change of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a node whose disk is empty: it gets a copy and a vote.
    Add(NodeId),
    /// Removes a node from the members.
    Remove(NodeId),
    /// Makes another node the leader; any node, if none is named.
    Transfer(Option<NodeId>),
}

/// The place where the outcome appears.
pub(crate) type Answer = Arc<Mutex<Option<Result<(), String>>>>;

/// The message for a node that is to be added and has not said that its disk is empty.
pub const NOT_WAITING: &str = "does not wait to be added";

/// A learner that lacks no more entries than this has caught up.
const CAUGHT_UP: u64 = 256;
/// The time that a command may take. Copying may take longer, as long as it makes progress.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of bytes of a snapshot that a slow member loads in a second.
const LOADED_A_SECOND: u64 = 10 << 20;

/// The change in progress.
pub(super) struct Changing {
    change: Change,
    step: Step,
    answer: Answer,
    until: Duration,
    /// The last progress of a copy.
    progress: (u64, u64),
    invite_at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    Learner(u64),
    Snapshot(u64),
    Copy(u64),
    Vote(u64),
    Gone,
    Handed,
}

impl Member {
    /// Begins to change the members. `answer` gets the outcome.
    pub(crate) fn change(&mut self, change: Change, answer: Answer) {
        let refusal = if self.raft.is_none() || !self.shared.tickets.is_serving() {
            Some(match self.shared.leader() {
                Some(node) if node != self.options.me => {
                    format!("node {} leads the partition: ask it", node.0)
                }
                _ => "no member leads the partition at the moment: try again".to_owned(),
            })
        } else if self.changing.is_some() {
            Some("another change is under way: wait for it to end".to_owned())
        } else {
            self.refuse(change)
        };
        if let Some(refusal) = refusal {
            *answer.lock() = Some(Err(refusal));
            return self.shared.tell();
        }
        self.changing = Some(Changing {
            change,
            step: Step::Begin,
            answer,
            until: self.now.since + PATIENCE,
            progress: (0, 0),
            invite_at: Duration::ZERO,
        });
    }

    fn ids_of(&self, node: NodeId) -> Vec<u64> {
        let raft = self.raft.as_ref().expect("it leads");
        let ids = raft.raft.prs().iter().map(|(id, _)| *id);
        ids.filter(|id| node_of(*id) == node).collect()
    }

    fn refuse(&self, change: Change) -> Option<String> {
        let raft = self.raft.as_ref().expect("it leads");
        match change {
            Change::Add(node) => {
                if !self.options.nodes.contains(&node) {
                    return Some(format!(
                        "node {} is not one of this partition's nodes in the cluster's file: put it \
                         there, on all nodes, first",
                        node.0
                    ));
                }
                let learner = self.learner_of(node);
                if !self.waits(node) && !learner.is_some_and(|id| self.is_active(id)) {
                    return Some(match learner {
                        Some(_) => format!(
                            "node {} is a member without a vote, and does not answer: start it and \
                             add it again, or remove it",
                            node.0
                        ),
                        None => format!(
                            "node {} {NOT_WAITING}: start it with an empty data directory",
                            node.0
                        ),
                    });
                }
                self.dir().is_none().then(|| {
                    "the log lies in memory, so that there are no snapshots to copy".to_owned()
                })
            }
            Change::Remove(node) if node == self.options.me => {
                Some("it leads: transfer the leadership to another node first".to_owned())
            }
            Change::Remove(node) => {
                let ids = self.ids_of(node);
                if ids.is_empty() {
                    return Some(format!("node {} is not a member", node.0));
                }
                let voters = raft.raft.prs().conf().voters().ids();
                let left: Vec<u64> = voters.iter().filter(|id| !ids.contains(id)).collect();
                let alive = left.iter().filter(|id| self.is_active(**id)).count();
                (alive * 2 <= left.len()).then(|| {
                    format!(
                        "only {alive} of the {} other members are alive, which is no majority: bring \
                         one back first",
                        left.len()
                    )
                })
            }
            Change::Transfer(Some(node)) if node == self.options.me => {
                Some("it leads already".to_owned())
            }
            Change::Transfer(node) => self.heir(node).is_none().then(|| match node {
                Some(node) => format!("node {} is no living member with a vote", node.0),
                None => "no other member with a vote is alive".to_owned(),
            }),
        }
    }

    /// Returns `true` if a node has said recently that its disk is empty.
    fn waits(&self, node: NodeId) -> bool {
        let hello = self.founding_hello(node);
        hello.is_some_and(|hello| hello.raft_id == 0)
    }

    /// Returns the learner that an earlier command for this node has left, and the last entry that
    /// it is known to have. Returns `None` if the learner has lost its disk since.
    fn begun(&self, node: NodeId) -> Option<(u64, u64)> {
        let id = self.learner_of(node)?;
        let matched = self.raft.as_ref()?.raft.prs().get(id)?.matched;
        (matched == 0 || !self.waits(node)).then_some((id, matched))
    }

    /// Returns the learner of a node, if there is one.
    fn learner_of(&self, node: NodeId) -> Option<u64> {
        let raft = self.raft.as_ref()?;
        let learners = raft.raft.prs().conf().learners();
        learners
            .iter()
            .copied()
            .filter(|id| node_of(*id) == node)
            .max()
    }

    pub(super) fn is_active(&self, id: u64) -> bool {
        let raft = self.raft.as_ref().expect("it takes part");
        id == raft.raft.id || raft.raft.prs().get(id).is_some_and(|one| one.recent_active)
    }

    /// Returns the member that is to lead: the one of `node`, or the one whose log is the most
    /// complete.
    fn heir(&self, node: Option<NodeId>) -> Option<u64> {
        let raft = self.raft.as_ref()?;
        let voters = raft.raft.prs().conf().voters().ids();
        let others = voters
            .iter()
            .filter(|id| *id != raft.raft.id && self.is_active(*id));
        let fit = others.filter(|id| node.is_none_or(|node| node_of(*id) == node));
        fit.max_by_key(|id| (raft.raft.prs().get(*id).map_or(0, |one| one.matched), *id))
    }

    /// Goes on with the change in progress.
    pub(super) fn go_on_changing(&mut self) {
        let Some(mut changing) = self.changing.take() else {
            return;
        };
        if self.now.since >= changing.until {
            let error = format!(
                "it takes too long, at the step {:?}: see the status",
                changing.step
            );
            if let Some(raft) = &mut self.raft {
                raft.raft.abort_leader_transfer();
            }
            self.resume();
            self.give_up(changing.step);
            return self.answer(&changing, Err(error));
        }
        match self.next_step(&mut changing) {
            Some(outcome) => self.answer(&changing, outcome),
            None => self.changing = Some(changing),
        }
    }

    /// Gives up a learner that did not catch up: it is removed.
    fn give_up(&mut self, step: Step) {
        if let Step::Learner(id) | Step::Snapshot(id) | Step::Copy(id) = step {
            // If that fails, the next command for this node does it.
            let _ = self.propose_members(&[(ConfChangeType::RemoveNode, id)]);
        }
    }

    fn answer(&mut self, changing: &Changing, outcome: Result<(), String>) {
        *changing.answer.lock() = Some(outcome);
        self.changed = true;
        self.shared.tell();
    }

    /// Ends the change in progress, because the leadership is lost.
    pub(super) fn end_changing(&mut self) {
        if let Some(changing) = self.changing.take() {
            self.answer(&changing, self.ended_by_loss(changing.change));
        }
    }

    fn ended_by_loss(&self, change: Change) -> Result<(), String> {
        match change {
            Change::Transfer(_) => Ok(()),
            _ => Err("the leadership was lost meanwhile: see the status, and try again".to_owned()),
        }
    }

    /// Takes the next step. Returns the outcome at the end.
    fn next_step(&mut self, changing: &mut Changing) -> Option<Result<(), String>> {
        match (changing.change, changing.step) {
            (Change::Add(node), Step::Begin) => match self.begun(node) {
                Some((id, 0)) => changing.step = Step::Learner(id),
                Some((id, _)) => changing.step = Step::Copy(id),
                None => {
                    let incarnations = self.ids_of(node).into_iter().map(|id| id >> 16);
                    let id = raft_id(incarnations.max().unwrap_or(1) + 1, node);
                    changing.step = Step::Learner(id);
                    return self.propose_members(&[(ConfChangeType::AddLearnerNode, id)]);
                }
            },
            (_, Step::Learner(id)) => {
                if self.raft.as_ref()?.raft.prs().get(id).is_some() {
                    self.want_snapshot();
                    changing.step = Step::Snapshot(id);
                }
            }
            (_, Step::Snapshot(id)) => {
                if self.snapshot_is_wanted() {
                    // Making a snapshot may take any time.
                    changing.until = self.now.since + PATIENCE;
                } else {
                    changing.step = Step::Copy(id);
                }
            }
            (Change::Add(node), Step::Copy(id)) => return self.copy(changing, node, id),
            (Change::Add(node), Step::Vote(id)) => {
                let conf = self.raft.as_ref()?.raft.prs().conf().to_conf_state();
                let alone = self.ids_of(node) == [id];
                if conf.voters.contains(&id) && conf.voters_outgoing.is_empty() && alone {
                    return Some(Ok(()));
                }
            }
            (Change::Remove(node), Step::Begin) => {
                changing.step = Step::Gone;
                let gone = self.ids_of(node);
                let gone: Vec<_> = gone
                    .iter()
                    .map(|id| (ConfChangeType::RemoveNode, *id))
                    .collect();
                return self.propose_members(&gone);
            }
            (Change::Remove(node), Step::Gone) => {
                return self.ids_of(node).is_empty().then_some(Ok(()));
            }
            (Change::Transfer(node), Step::Begin) => {
                // The other member may have gone since it was chosen.
                let Some(heir) = self.heir(node) else {
                    self.resume();
                    let error = "the other node is alive no more: see the status";
                    return Some(Err(error.to_owned()));
                };
                // The transactions that were admitted are finished first; no new ones begin.
                self.draining = true;
                self.shared.handing_over.store(true, Ordering::SeqCst);
                self.shared.tickets.pause();
                if !self.open.is_empty() || self.shared.tickets.waiting() != (false, false) {
                    return None;
                }
                // The other member may be elected at once.
                self.shared.set_lease(Duration::ZERO);
                self.handed_over_in = self.leading?;
                self.raft.as_mut()?.transfer_leader(heir);
                changing.step = Step::Handed;
            }
            (Change::Transfer(_), Step::Handed) => {
                // Raft gives up after an election time-out.
                if self.raft.as_ref()?.raft.lead_transferee.is_none() {
                    self.resume();
                    let error = "the other node did not take over in time: try again".to_owned();
                    return Some(Err(error));
                }
            }
            (change, step) => unreachable!("{change:?} has no step {step:?}"),
        }
        None
    }

    /// Waits until a new member has caught up, and then gives it its vote.
    fn copy(
        &mut self,
        changing: &mut Changing,
        node: NodeId,
        id: u64,
    ) -> Option<Result<(), String>> {
        // A member that has taken entries under this number must not come back under it with an
        // empty disk.
        let is_new = self.raft.as_ref()?.raft.prs().get(id)?.matched == 0;
        if is_new && self.now.since >= changing.invite_at {
            changing.invite_at = self.now.since + self.options.tick();
            self.send(node, &Envelope::Invite { raft_id: id });
        }
        let other = self.founding_hello(node);
        let other = other.is_some_and(|hello| hello.raft_id != 0 && hello.raft_id != id);
        if other {
            self.give_up(changing.step);
            return Some(Err(format!(
                "node {} has found its place by itself meanwhile: see the status",
                node.0
            )));
        }
        let raft = &self.raft.as_ref()?.raft;
        let matched = raft.prs().get(id)?.matched;
        let sent = self
            .snapshots
            .sending
            .get(&id)
            .map_or(0, |sending| sending.offset);
        if (matched, sent) != changing.progress {
            // When all is sent, the other member verifies and loads the snapshot, and sends nothing
            // meanwhile.
            let loading = Duration::from_secs(changing.progress.1 / LOADED_A_SECOND);
            changing.progress = (matched, sent);
            changing.until = self.now.since + PATIENCE + loading;
        }
        if matched == 0 || matched + CAUGHT_UP < raft.raft_log.committed {
            return None;
        }
        let mut changes = vec![(ConfChangeType::AddNode, id)];
        let older = self.ids_of(node).into_iter().filter(|other| *other != id);
        changes.extend(older.map(|other| (ConfChangeType::RemoveNode, other)));
        changing.step = Step::Vote(id);
        self.propose_members(&changes)
    }

    fn propose_members(&mut self, changes: &[(ConfChangeType, u64)]) -> Option<Result<(), String>> {
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
        let raft = self.raft.as_mut()?;
        let before = raft.raft.raft_log.last_index();
        match raft.propose_conf_change(Vec::new(), change) {
            Ok(()) if took_change(&raft.raft.raft_log, before) => None,
            Ok(()) => Some(Err("the change was not taken: try again".to_owned())),
            Err(error) => Some(Err(format!("the change was not taken: {error}"))),
        }
    }
}

/// Returns `true` if the entry that was added to the log behind `before` is a change of members.
/// The library puts an empty entry in its place while an earlier change is not applied.
fn took_change(log: &raft::RaftLog<Log>, before: u64) -> bool {
    let entries = log.slice(
        before + 1,
        log.last_index() + 1,
        None,
        GetEntriesContext::empty(false),
    );
    let mut entries = entries.unwrap_or_default().into_iter();
    entries.any(|entry| entry.get_entry_type() == EntryType::EntryConfChangeV2)
}
