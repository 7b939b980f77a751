//! Messages between nodes and clients.

use base::participant::{Isolation, Sequenced, State};
use base::partition::OwnedReply;
use base::versions::{Ask, OwnedFound};
use base::{Abort, Epoch, Op, PartitionId, Timestamp, TransactionId};

use crate::coordinator_key::CoordinatorKey;
use crate::ramp::Algorithm;
use crate::ramp::slots::Address;

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// Asks for something; the answer carries the same number.
    Request {
        /// Chosen by the sender; not used twice on a link.
        number: u64,
        /// The request.
        request: Request<'a>,
    },
    /// Answers a request.
    Reply {
        /// The number of the request.
        number: u64,
        /// The answer.
        reply: Answer,
    },
    /// Needs no answer.
    Notice(Notice),
    /// Clients of another node have published this; for the subscribers of the receiver. Needs no answer.
    Publication(Publication<'a>),
    /// A client shows the key of the attempts that it coordinates; see [`CoordinatorKey`]. Needs no
    /// answer.
    Introduction(CoordinatorKey),
}

impl Message<'_> {
    /// Returns `true` if a client may send the message: transactions, questions about the cluster, and the
    /// requests of read-atomic writes that it coordinates. The ids of these have `unique`, which the
    /// client has proved to be its own by an introduction, if it has.
    #[must_use]
    pub fn may_come_from_a_client(&self, unique: Option<u64>) -> bool {
        let is_own = |id: &TransactionId| Some(id.unique) == unique;
        let request = match self {
            Message::Request { request, .. } => request,
            Message::Notice(Notice::Abort { id } | Notice::Forget { id }) => return is_own(id),
            Message::Introduction(_) => return true,
            Message::Reply { .. } | Message::Publication(_) => return false,
        };
        match request {
            Request::Execute { .. }
            | Request::Once { .. }
            | Request::OpenSession
            | Request::Each { .. }
            | Request::Coordinate { .. }
            | Request::Versions { .. }
            | Request::Locate { .. }
            | Request::Region { .. }
            | Request::Ramp { .. }
            | Request::Topology => true,
            Request::Prepare { id, isolation, .. } => {
                *isolation == Isolation::ReadAtomic && is_own(id)
            }
            Request::Commit { id, .. } | Request::Abandon { id } => is_own(id),
            Request::Read { .. }
            | Request::Vote { .. }
            | Request::Outcome { .. }
            | Request::Inquire { .. } => false,
        }
    }
}

/// A message of publish/subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// `true` if it was published to a shard channel.
    pub sharded: bool,
    /// The channel's name.
    pub channel: &'a [u8],
    /// The message.
    pub payload: &'a [u8],
}

