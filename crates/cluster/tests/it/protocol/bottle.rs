//! A cluster in a bottle: nodes on model partitions, and messages that pass when the test says so.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::partition::OwnedReply;
use base::{Abort, NodeId, Op};
use fabric::{Event, Link, Messages, Peer, SendError};
use kumiki_cluster::message::{Message, Notice, Request};
use kumiki_cluster::ramp::{Algorithm, PublishedSlots};
use kumiki_cluster::{Node, NodeOptions, Timeouts, Topology, codec};

use crate::protocol::model::Model;

/// A connection: the side that connected has the link of twice its number, the other one the next.
struct Pair {
    ends: [usize; 2],
    up: bool,
    /// Messages on their way to each end.
    towards: [VecDeque<Vec<u8>>; 2],
}

/// A node's calls to the network, noted for the bottle.
struct MessageQueue {
    dialled: Vec<NodeId>,
    sends: Vec<(Link, Vec<u8>)>,
    /// The number of the next connection.
    next: usize,
}

impl Messages for MessageQueue {
    fn connect(&mut self, to: NodeId) -> Link {
        self.dialled.push(to);
        Link(2 * (self.next + self.dialled.len() - 1) as u64)
    }

    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.sends.push((on, message.to_vec()));
        Ok(())
    }

    fn close(&mut self, _: Link) {}
}

/// The link of a peer without a connection.
const STRANGER: Link = Link(u64::MAX - 1);

type Outcome = Result<Vec<OwnedReply>, Abort>;

pub(crate) struct Bottle {
    pub(crate) nodes: Vec<Option<Node<u32>>>,
    pub(crate) models: Vec<Model>,
    pairs: Vec<Pair>,
    next: u64,
    now: Duration,
    pub(crate) outcomes: Vec<(u32, Outcome)>,
    /// Kinds of the messages that have passed.
    pub(crate) passed: Vec<String>,
    /// Pairs of nodes that cannot reach each other.
    severed: BTreeSet<(usize, usize)>,
    /// Answers to peers without a connection.
    heard: Vec<String>,
    topology: Arc<Topology>,
    /// The algorithm of nodes that start from now on.
    pub(crate) algorithm: Algorithm,
    /// Slots of the first node, when it starts next.
    pub(crate) published: Option<Arc<PublishedSlots>>,
}

impl Bottle {
    /// Creates `count` nodes, with ids from 1 on.
    pub(crate) fn new(count: u16) -> Bottle {
        let holders: Vec<_> = (1..=count).map(|id| vec![id]).collect();
        Bottle::holding(count, &holders)
    }

    /// Creates this many nodes, with the nodes that hold each partition. The first of them leads it.
    pub(crate) fn holding(count: u16, holders: &[Vec<u16>]) -> Bottle {
        let mut text = format!("read_atomic = [{:?}]\n", crate::protocol::versions::PREFIX);
        for id in 1..=count {
            text += &format!(
                "[[node]]\nid = {id}\nclient = \"127.0.0.1:{}\"\nfabric = \"127.0.0.1:{}\"\n\
                 replica = \"127.0.0.1:{}\"\n",
                7000 + id,
                8000 + id,
                9000 + id
            );
        }
        let partitions = holders.len() as u16;
        for (id, nodes) in (1..).zip(holders) {
            let (from, to) = (16384 / partitions * (id - 1), 16384 / partitions * id - 1);
            let to = if id == partitions { 16383 } else { to };
            text += &format!(
                "[[partition]]\nid = {id}\nslots = [\"{from}-{to}\"]\nnodes = {nodes:?}\n"
            );
        }
        let topology = Arc::new(Topology::parse(&text, "bottle").unwrap());
        let mut bottle = Bottle {
            nodes: Vec::new(),
            models: (0..count).map(|_| Model::new()).collect(),
            pairs: Vec::new(),
            next: 0,
            now: Duration::ZERO,
            outcomes: Vec::new(),
            passed: Vec::new(),
            severed: BTreeSet::new(),
            heard: Vec::new(),
            topology,
            algorithm: Algorithm::default(),
            published: None,
        };
        for followers in holders.iter().map(|nodes| &nodes[1..]) {
            for follower in followers {
                bottle.models[usize::from(*follower) - 1].elsewhere = Some(None);
            }
        }
        for at in 0..count.into() {
            bottle.nodes.push(None);
            bottle.start(at);
        }
        bottle
    }

