//! The versions of a tree: the current one, and the nodes of those before it that wait to be freed.
//!
//! Contract: there is one current version, and views borrow it. Nodes of older versions have no readers.

#![allow(unsafe_code)]

use std::collections::VecDeque;

use kumiki_values::tree::{
    NodeLimits, ReplacedNodes, TreeEditor, TreeOrder, TreeRoot, TreeView, VersionStamp,
};

/// The versions whose replaced nodes wait.
const WAITING: usize = 64;

pub struct Versions<O: TreeOrder> {
    root: TreeRoot<O>,
    stamp: VersionStamp,
    limits: NodeLimits,
    waiting: VecDeque<ReplacedNodes>,
    /// The bytes of all nodes that were made, and of those that were freed.
    made: usize,
    freed: usize,
}

impl<O: TreeOrder> Versions<O> {
    pub fn new(limits: NodeLimits) -> Self {
        Versions {
            root: TreeRoot::EMPTY,
            stamp: VersionStamp(0),
            limits,
            waiting: VecDeque::with_capacity(WAITING + 1),
            made: 0,
            freed: 0,
        }
    }

    pub fn view(&self) -> TreeView<'_, O> {
        // SAFETY: the nodes of the current version are not freed.
        unsafe { self.root.view() }
    }

    /// Makes a version with changes.
    pub fn change(&mut self, change: impl FnOnce(&mut TreeEditor<O>)) {
        self.stamp.0 += 1;
        // SAFETY: the current version is not freed, and its stamp is less.
        let mut editor = unsafe { self.root.edit(self.stamp, self.limits) };
        change(&mut editor);
        self.publish(editor);
    }

    /// Publishes an editor of the current version, or of a new tree if there are no entries.
    pub fn publish(&mut self, editor: TreeEditor<O>) {
        // SAFETY: there is one editor at a time.
        let published = unsafe { editor.publish() };
        self.root = published.root;
        self.made += published.allocated;
        self.waiting.push_back(published.replaced);
        if self.waiting.len() > WAITING {
            self.free_oldest();
        }
    }

    /// Returns the bytes of the current version.
    pub fn bytes(&mut self) -> usize {
        while !self.waiting.is_empty() {
            self.free_oldest();
        }
        self.made - self.freed
    }

    /// Returns the bytes of all nodes that were made.
    pub fn made(&self) -> usize {
        self.made
    }

    fn free_oldest(&mut self) {
        if let Some(mut replaced) = self.waiting.pop_front() {
            // SAFETY: older versions have no readers.
            self.freed += unsafe { replaced.free_some(usize::MAX) }.bytes;
        }
    }
}

impl<O: TreeOrder> Drop for Versions<O> {
    fn drop(&mut self) {
        // SAFETY: the current version gets no other successor.
        self.waiting.push_back(unsafe { self.root.replace_all() });
        assert_eq!(self.bytes(), 0);
    }
}
