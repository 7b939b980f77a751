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
//! A client may be the coordinator of such a transaction ([`ramp::write`](crate::ramp::write)): it
//! carries out steps 1, 3, 4 and 6 itself. It does not wait with `Commit` for anything but the votes, and
//! the home looks after an attempt whose client is gone as after one whose node is. Nodes take requests for
//! an attempt only from the client to which its id belongs ([`CoordinatorKey`](crate::CoordinatorKey)).
//!
//! A partition is where its leader is: its participant's state is the same at each of its nodes. A
//! request to another node is answered [`Elsewhere`](base::Abort::Elsewhere), and sent again to the leader. A node that
//! loses the leadership does not know what becomes of writes that were not durable yet: then a missing
//! vote counts as one that did not come, and anything else is asked again. A new leader goes on with
//! what its predecessor has prepared, as a restarted node does.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::participant::Participant;
use base::{Epoch, NodeId, Op, PartitionId};
use fabric::{Event, Link, Messages, Peer};

use crate::clock::HybridClock;
use crate::codec;
use crate::connections::PeerConnections;
use crate::context::NodeContext;
use crate::coordinator::{Coordinator, Finished, RequestedMode, TransactionCaller};
use crate::counters::Counters;
use crate::message::{Message, Publication, Request};
use crate::options::NodeOptions;
use crate::participant::ParticipantService;
use crate::requester::{RequestPurpose, Requester};
use crate::resolver::Resolver;
use crate::router::PartitionRouter;

/// What a node waits for. [`Node::turn`] is due when any of it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeConditions {
    /// It waits for this epoch to become durable.
    pub epoch: Option<Epoch>,
    /// It waits for this time.
    pub wake_at: Option<Duration>,
    /// It waits for holds to be given back.
    pub holds: bool,
}

/// A node, or one thread of it; see the module's description.
pub struct Node<C> {
    context: NodeContext,
    participant: ParticipantService,
    coordinator: Coordinator<C>,
    /// One of the nodes of a process has it.
    resolver: Option<Resolver>,
    /// Links that lead to clients, and the second half of the ids of the attempts that the client at the
    /// other end coordinates, if it has introduced itself.
    clients: HashMap<Link, Option<u64>>,
    /// The number of its leadership, or the node that leads instead, when it was last checked.
    leadership: Option<Result<u64, Option<NodeId>>>,
    next_sweep: Duration,
    /// Messages of publish/subscribe that other nodes have sent.
    publications: Vec<OwnedPublication>,
}

/// A message of publish/subscribe that another node has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPublication {
    /// `true` if it was published to a shard channel.
    pub sharded: bool,
    /// The channel's name.
    pub channel: Box<[u8]>,
    /// The message.
    pub payload: Box<[u8]>,
}

/// Interval at which time-outs are checked.
const SWEEP: Duration = Duration::from_millis(20);

impl<C> Node<C> {
    /// Creates a node at time `now`. Times count from any fixed moment. The first [`Node::turn`] comes
    /// before anything else: it takes all that the partition has prepared for what a restart has left
    /// over.
    #[must_use]
    pub fn new(options: NodeOptions, now: Duration) -> Node<C> {
        let local_partition = options.topology.partition_at(options.me);
        let has_resolver = options.resolver && local_partition.is_some();
        Node {
            participant: ParticipantService::new(options.waiting_prepares, options.published),
            coordinator: Coordinator::new(options.ramp, options.unique),
            resolver: has_resolver.then(|| Resolver::new(now)),
            clients: HashMap::new(),
            leadership: None,
            next_sweep: now,
            publications: Vec::new(),
            context: NodeContext {
                node: options.me,
                local_partition,
                unique: options.unique,
                timeouts: options.timeouts,
                clock: HybridClock::default(),
                now,
                connections: PeerConnections::new(Arc::clone(&options.leaders)),
                answers: VecDeque::new(),
                counters: Counters::default(),
                leaders: options.leaders,
                topology: options.topology,
            },
        }
    }

