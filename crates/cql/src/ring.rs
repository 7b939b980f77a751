//! The ring: the nodes that keep the replicas of a key.
//!
//! Each node has tokens. A key belongs to the node of the first token that is not smaller than its
//! own, or of the smallest one if there is none. Further replicas are found from there on, in the
//! order of the tokens:
//!
//! | strategy | replicas |
//! |---|---|
//! | `SimpleStrategy` | the next nodes, of any datacenter and rack |
//! | `NetworkTopologyStrategy` | for each datacenter so many of its nodes, of as many racks as can be |
//! | `LocalStrategy`, `EverywhereStrategy`, others | every node that is asked has it, or knows the nodes that have |
//!
//! Within a datacenter a node of a rack that has a replica already is chosen only if more replicas
//! are needed than there are racks.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::token::Token;

/// The index of a node in the list that a [`Ring`] was made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeIndex(pub usize);

/// A node, with the properties that `system.local` and `system.peers` have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingNode {
    /// Its datacenter.
    pub datacenter: String,
    /// Its rack in the datacenter.
    pub rack: String,
    /// Its tokens.
    pub tokens: Vec<Token>,
}

/// How a keyspace is replicated.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Replication {
    /// So many nodes.
    Simple(usize),
    /// So many nodes in each datacenter.
    NetworkTopology(BTreeMap<String, usize>),
    /// Any node does.
    Anywhere,
}

/// The map does not describe a replication.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplicationError {
    /// There is no class.
    #[error("a replication without a class")]
    NoClass,
    /// A factor is no number, or is missing.
    #[error("a replication whose factor for {name} is {factor:?}")]
    Factor {
        /// The datacenter, or `replication_factor`.
        name: String,
        /// The text of the factor.
        factor: String,
    },
}

impl Replication {
    /// Parses the column `replication` of `system_schema.keyspaces`.
    ///
    /// # Errors
    /// The map cannot be understood.
    pub fn parse<'a>(
        map: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Replication, ReplicationError> {
        let mut map: BTreeMap<&str, &str> = map.into_iter().collect();
        let class = map.remove("class").ok_or(ReplicationError::NoClass)?;
        match class.rsplit('.').next() {
            Some("SimpleStrategy") => {
                let factor = map.get("replication_factor").copied().unwrap_or_default();
                Ok(Replication::Simple(parse_factor(
                    "replication_factor",
                    factor,
                )?))
            }
            Some("NetworkTopologyStrategy") => {
                let factors = map.into_iter().map(|(datacenter, factor)| {
                    Ok((datacenter.to_owned(), parse_factor(datacenter, factor)?))
                });
                Ok(Replication::NetworkTopology(
                    factors.collect::<Result<_, _>>()?,
                ))
            }
            _ => Ok(Replication::Anywhere),
        }
    }
}

/// Parses a factor: a number, or two, `3/1`: replicas, and those among them that are transient.
fn parse_factor(name: &str, factor: &str) -> Result<usize, ReplicationError> {
    let all = factor.split('/').next().unwrap_or_default();
    all.parse().map_err(|_| ReplicationError::Factor {
        name: name.to_owned(),
        factor: factor.to_owned(),
    })
}

/// Nodes and their tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    nodes: Vec<RingNode>,
    /// All tokens in order, with their nodes.
    tokens: Vec<(Token, NodeIndex)>,
}

impl Ring {
    /// Creates a ring of these nodes.
    #[must_use]
    pub fn new(nodes: Vec<RingNode>) -> Ring {
        let of_node = |(index, node): (usize, &RingNode)| {
            let tokens = node.tokens.clone();
            tokens
                .into_iter()
                .map(move |token| (token, NodeIndex(index)))
        };
        let mut tokens: Vec<_> = nodes.iter().enumerate().flat_map(of_node).collect();
        tokens.sort_unstable();
        // A token belongs to one node. If two claim it, the first one has it.
        tokens.dedup_by_key(|(token, _)| *token);
        Ring { nodes, tokens }
    }

    /// Returns the nodes that it was made of.
    #[must_use]
    pub fn nodes(&self) -> &[RingNode] {
        &self.nodes
    }

    /// Returns the replicas under `replication`, for every token at once.
    #[must_use]
    pub fn placement(&self, replication: &Replication) -> ReplicaPlacement {
        let place = |start| match replication {
            Replication::Simple(factor) => self.simple(start, *factor),
            Replication::NetworkTopology(factors) => self.network_topology(start, factors),
            Replication::Anywhere => Vec::new(),
        };
        let ends = self.tokens.iter().map(|(token, _)| *token).collect();
        let replicas = (0..self.tokens.len()).map(place).collect();
        ReplicaPlacement { ends, replicas }
    }

