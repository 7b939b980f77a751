//! A thread's connections to nodes. They take queries from the threads with clients, and give them the
//! replies.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slab::Slab;

use super::arena::ReadArena;
use super::link::{LinkContext, LinkLimits, NodeLink};
use super::query::{
    BackendCommand, BackendQuery, BackendReply, ConnectionKey, NodeError, NodeIndex,
};
use super::thread_waker::ThreadWaker;
use super::wire::Wire;
use crate::figures::BackendFigures;
use crate::node_figures::NodeConnectionState;
use crate::nodes::Nodes;
use crate::queue::{Consumer, Producer};
use reactor::{Network, SocketEvent};

/// Queries taken from one queue at a time, so that all threads get their turn.
const TAKEN: usize = 256;
/// Interval at which connections that wait for something are checked.
const TICK: Duration = Duration::from_millis(20);
/// Interval at which a node's silence is reported while it lasts: at each report the other nodes are
/// asked.
const SILENCE_REPORT: Duration = Duration::from_millis(200);
/// Interval at which connections are checked when none waits for anything.
const IDLE_TICK: Duration = Duration::from_millis(500);
/// If the thread checks its connections this late, it was stopped, with its process or its host.
const INTERRUPTED: Duration = Duration::from_secs(1);
/// A shared connection that no client has needed for this long is closed.
const UNNEEDED: Duration = Duration::from_secs(300);
/// A connection that its only client has released is closed after this time. It is long enough that a
/// loop of `WATCH` and `EXEC` does not open a connection each time, which may take a handshake and a
/// password.
const RELEASED: Duration = Duration::from_secs(1);

/// A queue from a thread with clients, and one to it.
pub(crate) struct FrontendQueues {
    /// The number of the thread with clients.
    pub(crate) front: u16,
    pub(crate) orders: Consumer<BackendCommand>,
    pub(crate) replies: Producer<BackendReply>,
    pub(crate) waker: Arc<ThreadWaker>,
}

struct FrontendPeer {
    queues: FrontendQueues,
    /// Replies for which the queue had no room.
    late: VecDeque<BackendReply>,
    /// Something was put since the thread was last woken.
    told: bool,
}

/// See the module documentation.
pub(crate) struct Backend<N: Network, W: Wire> {
    options: Arc<W::Options>,
    limits: LinkLimits,
    nodes: Arc<Nodes>,
    fronts: Vec<FrontendPeer>,
    links: Slab<NodeLink<N, W>>,
    by_key: HashMap<(NodeIndex, ConnectionKey), usize, foldhash::fast::RandomState>,
    /// Links that have something to read or to write.
    ready: Vec<usize>,
    replies: Vec<BackendReply>,
    ticked: Duration,
    /// The time since which the thread has run without interruption.
    running_since: Duration,
    /// The time at which a silence was last reported.
    silence_reported: Duration,
    /// Nodes that had a connection when connections were last checked.
    seen: Vec<NodeIndex>,
    figures: Arc<BackendFigures>,
}

impl<N: Network, W: Wire> Backend<N, W> {
    pub(crate) fn new(
        options: Arc<W::Options>,
        limits: LinkLimits,
        nodes: Arc<Nodes>,
        queues: Vec<FrontendQueues>,
        figures: Arc<BackendFigures>,
    ) -> Backend<N, W> {
        let fronts = queues.into_iter().map(|queues| FrontendPeer {
            queues,
            late: VecDeque::new(),
            told: false,
        });
        Backend {
            options,
            limits,
            nodes,
            fronts: fronts.collect(),
            links: Slab::new(),
            by_key: HashMap::default(),
            ready: Vec::new(),
            replies: Vec::new(),
            ticked: Duration::ZERO,
            running_since: Duration::ZERO,
            silence_reported: Duration::ZERO,
            seen: Vec::new(),
            figures,
        }
    }

