//! What a member says of itself.

use base::NodeId;

/// What a member is in its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads, and may serve.
    Leader,
    /// It was elected and has not yet applied what its predecessors have left.
    Elected,
    /// It follows.
    Follower,
    /// It wants to be elected.
    Candidate,
    /// It gets everything and has no vote.
    Learner,
    /// Its disk is empty: it waits for the others to found the partition, or to be added to it.
    Blank,
    /// It was a member and is none any more.
    Removed,
    /// It does not go on until its process is started again: the note says why.
    Stopped,
}

impl Role {
    /// In one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Elected => "elected",
            Role::Follower => "follower",
            Role::Candidate => "candidate",
            Role::Learner => "learner",
            Role::Blank => "blank",
            Role::Removed => "removed",
            Role::Stopped => "stopped",
        }
    }
}

/// Another member, as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its node.
    pub node: NodeId,
    /// Its number in the group: its incarnation and its node.
    pub raft_id: u64,
    /// Whether it has a vote.
    pub voter: bool,
    /// The last entry that it is known to have; of the leader itself, its last one.
    pub matched: u64,
    /// Whether it was heard of within the last election time-out.
    pub active: bool,
    /// Bytes of a snapshot that it has got, and of how many.
    pub snapshot: Option<(u64, u64)>,
}

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its node.
    pub node: NodeId,
    /// Its number in the group; 0 while it is blank.
    pub raft_id: u64,
    /// Its role.
    pub role: Role,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// Its term.
    pub term: u64,
    /// Index of the last entry that it has.
    pub last: u64,
    /// Index of the last entry that it knows to be committed.
    pub committed: u64,
    /// Index of the last entry that it has applied.
    pub applied: u64,
    /// Index of its newest snapshot.
    pub snapshot: u64,
    /// Members as the leader sees them, itself among them; of a follower, without figures.
    pub members: Vec<MemberStatus>,
    /// Turns that took entries.
    pub groups: u64,
    /// Entries that they took.
    pub entries: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Bytes that the log takes.
    pub log_bytes: u64,
    /// How often it has begun to lead.
    pub leaderships: u64,
    /// How many snapshots it could not make since it was started, and why the last one of them was not made.
    pub snapshot_failures: (u64, Option<String>),
    /// Bytes of a snapshot that it has got from the leader, and of how many.
    pub receiving: Option<(u64, u64)>,
    /// How many comparisons of all members' states it has led to their end since it leads.
    pub compared: u64,
    /// What the last comparison has found, if the states differ; a part of the note.
    pub difference: Option<String>,
    /// What it waits for, or what is wrong, said for people.
    pub note: Option<String>,
    /// Why it cannot write its log at the moment, such as a disk that is full; a part of the note.
    pub log_trouble: Option<String>,
}

impl Status {
    pub(crate) fn new(node: NodeId) -> Status {
        Status {
            node,
            raft_id: 0,
            role: Role::Blank,
            leader: None,
            term: 0,
            last: 0,
            committed: 0,
            applied: 0,
            snapshot: 0,
            members: Vec::new(),
            groups: 0,
            entries: 0,
            syncs: 0,
            log_bytes: 0,
            leaderships: 0,
            snapshot_failures: (0, None),
            receiving: None,
            compared: 0,
            difference: None,
            note: None,
            log_trouble: None,
        }
    }
}

/// The node of a number in the group.
#[must_use]
pub(crate) fn node_of(raft_id: u64) -> NodeId {
    NodeId(raft_id as u16)
}

/// The number in the group of a node's member of this incarnation, from 1 on.
#[must_use]
pub(crate) fn raft_id(incarnation: u64, node: NodeId) -> u64 {
    incarnation << 16 | u64::from(node.0)
}
