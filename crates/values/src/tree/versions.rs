//! Versions of trees: their roots, publication, and freeing.
//!
//! A list of replaced nodes is linked through the nodes themselves, so that it takes no memory. The link has
//! the next node's address and, in its lowest bit, [`WITH_CHILDREN`] if the list has the nodes below this one
//! as well.
//!
//! Contract:
//! 1. A node is in the list of one version at most: of the one whose successor does not have it. Each version
//!    has one successor ([`TreeEditor::publish`]).
//! 2. Who owns the list may write the links of its nodes, and of those below them if it has these as well.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use base::planted::{self, Bug};

use super::node::NodePtr;
use super::node_store::{NodeStore, ReplacedNode};
use super::{NodeLimits, TreeEditor, TreeOrder, TreeView, VersionStamp};

const WITH_CHILDREN: usize = 1;

/// The root of a published tree, in eight bytes. It owns nothing: [`super`] says when nodes are freed.
#[derive(Debug)]
pub struct TreeRoot<O> {
    node: Option<NodePtr>,
    order: PhantomData<O>,
}

impl<O> Clone for TreeRoot<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for TreeRoot<O> {}

impl<O: TreeOrder> TreeRoot<O> {
    /// The tree without entries.
    pub const EMPTY: TreeRoot<O> = TreeRoot {
        node: None,
        order: PhantomData,
    };

    pub(super) fn new(node: Option<NodePtr>) -> Self {
        let order = PhantomData;
        TreeRoot { node, order }
    }

    /// Returns the tree for reading.
    ///
    /// # Safety
    ///
    /// The version with this tree was published before, as the reader sees it, and its nodes are not freed
    /// during `'a`.
    pub unsafe fn view<'a>(self) -> TreeView<'a, O> {
        // SAFETY: the caller says so, and published nodes do not change.
        TreeView::new(self.node.map(|node| unsafe { node.read() }))
    }

    /// Returns an editor of the next version, with its stamp.
    ///
    /// # Safety
    ///
    /// As for [`TreeRoot::view`], while the editor exists; and the stamp is greater than that of each version
    /// whose nodes the tree has.
    pub unsafe fn edit(self, stamp: VersionStamp, limits: NodeLimits) -> TreeEditor<O> {
        // SAFETY: the caller says so.
        let store = unsafe { NodeStore::new(stamp) };
        TreeEditor::new(self.node, store, limits)
    }

    /// Returns the list of all nodes of the tree, at once.
    ///
    /// # Safety
    ///
    /// The version with this tree has no other successor: the collection is deleted.
    pub unsafe fn replace_all(self) -> ReplacedNodes {
        let mut list = ReplacedNodes::default();
        if let Some(node) = self.node {
            // SAFETY: the caller says that the node joins no other list.
            unsafe { list.push(node, true) };
        }
        list
    }
}

/// The result of a publication.
#[derive(Debug)]
#[must_use]
pub struct PublishedTree<O> {
    /// The root of the new version.
    pub root: TreeRoot<O>,
    /// The nodes that the version before has and the new one has not.
    pub replaced: ReplacedNodes,
    /// The bytes that were allocated for nodes of the new version.
    pub allocated: usize,
}

impl<O: TreeOrder> TreeEditor<O> {
    /// Makes the edited tree a version. It does not change from now on.
    ///
    /// # Safety
    ///
    /// This is the only successor of the version that was edited: other editors of that version are dropped,
    /// and do not publish.
    pub unsafe fn publish(self) -> PublishedTree<O> {
        let (root, store) = self.into_parts();
        let mut replaced = ReplacedNodes::default();
        for &ReplacedNode {
            node,
            with_children,
        } in store.replaced()
        {
            // SAFETY: the caller says that the node joins no other list.
            unsafe { replaced.push(node, with_children) };
        }
        PublishedTree {
            root: TreeRoot::new(root),
            replaced,
            allocated: store.bytes(),
        }
    }
}

/// What was freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreedNodes {
    /// The number of nodes.
    pub nodes: usize,
    /// The bytes of their allocations.
    pub bytes: usize,
}

/// The nodes that a version has and its successor has not, in eight bytes. Dropping the list does not free
/// them.
#[derive(Debug, Default)]
#[must_use]
pub struct ReplacedNodes {
    /// The address of the first node, or 0.
    first: usize,
}

impl ReplacedNodes {
    /// Returns `true` if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.first == 0
    }

    /// # Safety
    ///
    /// The list becomes the owner of the node.
    unsafe fn push(&mut self, node: NodePtr, with_children: bool) {
        let mark = if with_children { WITH_CHILDREN } else { 0 };
        // SAFETY: the caller says so.
        unsafe { node.set_link(self.first | mark) };
        self.first = node.address();
    }

    fn pop(&mut self) -> Option<(NodePtr, bool)> {
        let node = NodePtr::at_address(self.first)?;
        // SAFETY: a node of the list is not freed yet.
        let link = unsafe { node.link() };
        self.first = link & !WITH_CHILDREN;
        Some((node, link & WITH_CHILDREN != 0))
    }

    /// Appends the nodes of another list.
    pub fn append(&mut self, mut other: ReplacedNodes) {
        while let Some((node, with_children)) = other.pop() {
            // SAFETY: the other list was the owner.
            unsafe { self.push(node, with_children) };
        }
    }

    /// Takes those nodes out of the list that were not born later than `older`, and returns them. The time
    /// that it takes is proportional to the nodes that were.
    pub fn split_off_older(&mut self, older: VersionStamp) -> ReplacedNodes {
        if planted::is(Bug::EarlyFreeing) {
            return ReplacedNodes::default();
        }
        let mut all = std::mem::take(self);
        let mut split = ReplacedNodes::default();
        while let Some((pointer, with_children)) = all.pop() {
            // SAFETY: a node of the list is not freed yet, and is not changed.
            let node = unsafe { pointer.read() };
            if node.birth() <= older {
                // SAFETY: this list was the owner.
                unsafe { split.push(pointer, with_children) };
                continue;
            }
            if with_children && node.height() > 0 {
                for index in 0..node.count() {
                    // SAFETY: this list is the owner of the node's children as well.
                    unsafe { all.push(node.child(index).pointer(), true) };
                }
            }
            // SAFETY: this list was the owner.
            unsafe { self.push(pointer, false) };
        }
        split
    }

    /// Frees so many nodes at most.
    ///
    /// # Safety
    ///
    /// No reader has a reference to a version that has one of the nodes, and no such version is in the chain.
    pub unsafe fn free_some(&mut self, nodes: usize) -> FreedNodes {
        let mut freed = FreedNodes::default();
        while freed.nodes < nodes
            && let Some((mut pointer, with_children)) = self.pop()
        {
            // SAFETY: a node of the list is not freed yet, and the caller says that no other uses it.
            let mut node = unsafe { pointer.write() };
            let (height, count) = (node.as_ref().height(), node.as_ref().count());
            if with_children && height > 0 && count > 0 {
                let child = node.as_ref().child(count - 1).pointer();
                node.set_count(count - 1);
                // SAFETY: this list is the owner of the node, and of its children.
                unsafe { self.push(pointer, true) };
                if height > 1 {
                    // SAFETY: as above.
                    unsafe { self.push(child, true) };
                    continue;
                }
                pointer = child;
            }
            // SAFETY: as above; the node is in no list and has no parent any more.
            freed.bytes += unsafe { pointer.free() };
            freed.nodes += 1;
        }
        freed
    }
}
