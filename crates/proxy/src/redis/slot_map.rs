//! The node of each slot, and where a scan goes on when that changes.

use cluster::slot::SLOTS;

use crate::runtime::query::NodeIndex;

/// The node of each slot, and the order in which `SCAN` visits the nodes.
///
/// A cursor names its node. When that node has no slots any more because another node has taken them
/// over, the scan goes on with that node, from its beginning: cursors of one node mean nothing to
/// another.
///
/// Invariant: a node that takes over all slots of another node gets its place in the order, so that a
/// scan that is under way skips no place and visits none twice. All other nodes that get slots come
/// last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SlotMap {
    nodes: Vec<NodeIndex>,
    places: Vec<ScanPosition>,
    /// All nodes that have slots, in the order of their places.
    all: Vec<NodeIndex>,
}

/// A place in the order of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ScanPosition {
    /// The nodes that have had the place; the last one has it now if `is_taken`.
    nodes: Vec<NodeIndex>,
    is_taken: bool,
}

/// A step of `SCAN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScanStep {
    /// The node that is asked.
    pub(crate) node: NodeIndex,
    /// The cursor names this node. Otherwise the node's part of the scan begins.
    pub(crate) is_named: bool,
    /// The node whose turn is next.
    pub(crate) next: Option<NodeIndex>,
}

impl SlotMap {
    /// Creates a map of ranges of slots (including both ends). A slot that is in none belongs to
    /// `fallback`, whose error will explain the fault.
    pub(crate) fn new(ranges: &[(u16, u16, NodeIndex)], fallback: NodeIndex) -> SlotMap {
        let mut nodes = vec![fallback; SLOTS.into()];
        for &(first, last, node) in ranges {
            let last = last.min(SLOTS - 1);
            if first <= last {
                nodes[first.into()..=last.into()].fill(node);
            }
        }
        let mut map = SlotMap {
            nodes,
            places: Vec::new(),
            all: Vec::new(),
        };
        map.settle(|_| None);
        map
    }

    /// Creates a map that divides the slots evenly among the nodes, in this order.
    pub(crate) fn even(nodes: &[NodeIndex]) -> SlotMap {
        let count = nodes.len() as u32;
        let share = |index: u32| (index * u32::from(SLOTS) / count) as u16;
        let ranges: Vec<(u16, u16, NodeIndex)> = (0..count)
            .map(|index| (share(index), share(index + 1) - 1, nodes[index as usize]))
            .collect();
        SlotMap::new(&ranges, nodes[0])
    }

    /// Adopts the order of the previous map.
    pub(crate) fn follow(&mut self, before: &SlotMap) {
        self.places.clone_from(&before.places);
        self.settle(|node| before.nodes.iter().position(|&one| one == node));
    }

    /// Gives places to the nodes that have slots, and takes them from the nodes that have none. `first`
    /// returns the first slot that a node had before.
    fn settle(&mut self, first: impl Fn(NodeIndex) -> Option<usize>) {
        let mut left = self.nodes.clone();
        left.sort_unstable();
        left.dedup();
        for place in &mut self.places {
            let Some(node) = place.node() else { continue };
            match left.binary_search(&node) {
                Ok(at) => drop(left.remove(at)),
                Err(_) => place.is_taken = false,
            }
        }
        for place in &mut self.places {
            let Some(&node) = place.nodes.last().filter(|_| !place.is_taken) else {
                continue;
            };
            let successor = first(node).map(|slot| self.nodes[slot]);
            if let Some(Ok(at)) = successor.map(|successor| left.binary_search(&successor)) {
                place.take(left.remove(at));
            }
        }
        self.places
            .extend(left.into_iter().map(|node| ScanPosition {
                nodes: vec![node],
                is_taken: true,
            }));
        self.all = self.places.iter().filter_map(ScanPosition::node).collect();
    }

    pub(crate) fn of_slot(&self, slot: u16) -> NodeIndex {
        self.nodes[usize::from(slot)]
    }

    /// Returns the nodes that have slots.
    pub(crate) fn all(&self) -> &[NodeIndex] {
        &self.all
    }

    /// Returns `true` if other nodes have at least half of the slots that this node had before: it was
    /// replaced. Slots that are moved for balance leave a node one by one.
    pub(crate) fn replaces(&self, before: &SlotMap, node: NodeIndex) -> bool {
        let slots = before.nodes.iter().zip(&self.nodes);
        let had = slots.filter(|&(&was, _)| was == node);
        let (mut lost, mut all) = (0, 0);
        for (_, &is) in had {
            all += 1;
            lost += usize::from(is != node);
        }
        lost > 0 && lost * 2 >= all
    }

    /// Returns how many slots a node has.
    pub(crate) fn count_of(&self, node: NodeIndex) -> usize {
        self.nodes.iter().filter(|&&one| one == node).count()
    }

