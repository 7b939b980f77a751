//! How many queries may be with each node, how many are, and what is kept for those who have waited.
//!
//! Invariants:
//! 1. What is with a node and what is kept there is together no more than the room that it has, but
//!    for queries that are sent again, and for a request that is larger than half of the room: it goes
//!    when half is free.
//! 2. Who finds a node awaited by others gets none of its room, unless some is kept for it.

use smallvec::SmallVec;

use super::query::{NodeIndex, Query};

/// Numbers of queries, by node.
pub(crate) type Counts = SmallVec<[(NodeIndex, u32); 4]>;

#[derive(Clone, Copy, Default, Debug)]
struct Node {
    /// Queries that are with it.
    taken: u32,
    /// What is kept for clients that have waited.
    kept: u32,
    /// Clients wait for it.
    awaited: bool,
}

/// What a request has not got.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Shortfall {
    pub(crate) node: NodeIndex,
    pub(crate) wanted: u32,
    /// What it needs of other nodes, as far as they have it.
    pub(crate) beside: Counts,
    /// Whether it needs several nodes.
    pub(crate) several: bool,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct InflightBudget {
    most: u32,
    nodes: Vec<Node>,
    /// What is kept for the client that is being served.
    own: Counts,
    /// What that client has asked for last, and not got.
    lack: Option<Shortfall>,
}

impl InflightBudget {
    /// `most`: queries that may be with one node.
    pub(crate) fn new(most: u32) -> InflightBudget {
        InflightBudget {
            most,
            nodes: Vec::new(),
            own: Counts::new(),
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

    /// A query is on its way.
    pub(crate) fn take(&mut self, query: &Query) {
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

    /// It is back.
    pub(crate) fn give_back(&mut self, query: &Query) {
        if !query.waits {
            self.at(query.node).taken -= 1;
        }
    }

    /// How many queries are with the node.
    pub(crate) fn taken(&mut self, node: NodeIndex) -> u32 {
        self.at(node).taken
    }

    /// How many more queries the node takes, and nothing is kept for.
    pub(crate) fn free(&mut self, node: NodeIndex) -> u32 {
        let Node { taken, kept, .. } = *self.at(node);
        self.most.saturating_sub(taken + kept)
    }

    /// How many more queries the node takes of the client that is being served.
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

    /// Whether the node takes one more query of the client that is being served.
    pub(crate) fn has_one(&mut self, node: NodeIndex) -> bool {
        let has = self.left(node) > 0;
        if !has {
            self.lack = Some(Shortfall {
                node,
                wanted: 1,
                beside: Counts::new(),
                several: false,
            });
        }
        has
    }

    /// Whether all these nodes take so many queries each. Half of a node's room is enough for any
    /// number: more might never be free.
    pub(crate) fn has_all(&mut self, wanted: &[(NodeIndex, u32)]) -> bool {
        let most = self.most.div_ceil(2);
        let mut beside = Counts::new();
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

    /// Keeps so much with a node; there must be as much.
    pub(crate) fn keep(&mut self, node: NodeIndex, count: u32) {
        self.at(node).kept += count;
    }

    /// Keeps it no longer.
    pub(crate) fn release(&mut self, node: NodeIndex, count: u32) {
        self.at(node).kept -= count;
    }

    /// Whether clients wait for the node.
    pub(crate) fn set_awaited(&mut self, node: NodeIndex, awaited: bool) {
        self.at(node).awaited = awaited;
    }

    /// A client is being served, for which so much is kept.
    pub(crate) fn begin(&mut self, own: Counts) {
        self.own = own;
        self.lack = None;
    }

    /// It has been: what it lacks, and what was kept for it that it did not take. That is not kept any
    /// more.
    pub(crate) fn end(&mut self) -> (Option<Shortfall>, Counts) {
        let mut rest = std::mem::take(&mut self.own);
        rest.retain(|(_, count)| *count > 0);
        for &(node, count) in &rest {
            self.release(node, count);
        }
        (self.lack.take(), rest)
    }
}
