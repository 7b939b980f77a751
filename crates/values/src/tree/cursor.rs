//! Iteration over entries, in both directions.

use smallvec::SmallVec;

use super::inner::InnerRef;
use super::leaf::LeafRef;
use super::node::NodeRef;
use super::search_key::SearchKey;
use super::{KeyOrder, TreeOrder};

/// A place between two entries of a tree. As an iterator it goes forwards; [`TreeCursor::prev`] goes
/// backwards.
#[derive(Clone, Debug)]
pub struct TreeCursor<'a, O> {
    /// The inner nodes from the root down, and the child of each that leads to the leaf.
    path: SmallVec<[(NodeRef<'a>, usize); 6]>,
    /// The leaf; `None` in an empty tree.
    leaf: Option<LeafRef<'a, O>>,
    /// The entry of the leaf that follows the place, and its offset.
    index: usize,
    offset: usize,
}

impl<'a, O: TreeOrder> TreeCursor<'a, O> {
    pub(super) fn at_position(root: Option<NodeRef<'a>>, position: usize) -> Self {
        let mut position = position.min(root.map_or(0, NodeRef::total));
        let mut cursor = Self::unplaced();
        if let Some(root) = root {
            let leaf = cursor.descend(root, |inner| {
                let (index, before) = inner.child_until(position + 1);
                position -= before;
                index
            });
            cursor.place(leaf, position);
        }
        cursor
    }

    fn unplaced() -> Self {
        TreeCursor {
            path: SmallVec::new(),
            leaf: None,
            index: 0,
            offset: 0,
        }
    }

    fn descend(
        &mut self,
        mut node: NodeRef<'a>,
        mut choose: impl FnMut(InnerRef<'a, O>) -> usize,
    ) -> LeafRef<'a, O> {
        while node.height() > 0 {
            let inner = InnerRef::<O>::new(node);
            let index = choose(inner);
            self.path.push((node, index));
            node = inner.child(index);
        }
        LeafRef::new(node)
    }

    fn place(&mut self, leaf: LeafRef<'a, O>, index: usize) {
        self.leaf = Some(leaf);
        self.index = index;
        self.offset = leaf.offset(index);
    }

    /// Moves to the begin of the next leaf, and returns it; stays where it is behind the last one.
    fn next_leaf(&mut self) -> Option<LeafRef<'a, O>> {
        let has_next = |&(node, index): &(NodeRef<'a>, usize)| index + 1 < node.count();
        let level = self.path.iter().rposition(has_next)?;
        self.path.truncate(level + 1);
        self.path[level].1 += 1;
        let (node, index) = self.path[level];
        let leaf = self.descend(node.child(index), |_| 0);
        self.place(leaf, 0);
        Some(leaf)
    }

    /// Moves to the end of the leaf before, and returns it; stays where it is in front of the first one.
    fn previous_leaf(&mut self) -> Option<LeafRef<'a, O>> {
        let level = self.path.iter().rposition(|&(_, index)| index > 0)?;
        self.path.truncate(level + 1);
        self.path[level].1 -= 1;
        let (node, index) = self.path[level];
        let leaf = self.descend(node.child(index), |inner| inner.count() - 1);
        self.place(leaf, leaf.count());
        Some(leaf)
    }

    /// Returns the entry in front of the cursor, and moves the cursor in front of it.
    pub fn prev(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let mut leaf = self.leaf?;
        if self.index == 0 {
            leaf = self.previous_leaf()?;
        }
        self.index -= 1;
        self.offset = leaf.offset(self.index);
        let entry = leaf.entry(self.offset);
        Some((entry.key, entry.value))
    }
}

impl<'a> TreeCursor<'a, KeyOrder> {
    pub(super) fn from_key(root: Option<NodeRef<'a>>, key: &[u8]) -> Self {
        let mut cursor = Self::unplaced();
        let key = SearchKey::new(key);
        if let Some(root) = root {
            let leaf = cursor.descend(root, |inner| inner.child_of_key(key));
            let index = leaf
                .search(key)
                .map_or_else(|index| index, |(index, _)| index);
            cursor.place(leaf, index);
        }
        cursor
    }
}

impl<'a, O: TreeOrder> Iterator for TreeCursor<'a, O> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut leaf = self.leaf?;
        if self.index == leaf.count() {
            leaf = self.next_leaf()?;
        }
        let entry = leaf.entry(self.offset);
        self.index += 1;
        self.offset = entry.end;
        Some((entry.key, entry.value))
    }
}
