//! A node of a cluster, or one thread of it: coordinator of its callers' transactions, participant in
//! those of other nodes. It does no I/O and has no clock: events go in, messages come out.
//!
//! The protocol is two-phase commit over strict two-phase locking, with presumed abort and an
//! implicit commit point:
//!
//! | step | who | what |
//! |---|---|---|
//! | 1 | coordinator | draws the commit timestamp; `Prepare` to all participants |
//! | 2 | participant | executes, holds, writes its part; votes once that is durable |
//! | 3 | coordinator | has all votes: **the transaction is committed**; answers its caller |
//! | 4 | coordinator | `Commit` to all participants |
//! | 5 | participant | makes its part visible, gives its holds back; acknowledges once that is durable |
//! | 6 | coordinator | has all acknowledgements: `Forget` to all |
//!
//! One of the participants is the *home*: the coordinator's own partition if that takes part. Only
//! the home decides when the coordinator does not:
//!
//! | who | finds | does |
//! |---|---|---|
//! | participant | prepared, and no word for a while | asks the home `Outcome` |
//! | home | asked, knows nothing | records a refusal, says aborted |
//! | home | asked, or by itself; prepared | asks all `Vote`; all prepared: commits; one not: aborts |
//! | coordinator | a vote does not come | asks the home `Abandon`; only then may it try again |
//! | home | committed for long, not told to forget | steps 4 to 6 in the coordinator's stead |
//!
//! Invariants:
//! 1. A vote for yes, an acknowledgement, a refusal and an answer to `Abandon` are sent only when their
//!    content is durable. So the commit point survives every crash, and there is one sync on the way to
//!    it.
//! 2. A participant leaves the prepared state only by a decision: the coordinator's, which has all
//!    votes or one against; or the home's.
//! 3. Between `Abandon` and the home's own resolution, the home's own part decides: the one that changes
//!    its state first wins. A coordinator that has asked to abandon counts no more votes.
//! 4. A committed part is remembered until all participants have committed, durably. So "unknown" at the
//!    home means aborted.
//! 5. An older transaction waits for a younger one's holds, a younger one does not wait (wait-die):
//!    transactions never wait in a circle. A transaction keeps its age when it is tried again, so that
//!    each becomes the oldest at last.
//!
//! Transactions that write several read-atomic keys (module [`ramp`](crate::ramp)) are committed in the
//! same way, with three differences: participants hold nothing, so that no transaction waits for
//! another; a participant refuses a timestamp below that of a key's newest version; and the caller is
//! answered at step 6, when all participants show what was written, so that a later read of one of the
//! keys alone sees it.
//!
//! A partition is where its leader is: its participant's state is the same at each of its nodes. A
//! request to another node is answered [`Abort::Elsewhere`], and sent again to the leader. A node that
//! loses the leadership does not know what becomes of writes that were not durable yet: then a missing
//! vote counts as one that did not come, and anything else is asked again. A new leader goes on with
//! what its predecessor has prepared, as a restarted node does.

use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::participant::Participant;
use base::partition::OwnedReply;
use base::{Abort, Epoch, NodeId, Op, PartitionId, TransactionId};
use fabric::{Event, Link, Messages, Peer};

use crate::clock::HybridClock;
use crate::codec;
use crate::coordination::{Coordination, Wish};
use crate::counters::Counters;
use crate::finishing::Finishing;
use crate::leaders::Leaders;
use crate::message::{Answer, Message, Notice, Request};
use crate::options::{NodeOptions, Timeouts};
use crate::parked::{Parked, Waiting};
use crate::pending_answers::PendingAnswers;
use crate::ramp::{Algorithm, Published};
use crate::resolution::Keeper;
use crate::topology::Topology;
use crate::wires::{Lost, Numbered, Wires};

/// The outcome of a caller's transaction, which may be shown.
#[derive(Debug)]
pub struct Finished<C> {
    /// The caller.
    pub caller: C,
    /// The replies in the order of the operations, or why there are none.
    pub outcome: Result<Vec<OwnedReply>, Abort>,
    /// The transaction's time, milliseconds since the Unix epoch.
    pub time_ms: u64,
}

/// What a node waits for. [`Node::turn`] is due when any of it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// It waits for this epoch to become durable.
    pub epoch: Option<Epoch>,
    /// It waits for this time.
    pub wake_at: Option<Duration>,
    /// It waits for holds to be given back.
    pub holds: bool,
}