/// A request. Any of them may be sent again after a link broke, except [`Request::Execute`] and
/// [`Request::Each`] with writes, [`Request::Coordinate`] and [`Request::Ramp`].
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// Executes a transaction of the node's own partition. Answered by `Replies` or `Aborted`.
    Execute {
        /// The operations.
        ops: Vec<Op<'a>>,
    },
    /// Opens a session at the node's own partition, which is replicated. Answered by `Session` or
    /// `Aborted`. The partition forgets a session that is not used.
    OpenSession,
    /// As `Execute`, but for a transaction with a number: it is executed once, however often it is sent.
    Once {
        /// The session, and the number.
        of: Sequenced,
        /// The operations.
        ops: Vec<Op<'a>>,
    },
    /// Executes transactions of the node's own partition, each by itself: the outcome of one says
    /// nothing about the others. Answered by `Each`.
    Each {
        /// The operations of each.
        transactions: Vec<Vec<Op<'a>>>,
    },
    /// Reads this partition's part of a transaction that reads from several. Answered by `Read` or
    /// `Aborted`.
    Read {
        /// The operations; none writes.
        ops: Vec<Op<'a>>,
    },
    /// Executes a transaction over any partitions; the node coordinates. Answered as `Execute`.
    Coordinate {
        /// Keys that are only read are held, too (strict two-phase locking as in paper 1), instead of
        /// being validated. Not allowed with read-atomic keys.
        holds: bool,
        /// The operations.
        ops: Vec<Op<'a>>,
    },
    /// Prepares. Answered by `Replies` (a vote for yes) or `Aborted`.
    Prepare {
        /// The attempt.
        id: TransactionId,
        /// When the transaction began.
        age: Timestamp,
        /// The participants, and the one that decides; see [`ParticipantList`].
        participant_list: ParticipantList,
        /// The keys that the transaction writes; see [`base::change::siblings`].
        siblings: &'a [u8],
        /// How it is isolated from other transactions.
        isolation: Isolation,
        /// This partition's operations.
        ops: Vec<Op<'a>>,
    },
    /// Commits a prepared attempt. Answered by `Done`, also if it is committed already or forgotten.
    Commit {
        /// The attempt.
        id: TransactionId,
        /// A caller waits for the answer: then the participant syncs for it.
        awaited: bool,
    },
    /// Reads versions of read-atomic keys of the node's own partition. Answered by `Versions` or
    /// `Aborted`.
    Versions {
        /// The questions, each by itself.
        asks: Vec<Ask<'a>>,
    },
    /// As `Versions`: reads the newest version of each key, and has it published if the node publishes
    /// versions. Answered by `Located` or `Aborted`.
    Locate {
        /// The keys.
        keys: Vec<&'a [u8]>,
    },
    /// Asks for the region in which the node publishes versions. Answered by `Region`.
    Region {
        /// What the node needs to give the sender access: nothing, for memory of one machine; otherwise
        /// it depends on the kind of memory (see [`RegionAccess`](crate::ramp::RegionAccess)).
        offer: &'a [u8],
    },
    /// As `Coordinate`: the operations only read read-atomic keys, or only write them.
    Ramp {
        /// The algorithm of the read, or the one that determines what versions tell of the keys that
        /// were written with them.
        algorithm: Algorithm,
        /// The operations.
        ops: Vec<Op<'a>>,
    },
    /// Asks for the attempt's state; an unknown attempt is refused first. Answered by `State`.
    Vote {
        /// The attempt.
        id: TransactionId,
    },
    /// Asks the attempt's home for its outcome; an attempt that is unknown there is refused first.
    /// Answered by `AttemptOutcome`.
    Outcome {
        /// The attempt.
        id: TransactionId,
    },
    /// Asks the attempt's home to abort it if it has not committed. Answered by `AttemptOutcome`.
    Abandon {
        /// The attempt.
        id: TransactionId,
    },
    /// Asks whether the attempt's home has forgotten it. Answered by `State`; refuses nothing.
    Inquire {
        /// The attempt.
        id: TransactionId,
    },
    /// Asks for the cluster's file. Answered by `Topology`.
    Topology,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The transaction took effect, or is prepared; the replies in the order of the operations.
    Replies(Vec<OwnedReply>),
    /// The result of a read.
    Read {
        /// An epoch that had finished before this was answered; see
        /// [`base::participant::TransactionExecutor::finished`].
        finished: Epoch,
        /// The replies in the order of the operations; then, for each operation that has a key, the
        /// key's version.
        replies: Vec<OwnedReply>,
    },
    /// The version that was found, for each ask.
    Versions(Vec<OwnedFound>),
    /// The version that was found, for each key, and the address of its slot, if it has one.
    Located {
        /// The versions.
        founds: Vec<OwnedFound>,
        /// The addresses, one for each key.
        addresses: Vec<Option<Address>>,
    },
    /// The region in which the node publishes versions, if it does and the sender can reach it.
    Region(Option<RegionInfo>),
    /// The id of a session that was opened.
    Session(u64),
    /// The outcome of each transaction, in their order.
    Each(Vec<Result<Vec<OwnedReply>, Abort>>),
    /// Nothing has happened, for this reason.
    Aborted(Abort),
    /// It is done.
    Done,
    /// An attempt's state.
    State(State),
    /// An attempt's outcome.
    AttemptOutcome(AttemptOutcome),
    /// The cluster's file.
    Topology(String),
    /// The request could not be served; the text is for people.
    Failed(String),
}

/// What a peer needs in order to read slots.
#[derive(Clone, PartialEq, Eq)]
pub struct RegionInfo {
    /// The grant for the region, as its kind of memory encodes it. It gives access to all that is
    /// published.
    pub grant: Vec<u8>,
    /// The node's clock, in nanoseconds; see [`OwnersClock`](crate::ramp::slots::OwnersClock).
    pub clock: u64,
}

impl std::fmt::Debug for RegionInfo {
    /// Formats the region without the grant.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionInfo")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It has committed, or will.
    Committed,
    /// It has not committed, and will not.
    Aborted,
    /// It is not decided; ask again.
    Open,
}

/// A message that needs no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The attempt has aborted.
    Abort {
        /// The attempt.
        id: TransactionId,
    },
    /// All participants have committed the attempt; no node will ask for it.
    Forget {
        /// The attempt.
        id: TransactionId,
    },
}

/// The participants of an attempt. Kept with each prepared part, as the participant's note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParticipantList {
    /// The participant whose state decides; one of `participants`.
    pub home: PartitionId,
    /// All participants.
    pub participants: Vec<PartitionId>,
}
