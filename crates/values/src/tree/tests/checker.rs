//! Checks that a tree's nodes exist, and their invariants, and collects their addresses.

use std::collections::{HashMap, HashSet};

use super::super::inner::InnerRef;
use super::super::leaf::{LeafRef, leaf_bytes};
use super::super::node::NodeRef;
use super::super::{NodeLimits, TreeOrder, TreeView};
use super::registry;

/// Checks each node of a tree, which this thread has made, and adds their addresses to `reached`.
pub(super) fn check_nodes<O: TreeOrder>(
    tree: &TreeView<'_, O>,
    limits: NodeLimits,
    reached: &mut HashSet<usize>,
) {
    if let Some(root) = tree.root() {
        check_node::<O>(root, (limits, &registry::nodes()), [None, None], reached);
        assert!(root.height() == 0 || root.count() > 1, "a thin root");
    }
}

fn check_node<O: TreeOrder>(
    node: NodeRef<'_>,
    (limits, existing): (NodeLimits, &HashMap<usize, usize>),
    [low, high]: [Option<&[u8]>; 2],
    reached: &mut HashSet<usize>,
) {
    let address = node.pointer().address();
    assert!(
        existing.contains_key(&address),
        "a node that can be reached is freed"
    );
    reached.insert(address);
    if node.height() == 0 {
        return check_leaf::<O>(node, limits, [low, high]);
    }
    let inner = InnerRef::<O>::new(node);
    assert!((1..=limits.children).contains(&inner.count()));
    let bound = |index: usize| O::KEYED.then(|| inner.separator(index));
    let mut total = 0;
    for index in 0..inner.count() {
        let child = inner.child(index);
        let begin = if index > 0 { bound(index) } else { low };
        let end = if index + 1 < inner.count() {
            bound(index + 1)
        } else {
            high
        };
        check_node::<O>(child, (limits, existing), [begin, end], reached);
        assert_eq!(child.height() + 1, node.height());
        assert!(child.birth() <= node.birth(), "a child is younger");
        assert_eq!(child.total(), inner.total(index));
        total += child.total();
    }
    assert_eq!(total, node.total());
}

fn check_leaf<O: TreeOrder>(
    node: NodeRef<'_>,
    limits: NodeLimits,
    [low, high]: [Option<&[u8]>; 2],
) {
    let leaf = LeafRef::<O>::new(node);
    assert!(leaf.count() > 0);
    assert_eq!(leaf.count(), node.total());
    let bytes = leaf_bytes::<O>(leaf.used(), leaf.count());
    assert!(bytes <= node.capacity());
    assert!(leaf.count() == 1 || bytes <= limits.leaf_bytes);
    let (mut offset, mut previous) = (0, None);
    for index in 0..leaf.count() {
        assert_eq!(leaf.offset(index), offset);
        let entry = leaf.entry(offset);
        if O::KEYED {
            assert!(previous.is_none_or(|key| key < entry.key));
            assert!(low.is_none_or(|low| low <= entry.key));
            assert!(high.is_none_or(|high| entry.key < high));
        }
        previous = Some(entry.key);
        offset = entry.end;
    }
    assert_eq!(offset, leaf.used());
}
