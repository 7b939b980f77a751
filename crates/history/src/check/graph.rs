//! A graph of transactions, its strongly connected components and its cycles.
//!
//! Nodes from `transactions` on are points in time; edges through them are real time.

use std::collections::VecDeque;

use super::facts::HistoryFacts;

/// The reason why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EdgeKind {
    /// Write, then write.
    Ww = 0,
    /// Write, then read.
    Wr = 1,
    /// Read, then write.
    Rw = 2,
    /// A scan that missed a key, then a write of it.
    ScanRw = 3,
    /// End, then start.
    Rt = 4,
    /// Two writers whose writes were seen together (read atomicity).
    Seen = 5,
    /// Acknowledged, then not newer than the version that was seen (linearizable keys).
    Stale = 6,
    /// Not between the versions that a transaction read and wrote (linearizable keys).
    Between = 7,
}

/// An edge's reason in 32 bits: its kind, if it was inferred, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EdgeReason(u32);

impl EdgeReason {
    const KEY_BITS: u32 = 28;

    pub(super) fn new(kind: EdgeKind, inferred: bool, key: u32) -> EdgeReason {
        assert!(key < 1 << Self::KEY_BITS, "too many keys for a checker");
        EdgeReason((kind as u32) << 29 | u32::from(inferred) << 28 | key)
    }

    pub(super) fn kind(self) -> EdgeKind {
        match self.0 >> 29 {
            0 => EdgeKind::Ww,
            1 => EdgeKind::Wr,
            2 => EdgeKind::Rw,
            3 => EdgeKind::ScanRw,
            4 => EdgeKind::Rt,
            5 => EdgeKind::Seen,
            6 => EdgeKind::Stale,
            _ => EdgeKind::Between,
        }
    }

    pub(super) fn is_inferred(self) -> bool {
        self.0 >> Self::KEY_BITS & 1 == 1
    }

    pub(super) fn key(self) -> u32 {
        self.0 & ((1 << Self::KEY_BITS) - 1)
    }
}

/// One step of a cycle, between transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct CycleStep {
    pub from: u32,
    pub to: u32,
    pub reason: EdgeReason,
}

/// Edges by their source.
pub(super) struct SerializationGraph {
    /// Nodes below this are transactions.
    transactions: u32,
    starts: Vec<u32>,
    edges: Vec<(u32, EdgeReason)>,
}

const UNVISITED: u32 = u32::MAX;
/// A cycle in a component of at most this many nodes is the shortest there is.
const SMALL_COMPONENT: usize = 1000;
/// In larger ones the search begins from this many nodes, …
const SEARCHES: usize = 200;
/// … and ends once it has seen this many edges.
const SEARCH_BUDGET: usize = 20_000_000;