    /// Starts a node, or starts it again with the state of its partition.
    pub(crate) fn start(&mut self, at: usize) {
        self.next += 1;
        let options = NodeOptions {
            topology: Arc::clone(&self.topology),
            me: NodeId(at as u16 + 1),
            unique: self.next,
            resolver: true,
            waiting_prepares: kumiki_cluster::WaitingPrepares::default(),
            leaders: Arc::new(kumiki_cluster::Leaders::new(&self.topology)),
            timeouts: Timeouts::default(),
            ramp: self.algorithm,
            published: self.published.clone().filter(|_| at == 0),
        };
        self.nodes[at] = Some(Node::new(options, self.now));
        self.settle(at);
    }

    /// Ends the node's process; its partition keeps its state.
    pub(crate) fn kill(&mut self, at: usize) {
        self.nodes[at] = None;
        for pair in 0..self.pairs.len() {
            if self.pairs[pair].ends.contains(&at) {
                self.cut(pair);
            }
        }
    }

    /// Makes one node the leader of another one's partition.
    pub(crate) fn hand_over(&mut self, from: usize, to: usize, keeps: bool) {
        let [old, new] = self.models.get_disjoint_mut([from, to]).expect("two nodes");
        old.hand_over(new, NodeId(to as u16 + 1), keeps);
        self.settle(from);
        self.settle(to);
    }

    /// Breaks the connections between two nodes, with the messages on their way.
    pub(crate) fn cut_between(&mut self, a: usize, b: usize) {
        for pair in 0..self.pairs.len() {
            let ends = self.pairs[pair].ends;
            if ends == [a, b] || ends == [b, a] {
                self.cut(pair);
            }
        }
    }

    fn cut(&mut self, pair: usize) {
        if !std::mem::replace(&mut self.pairs[pair].up, false) {
            return;
        }
        self.pairs[pair].towards = Default::default();
        for side in 0..2 {
            self.hand(pair, side, Event::Down("cut"));
        }
    }

    fn hand(&mut self, pair: usize, side: usize, event: Event<'_>) {
        let at = self.pairs[pair].ends[side];
        let link = Link((2 * pair + side) as u64);
        if let Some(node) = &mut self.nodes[at] {
            node.event(&mut self.models[at], link, event, self.now);
        }
        self.settle(at);
    }

    /// Delivers a message of a peer without a connection to a node.
    pub(crate) fn say(&mut self, at: usize, who: Peer, message: &Message<'_>) {
        let link = STRANGER;
        let mut bytes = Vec::new();
        codec::encode(message, &mut bytes);
        let (node, model) = (self.nodes[at].as_mut().unwrap(), &mut self.models[at]);
        node.event(model, link, Event::Up(who), self.now);
        node.event(model, link, Event::Message(&bytes), self.now);
        node.event(model, link, Event::Down("said"), self.now);
        self.settle(at);
    }

    /// Returns the immediate answer to a peer without a connection.
    pub(crate) fn answer(&mut self, at: usize, who: Peer, request: Request<'_>) -> String {
        let mut bytes = Vec::new();
        codec::encode(&Message::Request { number: 1, request }, &mut bytes);
        self.heard.clear();
        for event in [Event::Up(who), Event::Message(&bytes), Event::Down("heard")] {
            let (node, model) = (self.nodes[at].as_mut().unwrap(), &mut self.models[at]);
            node.event(model, STRANGER, event, self.now);
            self.settle(at);
        }
        self.heard.pop().expect("an answer at once")
    }

    /// Returns a key of a partition, by its place in the file.
    pub(crate) fn key(&self, at: usize, name: &str) -> String {
        let mine = |key: &String| self.topology.partition_of(key.as_bytes()).0 == at as u16 + 1;
        (0..).map(|n| format!("{name}{n}")).find(mine).unwrap()
    }

