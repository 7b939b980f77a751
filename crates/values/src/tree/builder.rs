//! Trees of sorted entries.

use std::marker::PhantomData;

use super::inner::{ChildSlot, Separator, new_inner, separator};
use super::leaf::{EntryRuns, LeafRef, entry_head, leaf_bytes};
use super::node::NodePtr;
use super::node_store::NodeStore;
use super::{
    KeyOrder, MAX_ENTRIES, NodeLimits, PositionOrder, TreeEditor, TreeOrder, VersionStamp,
};

/// Builds a tree of entries in their order. Its leaves are full. Dropping the builder frees them.
#[derive(Debug)]
pub struct TreeBuilder<O: TreeOrder> {
    store: NodeStore,
    limits: NodeLimits,
    /// The entries of the last leaf, which is not made yet, and their number.
    entries: Vec<u8>,
    count: usize,
    /// The number of entries.
    total: usize,
    /// The separator in front of the last leaf.
    separator: Separator,
    /// The nodes of each height that have no parent yet.
    levels: Vec<Vec<ChildSlot>>,
    order: PhantomData<O>,
}

impl<O: TreeOrder> TreeBuilder<O> {
    /// Makes a builder of a version with a stamp, which has no older version in its chain with this stamp or
    /// a greater one.
    pub fn new(stamp: VersionStamp, limits: NodeLimits) -> Self {
        TreeBuilder {
            store: NodeStore::for_new_tree(stamp),
            limits,
            entries: Vec::new(),
            count: 0,
            total: 0,
            separator: Separator::new(),
            levels: vec![Vec::new()],
            order: PhantomData,
        }
    }

    fn push_entry(&mut self, key: &[u8], value: &[u8]) {
        assert!(self.total < MAX_ENTRIES, "the tree is full");
        let head = entry_head::<O>(key, value);
        let bytes = head.len() + key.len() + value.len();
        let used = self.entries.len() + bytes;
        if self.count > 0 && leaf_bytes::<O>(used, self.count + 1) > self.limits.leaf_bytes {
            let leaf = self.end_leaf();
            if O::KEYED {
                let left = LeafRef::<O>::new(self.store.read(leaf));
                self.separator = separator(left.last_key(), key);
            }
        }
        for run in [&head, key, value] {
            self.entries.extend_from_slice(run);
        }
        self.count += 1;
        self.total += 1;
    }

    /// Makes a leaf of the last entries.
    fn end_leaf(&mut self) -> NodePtr {
        let mut runs = EntryRuns::default();
        runs.push(&self.entries);
        runs.add_count(self.count);
        let new = runs.leaf::<O>(self.store.stamp(), 0, None);
        let node = self.store.adopt(new);
        let slot = ChildSlot {
            node,
            total: self.count,
            separator: std::mem::take(&mut self.separator),
        };
        self.entries.clear();
        self.count = 0;
        self.add(0, slot);
        node
    }

    /// Adds a node to those of its height, and makes a parent for these if they are as many as one can have.
    fn add(&mut self, height: usize, slot: ChildSlot) {
        if self.levels[height].len() == self.limits.children {
            self.end_inner(height);
        }
        self.levels[height].push(slot);
    }

    /// Makes a parent for the nodes of a height.
    fn end_inner(&mut self, height: usize) {
        let mut slots = std::mem::take(&mut self.levels[height]);
        let new = new_inner::<O>(&slots, height as u8 + 1, self.store.stamp());
        let slot = ChildSlot {
            node: self.store.adopt(new),
            total: slots.iter().map(|slot| slot.total).sum(),
            separator: std::mem::take(&mut slots[0].separator),
        };
        if self.levels.len() == height + 1 {
            self.levels.push(Vec::new());
        }
        self.add(height + 1, slot);
    }

    /// Returns an editor of the tree, which can be published as it is.
    pub fn finish(mut self) -> TreeEditor<O> {
        if self.count > 0 {
            self.end_leaf();
        }
        let mut height = 0;
        while height + 1 < self.levels.len() || self.levels[height].len() > 1 {
            self.end_inner(height);
            height += 1;
        }
        let root = self.levels[height].pop().map(|slot| slot.node);
        let store = NodeStore::for_new_tree(self.store.stamp());
        let store = std::mem::replace(&mut self.store, store);
        TreeEditor::new(root, store, self.limits)
    }
}

impl TreeBuilder<KeyOrder> {
    /// Appends an entry, whose key is greater than those before it.
    ///
    /// # Panics
    ///
    /// Panics if there are [`MAX_ENTRIES`] entries, or if the key or the value has 4 GiB.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.push_entry(key, value);
    }
}

impl TreeBuilder<PositionOrder> {
    /// Appends a value.
    ///
    /// # Panics
    ///
    /// Panics if there are [`MAX_ENTRIES`] values, or if the value has 4 GiB.
    pub fn push(&mut self, value: &[u8]) {
        self.push_entry(&[], value);
    }
}

impl<O: TreeOrder> Drop for TreeBuilder<O> {
    fn drop(&mut self) {
        for slot in self.levels.drain(..).flatten() {
            self.store.discard_tree(slot.node);
        }
    }
}