    /// Returns the nodes from a token on, once around; some come more than once.
    fn nodes_from(&self, start: usize) -> impl Iterator<Item = NodeIndex> {
        let (before, from) = self.tokens.split_at(start);
        from.iter().chain(before).map(|(_, node)| *node)
    }

    fn simple(&self, start: usize, factor: usize) -> Vec<NodeIndex> {
        let mut replicas = Vec::new();
        for node in self.nodes_from(start) {
            if replicas.len() >= factor {
                break;
            }
            if !replicas.contains(&node) {
                replicas.push(node);
            }
        }
        replicas
    }

    fn network_topology(&self, start: usize, factors: &BTreeMap<String, usize>) -> Vec<NodeIndex> {
        let mut wanted: HashMap<&str, Datacenter<'_>> = factors
            .iter()
            .map(|(name, &factor)| (name.as_str(), self.datacenter(name, factor)))
            .filter(|(_, datacenter)| datacenter.missing > 0)
            .collect();
        let mut replicas = Vec::new();
        for node in self.nodes_from(start) {
            if wanted.is_empty() {
                break;
            }
            let RingNode {
                datacenter, rack, ..
            } = &self.nodes[node.0];
            let Some(state) = wanted.get_mut(datacenter.as_str()) else {
                continue;
            };
            if replicas.contains(&node) || !state.take(rack) {
                continue;
            }
            replicas.push(node);
            if state.missing == 0 {
                wanted.remove(datacenter.as_str());
            }
        }
        replicas
    }

    fn datacenter(&self, name: &str, factor: usize) -> Datacenter<'_> {
        let of_it = self.nodes.iter().filter(|node| node.datacenter == name);
        // A node without tokens cannot have a replica.
        let nodes: Vec<_> = of_it.filter(|node| !node.tokens.is_empty()).collect();
        let racks: HashSet<_> = nodes.iter().map(|node| &node.rack).collect();
        Datacenter {
            missing: factor.min(nodes.len()),
            repeats: factor.saturating_sub(racks.len()),
            racks: HashSet::new(),
        }
    }
}

/// A datacenter while its replicas are being found.
#[derive(Debug)]
struct Datacenter<'r> {
    /// The number of replicas that are still missing.
    missing: usize,
    /// The number of them that may be in racks that have one.
    repeats: usize,
    /// The racks that have one.
    racks: HashSet<&'r str>,
}

impl<'r> Datacenter<'r> {
    /// Returns `true` if a node of this rack becomes a replica, which is then counted.
    fn take(&mut self, rack: &'r str) -> bool {
        if !self.racks.insert(rack) {
            if self.repeats == 0 {
                return false;
            }
            self.repeats -= 1;
        }
        self.missing -= 1;
        true
    }
}

/// The nodes that keep the keys of a keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaPlacement {
    /// The tokens of the ring in order: each ends a range.
    ends: Vec<Token>,
    /// The replicas of each range.
    replicas: Vec<Vec<NodeIndex>>,
}

