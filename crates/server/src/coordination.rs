//! A runtime's part of the cluster: its [`Node`], and the links to other nodes, [`NodeLinks`].
//!
//! In each turn of the loop, messages that came on links go to the node; then connections are
//! served, which may begin transactions; then the node makes progress, its messages are sent, and
//! outcomes are answered. A connection waits for its transaction, so that its replies keep their
//! order.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use base::{NodeId, Op};
use cluster::message::Publication;
use cluster::ramp::{Algorithm, PublishedSlots};
use cluster::{Finished, Node, NodeOptions, WakeConditions};
use fabric::tcp::Tcp;
use fabric::{Event, Inbox, Link, Messages, Peer, SendError};
use reactor::{Network, SocketEvent};

use crate::config::Membership;
use crate::partition::Worker;
use crate::routing::{ClusterStatistics, Routes};
use channels::ChannelMessage;

/// The shortest interval at which leaders are looked for.
const SEARCH_INTERVAL: Duration = Duration::from_millis(500);

/// The connection that a transaction belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoordinationCaller {
    /// The connection's number in its runtime; another connection may have the number by now.
    pub(crate) key: usize,
    /// The number of the transaction.
    pub(crate) number: u64,
}

/// See the module's description.
pub(crate) struct RuntimeNode {
    routes: Arc<Routes>,
    runtime: usize,
    node: Node<CoordinationCaller>,
    inbox: Inbox,
    last_number: u64,
    /// When the leaders of other partitions were last looked for.
    searched: Option<Duration>,
    statistics: ClusterStatistics,
}

impl RuntimeNode {
    pub(crate) fn new(
        membership: &Membership,
        (ramp, published): (Algorithm, Option<Arc<PublishedSlots>>),
        routes: Arc<Routes>,
        runtime: usize,
        now: Duration,
    ) -> RuntimeNode {
        let options = NodeOptions {
            topology: Arc::clone(&membership.topology),
            me: membership.node,
            unique: RandomState::new().hash_one(runtime),
            resolver: runtime == 0,
            waiting_prepares: routes.waiting.clone(),
            leaders: Arc::clone(&routes.leaders),
            timeouts: membership.timeouts,
            ramp,
            published,
        };
        RuntimeNode {
            routes,
            runtime,
            node: Node::new(options, now),
            inbox: Inbox::default(),
            last_number: 0,
            searched: None,
            statistics: ClusterStatistics::default(),
        }
    }

    /// Gives the node the messages that came on links.
    pub(crate) fn receive<N: Network>(
        &mut self,
        links: &mut NodeLinks<N>,
        network: &mut N,
        worker: &mut Worker,
        now: Duration,
    ) -> ReceivedMessages {
        links.fabric.tick(network, now);
        let more = links.fabric.receive(network, &mut self.inbox);
        let any = !self.inbox.is_empty();
        for (link, event) in self.inbox.iter() {
            links.note(&self.routes, link, &event);
            self.node.event(worker.participant(), link, event, now);
        }
        self.inbox.clear();
        ReceivedMessages { any, more }
    }

    /// Begins a transaction for the connection with number `key`. Returns the transaction's number.
    pub(crate) fn begin(
        &mut self,
        worker: &mut Worker,
        ops: &[Op<'_>],
        key: usize,
        now: Duration,
    ) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.node.begin(
            worker.participant(),
            ops,
            CoordinationCaller { key, number },
            now,
        );
        number
    }

    /// Reads a key of each replicated partition of other nodes, so that this node learns its
    /// leader.
    pub(crate) fn look_for_leaders(&mut self, worker: &mut Worker, now: Duration) {
        if self
            .searched
            .is_some_and(|searched| now < searched + SEARCH_INTERVAL)
        {
            return;
        }
        self.searched = Some(now);
        for key in self.routes.keys_of_others() {
            let (key, number) = (key.as_bytes(), 0);
            let no_caller = CoordinationCaller {
                key: usize::MAX,
                number,
            };
            let ops = [Op::Exists { key }];
            self.node.begin(worker.participant(), &ops, no_caller, now);
        }
    }

    /// Lets the node make progress. Outcomes are added to `finished`.
    pub(crate) fn progress(
        &mut self,
        worker: &mut Worker,
        now: Duration,
        finished: &mut Vec<Finished<CoordinationCaller>>,
    ) {
        self.node.turn(worker.participant(), now);
        finished.extend(self.node.finished());
    }

