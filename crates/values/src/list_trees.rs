//! A large list: three trees, whose elements follow each other.
//!
//! A change of a tree copies a leaf and the inner nodes above it. Most changes of lists are at their ends, so
//! that the elements there are in trees of their own, each of which is one short leaf. A leaf that has no room
//! for another element moves into the tree between them, and one that has become empty takes elements from there.
//!
//! Invariant: the trees at the ends have at most one leaf each, of at most [`END_BYTES`] bytes of elements.

use std::ops::Range;

use crate::packed::PackedView;
use crate::tree::{
    EntryRun, MAX_ENTRIES, NodeLimits, PositionOrder, ReplacedNodes, TreeBuilder, TreeCursor,
    TreeEditor, TreeRoot, TreeView, VersionStamp,
};

/// The greatest number of bytes of the elements at an end: four of such leaves have room in one of the tree.
const END_BYTES: usize = 480;
/// The greatest number of bytes that an end takes from the tree, so that pushes and pops by turns do not move
/// elements each time.
const TAKEN_BYTES: usize = END_BYTES / 2;
/// The greatest number of bytes of an element's length.
const LENGTH_BYTES: usize = 5;

const HEAD: usize = 0;
const MIDDLE: usize = 1;
const TAIL: usize = 2;

/// The roots of the trees, from the head of the list to its tail.
#[derive(Clone, Copy, Debug)]
pub struct ListRoots([TreeRoot<PositionOrder>; 3]);

/// The trees for reading.
#[derive(Clone, Copy, Debug)]
pub struct ListTreesView<'v>([TreeView<'v, PositionOrder>; 3]);

/// The trees of the next version.
#[derive(Debug)]
pub(crate) struct ListTrees([TreeEditor<PositionOrder>; 3]);

impl ListRoots {
    /// Returns the list for reading.
    ///
    /// # Safety
    /// As for [`TreeRoot::view`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn view<'v>(self) -> ListTreesView<'v> {
        // SAFETY: by the caller.
        ListTreesView(self.0.map(|tree| unsafe { tree.view() }))
    }

    /// Returns an editor of the next version.
    ///
    /// # Safety
    /// As for [`TreeRoot::edit`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn edit(self, stamp: VersionStamp) -> ListTrees {
        // SAFETY: by the caller.
        ListTrees(
            self.0
                .map(|tree| unsafe { tree.edit(stamp, NodeLimits::default()) }),
        )
    }

    /// Returns all nodes of the trees.
    ///
    /// # Safety
    /// As for [`TreeRoot::replace_all`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn replace_all(self) -> ReplacedNodes {
        let mut nodes = ReplacedNodes::default();
        for tree in self.0 {
            // SAFETY: by the caller.
            nodes.append(unsafe { tree.replace_all() });
        }
        nodes
    }
}

impl<'v> ListTreesView<'v> {
    /// Returns the number of elements.
    pub(crate) fn len(self) -> usize {
        self.0.iter().map(TreeView::len).sum()
    }

    /// Returns the tree that has the element at a position, and its position there; behind the last element, the
    /// end of the last tree.
    fn place(self, position: usize) -> (usize, usize) {
        let [head, middle, _] = self.0.map(|tree| tree.len());
        if position < head {
            (HEAD, position)
        } else if position < head + middle {
            (MIDDLE, position - head)
        } else {
            (TAIL, position - head - middle)
        }
    }

    /// Returns the element at a position.
    pub(crate) fn nth(self, position: usize) -> Option<&'v [u8]> {
        let (tree, position) = self.place(position);
        self.0[tree].nth(position).map(|(_, element)| element)
    }

    /// Returns the elements from a position on.
    pub(crate) fn iter_from(self, position: usize) -> ListTreesElements<'v> {
        let (tree, position) = self.place(position);
        ListTreesElements {
            list: self,
            tree,
            cursor: self.0[tree].cursor_at(position),
        }
    }
}

/// The elements of a list from a position on.
pub(crate) struct ListTreesElements<'v> {
    list: ListTreesView<'v>,
    tree: usize,
    cursor: TreeCursor<'v, PositionOrder>,
}

impl<'v> Iterator for ListTreesElements<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        loop {
            if let Some((_, element)) = self.cursor.next() {
                return Some(element);
            }
            if self.tree == TAIL {
                return None;
            }
            self.tree += 1;
            self.cursor = self.list.0[self.tree].iter();
        }
    }
}

impl ListTrees {
    /// Makes trees of a packed block, with the stamp of their first version.
    pub(crate) fn of_packed(block: PackedView<'_>, stamp: VersionStamp) -> ListTrees {
        let limits = NodeLimits::default();
        let mut middle = TreeBuilder::<PositionOrder>::new(stamp, limits);
        block.iter().for_each(|element| middle.push(element.first));
        let [head, tail] = [(); 2].map(|()| TreeBuilder::new(stamp, limits).finish());
        ListTrees([head, middle.finish(), tail])
    }

    /// Makes trees with the elements of others, whose nodes they do not share.
    pub(crate) fn of_copy(list: ListTreesView<'_>, stamp: VersionStamp) -> ListTrees {
        ListTrees(list.0.map(|tree| TreeEditor::of_copy(tree, stamp)))
    }