    /// Records an event of the connection with this number.
    pub(crate) fn note(
        &mut self,
        link: usize,
        happened: SocketEvent,
        network: &mut N,
        arena: &mut ReadArena,
        now: Duration,
    ) {
        let Some(found) = self.links.get_mut(link) else {
            return;
        };
        let mut around = LinkContext {
            network,
            arena,
            options: &*self.options,
            limits: &self.limits,
            now,
            replies: &mut self.replies,
        };
        found.note(happened, &mut around);
        if !std::mem::replace(&mut self.links[link].listed, true) {
            self.ready.push(link);
        }
    }

    /// Reads replies, takes queries, and writes them. Returns `true` if there is more to do at once.
    pub(crate) fn turn(&mut self, network: &mut N, arena: &mut ReadArena, now: Duration) -> bool {
        let mut more = self.take_orders(network, arena, now);
        let mut ready = std::mem::take(&mut self.ready);
        let mut around = LinkContext {
            network,
            arena,
            options: &*self.options,
            limits: &self.limits,
            now,
            replies: &mut self.replies,
        };
        // A link is read from before it is written to: replies make room for queries.
        ready.retain(|&index| {
            let link = &mut self.links[index];
            link.listed = link.readable && link.read(&mut around);
            link.go_on(&mut around);
            link.listed
        });
        more |= !ready.is_empty();
        self.ready = ready;
        if now >= self.ticked + TICK {
            self.tick(network, arena, now);
        }
        self.report_state();
        more
    }

    fn take_orders(&mut self, network: &mut N, arena: &mut ReadArena, now: Duration) -> bool {
        let mut more = false;
        for front in 0..self.fronts.len() {
            let mut taken = 0;
            while taken < TAKEN
                && let Some(order) = self.fronts[front].queues.orders.take()
            {
                taken += 1;
                match order {
                    BackendCommand::Send(query) => self.assign(query),
                    BackendCommand::HangUp(node, connection_key) => {
                        self.hang_up((node, connection_key), network, arena, now)
                    }
                    BackendCommand::Release(node, connection_key) => {
                        if let Some(&link) = self.by_key.get(&(node, connection_key)) {
                            self.links[link].release(now);
                        }
                    }
                }
            }
            more |= taken == TAKEN;
        }
        more
    }

    /// Gives a query to its link, which is created if there is none.
    fn assign(&mut self, query: BackendQuery) {
        let key = (query.node, query.connection_key);
        let link = match self.by_key.get(&key) {
            Some(&link) => link,
            None => self.make(key),
        };
        self.links[link].push(query);
        if !std::mem::replace(&mut self.links[link].listed, true) {
            self.ready.push(link);
        }
    }

    fn hang_up(
        &mut self,
        key: (NodeIndex, ConnectionKey),
        network: &mut N,
        arena: &mut ReadArena,
        now: Duration,
    ) {
        let Some(link) = self.by_key.remove(&key) else {
            return;
        };
        self.ready.retain(|&ready| ready != link);
        let mut around = LinkContext {
            network,
            arena,
            options: &*self.options,
            limits: &self.limits,
            now,
            replies: &mut self.replies,
        };
        self.links.remove(link).fail(NodeError::HungUp, &mut around);
    }

    fn make(&mut self, key: (NodeIndex, ConnectionKey)) -> usize {
        let entry = self.links.vacant_entry();
        let link = entry.key();
        let address = self.nodes.address(key.0);
        entry.insert(NodeLink::new(
            key.0,
            key.1,
            address,
            super::token::link_token(link),
        ));
        self.by_key.insert(key, link);
        link
    }