    /// Returns the step of a scan whose cursor names a node for which `is_named` is true; with `None`
    /// the scan begins. Returns `None` if no node ever matched, or if no node with slots is left at its
    /// place or after it.
    pub(crate) fn step(&self, is_named: Option<impl Fn(NodeIndex) -> bool>) -> Option<ScanStep> {
        let from = match &is_named {
            None => 0,
            Some(is_named) => {
                let has = |place: &ScanPosition| place.node().is_some_and(is_named);
                let had = |place: &ScanPosition| place.nodes.iter().any(|&node| is_named(node));
                let now = self.places.iter().position(has);
                now.or_else(|| self.places.iter().position(had))?
            }
        };
        let mut rest = self.places[from..].iter().filter_map(ScanPosition::node);
        let node = rest.next()?;
        Some(ScanStep {
            node,
            is_named: is_named.is_some_and(|is_named| is_named(node)),
            next: rest.next(),
        })
    }

    /// Records that another node has this slot.
    pub(crate) fn moved(&mut self, slot: u16, node: NodeIndex) {
        let Some(&before) = self.nodes.get(usize::from(slot)) else {
            return;
        };
        if before != node {
            self.nodes[usize::from(slot)] = node;
            self.settle(|one| (one == before).then_some(slot.into()));
        }
    }
}

impl ScanPosition {
    /// Returns the node that has the place now.
    fn node(&self) -> Option<NodeIndex> {
        self.nodes.last().copied().filter(|_| self.is_taken)
    }

    fn take(&mut self, node: NodeIndex) {
        self.nodes.retain(|&one| one != node);
        self.nodes.push(node);
        self.is_taken = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_out_evenly() {
        let nodes: Vec<NodeIndex> = (0..3).map(NodeIndex).collect();
        let map = SlotMap::even(&nodes);
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
        let mut map = SlotMap::new(
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

    /// Returns the nodes that a scan asks after a cursor of this node, and if the first is the cursor's
    /// own.
    fn rest(map: &SlotMap, named: Option<u32>) -> Option<(Vec<u32>, bool)> {
        let named_is = |named: u32| move |node: NodeIndex| node == NodeIndex(named);
        let mut step = map.step(named.map(named_is))?;
        let (mut rest, is_named) = (vec![step.node.0], step.is_named);
        while let Some(next) = step.next {
            step = map.step(Some(named_is(next.0)))?;
            rest.push(step.node.0);
        }
        Some((rest, is_named))
    }

    fn thirds(nodes: [u32; 3]) -> SlotMap {
        SlotMap::even(&nodes.map(NodeIndex))
    }

    #[test]
    fn a_node_that_takes_over_has_the_place_of_the_other() {
        let before = thirds([0, 1, 2]);
        assert_eq!(rest(&before, None), Some((vec![0, 1, 2], false)));
        assert_eq!(rest(&before, Some(1)), Some((vec![1, 2], true)));
        let mut after = thirds([7, 1, 2]);
        after.follow(&before);
        assert_eq!(after.all(), [7, 1, 2].map(NodeIndex));
        assert_eq!(rest(&after, None), Some((vec![7, 1, 2], false)));
        // The scan was in the middle of node 0: the other node returns all that node 0 had.
        assert_eq!(rest(&after, Some(0)), Some((vec![7, 1, 2], false)));
        assert_eq!(rest(&after, Some(1)), Some((vec![1, 2], true)));
        assert_eq!(rest(&after, Some(9)), None);
        // The slots move back.
        let mut again = thirds([0, 1, 2]);
        again.follow(&after);
        assert_eq!(rest(&again, Some(7)), Some((vec![0, 1, 2], false)));
        assert_eq!(rest(&again, Some(0)), Some((vec![0, 1, 2], true)));
        // Two nodes are replaced at once, one of them by a node that was there before.
        let mut both = thirds([3, 3, 2]);
        both.follow(&again);
        assert_eq!(rest(&both, Some(1)), Some((vec![2], false)));
        assert_eq!(rest(&both, Some(0)), Some((vec![3, 2], false)));
    }

    #[test]
    fn a_node_is_replaced_by_those_that_get_half_of_its_slots() {
        let before = thirds([0, 1, 2]);
        assert!(!before.replaces(&before, NodeIndex(1)));
        assert!(thirds([0, 2, 2]).replaces(&before, NodeIndex(1)));
        assert!(!thirds([0, 2, 2]).replaces(&before, NodeIndex(0)));
        assert!(!before.replaces(&before, NodeIndex(9)));
        let mut moved = before.clone();
        moved.moved(0, NodeIndex(1));
        assert!(!moved.replaces(&before, NodeIndex(0)));
    }

    #[test]
    fn slots_that_move_one_by_one_skip_no_node() {
        let ranges = [(0, 0, 0), (1, 99, 1), (100, SLOTS, 2)];
        let ranges = ranges.map(|(first, last, node)| (first, last, NodeIndex(node)));
        let mut map = SlotMap::new(&ranges, NodeIndex(0));
        // Node 0 has given its last slot to node 5, which has its place now.
        map.moved(0, NodeIndex(5));
        assert_eq!(rest(&map, Some(0)), Some((vec![5, 1, 2], false)));
        // Node 1 keeps slots: a node that gets some of them comes last.
        map.moved(7, NodeIndex(6));
        assert_eq!(rest(&map, None), Some((vec![5, 1, 2, 6], false)));
        // No node takes the place of a node whose slots went to one that has its own place.
        map.moved(0, NodeIndex(2));
        assert_eq!(rest(&map, Some(5)), Some((vec![1, 2, 6], false)));
    }
}
