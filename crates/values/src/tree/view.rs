//! Reading a tree.

use std::marker::PhantomData;

use super::cursor::TreeCursor;
use super::inner::InnerRef;
use super::leaf::{EntryRun, LeafRef};
use super::node::NodeRef;
use super::search_key::SearchKey;
use super::{KeyOrder, PositionOrder, TreeOrder};

/// A tree for reading. What it returns borrows from the tree's nodes.
#[derive(Clone, Copy, Debug)]
pub struct TreeView<'a, O> {
    root: Option<NodeRef<'a>>,
    order: PhantomData<O>,
}

impl<'a, O: TreeOrder> TreeView<'a, O> {
    pub(super) fn new(root: Option<NodeRef<'a>>) -> Self {
        let order = PhantomData;
        TreeView { root, order }
    }

    pub(super) fn root(&self) -> Option<NodeRef<'a>> {
        self.root
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.root.map_or(0, NodeRef::total)
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Returns the entry at a position, the first one being 0. The key is empty in a tree without keys.
    pub fn nth(&self, position: usize) -> Option<(&'a [u8], &'a [u8])> {
        if position >= self.len() {
            return None;
        }
        let (leaf, index) = self.leaf_at(self.root?, position);
        let entry = leaf.entry(leaf.offset(index));
        Some((entry.key, entry.value))
    }

    fn leaf_at(&self, mut node: NodeRef<'a>, mut position: usize) -> (LeafRef<'a, O>, usize) {
        while node.height() > 0 {
            let inner = InnerRef::<O>::new(node);
            let (index, before) = inner.child_until(position + 1);
            position -= before;
            node = inner.child(index);
        }
        (LeafRef::new(node), position)
    }

    /// Returns a cursor in front of the entry at a position, or behind the last entry.
    pub fn cursor_at(&self, position: usize) -> TreeCursor<'a, O> {
        TreeCursor::at_position(self.root, position)
    }

    /// Returns the entries in their order.
    pub fn iter(&self) -> TreeCursor<'a, O> {
        self.cursor_at(0)
    }
}

impl<'a> TreeView<'a, PositionOrder> {
    /// Returns all entries of a tree that is one leaf.
    pub(crate) fn only_leaf(&self) -> Option<EntryRun<'a>> {
        let root = self.root.filter(|root| root.height() == 0)?;
        let leaf = LeafRef::<PositionOrder>::new(root);
        Some(leaf.first_run(leaf.used()))
    }

    /// Returns the first entries, those of one leaf that have at most so many bytes.
    pub(crate) fn first_run(&self, most_bytes: usize) -> Option<EntryRun<'a>> {
        let (leaf, _) = self.leaf_at(self.root?, 0);
        Some(leaf.first_run(most_bytes)).filter(|run| run.count > 0)
    }

    /// Returns the last entries, those of one leaf that have at most so many bytes.
    pub(crate) fn last_run(&self, most_bytes: usize) -> Option<EntryRun<'a>> {
        let (leaf, _) = self.leaf_at(self.root?, self.len() - 1);
        Some(leaf.last_run(most_bytes)).filter(|run| run.count > 0)
    }
}

impl<'a> TreeView<'a, KeyOrder> {
    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        let mut node = self.root?;
        let key = SearchKey::new(key);
        while node.height() > 0 {
            let inner = InnerRef::<KeyOrder>::new(node);
            node = inner.child(inner.child_of_key(key));
        }
        let found = LeafRef::<KeyOrder>::new(node).search(key);
        found.ok().map(|(_, entry)| entry.value)
    }

    /// Returns the position of a key, or, as an error, the one where it would be.
    pub fn rank(&self, key: &[u8]) -> Result<usize, usize> {
        let mut before = 0;
        let Some(mut node) = self.root else {
            return Err(0);
        };
        let key = SearchKey::new(key);
        while node.height() > 0 {
            let inner = InnerRef::<KeyOrder>::new(node);
            let index = inner.child_of_key(key);
            before += inner.total_before(index);
            node = inner.child(index);
        }
        match LeafRef::<KeyOrder>::new(node).search(key) {
            Ok((index, _)) => Ok(before + index),
            Err(index) => Err(before + index),
        }
    }

    /// Returns a cursor in front of the first entry whose key is not less than this one.
    pub fn cursor_from(&self, key: &[u8]) -> TreeCursor<'a, KeyOrder> {
        TreeCursor::from_key(self.root, key)
    }
}

impl<'a, O: TreeOrder> IntoIterator for &TreeView<'a, O> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = TreeCursor<'a, O>;

    fn into_iter(self) -> TreeCursor<'a, O> {
        self.iter()
    }
}