impl SerializationGraph {
    pub(super) fn new(
        transactions: u32,
        nodes: u32,
        list: &[(u32, u32, EdgeReason)],
    ) -> SerializationGraph {
        let mut starts = vec![0u32; nodes as usize + 2];
        list.iter()
            .for_each(|edge| starts[edge.0 as usize + 2] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut edges = vec![(0, EdgeReason(0)); list.len()];
        for &(from, to, reason) in list {
            edges[starts[from as usize + 1] as usize] = (to, reason);
            starts[from as usize + 1] += 1;
        }
        starts.pop();
        SerializationGraph {
            transactions,
            starts,
            edges,
        }
    }

    pub(super) fn nodes(&self) -> u32 {
        self.starts.len() as u32 - 1
    }

    pub(super) fn is_transaction(&self, node: u32) -> bool {
        node < self.transactions
    }

    pub(super) fn edges(&self, node: u32) -> &[(u32, EdgeReason)] {
        let at = node as usize;
        &self.edges[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Returns a short cycle, if there is one; for small components the shortest.
    pub(super) fn find_cycle(&self, facts: &HistoryFacts<'_>) -> Option<Vec<CycleStep>> {
        let components = self.cyclic_components();
        let mut component = vec![UNVISITED; self.nodes() as usize];
        for (number, members) in components.iter().enumerate() {
            members
                .iter()
                .for_each(|&node| component[node as usize] = number as u32);
        }
        let mut search = CycleSearch::new(self, &component);
        // The smallest component gives the shortest explanation.
        let smallest = components.iter().min_by_key(|members| members.len())?;
        let mut best: Option<Vec<CycleStep>> = None;
        for start in self.beginnings(facts, smallest) {
            let limit = best.as_ref().map_or(usize::MAX, Vec::len);
            if let Some(cycle) = search.from(start, limit) {
                best = Some(cycle);
            }
            if search.seen_edges > SEARCH_BUDGET && best.is_some() {
                break;
            }
        }
        Some(best.expect("every node of a cyclic component is on a cycle"))
    }

    /// Returns the transactions from which to look for a cycle: of a large component, those that
    /// precede transactions which ended longest before them.
    fn beginnings(&self, facts: &HistoryFacts<'_>, members: &[u32]) -> Vec<u32> {
        let transactions = members
            .iter()
            .copied()
            .filter(|&node| self.is_transaction(node));
        let mut nodes: Vec<u32> = transactions.collect();
        if members.len() > SMALL_COMPONENT {
            let reach = |&node: &u32| {
                let targets = self
                    .edges(node)
                    .iter()
                    .filter(|edge| self.is_transaction(edge.0));
                let earliest = targets.map(|edge| facts.transaction(edge.0).end).min();
                std::cmp::Reverse(
                    facts
                        .transaction(node)
                        .end
                        .saturating_sub(earliest.unwrap_or(u64::MAX)),
                )
            };
            nodes.sort_by_cached_key(reach);
            nodes.truncate(SEARCHES);
        }
        nodes
    }

    /// Returns the components with more than one node, by Tarjan's algorithm, without recursion.
    fn cyclic_components(&self) -> Vec<Vec<u32>> {
        let count = self.nodes() as usize;
        let mut index = vec![UNVISITED; count];
        let mut low = vec![0u32; count];
        let mut on_stack = vec![false; count];
        let mut stack = Vec::new();
        let mut calls: Vec<(u32, u32)> = Vec::new();
        let mut components = Vec::new();
        let mut next = 0;
        for root in 0..count as u32 {
            if index[root as usize] != UNVISITED {
                continue;
            }
            calls.push((root, 0));
            while let Some((node, edge)) = calls.pop() {
                let at = node as usize;
                if edge == 0 {
                    (index[at], low[at], on_stack[at]) = (next, next, true);
                    next += 1;
                    stack.push(node);
                } else {
                    // Back from the edge before.
                    let to = self.edges(node)[edge as usize - 1].0 as usize;
                    if on_stack[to] {
                        low[at] = low[at].min(low[to]);
                    }
                }
                let rest = self.edges(node).iter().enumerate().skip(edge as usize);
                let mut unvisited = None;
                for (i, &(to, _)) in rest {
                    if index[to as usize] == UNVISITED {
                        unvisited = Some((i as u32, to));
                        break;
                    }
                    if on_stack[to as usize] {
                        low[at] = low[at].min(index[to as usize]);
                    }
                }
                if let Some((i, to)) = unvisited {
                    calls.push((node, i + 1));
                    calls.push((to, 0));
                } else if low[at] == index[at] {
                    let begin = stack.iter().rposition(|&other| other == node);
                    let members = stack.split_off(begin.expect("a node leaves the stack once"));
                    members
                        .iter()
                        .for_each(|&member| on_stack[member as usize] = false);
                    if members.len() > 1 {
                        components.push(members);
                    }
                }
            }
        }
        components
    }
}

/// The way in which a node was reached.
#[derive(Clone, Copy)]
struct ReachedNode {
    /// The search in which it was reached; nodes of an earlier search do not count.
    search: u32,
    steps: usize,
    from: u32,
    reason: EdgeReason,
}

/// Breadth-first searches for the shortest way from a node back to itself.
struct CycleSearch<'g> {
    graph: &'g SerializationGraph,
    component: &'g [u32],
    reached: Vec<ReachedNode>,
    searches: u32,
    seen_edges: usize,
}

impl<'g> CycleSearch<'g> {
    fn new(graph: &'g SerializationGraph, component: &'g [u32]) -> CycleSearch<'g> {
        let never = ReachedNode {
            search: 0,
            steps: 0,
            from: 0,
            reason: EdgeReason(0),
        };
        let reached = vec![never; component.len()];
        CycleSearch {
            graph,
            component,
            reached,
            searches: 0,
            seen_edges: 0,
        }
    }

    /// Returns a cycle through `start` of fewer than `limit` steps. Steps between points in time
    /// are free.
    fn from(&mut self, start: u32, limit: usize) -> Option<Vec<CycleStep>> {
        self.searches += 1;
        let mut queue = VecDeque::from([(start, 0)]);
        while let Some((node, steps)) = queue.pop_front() {
            for &(to, reason) in self.graph.edges(node) {
                self.seen_edges += 1;
                if self.component[to as usize] != self.component[node as usize] {
                    continue;
                }
                let leaves_time = self.graph.is_transaction(to) && reason.kind() == EdgeKind::Rt;
                let free = reason.kind() == EdgeKind::Rt && !leaves_time;
                let steps = if free { steps } else { steps + 1 };
                if steps >= limit {
                    continue;
                }
                if to == start {
                    return Some(self.path(start, node, reason));
                }
                let before = &mut self.reached[to as usize];
                if before.search != self.searches || steps < before.steps {
                    *before = ReachedNode {
                        search: self.searches,
                        steps,
                        from: node,
                        reason,
                    };
                    if free {
                        queue.push_front((to, steps));
                    } else {
                        queue.push_back((to, steps));
                    }
                }
            }
        }
        None
    }

    fn path(&self, start: u32, last: u32, reason: EdgeReason) -> Vec<CycleStep> {
        let mut path = Vec::new();
        let mut step = CycleStep {
            from: last,
            to: start,
            reason,
        };
        loop {
            // The path through points in time is one step.
            while !self.graph.is_transaction(step.from) {
                step.from = self.reached[step.from as usize].from;
            }
            path.push(step);
            if step.from == start {
                path.reverse();
                return path;
            }
            let ReachedNode { from, reason, .. } = self.reached[step.from as usize];
            step = CycleStep {
                from,
                to: step.from,
                reason,
            };
        }
    }
}