impl ReplicaPlacement {
    /// Returns the nodes that keep the keys of `token`, that of the first replica first; none if
    /// any node will do, or there are no nodes.
    #[must_use]
    pub fn replicas(&self, token: Token) -> &[NodeIndex] {
        let range = self.ends.partition_point(|end| *end < token);
        let range = if range == self.ends.len() { 0 } else { range };
        self.replicas.get(range).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(datacenter: &str, rack: &str, tokens: &[i64]) -> RingNode {
        RingNode {
            datacenter: datacenter.into(),
            rack: rack.into(),
            tokens: tokens.iter().copied().map(Token).collect(),
        }
    }

    fn indexes(placement: &ReplicaPlacement, token: i64) -> Vec<usize> {
        let replicas = placement.replicas(Token(token));
        replicas.iter().map(|node| node.0).collect()
    }

    fn topology(factors: &[(&str, usize)]) -> Replication {
        let owned = factors
            .iter()
            .map(|(name, factor)| ((*name).to_owned(), *factor));
        Replication::NetworkTopology(owned.collect())
    }

    #[test]
    fn a_range_ends_with_its_token() {
        let ring = Ring::new(vec![
            node("dc1", "r1", &[0]),
            node("dc1", "r1", &[100]),
            node("dc1", "r1", &[200]),
        ]);
        let one = ring.placement(&Replication::Simple(1));
        for (token, owner) in [
            (i64::MIN, 0),
            (0, 0),
            (1, 1),
            (100, 1),
            (101, 2),
            (201, 0),
            (i64::MAX, 0),
        ] {
            assert_eq!(indexes(&one, token), [owner], "token {token}");
        }
        let two = ring.placement(&Replication::Simple(2));
        assert_eq!(indexes(&two, 150), [2, 0]);
        let all = ring.placement(&Replication::Simple(9));
        assert_eq!(indexes(&all, 50), [1, 2, 0]);
    }

    #[test]
    fn a_node_with_many_tokens_is_one_replica() {
        let ring = Ring::new(vec![
            node("dc1", "r1", &[0, 10, 20]),
            node("dc1", "r1", &[30]),
        ]);
        let two = ring.placement(&Replication::Simple(2));
        assert_eq!(indexes(&two, 5), [0, 1]);
        assert_eq!(indexes(&two, 25), [1, 0]);
    }

    #[test]
    fn each_datacenter_has_its_number() {
        let ring = Ring::new(vec![
            node("dc1", "r1", &[0]),
            node("dc1", "r1", &[100]),
            node("dc1", "r1", &[200]),
            node("dc2", "r1", &[1]),
            node("dc2", "r1", &[101]),
            node("dc3", "r3", &[2]),
        ]);
        let placement = ring.placement(&topology(&[("dc1", 2), ("dc2", 2), ("dc3", 1)]));
        assert_eq!(indexes(&placement, 0), [0, 3, 5, 1, 4]);
        let some = ring.placement(&topology(&[("dc1", 1), ("dc2", 0), ("dc9", 3)]));
        assert_eq!(indexes(&some, 150), [2]);
    }

    #[test]
    fn racks_are_used_before_they_repeat() {
        let ring = Ring::new(vec![
            node("dc1", "r1", &[0]),
            node("dc1", "r1", &[10]),
            node("dc1", "r2", &[20]),
            node("dc1", "r3", &[30]),
        ]);
        let three = ring.placement(&topology(&[("dc1", 3)]));
        assert_eq!(indexes(&three, 0), [0, 2, 3]);
        let four = ring.placement(&topology(&[("dc1", 4)]));
        assert_eq!(indexes(&four, 0), [0, 1, 2, 3]);
        let two = ring.placement(&topology(&[("dc1", 2)]));
        assert_eq!(indexes(&two, 5), [1, 2]);
    }

    #[test]
    fn replications_are_parsed() {
        let parse = |map: &[(&'static str, &'static str)]| Replication::parse(map.iter().copied());
        let simple = "org.apache.cassandra.locator.SimpleStrategy";
        assert_eq!(
            parse(&[("class", simple), ("replication_factor", "3")]),
            Ok(Replication::Simple(3))
        );
        assert_eq!(
            parse(&[
                ("class", "NetworkTopologyStrategy"),
                ("dc1", "3/1"),
                ("dc2", "2")
            ]),
            Ok(topology(&[("dc1", 3), ("dc2", 2)]))
        );
        let local = "org.apache.cassandra.locator.LocalStrategy";
        assert_eq!(parse(&[("class", local)]), Ok(Replication::Anywhere));
        assert_eq!(parse(&[]), Err(ReplicationError::NoClass));
        let error = parse(&[("class", simple)]).unwrap_err().to_string();
        assert_eq!(
            error,
            "a replication whose factor for replication_factor is \"\""
        );
    }

    #[test]
    fn an_empty_ring_has_no_replicas() {
        let empty = Ring::new(vec![]).placement(&Replication::Simple(3));
        assert_eq!(indexes(&empty, 7), [0usize; 0]);
    }

    /// Cassandra's rules in words, checked on random rings.
    #[test]
    fn replicas_keep_the_rules() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let nodes: Vec<RingNode> = (0..random.usize(1..9))
                .map(|_| {
                    let tokens: Vec<i64> =
                        (0..random.usize(1..5)).map(|_| random.i64(..)).collect();
                    let name = |kind: &str, n| format!("{kind}{n}");
                    let datacenter = name("dc", random.u8(..2));
                    node(&datacenter, &name("r", random.u8(..3)), &tokens)
                })
                .collect();
            let ring = Ring::new(nodes.clone());
            let factor = random.usize(1..5);
            let placement = ring.placement(&topology(&[("dc0", factor)]));
            let replicas = indexes(&placement, random.i64(..));
            let in_dc = nodes.iter().filter(|node| node.datacenter == "dc0");
            let racks: HashSet<_> = in_dc.clone().map(|node| &node.rack).collect();
            let distinct: HashSet<_> = replicas.iter().collect();
            assert_eq!(distinct.len(), replicas.len(), "no node twice");
            assert_eq!(
                replicas.len(),
                factor.min(in_dc.count()),
                "as many as there are"
            );
            assert!(replicas.iter().all(|&i| nodes[i].datacenter == "dc0"));
            let used: HashSet<_> = replicas.iter().map(|&i| &nodes[i].rack).collect();
            assert_eq!(
                used.len(),
                factor.min(racks.len()),
                "as many racks as can be"
            );
        }
    }
}
