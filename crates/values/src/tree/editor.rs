//! Changes of a tree.

use std::marker::PhantomData;
use std::ops::Range;

use smallvec::SmallVec;

use super::inner::{ChildSlot, InnerRef, Separator, new_inner};
use super::leaf::EntryRun;
use super::node::NodePtr;
use super::node_store::NodeStore;
use super::{
    KeyOrder, MAX_ENTRIES, MAX_LEAF_BYTES, NodeLimits, PositionOrder, TreeOrder, TreeView,
    VersionStamp,
};

/// Makes the next version of a tree, which others may read meanwhile. Each changed node, and the path to it,
/// is copied once, by the first change. Dropping the editor frees what it has made.
#[derive(Debug)]
pub struct TreeEditor<O: TreeOrder> {
    root: Option<NodePtr>,
    pub(super) store: NodeStore,
    pub(super) limits: NodeLimits,
    order: PhantomData<O>,
}

/// A change of entries.
#[derive(Clone, Copy)]
pub(super) enum TreeChange<'a> {
    /// Inserts an entry, or replaces the one with its key.
    Put { key: &'a [u8], value: &'a [u8] },
    /// Removes the entry with a key.
    Remove { key: &'a [u8] },
    /// Replaces the entries at some positions by at most one.
    Splice {
        from: usize,
        to: usize,
        value: Option<&'a [u8]>,
    },
    /// Inserts entries at an end of the tree.
    Extend { position: usize, run: EntryRun<'a> },
}

impl TreeChange<'_> {
    /// Returns `true` if the change makes the tree no larger.
    pub(super) fn only_removes(self) -> bool {
        matches!(
            self,
            TreeChange::Remove { .. } | TreeChange::Splice { value: None, .. }
        )
    }
}

/// What stands in the place of a changed node: nodes of the same height. The separator of the first one is
/// that of the changed node.
pub(super) enum EditedNode {
    Unchanged,
    One(NodePtr),
    Several(SmallVec<[ChildSlot; 3]>),
}

/// The ends of the tree that a node lies at.
#[derive(Clone, Copy)]
pub(super) struct TreeEnds {
    pub(super) first: bool,
    pub(super) last: bool,
}

impl<O: TreeOrder> TreeEditor<O> {
    pub(super) fn new(root: Option<NodePtr>, store: NodeStore, limits: NodeLimits) -> Self {
        assert!(limits.children >= 4 && limits.leaf_bytes <= MAX_LEAF_BYTES);
        TreeEditor {
            root,
            store,
            limits,
            order: PhantomData,
        }
    }

    /// Returns an editor of a new tree with the entries of another one, whose nodes it does not share. `stamp` is as
    /// for [`TreeBuilder::new`](super::TreeBuilder::new).
    #[must_use]
    pub fn of_copy(view: TreeView<'_, O>, stamp: VersionStamp) -> Self {
        let mut store = NodeStore::for_new_tree(stamp);
        let root = view.root().map(|root| store.adopt_copy(root));
        TreeEditor::new(root, store, NodeLimits::default())
    }

