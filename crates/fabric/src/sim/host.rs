//! The hosts of a network.

use base::NodeId;

use crate::link::Peer;

/// A host in the network: faults happen between hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NetworkHost {
    /// The host of a node.
    Node(NodeId),
    /// The host of a client, which has a number of its own.
    Client(u32),
}

impl From<NodeId> for NetworkHost {
    fn from(node: NodeId) -> NetworkHost {
        NetworkHost::Node(node)
    }
}

impl NetworkHost {
    pub(super) fn peer(self) -> Peer {
        match self {
            NetworkHost::Node(id) => Peer::Node(id),
            NetworkHost::Client(_) => Peer::Client,
        }
    }
}
