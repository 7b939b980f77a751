//! Changes of inner nodes: a changed child takes the place of the old one; children that have become small are
//! merged, and a node with too many children is divided.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use super::TreeOrder;
use super::editor::{EditedNode, TreeChange, TreeEditor, TreeEnds};
use super::inner::{ChildSlot, InnerRef, Separator, new_inner, replace_child};
use super::leaf::{EntryRuns, LeafRef, leaf_bytes};
use super::node::{HEADER_BYTES, NewNode, NodePtr};
use super::search_key::SearchKey;

impl<O: TreeOrder> TreeEditor<O> {
    pub(super) fn edit_inner(
        &mut self,
        node: NodePtr,
        change: TreeChange<'_>,
        ends: TreeEnds,
    ) -> EditedNode {
        let inner = InnerRef::<O>::new(self.store.read(node));
        let (index, change) = match change {
            TreeChange::Put { key, .. } | TreeChange::Remove { key } => {
                (inner.child_of_key(SearchKey::new(key)), change)
            }
            TreeChange::Splice { from, to, value } => {
                if to - from > 1 {
                    return self.remove_below(node, from, to);
                }
                let (index, before) = inner.child_until(to);
                let (from, to) = (from - before, to - before);
                (index, TreeChange::Splice { from, to, value })
            }
            TreeChange::Extend { position, run } => {
                let (index, before) = inner.child_until(position);
                let position = position - before;
                (index, TreeChange::Extend { position, run })
            }
        };
        let ends_of_child = TreeEnds {
            first: ends.first && index == 0,
            last: ends.last && index + 1 == inner.count(),
        };
        let child = inner.child(index).pointer();
        match self.edit(child, change, ends_of_child) {
            EditedNode::Unchanged => EditedNode::Unchanged,
            EditedNode::One(new) if change.only_removes() && self.can_merge(node, index, new) => {
                let slots = [self.slot(new, Separator::new())].into_iter().collect();
                self.replace_children(node, index..=index, slots, ends)
            }
            EditedNode::One(new) => EditedNode::One(self.set_child(node, index, new)),
            EditedNode::Several(slots) => self.replace_children(node, index..=index, slots, ends),
        }
    }

    /// Replaces a child by one with the same separator.
    fn set_child(&mut self, node: NodePtr, index: usize, child: NodePtr) -> NodePtr {
        let total = self.store.read(child).total();
        if self.store.is_own(node) {
            replace_child::<O>(&mut self.store.write(node), index, child, total);
            return node;
        }
        let mut new = NewNode::copy(self.store.read(node), self.store.stamp());
        replace_child::<O>(new.as_mut(), index, child, total);
        self.store.discard(node);
        self.store.adopt(new)
    }

    /// Removes a range of entries below a node.
    fn remove_below(&mut self, node: NodePtr, from: usize, to: usize) -> EditedNode {
        let inner = InnerRef::<O>::new(self.store.read(node));
        let total = self.store.read(node).total();
        if from == 0 && to == total {
            self.store.discard_tree(node);
            return EditedNode::Several(SmallVec::new());
        }
        let (first, _) = inner.child_until(from + 1);
        let (last, _) = inner.child_until(to);
        let mut slots = SmallVec::new();
        let mut before = inner.total_before(first);
        for index in first..=last {
            let inner = InnerRef::<O>::new(self.store.read(node));
            let (child, total) = (inner.child(index).pointer(), inner.total(index));
            let separator = Separator::from_slice(inner.separator(index));
            let change = TreeChange::Splice {
                from: from.max(before) - before,
                to: to.min(before + total) - before,
                value: None,
            };
            self.remove_child_entries(child, change, separator, &mut slots);
            before += total;
        }
        let nowhere = TreeEnds {
            first: false,
            last: false,
        };
        self.replace_children(node, first..=last, slots, nowhere)
    }

    /// Changes a child of which a range of entries is removed, and appends the nodes in its place.
    fn remove_child_entries(
        &mut self,
        child: NodePtr,
        change: TreeChange<'_>,
        separator: Separator,
        slots: &mut SmallVec<[ChildSlot; 3]>,
    ) {
        let TreeChange::Splice { from, to, .. } = change else {
            unreachable!("ranges are removed by position");
        };
        if from == 0 && to == self.store.read(child).total() {
            self.store.discard_tree(child);
            return;
        }
        let nowhere = TreeEnds {
            first: false,
            last: false,
        };
        match self.edit(child, change, nowhere) {
            EditedNode::Unchanged => unreachable!("the range is not empty"),
            EditedNode::One(new) => slots.push(self.slot(new, separator)),
            EditedNode::Several(mut several) => {
                if let Some(first) = several.first_mut() {
                    first.separator = separator;
                }
                slots.extend(several);
            }
        }
    }

