//! Changes of a partition's members by command: what is asked for, and why it is not done.

use std::sync::Arc;

use base::NodeId;
use parking_lot::Mutex;

/// A change of the members, or of the one that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// Adds a node whose disk is empty: it gets a copy and a vote.
    Add(NodeId),
    /// Removes a node from the members.
    Remove(NodeId),
    /// Makes another node the leader; any node, if none is named.
    Transfer(Option<NodeId>),
}

/// The slot in which the outcome of a change appears.
pub(crate) type ChangeAnswer = Arc<Mutex<Option<Result<(), ChangeError>>>>;

/// The message for a node that is to be added and has not said that its disk is empty.
pub const NOT_WAITING: &str = "does not wait to be added";

/// The reason why the members were not changed, or why that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Another node leads the partition.
    #[error("node {} leads the partition: ask it", leader.0)]
    NotLeader {
        /// The node that leads.
        leader: NodeId,
    },
    /// No member leads the partition.
    #[error("no member leads the partition at the moment: try again")]
    NoLeader,
    /// Another change is in progress.
    #[error("another change is under way: wait for it to end")]
    Busy,
    /// The node is not in the cluster's file.
    #[error(
        "node {} is not one of this partition's nodes in the cluster's file: put it there, on all nodes, \
         first",
        node.0
    )]
    UnknownNode {
        /// The node that was to be added.
        node: NodeId,
    },
    /// An earlier command has made the node a member without a vote, and the node does not answer.
    #[error(
        "node {} is a member without a vote, and does not answer: start it and add it again, or remove it",
        node.0
    )]
    SilentLearner {
        /// The node that was to be added.
        node: NodeId,
    },
    /// The node has not said that its disk is empty.
    #[error("node {} {NOT_WAITING}: start it with an empty data directory", node.0)]
    NotWaiting {
        /// The node that was to be added.
        node: NodeId,
    },
    /// The partition keeps nothing on disk.
    #[error("the log lies in memory, so that there are no snapshots to copy")]
    InMemory,
    /// The node that was to be removed leads.
    #[error("it leads: transfer the leadership to another node first")]
    RemovesLeader,
    /// The node that was to be removed is not a member.
    #[error("node {} is not a member", node.0)]
    NotMember {
        /// The node that was to be removed.
        node: NodeId,
    },
    /// Without the node, the members that are alive would not be a majority.
    #[error(
        "only {alive} of the {others} other members are alive, which is no majority: bring one back first"
    )]
    NoMajority {
        /// The number of other members with a vote that are alive.
        alive: usize,
        /// The number of other members with a vote.
        others: usize,
    },
    /// The node that was to lead leads already.
    #[error("it leads already")]
    LeadsAlready,
    /// The node that was to lead cannot.
    #[error("node {} is no living member with a vote", node.0)]
    NoVoter {
        /// The node that was to lead.
        node: NodeId,
    },
    /// No other node can lead.
    #[error("no other member with a vote is alive")]
    NoOtherVoter,
    /// The change was given up.
    #[error("it takes too long, at the step {step}: see the status")]
    TooSlow {
        /// The step that did not end.
        step: String,
    },
    /// The change may be done or not.
    #[error("the leadership was lost meanwhile: see the status, and try again")]
    LeadershipLost,
    /// The node that was to lead has stopped meanwhile.
    #[error("the other node is alive no more: see the status")]
    SuccessorLost,
    /// The node that was to lead was not elected; this node goes on as the leader.
    #[error("the other node did not take over in time: try again")]
    NotTakenOver,
    /// The node that was to be added is a member again by itself.
    #[error("node {} has found its place by itself meanwhile: see the status", node.0)]
    JoinedByItself {
        /// The node that was to be added.
        node: NodeId,
    },
    /// An earlier change is not applied yet.
    #[error("the change was not taken: try again")]
    EarlierChange,
    /// The Raft library has refused the change.
    #[error("the change was not taken: {reason}")]
    Refused {
        /// The library's reason.
        reason: String,
    },
    /// This node's member has stopped.
    #[error("{reason}")]
    Stopped {
        /// The reason why it has stopped.
        reason: String,
    },
    /// The caller's time is up, and the change goes on.
    #[error("it takes longer than that: see the status")]
    StillInProgress,
}

impl ChangeError {
    /// Returns `true` if the same command may succeed later, on this node, without anything else
    /// being done.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        matches!(
            self,
            ChangeError::NoLeader
                | ChangeError::Busy
                | ChangeError::NotTakenOver
                | ChangeError::EarlierChange
        )
    }
}