/// The receiver of an answer.
#[derive(Debug)]
pub(crate) enum Asker {
    /// This node itself.
    Own(Purpose),
    /// A peer.
    Remote { link: Link, number: u64 },
}

/// The sender of a transaction.
pub(crate) enum Caller<C> {
    Own(C),
    Remote { link: Link, number: u64 },
}

/// The reason for a request to a partition: what to do with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A transaction of one other partition.
    Forward { coordination: u64, attempt: u32 },
    /// The first round of a validated read.
    Collect {
        coordination: u64,
        attempt: u32,
        part: usize,
    },
    /// The second round of a validated read.
    Confirm {
        coordination: u64,
        attempt: u32,
        part: usize,
    },
    /// A vote.
    Prepare {
        coordination: u64,
        attempt: u32,
        part: usize,
    },
    /// The home's consent to try again.
    Abandon { coordination: u64, attempt: u32 },
    /// A round of a read-atomic read.
    Versions {
        coordination: u64,
        attempt: u32,
        round: u32,
        part: usize,
    },
    /// An acknowledgement.
    Commit { id: TransactionId, of: PartitionId },
    /// A participant's question to the home.
    Outcome { id: TransactionId },
    /// The home's question to a participant.
    Vote { id: TransactionId, of: PartitionId },
    /// A participant's question whether it may forget.
    Inquire { id: TransactionId },
}

/// A node, or one thread of it; see the module's description.
pub struct Node<C> {
    pub(crate) topology: Arc<Topology>,
    pub(crate) leaders: Arc<Leaders>,
    pub(crate) me: NodeId,
    /// The partition that this node holds, alone or with others.
    pub(crate) own: Option<PartitionId>,
    /// The number of its leadership, or the node that leads instead, at the last look.
    pub(crate) led: Option<Result<u64, Option<NodeId>>>,
    pub(crate) unique: u64,
    pub(crate) timeouts: Timeouts,
    pub(crate) ramp: Algorithm,
    pub(crate) published: Option<Arc<Published>>,
    pub(crate) clock: HybridClock,
    pub(crate) random: fastrand::Rng,
    pub(crate) now: Duration,
    pub(crate) wires: Wires,
    /// Links that lead to clients.
    clients: HashSet<Link>,
    pub(crate) pending_answers: PendingAnswers,
    /// Answers that have come and were not handled yet.
    pub(crate) answers: VecDeque<(Purpose, Result<Answer, Lost>)>,
    pub(crate) coordinations: Numbered<Coordination<C>>,
    pub(crate) next_coordination: u64,
    /// Coordinations that pause before another attempt, by the time at which it begins.
    pub(crate) paused: BinaryHeap<std::cmp::Reverse<(Duration, u64)>>,
    /// Committed attempts that wait for acknowledgements.
    pub(crate) finishing: HashMap<TransactionId, Finishing<C>>,
    pub(crate) parked: Vec<Parked>,
    /// Attempts that have aborted while a part of them was on its way into the log.
    pub(crate) undoing: Vec<TransactionId>,
    pub(crate) waiting: Waiting,
    /// The value of [`Participant::releases`] when the parked requests were last tried.
    pub(crate) releases: u64,
    pub(crate) keeper: Option<Keeper>,
    /// It has warned that a version was lost.
    pub(crate) has_warned: bool,
    finished: Vec<Finished<C>>,
    next_sweep: Duration,
    pub(crate) counters: Counters,
}

/// Interval at which time-outs are checked.
const SWEEP: Duration = Duration::from_millis(20);

impl<C> Node<C> {
    /// Creates a node at time `now`. Times count from any fixed moment. The first [`Node::turn`] comes
    /// before anything else: it takes all that the partition has prepared for what a restart has left
    /// over.
    #[must_use]
    pub fn new(options: NodeOptions, now: Duration) -> Node<C> {
        let own = options.topology.partition_at(options.me);
        Node {
            me: options.me,
            own,
            led: None,
            unique: options.unique,
            timeouts: options.timeouts,
            ramp: options.ramp,
            published: options.published,
            clock: HybridClock::default(),
            random: fastrand::Rng::with_seed(options.unique),
            now,
            wires: Wires::new(Arc::clone(&options.leaders)),
            leaders: options.leaders,
            clients: HashSet::new(),
            pending_answers: PendingAnswers::default(),
            answers: VecDeque::new(),
            coordinations: Numbered::default(),
            next_coordination: 0,
            paused: BinaryHeap::new(),
            finishing: HashMap::new(),
            parked: Vec::new(),
            undoing: Vec::new(),
            waiting: options.waiting,
            releases: 0,
            keeper: (options.keeper && own.is_some()).then(|| Keeper::new(now)),
            has_warned: false,
            finished: Vec::new(),
            next_sweep: now,
            counters: Counters::default(),
            topology: options.topology,
        }
    }