    /// Replaces some children by others. The separator of the first of these is the one of the first of
    /// those.
    fn replace_children(
        &mut self,
        node: NodePtr,
        replaced: RangeInclusive<usize>,
        mut new: SmallVec<[ChildSlot; 3]>,
        ends: TreeEnds,
    ) -> EditedNode {
        let inner = InnerRef::<O>::new(self.store.read(node));
        let height = self.store.read(node).height();
        let first = *replaced.start();
        let at_last = ends.last && *replaced.end() + 1 == inner.count();
        let mut slots = inner.slots();
        if let Some(slot) = new.first_mut()
            && slot.separator.is_empty()
        {
            slot.separator = std::mem::take(&mut slots[first].separator);
        }
        let count = new.len();
        slots.splice(replaced, new);
        self.merge_small(&mut slots, first, first + count);
        self.store.discard(node);
        let limit = self.limits.children;
        if slots.len() <= limit {
            if slots.is_empty() {
                return EditedNode::Several(SmallVec::new());
            }
            let new = new_inner::<O>(&slots, height, self.store.stamp());
            return EditedNode::One(self.store.adopt(new));
        }
        // Nodes that grow at an end of the tree leave full ones behind.
        let cut = if at_last {
            limit
        } else if ends.first && first == 0 {
            slots.len() - limit
        } else {
            slots.len() / 2
        };
        let right = slots.split_off(cut);
        let separator = right[0].separator.clone();
        let halves = [(slots, Separator::new()), (right, separator)];
        let halves = halves.map(|(slots, separator)| {
            let new = new_inner::<O>(&slots, height, self.store.stamp());
            let node = self.store.adopt(new);
            self.slot(node, separator)
        });
        EditedNode::Several(halves.into_iter().collect())
    }

    /// Returns the size of a node's body and the greatest one, in bytes or in children.
    fn size(&self, node: NodePtr) -> (usize, usize) {
        let node = self.store.read(node);
        if node.height() > 0 {
            return (node.count(), self.limits.children);
        }
        let bytes = leaf_bytes::<O>(node.used(), node.count()) - HEADER_BYTES;
        (bytes, self.limits.leaf_bytes - HEADER_BYTES)
    }

    /// Returns `true` if one of two neighbours is small, and one node can have the entries of both.
    fn should_merge(&self, left: NodePtr, right: NodePtr) -> bool {
        let (left, limit) = self.size(left);
        let (right, _) = self.size(right);
        left.min(right) <= limit / 4 && left + right <= limit / 4 * 3
    }

    /// Returns `true` if a child would be merged with one of its neighbours.
    fn can_merge(&self, node: NodePtr, index: usize, child: NodePtr) -> bool {
        let (size, limit) = self.size(child);
        if size > limit / 4 {
            return false;
        }
        let inner = InnerRef::<O>::new(self.store.read(node));
        let neighbour = |index: usize| inner.child(index).pointer();
        index > 0 && self.should_merge(neighbour(index - 1), child)
            || index + 1 < inner.count() && self.should_merge(child, neighbour(index + 1))
    }

    /// Merges small nodes among the slots from `first` to `end`, and those beside them.
    fn merge_small(&mut self, slots: &mut Vec<ChildSlot>, first: usize, mut end: usize) {
        let mut index = first.saturating_sub(1);
        while index < end && index + 1 < slots.len() {
            if self.should_merge(slots[index].node, slots[index + 1].node) {
                let right = slots.remove(index + 1);
                self.merge(&mut slots[index], right);
                end -= 1;
            } else {
                index += 1;
            }
        }
    }

    fn merge(&mut self, left: &mut ChildSlot, right: ChildSlot) {
        let nodes = [left.node, right.node];
        let [a, b] = nodes.map(|node| self.store.read(node));
        let stamp = self.store.stamp();
        let new = if a.height() > 0 {
            let mut slots = InnerRef::<O>::new(a).slots();
            let middle = slots.len();
            slots.extend(InnerRef::<O>::new(b).slots());
            slots[middle].separator = right.separator;
            new_inner::<O>(&slots, a.height(), stamp)
        } else {
            let mut runs = EntryRuns::default();
            for leaf in [a, b].map(LeafRef::<O>::new) {
                runs.push(leaf.run(0..leaf.count()));
                runs.add_count(leaf.count());
            }
            runs.leaf::<O>(stamp, 0, None)
        };
        for node in nodes {
            self.store.discard(node);
        }
        left.node = self.store.adopt(new);
        left.total += right.total;
    }
}
