//! The nodes that an editor has made and replaced.
//!
//! Contract:
//! 1. The nodes of the tree that is edited are neither freed nor changed while the store exists, as the caller
//!    of [`NodeStore::new`] promises.
//! 2. The modules of `tree` give it addresses of nodes that can be reached from the root of the edited tree,
//!    or that the store has adopted, and none that it has discarded.
//! 3. A node that was born with the store's stamp belongs to the store. Nothing else refers to it, so that
//!    the borrow of the store protects references to it.

#![allow(unsafe_code)]

use base::planted::{self, Bug};
use smallvec::SmallVec;

use super::VersionStamp;
use super::node::{NewNode, NodeMut, NodePtr, NodeRef};

/// A node of the edited tree that the new tree does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplacedNode {
    pub(super) node: NodePtr,
    /// `true` if the new tree has none of the nodes below it either.
    pub(super) with_children: bool,
}

#[derive(Debug)]
pub(super) struct NodeStore {
    stamp: VersionStamp,
    replaced: SmallVec<[ReplacedNode; 6]>,
    bytes: usize,
    /// About the bytes of the replaced nodes.
    replaced_bytes: usize,
}

impl NodeStore {
    /// Makes a store without nodes.
    ///
    /// # Safety
    ///
    /// The nodes of the edited tree are neither freed nor changed while the store exists, and none of them
    /// was born with the stamp.
    pub(super) unsafe fn new(stamp: VersionStamp) -> NodeStore {
        NodeStore {
            stamp,
            replaced: SmallVec::new(),
            bytes: 0,
            replaced_bytes: 0,
        }
    }

    /// Makes a store for a new tree.
    pub(super) fn for_new_tree(stamp: VersionStamp) -> NodeStore {
        // SAFETY: there is no edited tree.
        unsafe { NodeStore::new(stamp) }
    }

    pub(super) fn stamp(&self) -> VersionStamp {
        self.stamp
    }

    /// Returns the bytes of the nodes that belong to the store.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns about the bytes of the nodes that the new tree does not have.
    pub(super) fn replaced_bytes(&self) -> usize {
        self.replaced_bytes
    }

    pub(super) fn replaced(&self) -> &[ReplacedNode] {
        &self.replaced
    }

    pub(super) fn read(&self, node: NodePtr) -> NodeRef<'_> {
        // SAFETY: nodes of the edited tree outlive the store; the store's own are neither freed nor changed
        // while it is borrowed.
        unsafe { node.read() }
    }

    /// Returns `true` if the node belongs to the store.
    pub(super) fn is_own(&self, node: NodePtr) -> bool {
        self.read(node).birth() == self.stamp
    }

    /// Returns `true` if a leaf can be changed in place.
    pub(super) fn may_change(&self, leaf: NodePtr) -> bool {
        self.is_own(leaf) || planted::is(Bug::SharedNode) && self.read(leaf).height() == 0
    }

    /// Returns a node that belongs to the store for changes.
    pub(super) fn write(&mut self, node: NodePtr) -> NodeMut<'_> {
        assert!(self.may_change(node), "only own nodes are changed");
        // SAFETY: the node is the store's, which is borrowed.
        unsafe { node.write() }
    }

    /// Takes a new node.
    pub(super) fn adopt(&mut self, new: NewNode) -> NodePtr {
        debug_assert_eq!(new.as_ref().birth(), self.stamp);
        self.bytes += new.as_ref().capacity();
        new.into_pointer()
    }

    /// Copies a node of any tree, and those below it.
    pub(super) fn adopt_copy(&mut self, node: NodeRef<'_>) -> NodePtr {
        let mut new = NewNode::copy(node, self.stamp);
        if node.height() > 0 {
            for index in 0..node.count() {
                let child = self.adopt_copy(node.child(index));
                new.as_mut().set_child(index, child);
            }
        }
        self.adopt(new)
    }

    /// Takes a node out of the tree, but none below it.
    pub(super) fn discard(&mut self, node: NodePtr) {
        if self.is_own(node) {
            // SAFETY: the node is the store's, and is used no longer.
            self.bytes -= unsafe { node.free() };
        } else {
            self.replaced_bytes += self.read(node).capacity();
            self.replaced.push(ReplacedNode {
                node,
                with_children: false,
            });
        }
    }

    /// Takes a node out of the tree, and all nodes below it.
    pub(super) fn discard_tree(&mut self, node: NodePtr) {
        if self.is_own(node) {
            if self.read(node).height() > 0 {
                for index in 0..self.read(node).count() {
                    self.discard_tree(self.read(node).child(index).pointer());
                }
            }
            self.discard(node);
        } else {
            self.replaced_bytes += about_bytes(self.read(node));
            self.replaced.push(ReplacedNode {
                node,
                with_children: true,
            });
        }
    }

    /// Frees the store's own nodes in a tree. The edited tree has all others.
    pub(super) fn free_own(&mut self, root: NodePtr) {
        self.discard_tree(root);
        self.replaced.clear();
    }
}

/// Returns about the bytes of a node and of those below it: as if all of its leaves were like the first one, and
/// without the inner nodes.
fn about_bytes(node: NodeRef<'_>) -> usize {
    let mut first = node;
    while first.height() > 0 && first.count() > 0 {
        first = first.child(0);
    }
    let leaves = node.total().div_ceil(first.total().max(1));
    leaves.max(1) * first.capacity()
}
