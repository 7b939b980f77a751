//! A chain of versions, of which any but the newest can be released at any time; the owner of trees that the
//! documentation of `tree` describes.
//!
//! Contract: a version's nodes are freed only by [`VersionChain::release`] and by the drop of the chain,
//! which both need the chain for themselves. Views borrow it, or are of versions that are held.

#![allow(unsafe_code)]

use std::collections::HashSet;

use super::super::{
    FreedNodes, NodeLimits, ReplacedNodes, TreeEditor, TreeOrder, TreeRoot, TreeView, VersionStamp,
};
use super::checker::check_nodes;
use super::registry;

struct ChainedVersion<O> {
    stamp: VersionStamp,
    root: TreeRoot<O>,
    replaced: ReplacedNodes,
}

/// Versions, the newest last.
pub(super) struct VersionChain<O: TreeOrder> {
    versions: Vec<ChainedVersion<O>>,
    limits: NodeLimits,
    /// The bytes of the nodes of all versions.
    bytes: usize,
    /// The number of versions, from the oldest on, that cannot be released.
    held: usize,
}

impl<O: TreeOrder> VersionChain<O> {
    pub(super) fn new(limits: NodeLimits) -> Self {
        let empty = ChainedVersion {
            stamp: VersionStamp(0),
            root: TreeRoot::EMPTY,
            replaced: ReplacedNodes::default(),
        };
        VersionChain {
            versions: vec![empty],
            limits,
            bytes: 0,
            held: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    fn newest(&self) -> &ChainedVersion<O> {
        self.versions.last().expect("there is always a version")
    }

    pub(super) fn next_stamp(&self) -> VersionStamp {
        VersionStamp(self.newest().stamp.0 + 1)
    }

    pub(super) fn view(&self, index: usize) -> TreeView<'_, O> {
        // SAFETY: nodes are freed by functions that borrow the chain mutably.
        unsafe { self.versions[index].root.view() }
    }

    pub(super) fn current(&self) -> TreeView<'_, O> {
        self.view(self.len() - 1)
    }

    /// Makes an editor, and drops it after the changes.
    pub(super) fn abort(&self, change: impl FnOnce(&mut TreeEditor<O>)) {
        // SAFETY: as in `view`; the editor is dropped here.
        let mut editor = unsafe { self.newest().root.edit(self.next_stamp(), self.limits) };
        change(&mut editor);
    }

    /// Publishes a version with changes.
    pub(super) fn commit<R>(&mut self, change: impl FnOnce(&mut TreeEditor<O>) -> R) -> R {
        // SAFETY: as in `view`; the editor is published here.
        let mut editor = unsafe { self.newest().root.edit(self.next_stamp(), self.limits) };
        let result = change(&mut editor);
        self.publish(editor);
        result
    }

    /// Publishes an editor with the next stamp, of the newest version or, if that is empty, of a new tree.
    pub(super) fn publish(&mut self, editor: TreeEditor<O>) {
        let stamp = self.next_stamp();
        // SAFETY: the newest version has no successor yet, and gets this one.
        let published = unsafe { editor.publish() };
        self.bytes += published.allocated;
        self.push(stamp, published.root, published.replaced);
    }

    /// Publishes a version without entries.
    pub(super) fn delete(&mut self) {
        let stamp = self.next_stamp();
        // SAFETY: the newest version has no successor yet, and gets this one.
        let replaced = unsafe { self.newest().root.replace_all() };
        self.push(stamp, TreeRoot::EMPTY, replaced);
    }

    /// Reads the current version on another thread, while `write` changes the chain.
    pub(super) fn read_meanwhile(
        &mut self,
        read: impl FnOnce(TreeView<'_, O>) + Send,
        write: impl FnOnce(&mut Self),
    ) {
        let root = self.newest().root;
        self.held = self.len();
        std::thread::scope(|scope| {
            // SAFETY: the version is held until the thread has ended, and its nodes with it.
            scope.spawn(move || read(unsafe { root.view() }));
            write(self);
        });
        self.held = 0;
    }

    fn push(&mut self, stamp: VersionStamp, root: TreeRoot<O>, replaced: ReplacedNodes) {
        let newest = self.versions.last_mut().expect("there is always a version");
        newest.replaced = replaced;
        self.versions.push(ChainedVersion {
            stamp,
            root,
            replaced: ReplacedNodes::default(),
        });
    }

    /// Takes a version that is not the newest out of the chain, and frees nodes in slices of `slice`.
    pub(super) fn release(&mut self, index: usize, slice: usize) {
        assert!(index >= self.held && index + 1 < self.len());
        let mut left = self.versions.remove(index).replaced;
        if let Some(older) = index.checked_sub(1).map(|index| &mut self.versions[index]) {
            older.replaced.append(left.split_off_older(older.stamp));
        }
        while !left.is_empty() {
            // SAFETY: no version in the chain has the nodes, and there is no view.
            let freed = unsafe { left.free_some(slice) };
            assert_ne!(freed, FreedNodes::default());
            assert!(freed.nodes <= slice);
            self.bytes -= freed.bytes;
        }
    }

    /// Checks the nodes of all versions, and returns their addresses.
    pub(super) fn check_nodes(&self) -> HashSet<usize> {
        let mut reached = HashSet::new();
        for index in 0..self.len() {
            check_nodes(&self.view(index), self.limits, &mut reached);
        }
        reached
    }

    /// Checks the nodes of all versions, and that the thread has no others.
    pub(super) fn check(&self) {
        let reached = self.check_nodes();
        let existing = registry::nodes();
        assert_eq!(reached, existing.keys().copied().collect());
        assert_eq!(self.bytes, existing.values().sum());
    }
}

impl<O: TreeOrder> Drop for VersionChain<O> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.delete();
        while self.len() > 1 {
            self.release(0, 3);
        }
        assert_eq!(self.bytes, 0);
    }
}
