//! The options of a member.

use std::time::Duration;

use base::NodeId;
use base::versions::ReadAtomic;

/// The way in which transactions go through consensus (paper 5, sections 3.1.2 and 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Transactions are executed before consensus. The entries of at most this many clients go
    /// through one append, one sync and one transfer. Transactions that a client sends without
    /// waiting count once; with groups of one, each entry goes by itself. Groups are pipelined.
    Group(usize),
    /// Plain Raft, the paper's baseline: one entry at a time goes through consensus, and is
    /// executed after it.
    Naive,
}

/// The number of clients of a group, as in the paper.
pub const GROUP: usize = 64;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// This node.
    pub me: NodeId,
    /// The nodes that hold the partition when it is founded, this one among them.
    pub nodes: Vec<NodeId>,
    /// The way in which transactions go through consensus.
    pub grouping: Grouping,
    /// A follower that hears nothing of its leader for this long, or up to twice as long, wants to
    /// be elected. Heartbeats come ten times as often.
    pub election: Duration,
    /// `true` if a leader may answer reads while it is sure by its clock that no other member
    /// leads. This relies on clocks whose rates differ by less than a tenth.
    pub leases: bool,
    /// A session that was not used for this long is forgotten; its transactions are not executed
    /// afterwards.
    pub session: Duration,
    /// The greatest number of sessions. No more are opened until some have been forgotten.
    pub sessions: usize,
    /// A snapshot is made when the log behind the last one has this many bytes.
    pub snapshot_bytes: u64,
    /// The interval at which the leader makes the members compare their states; zero turns this
    /// off. Large states are compared less often.
    pub compare: Duration,
    /// The number of entries that are kept before a snapshot, for followers that are a little
    /// behind.
    pub kept_entries: u64,
    /// Fewer entries are kept if they and those behind them have more bytes than this.
    pub kept_bytes: u64,
    /// Bytes of a snapshot in one message.
    pub chunk: usize,
    /// Bytes of entries in one message, except for a single larger entry.
    pub message: usize,
    /// The keys that are read atomic; none, if entries are executed after consensus.
    pub read_atomic: ReadAtomic,
    /// The seed of random numbers.
    pub seed: u64,
}

impl MemberOptions {
    /// Returns the defaults for a node of a partition.
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

    /// Returns the length of a tick: the time between heartbeats.
    #[must_use]
    pub fn tick(&self) -> Duration {
        self.election / ELECTION_TICKS as u32
    }
}

/// The number of ticks of the shortest election time-out.
pub(crate) const ELECTION_TICKS: usize = 10;