    /// Returns the list as it is now.
    pub(crate) fn view(&self) -> ListTreesView<'_> {
        ListTreesView(self.0.each_ref().map(TreeEditor::view))
    }

    /// Returns the bytes that are allocated for nodes.
    pub(crate) fn allocated(&self) -> usize {
        self.0.iter().map(TreeEditor::allocated).sum()
    }

    /// Returns about the bytes of the nodes that it does not have of the version before.
    pub(crate) fn replaced_bytes(&self) -> usize {
        self.0.iter().map(TreeEditor::replaced_bytes).sum()
    }

    /// Inserts an element in front of a position.
    ///
    /// # Panics
    /// Panics if the position is behind the end of the list, or if the list has [`MAX_ENTRIES`] elements.
    pub(crate) fn insert(&mut self, position: usize, element: &[u8]) {
        let len = self.view().len();
        assert!(position <= len, "the position exists");
        assert!(len < MAX_ENTRIES, "the list is full");
        let is_short = element.len() + LENGTH_BYTES <= END_BYTES;
        let end = match position {
            0 => Some(HEAD),
            _ if position == len => Some(TAIL),
            _ => None,
        };
        if let Some(end) = end.filter(|_| is_short) {
            if !self.has_room(end, element) {
                self.move_inwards(end);
            }
            let at = match end {
                HEAD => 0,
                _ => self.0[TAIL].view().len(),
            };
            self.0[end].insert(at, element);
            return;
        }
        let at = self.place_inside(position);
        self.0[MIDDLE].insert(at, element);
    }

    /// Replaces an element.
    ///
    /// # Panics
    /// Panics if there is none at the position.
    pub(crate) fn replace(&mut self, position: usize, element: &[u8]) {
        let (tree, at) = self.view().place(position);
        if tree == MIDDLE || self.has_room(tree, element) {
            self.0[tree].replace(at, element);
        } else {
            let at = self.place_inside(position);
            self.0[MIDDLE].replace(at, element);
        }
    }

    /// Removes the elements at some positions.
    ///
    /// # Panics
    /// Panics if the range ends behind the last element.
    pub(crate) fn remove_range(&mut self, positions: Range<usize>) {
        let len = self.view().len();
        assert!(positions.end <= len, "the elements exist");
        if positions.start == 0 {
            self.take_from_middle(HEAD, positions.len());
        } else if positions.end == len {
            self.take_from_middle(TAIL, positions.len());
        }
        let mut before = 0;
        for tree in &mut self.0 {
            let len = tree.view().len();
            let within = |position: usize| position.clamp(before, before + len) - before;
            tree.remove_range(within(positions.start)..within(positions.end));
            before += len;
        }
    }

    /// Returns `true` if an element has room among those at an end.
    fn has_room(&self, end: usize, element: &[u8]) -> bool {
        let bytes = element.len() + LENGTH_BYTES;
        let used = self.0[end].view().only_leaf().map_or(0, EntryRun::bytes);
        used + bytes <= END_BYTES
    }

    /// Moves the elements at an end into the tree in the middle.
    fn move_inwards(&mut self, end: usize) {
        let [head, middle, tail] = &mut self.0;
        let (from, to) = match end {
            HEAD => (head, 0),
            _ => (tail, middle.view().len()),
        };
        if let Some(run) = from.view().only_leaf() {
            middle.extend(to, run);
        }
        from.clear();
    }

    /// Moves elements so that the one at a position, or the place in front of it, is in the tree in the middle.
    /// Returns its position there.
    fn place_inside(&mut self, position: usize) -> usize {
        let (tree, _) = self.view().place(position);
        if tree != MIDDLE {
            self.move_inwards(tree);
        }
        position - self.0[HEAD].view().len()
    }

    /// Fills an empty end, from which so many elements are about to be removed, if more have room there.
    fn take_from_middle(&mut self, end: usize, removed: usize) {
        let [head, middle, tail] = &mut self.0;
        let to = if end == HEAD { head } else { tail };
        let view = middle.view();
        if !to.view().is_empty() {
            return;
        }
        let run = match end {
            HEAD => view.first_run(TAKEN_BYTES),
            _ => view.last_run(TAKEN_BYTES),
        };
        let Some(run) = run.filter(|run| run.count() > removed) else {
            return;
        };
        let taken = match end {
            HEAD => 0..run.count(),
            _ => view.len() - run.count()..view.len(),
        };
        to.extend(0, run);
        middle.remove_range(taken);
    }

    /// Makes the list a version. It does not change from now on. Returns its roots, the nodes that the version
    /// before has and this one has not, and the bytes that were allocated for its nodes.
    ///
    /// # Safety
    /// As for [`TreeEditor::publish`].
    #[allow(unsafe_code)]
    pub(crate) unsafe fn publish(self) -> (ListRoots, ReplacedNodes, usize) {
        let mut replaced = ReplacedNodes::default();
        let mut allocated = 0;
        let roots = self.0.map(|tree| {
            // SAFETY: by the caller.
            let tree = unsafe { tree.publish() };
            replaced.append(tree.replaced);
            allocated += tree.allocated;
            tree.root
        });
        (ListRoots(roots), replaced, allocated)
    }
}

#[cfg(test)]
mod tests;
