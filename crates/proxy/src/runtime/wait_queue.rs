//! Connections whose next request has no room with its node, in the order in which they came.
//!
//! Invariants:
//! 1. A client that waits for a node is woken when the node has room for its request, and no more
//!    clients are woken than there is room for: a slow node costs the clients of other nodes nothing.
//! 2. The room is kept for the clients that were woken until they have been served. A client that comes
//!    while others wait goes behind them. So no client is overtaken again and again.
//! 3. A request that needs several nodes at once might find each of them free, and never all. Those
//!    requests stand in a line. For the first request in it, the room that it has got of some nodes is
//!    kept until it has got the others. This is at most half of a node's room, and one request for each
//!    thread: while one of the request's nodes is slow, clients of its other nodes have the other half.

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::inflight_budget::{InflightBudget, QueryCounts};
use super::query::NodeIndex;

/// A client that waits for a node, and how much of the node's room it needs.
#[derive(Debug)]
struct Waiter {
    place: usize,
    wanted: u32,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// Waiters by node. A waiter that `waits` does not contain with this node any more has gone.
    queues: Vec<VecDeque<Waiter>>,
    /// The node that each client waits for, by place.
    waits: HashMap<usize, NodeIndex, RandomState>,
    /// Clients that wait for something other than a node's room, which a reply may bring.
    others: VecDeque<usize>,
    /// Nodes that may have room again.
    freed: Vec<NodeIndex>,
    /// A reply has come.
    answered: bool,
    /// Room that is kept for clients that have been woken and not yet served, by place.
    granted: HashMap<usize, (NodeIndex, u32), RandomState>,
    /// Clients whose requests need several nodes, by their tickets, in the order in which they came.
    line: BTreeMap<u64, usize>,
    tickets: HashMap<usize, u64, RandomState>,
    last_ticket: u64,
    /// Room that is kept for the first in the line.
    claim: QueryCounts,
}

impl WaitQueue {
    /// Records that a node has answered.
    pub(crate) fn freed(&mut self, node: NodeIndex) {
        self.answered = true;
        self.look_at(node);
    }

    /// Has the clients that wait for the node checked: there may be room now.
    fn look_at(&mut self, node: NodeIndex) {
        let queue = self.queues.get(node.0 as usize);
        let awaited = queue.is_some_and(|queue| !queue.is_empty());
        if awaited && !self.freed.contains(&node) {
            self.freed.push(node);
        }
    }

    /// Calls `wake` for the clients for which there is room, and keeps the room for them. A node is
    /// checked again in the next turn as long as a client was woken and others wait: the client that
    /// was woken may have gone, or may not have needed the room.
    pub(crate) fn wake(&mut self, inflight: &mut InflightBudget, mut wake: impl FnMut(usize)) {
        if std::mem::take(&mut self.answered) {
            self.others.drain(..).for_each(&mut wake);
        }
        let (queues, waits, granted) = (&mut self.queues, &mut self.waits, &mut self.granted);
        self.freed.retain(|&node| {
            let queue = &mut queues[node.0 as usize];
            let mut woken = false;
            while let Some(&Waiter { place, wanted }) = queue.front() {
                if waits.get(&place) == Some(&node) {
                    if inflight.free(node) < wanted {
                        // The node is checked again after its next reply, or when the room that is kept
                        // is freed.
                        break;
                    }
                    waits.remove(&place);
                    inflight.keep(node, wanted);
                    granted.insert(place, (node, wanted));
                    wake(place);
                    woken = true;
                }
                queue.pop_front();
            }
            inflight.set_awaited(node, !queue.is_empty());
            woken && !queue.is_empty()
        });
    }

    /// Returns `true` if a client is to be woken in the next turn.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    fn first_in_line(&self) -> Option<usize> {
        self.line.first_key_value().map(|(_, &place)| place)
    }

    /// Begins to serve a connection, which may use the room that is kept for it.
    pub(crate) fn begin(&mut self, place: usize, inflight: &mut InflightBudget) {
        let mut own = QueryCounts::new();
        if !self.granted.is_empty() {
            own.extend(self.granted.remove(&place));
        }
        if !self.claim.is_empty() && self.first_in_line() == Some(place) {
            own.append(&mut self.claim);
        }
        inflight.begin(own);
    }

    /// Ends serving a connection. With `waits` its next request waits: for the room that it lacks, or
    /// for any reply.
    pub(crate) fn end(&mut self, place: usize, waits: bool, inflight: &mut InflightBudget) {
        let (lack, rest) = inflight.end();
        let lack = lack.filter(|_| waits);
        if !lack.as_ref().is_some_and(|lack| lack.several) {
            self.leave_line(place);
        }
        match lack {
            Some(lack) => {
                if lack.several {
                    self.join_line(place);
                    if self.first_in_line() == Some(place) {
                        for &(node, count) in &lack.beside {
                            inflight.keep(node, count);
                        }
                        self.claim = lack.beside;
                    }
                }
                self.park(place, lack.node, lack.wanted, inflight);
            }
            None => {
                if !self.waits.is_empty() {
                    self.waits.remove(&place);
                }
                if waits {
                    self.others.push_back(place);
                }
            }
        }
        for (node, _) in rest {
            self.look_at(node);
        }
    }

    fn park(&mut self, place: usize, node: NodeIndex, wanted: u32, inflight: &mut InflightBudget) {
        let at = node.0 as usize;
        if at >= self.queues.len() {
            self.queues.resize_with(at + 1, VecDeque::new);
        }
        // A client that waits there already keeps its place.
        if self.waits.insert(place, node) != Some(node) {
            self.queues[at].push_back(Waiter { place, wanted });
        }
        inflight.set_awaited(node, true);
    }

    fn join_line(&mut self, place: usize) {
        let next = self.last_ticket + 1;
        let ticket = *self.tickets.entry(place).or_insert(next);
        if ticket == next {
            self.last_ticket = next;
            self.line.insert(ticket, place);
        }
    }

    fn leave_line(&mut self, place: usize) {
        if !self.tickets.is_empty()
            && let Some(ticket) = self.tickets.remove(&place)
        {
            self.line.remove(&ticket);
        }
    }

    /// Frees the room that is still kept for woken clients. Called at the end of a turn, when all had
    /// their chance to be served.
    pub(crate) fn settle(&mut self, inflight: &mut InflightBudget) {
        if self.granted.is_empty() {
            return;
        }
        for (_, (node, count)) in std::mem::take(&mut self.granted) {
            inflight.release(node, count);
            self.look_at(node);
        }
    }

    /// Removes a connection that is gone.
    pub(crate) fn gone(&mut self, place: usize, inflight: &mut InflightBudget) {
        if let Some(node) = self.waits.remove(&place) {
            self.look_at(node);
        }
        let mut kept: QueryCounts = self.granted.remove(&place).into_iter().collect();
        if self.first_in_line() == Some(place) {
            kept.append(&mut self.claim);
        }
        self.leave_line(place);
        for (node, count) in kept {
            inflight.release(node, count);
            self.look_at(node);
        }
    }
}

#[cfg(test)]
mod tests;
