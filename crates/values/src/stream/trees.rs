//! A large stream: a tree of its nodes (`tree_nodes`), one of its consumer groups (`tree_group`), and its numbers.

use super::change::StreamChange;
use super::group::PendingEntry;
use super::id::EntryId;
use super::numbers::StreamNumbers;
use super::packed_group::PackedGroup;
use super::packed_stream::{PackedStream, StreamHeader};
use super::tree_group::{self, TreeGroup};
use super::tree_nodes::TreeNode;
use crate::leb128::push_bytes;
use crate::packed::blobs;
use crate::tree::{
    KeyOrder, NodeLimits, TreeBuilder, TreeCursor, TreeEditor, TreeRoot, TreeView, VersionStamp,
};

/// The roots of the trees, and the numbers.
#[derive(Clone, Copy, Debug)]
pub struct StreamRoots {
    /// Of the nodes, and of the groups.
    pub(crate) trees: [TreeRoot<KeyOrder>; 2],
    pub(crate) numbers: StreamNumbers,
}

/// The trees for reading.
#[derive(Clone, Copy, Debug)]
pub struct StreamTreesView<'v> {
    pub(super) nodes: TreeView<'v, KeyOrder>,
    pub(super) groups: TreeView<'v, KeyOrder>,
    pub(super) numbers: StreamNumbers,
}

/// The trees of the next version.
#[derive(Debug)]
pub(crate) struct StreamTrees {
    nodes: TreeEditor<KeyOrder>,
    groups: TreeEditor<KeyOrder>,
    numbers: StreamNumbers,
}

impl<'v> StreamTreesView<'v> {
    /// Returns the stream with these nodes and these groups.
    pub(crate) fn new(
        [nodes, groups]: [TreeView<'v, KeyOrder>; 2],
        numbers: StreamNumbers,
    ) -> StreamTreesView<'v> {
        StreamTreesView {
            nodes,
            groups,
            numbers,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(self) -> usize {
        self.numbers.len
    }

    /// Returns a cursor in front of the node in which the entry with this id is, if there is one.
    pub(super) fn cursor_to(self, id: EntryId) -> TreeCursor<'v, KeyOrder> {
        let key = id.to_bytes();
        let mut cursor = self.nodes.cursor_from(&key);
        let begins = cursor.clone().next().is_some_and(|(own, _)| own == key);
        if !begins {
            cursor.prev();
        }
        cursor
    }

    /// Returns the stream as a packed block.
    pub(crate) fn to_packed(self) -> Vec<u8> {
        let mut groups = Vec::new();
        TreeGroup::all(self.groups)
            .for_each(|group| push_bytes(&mut groups, &group.packed().encode()));
        let (mut nodes, mut last_node) = (Vec::new(), 0);
        for node in self.nodes.iter().filter_map(TreeNode::of) {
            last_node = nodes.len();
            node.pack(&mut nodes);
        }
        let header = StreamHeader {
            numbers: self.numbers,
            groups: groups.len(),
            last_node,
        };
        [&header.encode()[..], &groups, &nodes].concat()
    }
}

impl StreamTrees {
    /// Begins to change the stream with these nodes and these groups.
    pub(crate) fn new(
        [nodes, groups]: [TreeEditor<KeyOrder>; 2],
        numbers: StreamNumbers,
    ) -> StreamTrees {
        StreamTrees {
            nodes,
            groups,
            numbers,
        }
    }

    /// Makes trees with the content of others, whose nodes they do not share.
    pub(crate) fn of_copy(view: StreamTreesView<'_>, stamp: VersionStamp) -> StreamTrees {
        let trees = [view.nodes, view.groups].map(|tree| TreeEditor::of_copy(tree, stamp));
        StreamTrees::new(trees, view.numbers)
    }

    /// Makes trees of a packed block, with the stamp of their first version.
    pub(crate) fn of_packed(block: &[u8], stamp: VersionStamp) -> StreamTrees {
        let stream = PackedStream::new(block);
        let mut nodes = TreeBuilder::<KeyOrder>::new(stamp, NodeLimits::default());
        for node in stream.nodes() {
            nodes.push(&node.first_id.to_bytes(), &TreeNode::value_of(node));
        }
        let mut groups = TreeBuilder::<KeyOrder>::new(stamp, NodeLimits::default());
        let packed: Vec<PackedGroup> = stream.groups().collect();
        tree_group::build(&mut groups, &packed);
        StreamTrees {
            nodes: nodes.finish(),
            groups: groups.finish(),
            numbers: stream.header.numbers,
        }
    }

    /// Returns the stream as it is now.
    pub(crate) fn view(&self) -> StreamTreesView<'_> {
        StreamTreesView::new([self.nodes.view(), self.groups.view()], self.numbers)
    }

    /// Returns the bytes that are allocated for nodes.
    pub(crate) fn allocated(&self) -> usize {
        self.nodes.allocated() + self.groups.allocated()
    }