    pub(crate) fn begin(&mut self, at: usize, caller: u32, ops: &[Op<'_>]) {
        let node = self.nodes[at].as_mut().unwrap();
        node.begin(&mut self.models[at], ops, caller, self.now);
        self.settle(at);
    }

    /// Lets a node do what it can, makes its connections, and takes the messages that it sends.
    pub(crate) fn settle(&mut self, at: usize) {
        let Some(node) = &mut self.nodes[at] else {
            return;
        };
        node.turn(&mut self.models[at], self.now);
        let mut queue = MessageQueue {
            dialled: Vec::new(),
            sends: Vec::new(),
            next: self.pairs.len(),
        };
        node.pump(&mut queue);
        for done in node.finished() {
            self.outcomes.push((done.caller, done.outcome));
        }
        for (link, bytes) in queue.sends {
            let (pair, side) = (link.0 as usize / 2, link.0 as usize % 2);
            if link == STRANGER {
                self.heard.push(format!("{:?}", codec::decode(&bytes)));
            }
            // Messages on a link without a connection are lost.
            if self.pairs.get(pair).is_some_and(|pair| pair.up) {
                self.pairs[pair].towards[1 - side].push_back(bytes);
            }
        }
        let first = self.pairs.len();
        for to in &queue.dialled {
            let to = usize::from(to.0) - 1;
            self.pairs.push(Pair {
                ends: [at, to],
                up: self.nodes[to].is_some() && !self.severed.contains(&(at.min(to), at.max(to))),
                towards: Default::default(),
            });
        }
        for pair in first..first + queue.dialled.len() {
            if !self.pairs[pair].up {
                self.hand(pair, 0, Event::Down("refused"));
                continue;
            }
            for side in [1, 0] {
                let peer = NodeId(self.pairs[pair].ends[1 - side] as u16 + 1);
                self.hand(pair, side, Event::Up(Peer::Node(peer)));
            }
        }
    }

    /// Separates these two nodes from now on.
    pub(crate) fn sever(&mut self, a: usize, b: usize) {
        self.severed.insert((a.min(b), a.max(b)));
        self.cut_between(a, b);
    }

    pub(crate) fn mend(&mut self) {
        self.severed.clear();
    }

    /// Passes messages until there are none, except those that `stop` names, which stay where they are,
    /// with all messages behind them on their link.
    pub(crate) fn pass(&mut self, stop: impl Fn(&Message<'_>) -> bool) {
        for _ in 0..10_000 {
            let next = (0..2 * self.pairs.len()).find(|at| {
                let towards = &self.pairs[at / 2].towards[at % 2];
                let stops = |bytes: &Vec<u8>| stop(&codec::decode(bytes).unwrap());
                towards.front().is_some_and(|bytes| !stops(bytes))
            });
            let Some(at) = next else {
                return;
            };
            let (pair, side) = (at / 2, at % 2);
            let bytes = self.pairs[pair].towards[side].pop_front().unwrap();
            let to = self.pairs[pair].ends[side];
            self.passed.push(format!(
                "{} {}",
                to + 1,
                short(&codec::decode(&bytes).unwrap())
            ));
            self.hand(pair, side, Event::Message(&bytes));
        }
        panic!(
            "messages pass for ever: {:?}",
            &self.passed[self.passed.len() - 20..]
        );
    }

    pub(crate) fn pass_all(&mut self) {
        self.pass(|_| false);
    }

    /// Lets time pass, and messages with it.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.wait_passing(time, |_| false);
    }

    /// Lets time pass, and messages except those that `stop` names.
    pub(crate) fn wait_passing(&mut self, time: Duration, stop: impl Fn(&Message<'_>) -> bool) {
        let until = self.now + time;
        while self.now < until {
            self.now += Duration::from_millis(20);
            for at in 0..self.nodes.len() {
                self.models[at].time_ms += 20;
                self.settle(at);
            }
            self.pass(&stop);
        }
    }

    /// Returns the outcome of a caller's transaction.
    pub(crate) fn outcome(&self, caller: u32) -> Option<&Outcome> {
        let mut all = self.outcomes.iter().filter(|(who, _)| *who == caller);
        let outcome = all.next().map(|(_, outcome)| outcome);
        assert!(all.next().is_none(), "told twice");
        outcome
    }
}

fn short(message: &Message<'_>) -> &'static str {
    match message {
        Message::Request { request, .. } => match request {
            Request::Execute { .. } => "execute",
            Request::Once { .. } => "once",
            Request::OpenSession => "open session",
            Request::Each { .. } => "each",
            Request::Read { .. } => "read",
            Request::Coordinate { .. } => "coordinate",
            Request::Prepare { .. } => "prepare",
            Request::Commit { .. } => "commit",
            Request::Vote { .. } => "vote?",
            Request::Outcome { .. } => "outcome?",
            Request::Abandon { .. } => "abandon",
            Request::Inquire { .. } => "inquire",
            Request::Topology => "topology",
            Request::Versions { .. } => "versions",
            Request::Ramp { .. } => "put",
            Request::Locate { .. } => "locate",
            Request::Region { .. } => "region",
        },
        Message::Reply { .. } => "reply",
        Message::Notice(Notice::Abort { .. }) => "abort!",
        Message::Notice(Notice::Forget { .. }) => "forget!",
        Message::Introduction(_) => "introduction",
        Message::Publication(_) => "publication",
    }
}
