//! The nodes of each key.

use std::collections::HashMap;

use cql::ring::{ReplicaPlacement, Replication, Ring};
use cql::token::Token;

use crate::runtime::query::NodeIndex;

/// The nodes, and the replicas of each keyspace's keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TokenRing {
    /// By their place in the ring.
    nodes: Vec<NodeIndex>,
    placements: HashMap<String, ReplicaPlacement>,
}

impl TokenRing {
    /// Makes a map. `nodes` are those of the ring, in its order.
    pub(crate) fn new(
        ring: &Ring,
        nodes: Vec<NodeIndex>,
        keyspaces: impl IntoIterator<Item = (String, Replication)>,
    ) -> TokenRing {
        // Many keyspaces have the same replication.
        let mut known: HashMap<Replication, ReplicaPlacement> = HashMap::new();
        let placements = keyspaces.into_iter().map(|(keyspace, replication)| {
            let placement = known
                .entry(replication)
                .or_insert_with_key(|replication| ring.placement(replication));
            (keyspace, placement.clone())
        });
        let placements = placements.collect();
        TokenRing { nodes, placements }
    }

    /// Returns all nodes.
    pub(crate) fn nodes(&self) -> &[NodeIndex] {
        &self.nodes
    }

    /// Puts the nodes that keep a key into `replicas`, the first replica first; leaves it empty where
    /// any node will do.
    pub(crate) fn replicas(&self, keyspace: &str, token: Token, replicas: &mut Vec<NodeIndex>) {
        replicas.clear();
        if let Some(placement) = self.placements.get(keyspace) {
            let places = placement.replicas(token).iter();
            replicas.extend(places.filter_map(|place| self.nodes.get(place.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cql::ring::RingNode;

    #[test]
    fn a_key_has_the_replicas_of_its_keyspace() {
        let node = |token| RingNode {
            datacenter: "dc".to_owned(),
            rack: "rack".to_owned(),
            tokens: vec![Token(token)],
        };
        let ring = Ring::new(vec![node(0), node(100)]);
        let nodes = vec![NodeIndex(7), NodeIndex(9)];
        let keyspaces = [
            ("one".to_owned(), Replication::Simple(1)),
            ("two".to_owned(), Replication::Simple(2)),
            ("local".to_owned(), Replication::Anywhere),
        ];
        let map = TokenRing::new(&ring, nodes, keyspaces);
        let of = |keyspace: &str, token| {
            let mut replicas = vec![NodeIndex(1)];
            map.replicas(keyspace, Token(token), &mut replicas);
            replicas
        };
        assert_eq!(of("one", 50), [NodeIndex(9)]);
        assert_eq!(of("one", 101), [NodeIndex(7)]);
        assert_eq!(of("two", 50), [NodeIndex(9), NodeIndex(7)]);
        assert_eq!(of("local", 50), []);
        assert_eq!(of("unknown", 50), []);
    }
}
