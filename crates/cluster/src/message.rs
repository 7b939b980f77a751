//! What nodes and clients say to each other.

use base::participant::{Isolation, Sequenced, State};
use base::partition::OwnedReply;
use base::versions::{Ask, OwnedFound};
use base::{Abort, Epoch, Op, PartitionId, Timestamp, TransactionId};

use crate::ramp::Algorithm;
use crate::ramp::slots::Address;

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// Asks for something; the answer carries the same number.
    Request {
        /// Chosen by who asks; not used twice on a link.
        number: u64,
        /// What is asked.
        request: Request<'a>,
    },
    /// Answers a request.
    Reply {
        /// The request's.
        number: u64,
        /// The answer.
        reply: Answer,
    },
    /// Needs no answer.
    Notice(Notice),
}

impl Message<'_> {
    /// Whether a client may send it: transactions, and questions about the cluster.
    #[must_use]
    pub fn may_come_from_a_client(&self) -> bool {
        let Message::Request { request, .. } = self else {
            return false;
        };
        matches!(
            request,
            Request::Execute { .. }
                | Request::Once { .. }
                | Request::OpenSession
                | Request::Each { .. }
                | Request::Coordinate { .. }
                | Request::Versions { .. }
                | Request::Locate { .. }
                | Request::Region { .. }
                | Request::Ramp { .. }
                | Request::Topology
        )
    }
}

/// What can be asked. Any of them may be asked again after a link broke, except
/// [`Request::Execute`] and [`Request::Each`] with writes, [`Request::Coordinate`] and
/// [`Request::Ramp`].
#[derive(Clone, Debug, PartialEq)]
pub enum Request<'a> {
    /// Executes a transaction of the node's own partition. Answered by `Replies` or `Aborted`.
    Execute {
        /// The operations.
        ops: Vec<Op<'a>>,
    },
    /// Opens a session at the node's own partition, which is replicated. Answered by `Session` or
    /// `Aborted`. A session that nobody has heard of is forgotten by itself.
    OpenSession,
    /// As `Execute`, however often it is asked: a transaction with a number is executed once.
    Once {
        /// The session, and the number.
        of: Sequenced,
        /// The operations.
        ops: Vec<Op<'a>>,
    },
    /// Executes transactions of the node's own partition, each by itself: what becomes of one says
    /// nothing of the others. Answered by `Each`.
    Each {
        /// The operations of each.
        transactions: Vec<Vec<Op<'a>>>,
    },
    /// Reads of the node's own partition what a transaction over several reads. Answered by `Read`
    /// or `Aborted`.
    Read {
        /// The operations; none writes.
        ops: Vec<Op<'a>>,
    },
    /// Executes a transaction of any partitions; the node coordinates. Answered as `Execute`.
    Coordinate {
        /// Whether what is only read is held, too (strict two-phase locking as in paper 1), instead of
        /// being validated. With read-atomic keys it is not allowed.
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
        /// Who decides; see [`Roll`].
        roll: Roll,
        /// The keys that the transaction writes; see [`base::change::siblings`].
        siblings: &'a [u8],
        /// How others are kept apart from it.
        isolation: Isolation,
        /// This partition's operations.
        ops: Vec<Op<'a>>,
    },
    /// Commits what is prepared. Answered by `Done`, also if it is committed or forgotten.
    Commit {
        /// The attempt.
        id: TransactionId,
        /// Whether somebody waits for the answer: then a sync is worth it.
        awaited: bool,
    },
    /// Looks at versions of read-atomic keys of the node's own partition. Answered by `Versions` or
    /// `Aborted`.
    Versions {
        /// What is asked, each by itself.
        asks: Vec<Ask<'a>>,
    },
    /// As `Versions`: looks at the newest version of each key, and has it published if the node
    /// does that. Answered by `Located` or `Aborted`.
    Locate {
        /// The keys.
        keys: Vec<&'a [u8]>,
    },
    /// Asks where the node publishes versions. Answered by `Region`.
    Region {
        /// By what the asker would reach it: nothing, for memory of one machine; else what the kind
        /// of memory needs of him (see [`Door`](crate::ramp::Door)).
        offer: &'a [u8],
    },
    /// As `Coordinate`: the operations read read-atomic keys, or write them, and do nothing else.
    Ramp {
        /// How they are read, or what versions tell of those that were written with them.
        algorithm: Algorithm,
        /// The operations.
        ops: Vec<Op<'a>>,
    },
    /// Asks for the state; an attempt that is unknown is refused first. Answered by `State`.
    Vote {
        /// The attempt.
        id: TransactionId,
    },
    /// Asks the attempt's home what became of it; an attempt that is unknown there is refused first.
    /// Answered by `Fate`.
    Outcome {
        /// The attempt.
        id: TransactionId,
    },
    /// Asks the attempt's home to abort it if it has not committed. Answered by `Fate`.
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

/// What answers can be.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The transaction took effect, or is prepared; the replies in the order of the operations.
    Replies(Vec<OwnedReply>),
    /// What was read.
    Read {
        /// An epoch that had finished before this was answered; see
        /// [`base::participant::Participant::finished`].
        finished: Epoch,
        /// The replies in the order of the operations; then, for each operation that has a key, the
        /// key's version.
        replies: Vec<OwnedReply>,
    },
    /// What was found, for each ask.
    Versions(Vec<OwnedFound>),
    /// What was found, for each key, and where its slot is, if it has one.
    Located {
        /// What was found.
        founds: Vec<OwnedFound>,
        /// As many.
        addresses: Vec<Option<Address>>,
    },
    /// Where the node publishes versions, if it does and the asker can reach it so.
    Region(Option<RegionInfo>),
    /// The id of a session that was opened.
    Session(u64),
    /// What became of each transaction, in their order.
    Each(Vec<Result<Vec<OwnedReply>, Abort>>),
    /// Nothing has happened, because of this.
    Aborted(Abort),
    /// It is done.
    Done,
    /// An attempt's state.
    State(State),
    /// What became of an attempt.
    Fate(Fate),
    /// The cluster's file, as it is.
    Topology(String),
    /// The request could not be served; said for people.
    Failed(String),
}

/// What a peer needs to read slots.
#[derive(Clone, PartialEq, Eq)]
pub struct RegionInfo {
    /// For the region, as its kind of memory encodes it. Whoever has it reads all that is published.
    pub grant: Vec<u8>,
    /// The node's clock, in nanoseconds; see [`OwnersClock`](crate::ramp::slots::OwnersClock).
    pub clock: u64,
}

impl std::fmt::Debug for RegionInfo {
    /// Without the grant.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionInfo")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has committed, or will.
    Committed,
    /// It has not, and will not.
    Aborted,
    /// It is not decided; ask again.
    Open,
}

/// What needs no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The attempt has aborted.
    Abort {
        /// The attempt.
        id: TransactionId,
    },
    /// Everybody has committed the attempt; nobody will ask for it.
    Forget {
        /// The attempt.
        id: TransactionId,
    },
}

/// Who takes part in an attempt. Kept with each prepared part, as the participant's note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roll {
    /// The participant whose state decides; one of `participants`.
    pub home: PartitionId,
    /// All participants.
    pub participants: Vec<PartitionId>,
}
