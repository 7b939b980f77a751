//! The queries that a thread with clients has for threads with nodes: those to be sent now, and those
//! to be sent later.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::inflight_budget::InflightBudget;
use super::query::{BackendCommand, BackendQuery, BackendReply, ClientId, NodeIndex};
use super::thread_waker::ThreadWaker;
use crate::queue::{Consumer, Producer};

/// Pause before a full queue is tried again.
const RETRY: Duration = Duration::from_micros(100);

/// A queue to a thread with nodes, and one from it.
pub(crate) struct BackendQueues {
    pub(crate) orders: Producer<BackendCommand>,
    pub(crate) replies: Consumer<BackendReply>,
    pub(crate) waker: Arc<ThreadWaker>,
}

struct BackendPeer {
    queues: BackendQueues,
    /// Queries for which the queue had no room.
    late: VecDeque<BackendCommand>,
    /// Something was put since the thread was last woken.
    told: bool,
}

/// A query that is to be sent later; the earliest first.
struct DelayedQuery(Duration, u64, BackendQuery);

impl PartialEq for DelayedQuery {
    fn eq(&self, other: &DelayedQuery) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for DelayedQuery {}
impl PartialOrd for DelayedQuery {
    fn partial_cmp(&self, other: &DelayedQuery) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for DelayedQuery {
    fn cmp(&self, other: &DelayedQuery) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Assigns nodes to the threads with nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeShares {
    /// Threads with nodes that this thread knows.
    pub(crate) backends: usize,
    /// How many of these threads share a node.
    pub(crate) for_each_node: usize,
    /// Which of the threads that share a node this thread uses.
    pub(crate) mine: usize,
}

impl NodeShares {
    fn back_of(self, node: NodeIndex) -> usize {
        (node.0 as usize * self.for_each_node + self.mine % self.for_each_node) % self.backends
    }
}

/// See the module documentation.
pub(crate) struct Outbox {
    pub(crate) inflight: InflightBudget,
    /// Filled while requests are read and replies given; emptied by [`Outbox::flush_queries`].
    pub(crate) orders: Vec<BackendCommand>,
    pub(crate) later: Vec<(Duration, BackendQuery)>,
    backends: Vec<BackendPeer>,
    shares: NodeShares,
    waiting: BinaryHeap<Reverse<DelayedQuery>>,
    waited: u64,
}

impl Outbox {
    /// Creates an outbox. `inflight`: queries that may be with one node.
    pub(crate) fn new(queues: Vec<BackendQueues>, shares: NodeShares, inflight: u32) -> Outbox {
        let backends = queues.into_iter().map(|queues| BackendPeer {
            queues,
            late: VecDeque::new(),
            told: false,
        });
        Outbox {
            inflight: InflightBudget::new(inflight),
            orders: Vec::new(),
            later: Vec::new(),
            backends: backends.collect(),
            shares,
            waiting: BinaryHeap::new(),
            waited: 0,
        }
    }

    /// Returns the number of threads with nodes.
    pub(crate) fn backends(&self) -> usize {
        self.backends.len()
    }

    /// Returns the next reply from one of these threads.
    pub(crate) fn reply(&mut self, backend: usize) -> Option<BackendReply> {
        self.backends[backend].queues.replies.take()
    }

    /// Returns `true` if there are replies.
    pub(crate) fn has_replies(&self) -> bool {
        self.backends
            .iter()
            .any(|backend| backend.queues.replies.count() > 0)
    }

    /// Sends the queries whose time has come, unless their client is gone.
    pub(crate) fn send_delayed(&mut self, now: Duration, lives: impl Fn(ClientId) -> bool) {
        while let Some(Reverse(DelayedQuery(due, ..))) = self.waiting.peek()
            && *due <= now
        {
            let Some(Reverse(DelayedQuery(_, _, query))) = self.waiting.pop() else {
                return;
            };
            if lives(query.client) {
                self.inflight.take(&query);
                self.orders.push(BackendCommand::Send(query));
            }
        }
    }

    /// Puts the queries into the queues.
    pub(crate) fn flush_queries(&mut self) {
        for (due, query) in self.later.drain(..) {
            self.waited += 1;
            self.waiting
                .push(Reverse(DelayedQuery(due, self.waited, query)));
        }
        for order in self.orders.drain(..) {
            let node = match &order {
                BackendCommand::Send(query) => query.node,
                BackendCommand::HangUp(node, _) | BackendCommand::Release(node, _) => *node,
            };
            let backend = &mut self.backends[self.shares.back_of(node)];
            backend.told = true;
            if !backend.late.is_empty() {
                backend.late.push_back(order);
            } else if let Err(order) = backend.queues.orders.put(order) {
                backend.late.push_back(order);
            }
        }
        for backend in &mut self.backends {
            while let Some(order) = backend.late.pop_front() {
                if let Err(order) = backend.queues.orders.put(order) {
                    backend.late.push_front(order);
                    break;
                }
                backend.told = true;
            }
            if std::mem::take(&mut backend.told) {
                backend.queues.waker.wake();
            }
        }
    }

    /// Returns the latest time at which there is something to do; `None`: only after an event.
    pub(crate) fn due(&self, now: Duration) -> Option<Duration> {
        if self.backends.iter().any(|backend| !backend.late.is_empty()) {
            return Some(now + RETRY);
        }
        self.waiting
            .peek()
            .map(|Reverse(DelayedQuery(due, ..))| *due)
    }
}
