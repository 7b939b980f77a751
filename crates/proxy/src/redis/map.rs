//! Which node has which slot.

use cluster::slot::SLOTS;

use crate::machine::query::NodeIndex;

/// For each slot its node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Map {
    nodes: Vec<NodeIndex>,
    /// All nodes that have slots, in order.
    all: Vec<NodeIndex>,
}

impl Map {
    /// A map of ranges of slots (both ends belong to them). A slot that is in none is `fallback`'s,
    /// which will say what is wrong with it.
    pub(crate) fn new(ranges: &[(u16, u16, NodeIndex)], fallback: NodeIndex) -> Map {
        let mut nodes = vec![fallback; SLOTS.into()];
        for &(first, last, node) in ranges {
            let last = last.min(SLOTS - 1);
            if first <= last {
                nodes[first.into()..=last.into()].fill(node);
            }
        }
        let mut map = Map {
            nodes,
            all: Vec::new(),
        };
        map.count();
        map
    }

    /// The slots shared out evenly, in this order.
    pub(crate) fn even(nodes: &[NodeIndex]) -> Map {
        let count = nodes.len() as u32;
        let share = |index: u32| (index * u32::from(SLOTS) / count) as u16;
        let ranges: Vec<(u16, u16, NodeIndex)> = (0..count)
            .map(|index| (share(index), share(index + 1) - 1, nodes[index as usize]))
            .collect();
        Map::new(&ranges, nodes[0])
    }

    fn count(&mut self) {
        self.all = self.nodes.clone();
        self.all.sort_unstable();
        self.all.dedup();
    }

    pub(crate) fn of_slot(&self, slot: u16) -> NodeIndex {
        self.nodes[usize::from(slot)]
    }

    /// The nodes that have slots.
    pub(crate) fn all(&self) -> &[NodeIndex] {
        &self.all
    }

    /// How many slots a node has.
    pub(crate) fn count_of(&self, node: NodeIndex) -> usize {
        self.nodes.iter().filter(|&&one| one == node).count()
    }

    /// A node says that another one has this slot.
    pub(crate) fn moved(&mut self, slot: u16, node: NodeIndex) {
        if let Some(place) = self.nodes.get_mut(usize::from(slot))
            && *place != node
        {
            *place = node;
            self.count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_evenly() {
        let nodes: Vec<NodeIndex> = (0..3).map(NodeIndex).collect();
        let map = Map::even(&nodes);
        let count = |node| (0..SLOTS).filter(|&slot| map.of_slot(slot) == node).count();
        assert_eq!(nodes.iter().map(|&node| count(node)).sum::<usize>(), 16_384);
        assert!(
            nodes
                .iter()
                .all(|&node| (5461..=5462).contains(&count(node)))
        );
        assert_eq!(map.all(), nodes);
    }

    #[test]
    fn a_slot_moves_alone() {
        let mut map = Map::new(
            &[(0, 99, NodeIndex(1)), (100, 20_000, NodeIndex(2))],
            NodeIndex(0),
        );
        assert_eq!(map.all(), [NodeIndex(1), NodeIndex(2)]);
        map.moved(7, NodeIndex(5));
        assert_eq!(
            (map.of_slot(6), map.of_slot(7)),
            (NodeIndex(1), NodeIndex(5))
        );
        assert_eq!(map.of_slot(16_383), NodeIndex(2));
        assert_eq!(map.all(), [NodeIndex(1), NodeIndex(2), NodeIndex(5)]);
        // A slot that does not exist changes nothing.
        map.moved(20_000, NodeIndex(9));
        assert_eq!(map.all().len(), 3);
    }
}
