//! The nodes behind the proxy.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::node_figures::NodeFigures;
use crate::runtime::query::NodeIndex;

/// All nodes that were ever known; each keeps its index.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    known: RwLock<KnownNodes>,
    on_silence: OnceLock<SilenceHook>,
}

/// Runs when a node is silent.
struct SilenceHook(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for SilenceHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnSilence")
    }
}

#[derive(Debug, Default)]
struct KnownNodes {
    nodes: Vec<(SocketAddr, Arc<NodeFigures>)>,
    places: HashMap<SocketAddr, NodeIndex>,
}

impl Nodes {
    /// Returns the index of the node at this address; a new node gets the next one.
    pub(crate) fn place(&self, address: SocketAddr) -> NodeIndex {
        if let Some(&place) = self.known.read().places.get(&address) {
            return place;
        }
        let mut known = self.known.write();
        let next = NodeIndex(known.nodes.len() as u32);
        let place = *known.places.entry(address).or_insert(next);
        if place == next {
            known.nodes.push((address, Arc::default()));
        }
        place
    }

    /// Returns the address of a node.
    pub(crate) fn address(&self, node: NodeIndex) -> SocketAddr {
        self.known.read().nodes[node.0 as usize].0
    }

    /// Returns the figures of a node.
    pub(crate) fn figures(&self, node: NodeIndex) -> Arc<NodeFigures> {
        Arc::clone(&self.known.read().nodes[node.0 as usize].1)
    }

    /// Records a report that the node at this address came or went, if there is one.
    pub(crate) fn hint(&self, address: SocketAddr) {
        let known = self.known.read();
        if let Some(place) = known.places.get(&address) {
            let figures = &known.nodes[place.0 as usize].1;
            figures
                .hints
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Sets the function that runs when a node is silent. Called once, before there are connections.
    pub(crate) fn on_silence(&self, run: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_silence.set(SilenceHook(Box::new(run)));
    }

    /// Runs that function. Called while nothing comes from a node although it owes an answer.
    pub(crate) fn report_silence(&self) {
        if let Some(SilenceHook(run)) = self.on_silence.get() {
            run();
        }
    }

    /// Returns `true` if nothing comes from the node at this address although it owes an answer.
    pub(crate) fn is_silent(&self, address: SocketAddr) -> bool {
        let known = self.known.read();
        let place = known.places.get(&address);
        place.is_some_and(|place| known.nodes[place.0 as usize].1.now().silent > 0)
    }

    /// Returns all nodes.
    pub(crate) fn all(&self) -> Vec<(SocketAddr, Arc<NodeFigures>)> {
        self.known.read().nodes.clone()
    }
}

/// The roles of the nodes, as they are known now.
pub(crate) trait NodeRoles: Send + Sync + 'static {
    /// Returns how many slots a node has; 0 where keys are not spread by slots.
    fn slots(&self, node: NodeIndex) -> usize;

    /// Returns the nodes without which something fails.
    fn needed(&self) -> NeededNodes;
}

/// See [`NodeRoles::needed`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NeededNodes {
    /// Each of them keeps data that no other does.
    Each(Vec<NodeIndex>),
    /// One is enough: all keep the same data.
    Any(Vec<NodeIndex>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_place() {
        let nodes = Nodes::default();
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (a, b) = (nodes.place(address(1)), nodes.place(address(2)));
        assert_ne!(a, b);
        assert_eq!(nodes.place(address(1)), a);
        assert_eq!(nodes.address(b), address(2));
        assert_eq!(nodes.all().len(), 2);
    }
}
