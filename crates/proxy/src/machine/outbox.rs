//! What a thread with clients has for threads with nodes: queries to be sent now, and those that are
//! to be sent later.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::bell::Bell;
use super::query::{ClientId, NodeIndex, Order, Query, Reply};
use super::room::Room;
use crate::queue::{Consumer, Producer};

/// A full queue is tried again after this.
const RETRY: Duration = Duration::from_micros(100);

/// A queue to and one from a thread with nodes.
pub(crate) struct Hatch {
    pub(crate) orders: Producer<Order>,
    pub(crate) replies: Consumer<Reply>,
    pub(crate) bell: Arc<Bell>,
}

struct Back {
    hatch: Hatch,
    /// Queries for which the queue had no room.
    late: VecDeque<Order>,
    /// Something was put since its bell was rung.
    told: bool,
}

/// A query that is to be sent later; the earliest first.
struct Later(Duration, u64, Query);

impl PartialEq for Later {
    fn eq(&self, other: &Later) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Later {}
impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Later) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Later {
    fn cmp(&self, other: &Later) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Which of the threads with nodes has which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// Threads with nodes that this thread knows.
    pub(crate) backs: usize,
    /// How many of them share a node.
    pub(crate) for_each_node: usize,
    /// Which of those that share a node this thread takes.
    pub(crate) mine: usize,
}

impl Shares {
    fn back_of(self, node: NodeIndex) -> usize {
        (node.0 as usize * self.for_each_node + self.mine % self.for_each_node) % self.backs
    }
}

/// See the module's page.
pub(crate) struct Outbox {
    pub(crate) room: Room,
    /// Filled while requests are read and replies given; emptied by [`Outbox::hand_on`].
    pub(crate) orders: Vec<Order>,
    pub(crate) later: Vec<(Duration, Query)>,
    backs: Vec<Back>,
    shares: Shares,
    waiting: BinaryHeap<Reverse<Later>>,
    waited: u64,
}

impl Outbox {
    /// `room`: queries that may be with one node.
    pub(crate) fn new(hatches: Vec<Hatch>, shares: Shares, room: u32) -> Outbox {
        let backs = hatches.into_iter().map(|hatch| Back {
            hatch,
            late: VecDeque::new(),
            told: false,
        });
        Outbox {
            room: Room::new(room),
            orders: Vec::new(),
            later: Vec::new(),
            backs: backs.collect(),
            shares,
            waiting: BinaryHeap::new(),
            waited: 0,
        }
    }

    /// Threads with nodes.
    pub(crate) fn backs(&self) -> usize {
        self.backs.len()
    }

    /// The next reply from one of them.
    pub(crate) fn reply(&mut self, back: usize) -> Option<Reply> {
        self.backs[back].hatch.replies.take()
    }

    /// Whether there are replies.
    pub(crate) fn has_replies(&self) -> bool {
        self.backs.iter().any(|back| back.hatch.replies.count() > 0)
    }

    /// Sends what has waited for its time, unless nobody waits for it any more.
    pub(crate) fn send_what_waited(&mut self, now: Duration, lives: impl Fn(ClientId) -> bool) {
        while let Some(Reverse(Later(due, ..))) = self.waiting.peek()
            && *due <= now
        {
            let Some(Reverse(Later(_, _, query))) = self.waiting.pop() else {
                return;
            };
            if lives(query.client) {
                self.room.take(&query);
                self.orders.push(Order::Send(query));
            }
        }
    }

    /// Puts the queries into the rings.
    pub(crate) fn hand_on(&mut self) {
        for (due, query) in self.later.drain(..) {
            self.waited += 1;
            self.waiting.push(Reverse(Later(due, self.waited, query)));
        }
        for order in self.orders.drain(..) {
            let node = match &order {
                Order::Send(query) => query.node,
                Order::HangUp(node, _) | Order::Release(node, _) => *node,
            };
            let back = &mut self.backs[self.shares.back_of(node)];
            back.told = true;
            if !back.late.is_empty() {
                back.late.push_back(order);
            } else if let Err(order) = back.hatch.orders.put(order) {
                back.late.push_back(order);
            }
        }
        for back in &mut self.backs {
            while let Some(order) = back.late.pop_front() {
                if let Err(order) = back.hatch.orders.put(order) {
                    back.late.push_front(order);
                    break;
                }
                back.told = true;
            }
            if std::mem::take(&mut back.told) {
                back.hatch.bell.ring();
            }
        }
    }

    /// When there is something to do at the latest; `None`: when something happens.
    pub(crate) fn due(&self, now: Duration) -> Option<Duration> {
        if self.backs.iter().any(|back| !back.late.is_empty()) {
            return Some(now + RETRY);
        }
        self.waiting.peek().map(|Reverse(Later(due, ..))| *due)
    }
}
