//! What a member is told when it is made.

use std::time::Duration;

use base::NodeId;
use base::versions::ReadAtomic;

/// How transactions go through consensus (paper 5, sections 3.1.2 and 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Executed before consensus; the entries of so many clients go through one append, one sync and
    /// one transfer at most. What a client sends without waiting counts once; with groups of one
    /// each entry goes by itself. Groups are pipelined.
    Group(usize),
    /// Plain Raft, the paper's baseline: one entry at a time goes through consensus, and is
    /// executed after it.
    Naive,
}

/// Clients of one group, as in the paper.
pub const GROUP: usize = 64;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// This node.
    pub me: NodeId,
    /// The nodes that hold the partition when it is founded, this one among them.
    pub nodes: Vec<NodeId>,
    /// How transactions go through consensus.
    pub grouping: Grouping,
    /// A follower that hears nothing of its leader for so long, or up to twice as long, wants to be
    /// elected. Heartbeats come ten times as often.
    pub election: Duration,
    /// Whether a leader may answer reads while it is sure by its clock that nobody else leads. It
    /// rests on clocks whose rates differ by less than a tenth.
    pub leases: bool,
    /// A session of which nothing has been heard for so long is forgotten; what comes for it
    /// afterwards is not executed.
    pub session: Duration,
    /// Sessions that are remembered; no more are opened until some have been forgotten.
    pub sessions: usize,
    /// A snapshot is made when the log behind the last one has so many bytes.
    pub snapshot_bytes: u64,
    /// The leader has the members compare their states this often; never if it is zero. Large states are
    /// compared less often.
    pub compare: Duration,
    /// Entries that are kept before a snapshot, for followers that are a little behind.
    pub kept_entries: u64,
    /// Fewer are kept if they and those behind them have more bytes than this.
    pub kept_bytes: u64,
    /// Bytes of a snapshot that go in one message.
    pub chunk: usize,
    /// Bytes of entries that go in one message, but for a single larger one.
    pub message: usize,
    /// Which keys are read atomic; none, where entries are executed after consensus.
    pub read_atomic: ReadAtomic,
    /// For what is drawn at random.
    pub seed: u64,
}

impl MemberOptions {
    /// The defaults, for a node of a partition.
    #[must_use]
    pub fn new(me: NodeId, nodes: Vec<NodeId>) -> MemberOptions {
        MemberOptions {
            me,
            nodes,
            grouping: Grouping::Group(GROUP),
            election: Duration::from_secs(1),
            leases: false,
            session: Duration::from_secs(600),
            sessions: 100_000,
            snapshot_bytes: 256 << 20,
            compare: Duration::from_secs(600),
            kept_entries: 10_000,
            kept_bytes: 64 << 20,
            chunk: 1 << 20,
            message: 8 << 20,
            read_atomic: ReadAtomic::default(),
            seed: u64::from(me.0),
        }
    }

    /// How long a tick takes: the time between heartbeats.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.election / ELECTION_TICKS as u32
    }
}

/// Ticks of the shortest election time-out.
pub(crate) const ELECTION_TICKS: usize = 10;