    /// Returns the tree as it is now.
    pub fn view(&self) -> TreeView<'_, O> {
        TreeView::new(self.root.map(|root| self.store.read(root)))
    }

    /// Returns the bytes that are allocated for nodes of the new version.
    pub fn allocated(&self) -> usize {
        self.store.bytes()
    }

    /// Returns about the bytes of the nodes that the new version does not have of the version before.
    pub fn replaced_bytes(&self) -> usize {
        self.store.replaced_bytes()
    }

    /// Removes the entries at some positions. The time that it takes does not depend on the number of those
    /// that were there before.
    ///
    /// # Panics
    ///
    /// Panics if the range ends behind the last entry.
    pub fn remove_range(&mut self, positions: Range<usize>) {
        assert!(positions.end <= self.view().len(), "the entries exist");
        if positions.is_empty() {
            return;
        }
        self.change(TreeChange::Splice {
            from: positions.start,
            to: positions.end,
            value: None,
        });
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        if let Some(root) = self.root.take() {
            self.store.discard_tree(root);
        }
    }

    fn change(&mut self, change: TreeChange<'_>) {
        let Some(root) = self.root else {
            self.root = self.first_leaf(change);
            return;
        };
        let ends = TreeEnds {
            first: true,
            last: true,
        };
        match self.edit(root, change, ends) {
            EditedNode::Unchanged => {}
            EditedNode::One(node) => self.root = Some(self.without_thin_roots(node)),
            EditedNode::Several(slots) if slots.is_empty() => self.root = None,
            EditedNode::Several(slots) => {
                let height = self.store.read(slots[0].node).height() + 1;
                let new = new_inner::<O>(&slots, height, self.store.stamp());
                self.root = Some(self.store.adopt(new));
            }
        }
    }

    /// Changes a node and those below it.
    pub(super) fn edit(
        &mut self,
        node: NodePtr,
        change: TreeChange<'_>,
        ends: TreeEnds,
    ) -> EditedNode {
        if self.store.read(node).height() == 0 {
            self.edit_leaf(node, change, ends)
        } else {
            self.edit_inner(node, change, ends)
        }
    }

    /// Returns the first node, from this one down, that has several children or entries.
    fn without_thin_roots(&mut self, mut root: NodePtr) -> NodePtr {
        loop {
            let node = self.store.read(root);
            if node.height() == 0 || node.count() > 1 {
                return root;
            }
            let child = InnerRef::<O>::new(node).child(0).pointer();
            self.store.discard(root);
            root = child;
        }
    }

    pub(super) fn slot(&self, node: NodePtr, separator: Separator) -> ChildSlot {
        ChildSlot {
            node,
            total: self.store.read(node).total(),
            separator,
        }
    }

    /// Returns the root and the store of the editor, which frees nothing then.
    pub(super) fn into_parts(mut self) -> (Option<NodePtr>, NodeStore) {
        let store = NodeStore::for_new_tree(self.store.stamp());
        (self.root.take(), std::mem::replace(&mut self.store, store))
    }
}

impl TreeEditor<KeyOrder> {
    /// Inserts an entry, or replaces the value of the one with its key. Returns `true` if the key is new.
    ///
    /// # Panics
    ///
    /// Panics if there are [`MAX_ENTRIES`] entries, or if the key or the value has 4 GiB.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        let before = self.view().len();
        assert!(before < MAX_ENTRIES, "the tree is full");
        self.change(TreeChange::Put { key, value });
        self.view().len() > before
    }

    /// Removes the entry with a key. Returns `false` if there is none; nothing is copied then.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let before = self.view().len();
        if before > 0 {
            self.change(TreeChange::Remove { key });
        }
        self.view().len() < before
    }
}

impl TreeEditor<PositionOrder> {
    /// Inserts a value in front of the one at a position, or behind the last one.
    ///
    /// # Panics
    ///
    /// Panics if the position is greater than the number of values, if there are [`MAX_ENTRIES`] values, or
    /// if the value has 4 GiB.
    pub fn insert(&mut self, position: usize, value: &[u8]) {
        assert!(self.view().len() < MAX_ENTRIES, "the tree is full");
        self.splice(position, position, value);
    }

    /// Replaces the value at a position.
    ///
    /// # Panics
    ///
    /// Panics if there is none, or if the value has 4 GiB.
    pub fn replace(&mut self, position: usize, value: &[u8]) {
        self.splice(position, position + 1, value);
    }

    /// Inserts values at an end of the tree, those of a leaf of another one.
    ///
    /// # Panics
    ///
    /// Panics if the position is not an end, or if the tree has more than [`MAX_ENTRIES`] values then.
    pub(crate) fn extend(&mut self, position: usize, run: EntryRun<'_>) {
        let len = self.view().len();
        assert!(position == 0 || position == len, "it is an end of the tree");
        assert!(len + run.count() <= MAX_ENTRIES, "the tree is full");
        self.change(TreeChange::Extend { position, run });
    }

    fn splice(&mut self, from: usize, to: usize, value: &[u8]) {
        assert!(to <= self.view().len(), "the position exists");
        let value = Some(value);
        self.change(TreeChange::Splice { from, to, value });
    }
}

impl<O: TreeOrder> Drop for TreeEditor<O> {
    fn drop(&mut self) {
        if let Some(root) = self.root {
            self.store.free_own(root);
        }
    }
}