    /// Sends a message of publish/subscribe to the nodes whose clients may subscribe to its channel.
    pub(crate) fn publish(&mut self, message: &ChannelMessage) {
        self.node.publish(Publication {
            sharded: message.sharded,
            channel: &message.channel,
            payload: &message.payload,
        });
    }

    /// Returns the messages of publish/subscribe that have come from other nodes.
    pub(crate) fn publications(&mut self) -> Vec<Arc<ChannelMessage>> {
        let publications = self.node.publications();
        let messages = publications.map(|publication| ChannelMessage {
            sharded: publication.sharded,
            channel: publication.channel,
            payload: publication.payload,
        });
        messages.map(Arc::new).collect()
    }

    /// Sends the node's messages.
    pub(crate) fn send<N: Network>(&mut self, links: &mut NodeLinks<N>, network: &mut N) {
        self.node.pump(links);
        links.fabric.flush(network);
        let (coordinating, waiting) = self.node.under_way();
        let statistics = ClusterStatistics {
            counters: self.node.counters(),
            coordinating,
            waiting,
            links: self.node.links_up(),
            through_memory: links.fabric.links_through_memory(),
            send_receive: links.fabric.links_by_send_receive(),
            encrypted: links.fabric.links_encrypted(),
        };
        if self.statistics != statistics {
            self.statistics = statistics;
            self.routes.note_statistics(self.runtime, statistics);
        }
    }

    /// Returns the epochs that the node waits for.
    pub(crate) fn wants(&self) -> WakeConditions {
        self.node.wake_conditions()
    }

    /// Returns `true` if no transaction would be left undecided if the server stopped now.
    pub(crate) fn is_idle(&self) -> bool {
        self.node.is_settled()
    }
}

/// The outcome of receiving messages of other nodes.
pub(crate) struct ReceivedMessages {
    /// At least one message came.
    pub(crate) any: bool,
    /// More messages have come than were taken.
    pub(crate) more: bool,
}

/// The links, and to which node each of them leads.
pub(crate) struct NodeLinks<N: Network> {
    fabric: Tcp<N>,
    /// The node at the other end, and `true` if the link is up.
    nodes: HashMap<Link, (NodeId, bool)>,
}

impl<N: Network> Messages for NodeLinks<N> {
    fn connect(&mut self, to: NodeId) -> Link {
        let link = self.fabric.connect(to);
        self.nodes.insert(link, (to, false));
        link
    }

    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.fabric.send(on, message)
    }

    fn close(&mut self, link: Link) {
        self.fabric.close(link);
    }
}

impl<N: Network> NodeLinks<N> {
    pub(crate) fn new(fabric: Tcp<N>) -> NodeLinks<N> {
        NodeLinks {
            fabric,
            nodes: HashMap::new(),
        }
    }

    /// Notes an event of the loop that is about a link.
    pub(crate) fn note_event(&mut self, event: SocketEvent) {
        self.fabric.on_event(event);
    }

    /// Waits for events of the network, and looks at links through memory meanwhile.
    pub(crate) fn wait(
        &self,
        network: &mut N,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> std::io::Result<()> {
        self.fabric.wait(network, happened, timeout)
    }

    /// Returns the time until the links must be looked at.
    pub(crate) fn due_in(&self, now: Duration) -> Option<Duration> {
        self.fabric.timeout(now)
    }

    /// Begins to close all links: the node sends and receives nothing more.
    pub(crate) fn close_all(&mut self) {
        self.fabric.close_all();
    }

    /// Continues to send what waited on links when they were closed. Returns the time until they
    /// must be looked at again; `None`: all have ended.
    pub(crate) fn continue_closing(&mut self, network: &mut N, now: Duration) -> Option<Duration> {
        let mut inbox = Inbox::default();
        self.fabric.tick(network, now);
        self.fabric.receive(network, &mut inbox);
        self.fabric.flush(network);
        let left = self.fabric.connections() > 0;
        left.then(|| self.fabric.timeout(now).unwrap_or(Duration::MAX))
    }

    /// Records which nodes can be reached.
    fn note(&mut self, routes: &Routes, link: Link, event: &Event<'_>) {
        match event {
            Event::Up(Peer::Node(node)) => {
                self.nodes.insert(link, (*node, true));
                routes.note_up(*node);
            }
            Event::Down(_) => {
                if let Some((node, was_up)) = self.nodes.remove(&link) {
                    routes.note_down(node, was_up);
                }
            }
            _ => {}
        }
    }
}
