//! Counts queries for each node: how many may be with it (the node's *room*), how many are, and how many
//! places are kept for clients that have waited.
//!
//! Invariants:
//! 1. The queries that are with a node and the places that are kept there are together no more than the
//!    node's room. Exceptions are queries that are sent again, and a request that is larger than half
//!    of the room: it goes when half is free.
//! 2. A client that finds other clients waiting for a node gets none of its room, unless some is kept
//!    for that client.

use smallvec::SmallVec;

use super::query::{BackendQuery, NodeIndex};

/// Numbers of queries, by node.
pub(crate) type QueryCounts = SmallVec<[(NodeIndex, u32); 4]>;

#[derive(Clone, Copy, Default, Debug)]
struct Node {
    /// Queries that are with the node.
    taken: u32,
    /// Places that are kept for clients that have waited.
    kept: u32,
    /// Clients wait for this node.
    awaited: bool,
}

/// The room that a request has not got.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Shortfall {
    pub(crate) node: NodeIndex,
    pub(crate) wanted: u32,
    /// Room that the request needs of other nodes, as far as they have it.
    pub(crate) beside: QueryCounts,
    /// The request needs several nodes.
    pub(crate) several: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct InflightBudget {
    most: u32,
    nodes: Vec<Node>,
    /// Places that are kept for the client that is being served.
    own: QueryCounts,
    /// The room that this client last asked for and did not get.
    lack: Option<Shortfall>,
}

impl InflightBudget {
    /// Creates a budget. `most`: queries that may be with one node.
    pub(crate) fn new(most: u32) -> InflightBudget {
        InflightBudget {
            most,
            nodes: Vec::new(),
            own: QueryCounts::new(),
            lack: None,
        }
    }

    fn at(&mut self, node: NodeIndex) -> &mut Node {
        let at = node.0 as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, Node::default());
        }
        &mut self.nodes[at]
    }

    /// Takes a place for a query that is sent.
    pub(crate) fn take(&mut self, query: &BackendQuery) {
        if query.waits {
            return;
        }
        self.at(query.node).taken += 1;
        let mut own = self.own.iter_mut();
        if let Some((_, left)) = own.find(|(node, left)| *node == query.node && *left > 0) {
            *left -= 1;
            self.at(query.node).kept -= 1;
        }
    }

    /// Frees the place of a query that has come back.
    pub(crate) fn give_back(&mut self, query: &BackendQuery) {
        if !query.waits {
            self.at(query.node).taken -= 1;
        }
    }

    /// Returns how many queries are with the node.
    pub(crate) fn taken(&mut self, node: NodeIndex) -> u32 {
        self.at(node).taken
    }

    /// Returns how many more queries the node takes, without the places that are kept.
    pub(crate) fn free(&mut self, node: NodeIndex) -> u32 {
        let Node { taken, kept, .. } = *self.at(node);
        self.most.saturating_sub(taken + kept)
    }

    /// Returns how many more queries the node takes of the client that is being served.
    fn left(&mut self, node: NodeIndex) -> u32 {
        let own = self.own.iter().filter(|(kept_at, _)| *kept_at == node);
        let own = own.map(|(_, count)| count).sum::<u32>();
        let Node {
            taken,
            kept,
            awaited,
        } = *self.at(node);
        match awaited && own == 0 {
            true => 0,
            false => self.most.saturating_sub(taken + kept - own),
        }
    }

    /// Returns `true` if the node takes one more query of the client that is being served.
    pub(crate) fn has_one(&mut self, node: NodeIndex) -> bool {
        let has = self.left(node) > 0;
        if !has {
            self.lack = Some(Shortfall {
                node,
                wanted: 1,
                beside: QueryCounts::new(),
                several: false,
            });
        }
        has
    }

    /// Returns `true` if each of these nodes takes the wanted number of queries. Half of a node's room is
    /// enough for any number: more might never be free.
    pub(crate) fn has_all(&mut self, wanted: &[(NodeIndex, u32)]) -> bool {
        let most = self.most.div_ceil(2);
        let mut beside = QueryCounts::new();
        let mut lacking = None;
        for &(node, count) in wanted {
            let count = count.min(most);
            if self.left(node) >= count {
                beside.push((node, count));
            } else if lacking.is_none() {
                lacking = Some((node, count));
            }
        }
        let several = wanted.len() > 1;
        self.lack = lacking.map(|(node, wanted)| Shortfall {
            node,
            wanted,
            beside,
            several,
        });
        lacking.is_none()
    }

    /// Keeps `count` places with a node; they must be free.
    pub(crate) fn keep(&mut self, node: NodeIndex, count: u32) {
        self.at(node).kept += count;
    }

    /// Keeps `count` places no longer.
    pub(crate) fn release(&mut self, node: NodeIndex, count: u32) {
        self.at(node).kept -= count;
    }

    /// Sets if clients wait for the node.
    pub(crate) fn set_awaited(&mut self, node: NodeIndex, awaited: bool) {
        self.at(node).awaited = awaited;
    }

    /// Begins to serve a client, for which `own` is kept.
    pub(crate) fn begin(&mut self, own: QueryCounts) {
        self.own = own;
        self.lack = None;
    }

    /// Ends serving the client. Returns the room that it lacks, and the places that were kept for it
    /// and that it did not take. These are not kept any more.
    pub(crate) fn end(&mut self) -> (Option<Shortfall>, QueryCounts) {
        let mut rest = std::mem::take(&mut self.own);
        rest.retain(|(_, count)| *count > 0);
        for &(node, count) in &rest {
            self.release(node, count);
        }
        (self.lack.take(), rest)
    }
}
