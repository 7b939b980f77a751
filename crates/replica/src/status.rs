//! The status of a member.

use base::NodeId;

/// The role of a member in its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads, and may serve.
    Leader,
    /// It was elected and has not yet applied the entries of earlier leaders.
    Elected,
    /// It follows.
    Follower,
    /// It wants to be elected.
    Candidate,
    /// It gets all entries and has no vote.
    Learner,
    /// Its disk is empty: it waits for the others to found the partition, or to be added to it.
    Blank,
    /// It was a member and no longer is.
    Removed,
    /// It does not go on until its process is started again: the note says why.
    Stopped,
}

impl Role {
    /// Returns the role in one word.
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
    /// `true` if it has a vote.
    pub voter: bool,
    /// The last entry that it is known to have; for the leader itself, its last one.
    pub matched: u64,
    /// `true` if a message came from it within the last election time-out.
    pub active: bool,
    /// The bytes of a snapshot that it has received, and their total.
    pub snapshot: Option<(u64, u64)>,
}

/// The status of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its node.
    pub node: NodeId,
    /// Its number in the group; 0 while it is blank.
    pub raft_id: u64,
    /// Its role.
    pub role: Role,
    /// The leader, as far as it knows.
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
    /// The members as the leader sees them, itself among them; a follower reports them without
    /// figures.
    pub members: Vec<MemberStatus>,
    /// The number of turns that took entries.
    pub groups: u64,
    /// The number of entries that they took.
    pub entries: u64,
    /// The number of syncs of the log.
    pub syncs: u64,
    /// The size of the log in bytes.
    pub log_bytes: u64,
    /// The number of times that it has begun to lead.
    pub leaderships: u64,
    /// The number of snapshots that it could not make since it was started, and the reason of the
    /// last failure.
    pub snapshot_failures: (u64, Option<String>),
    /// The bytes of a snapshot that it has received from the leader, and their total.
    pub receiving: Option<(u64, u64)>,
    /// The number of comparisons of all members' states that it has completed since it leads.
    pub compared: u64,
    /// The difference that the last comparison has found, if the states differ; a part of the note.
    pub difference: Option<String>,
    /// A note for people: what the member waits for, or what is wrong.
    pub note: Option<String>,
    /// The reason why it cannot write its log at the moment, such as a full disk; a part of the
    /// note.
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

/// Returns the node of a number in the group.
#[must_use]
pub(crate) fn node_of(raft_id: u64) -> NodeId {
    NodeId(raft_id as u16)
}

/// Returns the number in the group of a node's member of this incarnation; incarnations begin with
/// 1.
#[must_use]
pub(crate) fn raft_id(incarnation: u64, node: NodeId) -> u64 {
    incarnation << 16 | u64::from(node.0)
}