    fn tick(&mut self, network: &mut N, arena: &mut ReadArena, now: Duration) {
        if now >= self.ticked + INTERRUPTED {
            self.running_since = now;
        }
        self.ticked = now;
        let mut around = LinkContext {
            network,
            arena,
            options: &*self.options,
            limits: &self.limits,
            now,
            replies: &mut self.replies,
        };
        let gone = self
            .seen
            .drain(..)
            .map(|node| (node, NodeConnectionState::default()));
        let mut in_hand: HashMap<NodeIndex, NodeConnectionState> = gone.collect();
        let (mut unneeded, mut released) = (Vec::new(), Vec::new());
        for (_, link) in &mut self.links {
            let node = self.nodes.figures(link.node);
            link.hint(node.hints.load(Ordering::Relaxed), &mut around);
            link.tick(node.replaced(), self.running_since, &mut around);
            link.go_on(&mut around);
            if link.is_unneeded(UNNEEDED, now) {
                unneeded.push((link.node, link.connection_key));
            } else if link.is_released(RELEASED, now) {
                released.push((link.node, link.connection_key));
            }
            let figures = std::mem::take(&mut link.figures);
            self.figures.add(link.node, figures);
            let now = in_hand.entry(link.node).or_default();
            now.waiting += link.waiting();
            now.under_way += link.under_way();
            now.connections += usize::from(link.is_up());
            now.awaited += usize::from(link.is_awaited());
            now.silent +=
                usize::from(link.is_silent(self.ticked, self.running_since, &self.limits));
        }
        if in_hand.values().any(|now| now.silent > 0)
            && now >= self.silence_reported + SILENCE_REPORT
        {
            self.silence_reported = now;
            self.nodes.report_silence();
        }
        for (&node, &now) in &in_hand {
            self.figures.set(node, now);
        }
        self.seen
            .extend(self.links.iter().map(|(_, link)| link.node));
        self.seen.sort_unstable();
        self.seen.dedup();
        for key in released {
            self.hang_up(key, network, arena, now);
        }
        for key in unneeded {
            // Of the lost connections one stays, to notice when the node is back.
            let left = in_hand.entry(key.0).or_default();
            if left.connections > 0 || left.awaited > 1 {
                left.awaited = left.awaited.saturating_sub(1);
                self.hang_up(key, network, arena, now);
            }
        }
    }

    /// Puts the replies into the queues of the threads that wait for them.
    fn report_state(&mut self) {
        for reply in self.replies.drain(..) {
            let thread = reply.query.client.thread;
            let front = self
                .fronts
                .iter_mut()
                .find(|front| front.queues.front == thread);
            let front = front.expect("a query comes from a thread with queues");
            front.told = true;
            if !front.late.is_empty() {
                front.late.push_back(reply);
            } else if let Err(reply) = front.queues.replies.put(reply) {
                front.late.push_back(reply);
            }
        }
        for front in &mut self.fronts {
            while let Some(reply) = front.late.pop_front() {
                if let Err(reply) = front.queues.replies.put(reply) {
                    front.late.push_front(reply);
                    break;
                }
                front.told = true;
            }
            if std::mem::take(&mut front.told) {
                front.queues.waker.wake();
            }
        }
    }

    /// Returns `true` if a queue has a command to take. Called before the thread sleeps.
    pub(crate) fn has_work(&self) -> bool {
        self.fronts
            .iter()
            .any(|front| front.queues.orders.count() > 0)
    }

    /// Returns how long the thread may sleep.
    pub(crate) fn timeout(&self) -> Duration {
        let late = self.fronts.iter().any(|front| !front.late.is_empty());
        if late {
            return Duration::from_micros(100);
        }
        match self.links.iter().all(|(_, link)| link.is_idle()) {
            true => IDLE_TICK,
            false => TICK,
        }
    }

    /// Fails all connections and their queries.
    pub(crate) fn stop(&mut self, network: &mut N, arena: &mut ReadArena, now: Duration) {
        let mut around = LinkContext {
            network,
            arena,
            options: &*self.options,
            limits: &self.limits,
            now,
            replies: &mut self.replies,
        };
        for (_, link) in &mut self.links {
            link.fail(NodeError::Stopping, &mut around);
        }
        self.report_state();
    }
}