    /// Returns the partition of a key.
    #[must_use]
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.context.topology.partition_of(key)
    }

    /// Runs a transaction over any partitions; [`Node::finished`] returns its outcome later. Operations
    /// without a key are executed by this node's own partition.
    pub fn begin<P: Participant + ?Sized>(
        &mut self,
        partition: &mut P,
        ops: &[Op<'_>],
        caller: C,
        now: Duration,
    ) {
        self.context.now = now;
        let caller = TransactionCaller::Local(caller);
        self.start(partition, ops, RequestedMode::Default, caller);
        self.handle_answers(partition);
    }

    /// Handles an event of a link.
    pub fn event<P: Participant + ?Sized>(
        &mut self,
        partition: &mut P,
        link: Link,
        event: Event<'_>,
        now: Duration,
    ) {
        self.context.now = now;
        let connections = &mut self.context.connections;
        match event {
            Event::Up(peer) => {
                if peer == Peer::Client {
                    self.clients.insert(link, None);
                }
                connections.link_up(link);
            }
            Event::Drained => connections.link_drained(link),
            Event::Down(why) => {
                self.clients.remove(&link);
                self.participant.link_down(link);
                let lost = connections.link_down(link, why, now);
                self.context.deliver_lost(lost);
            }
            Event::Message(bytes) => match codec::decode(bytes) {
                Ok(message) => self.message(partition, link, message),
                Err(error) => {
                    tracing::error!(%error, "a peer sent a malformed message; its link is closed");
                    connections.close(link);
                }
            },
        }
        self.handle_answers(partition);
    }

    fn message<P: Participant + ?Sized>(
        &mut self,
        partition: &mut P,
        link: Link,
        message: Message<'_>,
    ) {
        let client = self.clients.get(&link);
        if client.is_some_and(|unique| !message.may_come_from_a_client(*unique)) {
            tracing::warn!("a client has sent what only others may; its link is closed");
            return self.context.connections.close(link);
        }
        match message {
            Message::Request { number, request } => match request {
                Request::Coordinate { holds, ops } => {
                    let mode = if holds {
                        RequestedMode::HoldReads
                    } else {
                        RequestedMode::Default
                    };
                    let caller = TransactionCaller::Remote { link, number };
                    self.start(partition, &ops, mode, caller);
                }
                Request::Ramp { algorithm, ops } => {
                    let mode = RequestedMode::ReadAtomic(algorithm);
                    let caller = TransactionCaller::Remote { link, number };
                    self.start(partition, &ops, mode, caller);
                }
                request => {
                    let requester = Requester::Remote { link, number };
                    let context = &mut self.context;
                    self.participant
                        .serve(context, partition, requester, request);
                }
            },
            Message::Reply { number, reply } => {
                let purpose = self.context.connections.answered(link, number, &reply);
                if let Some(purpose) = purpose {
                    self.context.answers.push_back((purpose, Ok(reply)));
                }
            }
            Message::Notice(notice) => {
                self.participant
                    .notice(&mut self.context, partition, notice);
            }
            Message::Publication(publication) => self.publications.push(OwnedPublication {
                sharded: publication.sharded,
                channel: publication.channel.into(),
                payload: publication.payload.into(),
            }),
            Message::Introduction(key) => {
                if let Some(unique) = self.clients.get_mut(&link) {
                    *unique = Some(key.unique());
                }
            }
        }
    }

    fn start<P: Participant + ?Sized>(
        &mut self,
        partition: &mut P,
        ops: &[Op<'_>],
        mode: RequestedMode,
        caller: TransactionCaller<C>,
    ) {
        let mut router = PartitionRouter {
            context: &mut self.context,
            service: &mut self.participant,
            partition,
        };
        self.coordinator.start(&mut router, ops, mode, caller);
    }

    /// Continues all work that can go on: because epochs have become durable, holds were given back, or
    /// time has passed.
    pub fn turn<P: Participant + ?Sized>(&mut self, partition: &mut P, now: Duration) {
        self.context.now = now;
        self.participant.deliver_due(&mut self.context, partition);
        self.handle_answers(partition);
        let has_new_leader = self.check_leadership(partition);
        if self.participant.sees_releases(partition) || has_new_leader {
            self.participant.retry_blocked(&mut self.context, partition);
            self.handle_answers(partition);
        }
        let mut router = PartitionRouter {
            context: &mut self.context,
            service: &mut self.participant,
            partition,
        };
        self.coordinator.begin_due_attempts(&mut router);
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP;
            router.service.sweep(router.context);
            self.coordinator.sweep(&mut router);
            if let Some(resolver) = &mut self.resolver {
                resolver.scan(&mut router, self.coordinator.commit_phase());
            }
        }
        self.handle_answers(partition);
    }

    /// Gives answers to the parts of the node that have asked for them, until there are none.
    fn handle_answers<P: Participant + ?Sized>(&mut self, partition: &mut P) {
        let mut router = PartitionRouter {
            context: &mut self.context,
            service: &mut self.participant,
            partition,
        };
        let router = &mut router;
        loop {
            while let Some((id, note)) = router.service.next_in_doubt() {
                if let Some(resolver) = &mut self.resolver {
                    resolver.resolve(router, id, &note);
                }
            }
            let Some((purpose, answer)) = router.context.answers.pop_front() else {
                return;
            };
            match purpose {
                RequestPurpose::Attempt { attempt, step } => {
                    self.coordinator.on_answer(router, attempt, step, answer);
                }
                RequestPurpose::Commit { id, of } => {
                    self.coordinator.on_acknowledged(router, (id, of), &answer);
                }
                RequestPurpose::Resolve { id, step } => {
                    if let Some(resolver) = &mut self.resolver {
                        let commit_phase = self.coordinator.commit_phase();
                        resolver.on_answer(router, commit_phase, (id, step), &answer);
                    }
                }
            }
        }
    }

    /// Checks if this node has begun or ceased to lead its partition. Returns `true` if it has.
    fn check_leadership<P: Participant + ?Sized>(&mut self, partition: &P) -> bool {
        let Some(own) = self.context.local_partition else {
            return false;
        };
        let leadership = partition.leads().map(|()| partition.leadership());
        if self.leadership == Some(leadership) {
            return false;
        }
        let is_start = self.leadership.replace(leadership).is_none();
        let context = &self.context;
        let leader = leadership.map_or_else(|leader| leader, |_| Some(context.node));
        context.leaders.redirect(own, context.node, leader);
        if let Some(resolver) = &mut self.resolver {
            let grace = if is_start {
                Duration::ZERO
            } else {
                context.timeouts.doubt / 4
            };
            *resolver = Resolver::new(context.now + grace);
        }
        true
    }

    /// Sends other nodes a message of publish/subscribe: all of them, or of a shard channel those of this
    /// node's partition. One that cannot be reached does not get it.
    pub fn publish(&mut self, publication: Publication<'_>) {
        let topology = Arc::clone(&self.context.topology);
        let own = self.context.local_partition;
        let nodes = topology.nodes().iter().map(|node| node.id);
        for node in nodes.filter(|&node| node != self.context.node) {
            if !publication.sharded || own.is_some() && topology.partition_at(node) == own {
                self.context.connections.publish(node, publication);
            }
        }
    }

    /// Returns the messages of publish/subscribe that other nodes have sent since the last call.
    pub fn publications(&mut self) -> impl Iterator<Item = OwnedPublication> + '_ {
        self.publications.drain(..)
    }

    /// Connects the links that are needed, and sends the messages that wait.
    pub fn pump(&mut self, fabric: &mut impl Messages) {
        let context = &mut self.context;
        let lost = context.connections.pump(fabric, context.now);
        context.deliver_lost(lost);
    }

    /// Returns the outcomes since the last call.
    pub fn finished(&mut self) -> impl Iterator<Item = Finished<C>> + '_ {
        self.coordinator.finished()
    }

    /// Returns what the node waits for.
    #[must_use]
    pub fn wake_conditions(&self) -> WakeConditions {
        let has_timeouts = !self.coordinator.is_idle()
            || self.participant.blocked_requests() > 0
            || self.participant.has_pending_answers()
            || self.context.connections.is_connecting();
        // The resolver scans when time-outs are checked.
        let scan = self.resolver.as_ref().map(Resolver::next_scan);
        let times = [
            has_timeouts.then_some(self.next_sweep),
            scan.map(|at| at.max(self.next_sweep)),
            self.coordinator.next_attempt_at(),
            self.context.connections.due(),
        ];
        let has_answers = !self.context.answers.is_empty();
        WakeConditions {
            epoch: self.participant.requested_epoch(),
            wake_at: if has_answers {
                Some(self.context.now)
            } else {
                times.into_iter().flatten().min()
            },
            holds: self.participant.awaits_releases(),
        }
    }

    /// Returns the node's counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.context.counters
    }

    /// Returns how many transactions this node coordinates, and how many requests wait for holds.
    #[must_use]
    pub fn under_way(&self) -> (usize, usize) {
        (
            self.coordinator.under_way(),
            self.participant.blocked_requests(),
        )
    }

    /// Returns `true` if nothing is under way for which others wait.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.coordinator.is_settled()
            && self.participant.blocked_requests() == 0
            && self.participant.requested_epoch().is_none()
            && self.context.connections.is_empty()
    }

    /// Returns how many nodes have a link.
    #[must_use]
    pub fn links_up(&self) -> usize {
        self.context.connections.links_up()
    }
}
