//! The text of a cluster's file: nodes with equal shares of the slots.

use std::fmt::Write;
use std::net::SocketAddr;

/// The slots of all partitions together.
pub const SLOTS: usize = 16_384;

/// The addresses on which a node listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAddresses {
    /// The address for clients.
    pub client: SocketAddr,
    /// The address for clients that speak TLS, if the file gives one.
    pub tls: Option<SocketAddr>,
    /// The address for other nodes and for clients that speak the fabric's protocol.
    pub fabric: SocketAddr,
    /// The address for the other replicas of its partition, if partitions are replicated.
    pub replica: Option<SocketAddr>,
}

impl NodeAddresses {
    /// Returns free addresses for `count` nodes, none of them for TLS.
    ///
    /// # Panics
    /// Panics if too few ports are free.
    #[must_use]
    pub fn free(count: usize, replicated: bool) -> Vec<NodeAddresses> {
        let free = || crate::free_address().expect("a free port");
        let of_one = || NodeAddresses {
            client: free(),
            tls: None,
            fabric: free(),
            replica: replicated.then(free),
        };
        (0..count).map(|_| of_one()).collect()
    }

    /// Adds a free address for clients that speak TLS to those of each node.
    ///
    /// # Panics
    /// Panics if too few ports are free.
    #[must_use]
    pub fn with_tls(mut nodes: Vec<NodeAddresses>) -> Vec<NodeAddresses> {
        for node in &mut nodes {
            node.tls = Some(crate::free_address().expect("a free port"));
        }
        nodes
    }
}

/// Returns the file of these nodes, numbered from 1 on, where each partition has the next
/// `per_partition` of them.
///
/// # Panics
/// Panics if there are no nodes for a last partition.
#[must_use]
pub fn describe(nodes: &[NodeAddresses], per_partition: usize) -> String {
    assert_eq!(nodes.len() % per_partition, 0, "whole partitions");
    let partitions = nodes.len() / per_partition;
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        text.write_fmt(line).expect("a String takes any text");
        text.push('\n');
    };
    for (id, node) in (1..).zip(nodes) {
        line(format_args!("[[node]]\nid = {id}"));
        line(format_args!("client = \"{}\"", node.client));
        if let Some(tls) = node.tls {
            line(format_args!("tls = \"{tls}\""));
        }
        line(format_args!("fabric = \"{}\"", node.fabric));
        if let Some(replica) = node.replica {
            line(format_args!("replica = \"{replica}\""));
        }
    }
    for at in 0..partitions {
        let (first, last) = (at * SLOTS / partitions, (at + 1) * SLOTS / partitions - 1);
        let ids: Vec<usize> = (at * per_partition + 1..=(at + 1) * per_partition).collect();
        line(format_args!("[[partition]]\nid = {}", at + 1));
        line(format_args!(
            "slots = [\"{first}-{last}\"]\nnodes = {ids:?}"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_the_slots() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let node = |at: u16, is_replicated: bool| NodeAddresses {
            client: address(at),
            tls: is_replicated.then(|| address(at + 3)),
            fabric: address(at + 1),
            replica: is_replicated.then(|| address(at + 2)),
        };
        assert_eq!(
            describe(&[node(10, false), node(20, false)], 1),
            "[[node]]\nid = 1\nclient = \"127.0.0.1:10\"\nfabric = \"127.0.0.1:11\"\n\
             [[node]]\nid = 2\nclient = \"127.0.0.1:20\"\nfabric = \"127.0.0.1:21\"\n\
             [[partition]]\nid = 1\nslots = [\"0-8191\"]\nnodes = [1]\n\
             [[partition]]\nid = 2\nslots = [\"8192-16383\"]\nnodes = [2]\n"
        );
        assert_eq!(
            describe(&[node(10, true), node(20, true)], 2),
            "[[node]]\nid = 1\nclient = \"127.0.0.1:10\"\ntls = \"127.0.0.1:13\"\n\
             fabric = \"127.0.0.1:11\"\nreplica = \"127.0.0.1:12\"\n\
             [[node]]\nid = 2\nclient = \"127.0.0.1:20\"\ntls = \"127.0.0.1:23\"\n\
             fabric = \"127.0.0.1:21\"\nreplica = \"127.0.0.1:22\"\n\
             [[partition]]\nid = 1\nslots = [\"0-16383\"]\nnodes = [1, 2]\n"
        );
    }
}