    /// Returns about the bytes of the nodes that it does not have of the version before.
    pub(crate) fn replaced_bytes(&self) -> usize {
        self.nodes.replaced_bytes() + self.groups.replaced_bytes()
    }

    /// Returns the nodes and the groups, which can be published, and the numbers.
    pub(crate) fn into_parts(self) -> ([TreeEditor<KeyOrder>; 2], StreamNumbers) {
        ([self.nodes, self.groups], self.numbers)
    }

    /// Makes a change. Returns `true` if it fits the stream; otherwise nothing is changed.
    pub(crate) fn apply(&mut self, change: &StreamChange<'_>) -> bool {
        match *change {
            StreamChange::Add { id, fields } => self.append(id, fields),
            StreamChange::Delete { id } => self.delete(id),
            StreamChange::RemoveOldest { entries } => self.remove_oldest(entries),
            StreamChange::SetNumbers {
                last_id,
                deleted_id,
                added,
            } => {
                self.numbers = StreamNumbers {
                    last_id,
                    deleted_id,
                    added,
                    ..self.numbers
                };
                true
            }
            StreamChange::PutGroup { name, position } => {
                tree_group::put_group(&mut self.groups, name, position);
                true
            }
            StreamChange::RemoveGroup { name } => tree_group::remove_group(&mut self.groups, name),
            StreamChange::PutConsumer {
                group,
                name,
                seen_ms,
                active_ms,
            } => tree_group::put_consumer(&mut self.groups, group, name, (seen_ms, active_ms)),
            StreamChange::RemoveConsumer { group, name } => {
                tree_group::remove_consumer(&mut self.groups, group, name)
            }
            StreamChange::PutPending {
                group,
                id,
                consumer,
                delivered_ms,
                deliveries,
            } => {
                let entry = PendingEntry {
                    id,
                    consumer: 0,
                    delivered_ms,
                    deliveries,
                };
                tree_group::put_pending(&mut self.groups, (group, consumer), entry)
            }
            StreamChange::RemovePending { group, id } => {
                tree_group::remove_pending(&mut self.groups, group, id)
            }
        }
    }

    /// Adds an entry, with an id above the last one, whose fields are blobs.
    fn append(&mut self, id: EntryId, fields: &[u8]) -> bool {
        let count = blobs(fields).count();
        let is_whole = blobs(fields).last().map(|blob| blob.place.end) == Some(fields.len());
        if id <= self.numbers.last_id || !count.is_multiple_of(2) || !is_whole {
            return false;
        }
        let nodes = self.nodes.view();
        let last = nodes
            .nth(nodes.len().wrapping_sub(1))
            .and_then(TreeNode::of);
        let last = last.filter(|node| node.counts.takes_entry(fields.len()));
        let (first_id, value) = match last {
            Some(node) => (node.first_id, node.with(id, fields)),
            None => (id, TreeNode::new_value(id, fields)),
        };
        self.nodes.put(&first_id.to_bytes(), &value);
        let numbers = &mut self.numbers;
        numbers.len += 1;
        numbers.added = numbers.added.wrapping_add(1);
        numbers.last_id = id;
        true
    }

    /// Deletes an entry. Returns `true` if it was there.
    fn delete(&mut self, id: EntryId) -> bool {
        let found = self.view().cursor_to(id).next();
        let Some(node) = found.and_then(TreeNode::of) else {
            return false;
        };
        let (first_id, mut entries) = (node.first_id.to_bytes(), node.entries());
        let mut start = 0;
        let found = loop {
            match entries.next() {
                Some(entry) if entry.id < id => start = entries.place(),
                entry => break entry.filter(|entry| entry.id == id),
            }
        };
        let Some(entry) = found else {
            return false;
        };
        if node.counts.len == 1 {
            self.nodes.remove(&first_id);
        } else {
            let value = node.without(start..entries.place(), &[entry]);
            self.nodes.put(&first_id, &value);
        }
        let numbers = &mut self.numbers;
        numbers.len -= 1;
        numbers.deleted_id = numbers.deleted_id.max(id);
        true
    }

    /// Removes so many of the oldest entries. Returns `false` if there are fewer. Whole nodes are removed at once.
    fn remove_oldest(&mut self, entries: usize) -> bool {
        if entries == 0 || entries > self.numbers.len {
            return false;
        }
        let (mut whole, mut left, mut rest) = (0, entries, None);
        for node in self.nodes.view().iter().filter_map(TreeNode::of) {
            let len = usize::from(node.counts.len);
            if left < len {
                let mut entries = node.entries();
                let removed: Vec<_> = entries.by_ref().take(left).collect();
                let value = node.without(0..entries.place(), &removed);
                rest = Some((node.first_id, value));
                break;
            }
            (whole, left) = (whole + 1, left - len);
        }
        if let Some((first_id, value)) = rest.filter(|_| left > 0) {
            self.nodes.put(&first_id.to_bytes(), &value);
        }
        self.nodes.remove_range(0..whole);
        self.numbers.len -= entries;
        true
    }
}