    /// Returns the partition of a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.topology.partition_of(key)
    }

    /// Runs a transaction over any partitions; [`Node::finished`] returns its outcome later. Operations
    /// without a key are executed by this node's own partition.
    pub fn begin(
        &mut self,
        partition: &mut impl Participant,
        ops: &[Op<'_>],
        caller: C,
        now: Duration,
    ) {
        self.now = now;
        self.start(partition, ops, Wish::None, Caller::Own(caller));
        self.work(partition);
    }

    /// Handles an event of a link.
    pub fn event(
        &mut self,
        partition: &mut impl Participant,
        link: Link,
        event: Event<'_>,
        now: Duration,
    ) {
        self.now = now;
        match event {
            Event::Up(peer) => {
                if peer == Peer::Client {
                    self.clients.insert(link);
                }
                self.wires.up(link);
            }
            Event::Drained => self.wires.drained(link),
            Event::Down(why) => {
                self.clients.remove(&link);
                self.leave(link);
                let lost = self.wires.down(link, why, now);
                self.answers
                    .extend(lost.into_iter().map(|(purpose, lost)| (purpose, Err(lost))));
            }
            Event::Message(bytes) => match codec::decode(bytes) {
                Ok(message) => self.message(partition, link, message),
                Err(error) => {
                    tracing::error!(%error, "a peer's message makes no sense; its link is closed");
                    self.wires.hang_up(link);
                }
            },
        }
        self.work(partition);
    }

    fn message(&mut self, partition: &mut impl Participant, link: Link, message: Message<'_>) {
        if self.clients.contains(&link) && !message.may_come_from_a_client() {
            tracing::warn!("a client has sent what only nodes may; its link is closed");
            return self.wires.hang_up(link);
        }
        match message {
            Message::Request { number, request } => match request {
                Request::Coordinate { holds, ops } => {
                    let wish = if holds { Wish::Holds } else { Wish::None };
                    self.start(partition, &ops, wish, Caller::Remote { link, number });
                }
                Request::Ramp { algorithm, ops } => {
                    let wish = Wish::Ramp(algorithm);
                    self.start(partition, &ops, wish, Caller::Remote { link, number });
                }
                request => self.serve(partition, Asker::Remote { link, number }, request),
            },
            Message::Reply { number, reply } => {
                if let Some(purpose) = self.wires.answered(link, number, &reply) {
                    self.answers.push_back((purpose, Ok(reply)));
                }
            }
            Message::Notice(Notice::Abort { id }) => self.on_abort(partition, id),
            Message::Notice(Notice::Forget { id }) => self.on_forget(partition, id),
        }
    }

    /// Continues all work that can go on: because epochs have become durable, holds were given back, or
    /// time has passed.
    pub fn turn(&mut self, partition: &mut impl Participant, now: Duration) {
        self.now = now;
        self.deliver_due(partition);
        self.work(partition);
        if self.see_who_leads(partition) || partition.releases() != self.releases {
            self.releases = partition.releases();
            self.retry_undoing(partition);
            self.retry_parked(partition);
            self.work(partition);
        }
        while let Some(&std::cmp::Reverse((at, number))) = self.paused.peek()
            && at <= now
        {
            self.paused.pop();
            self.attempt(partition, number);
        }
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP;
            self.pending_answers.hurry(now);
            self.sweep_parked();
            self.sweep_coordinations(partition);
            self.sweep_finishing(partition);
            self.keep(partition);
        }
        self.work(partition);
    }

    /// Handles answers until there are none.
    fn work(&mut self, partition: &mut impl Participant) {
        while let Some((purpose, answer)) = self.answers.pop_front() {
            match purpose {
                Purpose::Forward {
                    coordination,
                    attempt,
                } => {
                    self.on_forwarded(partition, (coordination, attempt), answer);
                }
                Purpose::Collect {
                    coordination,
                    attempt,
                    part,
                } => {
                    self.on_collected(partition, (coordination, attempt), part, answer);
                }
                Purpose::Confirm {
                    coordination,
                    attempt,
                    part,
                } => {
                    self.on_confirmed(partition, (coordination, attempt), part, answer);
                }
                Purpose::Prepare {
                    coordination,
                    attempt,
                    part,
                } => {
                    self.on_vote(partition, (coordination, attempt), part, answer);
                }
                Purpose::Abandon {
                    coordination,
                    attempt,
                } => {
                    self.on_abandoned(partition, (coordination, attempt), answer);
                }
                Purpose::Versions {
                    coordination,
                    attempt,
                    round,
                    part,
                } => {
                    let which = (coordination, attempt);
                    self.on_versions(partition, which, (round, part), answer);
                }
                Purpose::Commit { id, of } => self.on_acknowledged(partition, id, of, &answer),
                Purpose::Outcome { id } => self.on_outcome(partition, id, &answer),
                Purpose::Vote { id, of } => self.on_resolver_vote(partition, id, of, answer),
                Purpose::Inquire { id } => self.on_inquired(partition, id, &answer),
            }
        }
    }

    /// Connects the links that are needed, and sends the messages that wait.
    pub fn pump(&mut self, fabric: &mut impl Messages) {
        let lost = self.wires.pump(fabric, self.now);
        self.answers
            .extend(lost.into_iter().map(|(purpose, lost)| (purpose, Err(lost))));
    }

    /// Returns the outcomes since the last call.
    pub fn finished(&mut self) -> impl Iterator<Item = Finished<C>> + '_ {
        self.finished.drain(..)
    }

    /// Returns what the node waits for.
    #[must_use]
    pub fn wants(&self) -> Wants {
        let busy = !self.coordinations.is_empty()
            || !self.parked.is_empty()
            || !self.finishing.is_empty()
            || !self.pending_answers.is_empty()
            || self.wires.is_dialling();
        // The keeper looks when time-outs are checked.
        let keeper = self.keeper.as_ref().map(Keeper::next);
        let keeper = keeper.map(|at| at.max(self.next_sweep));
        let paused = self.paused.peek().map(|std::cmp::Reverse((at, _))| *at);
        let times = [
            busy.then_some(self.next_sweep),
            keeper,
            paused,
            self.wires.due(),
        ];
        let now = !self.answers.is_empty();
        Wants {
            epoch: self.pending_answers.wants(),
            wake_at: if now {
                Some(self.now)
            } else {
                times.into_iter().flatten().min()
            },
            holds: !self.parked.is_empty() || !self.undoing.is_empty(),
        }
    }

    /// Returns the node's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns how many transactions this node coordinates, and how many requests wait for holds.
    #[must_use]
    pub fn under_way(&self) -> (usize, usize) {
        let awaited = self.finishing.values().filter(|f| f.is_awaited()).count();
        (self.coordinations.len() + awaited, self.parked.len())
    }

    /// Returns `true` if nothing is under way for which others wait.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.coordinations.is_empty()
            && self.parked.is_empty()
            && self.pending_answers.wants().is_none()
            && self.wires.is_empty()
            && self.finishing.values().all(Finishing::is_in_stead)
    }

    /// Returns how many nodes have a link.
    #[must_use]
    pub fn links_up(&self) -> usize {
        self.wires.links_up()
    }

    /// Answers the caller.
    pub(crate) fn finish(
        &mut self,
        partition: &impl Participant,
        caller: Caller<C>,
        outcome: Result<Vec<OwnedReply>, Abort>,
    ) {
        match &outcome {
            Ok(_) => self.counters.committed += 1,
            Err(Abort::Unknown { .. }) => self.counters.unknown += 1,
            Err(_) => self.counters.aborted += 1,
        }
        match caller {
            Caller::Own(caller) => self.finished.push(Finished {
                caller,
                outcome,
                time_ms: partition.time_ms(),
            }),
            Caller::Remote { link, number } => {
                let answer = outcome.map_or_else(Answer::Aborted, Answer::Replies);
                self.wires.reply(link, number, answer);
            }
        }
    }
}
