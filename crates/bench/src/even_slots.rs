//! Nodes that share the slots of Redis Cluster evenly, in their order.

use std::ops::Range;

use ::cluster::slot::{self, SLOTS};

/// Returns the slots of a node.
pub(crate) fn slots_of(node: usize, nodes: usize) -> Range<usize> {
    let begin = |node: usize| (node * usize::from(SLOTS)).div_ceil(nodes);
    begin(node)..begin(node + 1)
}

/// Returns the node that has a key.
pub(crate) fn node_of(key: &[u8], nodes: usize) -> usize {
    usize::from(slot::of(key)) * nodes / usize::from(SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_even_shares() {
        let mut counts = [0; 5];
        for number in 0..10_000 {
            counts[node_of(format!("{number:05}").as_bytes(), 5)] += 1;
        }
        assert!(
            counts.iter().all(|count| (1700..2300).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_key_is_on_the_node_that_has_its_slot() {
        for nodes in 1..=9 {
            let slots: usize = (0..nodes).map(|node| slots_of(node, nodes).len()).sum();
            assert_eq!(slots, usize::from(SLOTS));
            for number in 0..2000 {
                let key = format!("{number:05}");
                let slot = usize::from(slot::of(key.as_bytes()));
                let node = node_of(key.as_bytes(), nodes);
                assert!(
                    slots_of(node, nodes).contains(&slot),
                    "{key}, {nodes} nodes"
                );
            }
        }
    }
}
