//! A stream that is read, in either form.

use std::borrow::Cow;

use base::transaction::CallError;
use smallvec::SmallVec;

use super::entry::StreamEntry;
use super::group_view::GroupView;
use super::id::EntryId;
use super::nodes::StreamNode;
use super::numbers::{StreamExtent, StreamNumbers};
use super::packed_editor::PackedStreamEditor;
use super::packed_nodes::{PackedNode, nodes_from};
use super::packed_stream::PackedStream;
use super::tree_group::TreeGroup;
use super::tree_nodes::TreeNode;
use super::trees::StreamTreesView;
use crate::tree::{KeyOrder, TreeCursor};

/// A stream.
#[derive(Clone, Copy)]
pub(crate) struct StreamView<'v> {
    source: StreamSource<'v>,
}

#[derive(Clone, Copy)]
enum StreamSource<'v> {
    Packed(PackedStream<'v>),
    Trees(StreamTreesView<'v>),
}

impl<'v> From<StreamTreesView<'v>> for StreamView<'v> {
    fn from(trees: StreamTreesView<'v>) -> StreamView<'v> {
        StreamView {
            source: StreamSource::Trees(trees),
        }
    }
}

impl<'v> StreamView<'v> {
    /// Returns the stream of a packed block; no bytes are a new stream.
    pub(crate) fn new(bytes: &'v [u8]) -> StreamView<'v> {
        StreamView {
            source: StreamSource::Packed(PackedStream::new(bytes)),
        }
    }

    /// Returns a stream that is changed, as it is now; its groups are those before any changes of them.
    pub(crate) fn of_packed(editor: &'v PackedStreamEditor<'_>) -> StreamView<'v> {
        StreamView {
            source: StreamSource::Packed(editor.stream()),
        }
    }

    fn numbers(self) -> StreamNumbers {
        match self.source {
            StreamSource::Packed(stream) => stream.header.numbers,
            StreamSource::Trees(trees) => trees.numbers,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(self) -> usize {
        self.numbers().len
    }

    /// Returns the last id that was given.
    pub(crate) fn last_id(self) -> EntryId {
        self.numbers().last_id
    }

    /// Returns the greatest id that was deleted; the least id if there is none.
    pub(crate) fn deleted_id(self) -> EntryId {
        self.numbers().deleted_id
    }

    /// Returns the number of entries that were ever added.
    pub(crate) fn added(self) -> u64 {
        self.numbers().added
    }

    /// Returns the first entry.
    pub(crate) fn first(self) -> Option<StreamEntry<'v>> {
        self.nodes().next()?.entries().next()
    }

    /// Returns the id of the first entry; the least id if there is none.
    pub(crate) fn first_id(self) -> EntryId {
        self.first().map_or(EntryId::MIN, |entry| entry.id)
    }

    /// Returns its entries as numbers.
    pub(crate) fn extent(self) -> StreamExtent {
        StreamExtent {
            numbers: self.numbers(),
            first_id: self.first_id(),
        }
    }

    /// Returns the last entry.
    pub(crate) fn last(self) -> Option<StreamEntry<'v>> {
        let node = match self.source {
            StreamSource::Packed(stream) => stream.last_node().map(StreamNode::from)?,
            StreamSource::Trees(trees) => {
                let last = trees.nodes.len().checked_sub(1)?;
                TreeNode::of(trees.nodes.nth(last)?)?.into()
            }
        };
        node.last()
    }

    /// Returns the nodes of the entries, in their order.
    pub(crate) fn nodes(self) -> StreamNodes<'v> {
        match self.source {
            StreamSource::Packed(stream) => StreamNodes::Packed(stream.nodes, 0),
            StreamSource::Trees(trees) => StreamNodes::Tree(trees.nodes.iter()),
        }
    }

    /// Returns the nodes from the one in which the entry with this id is, if there is one.
    fn nodes_from(self, id: EntryId) -> StreamNodes<'v> {
        match self.source {
            StreamSource::Packed(stream) => {
                let first = stream.node_of(id).map(|(_, node)| node.place);
                StreamNodes::Packed(stream.nodes, first.unwrap_or(stream.nodes.len()))
            }
            StreamSource::Trees(trees) => StreamNodes::Tree(trees.cursor_to(id)),
        }
    }

    /// Returns the nodes that begin with this id or a lesser one, the last one first.
    fn nodes_back(self, id: EntryId) -> NodesBack<'v> {
        match self.source {
            StreamSource::Packed(stream) => {
                let nodes = nodes_from(stream.nodes, 0);
                NodesBack::Packed(nodes.take_while(|node| node.first_id <= id).collect())
            }
            StreamSource::Trees(trees) => NodesBack::Tree(match id.next() {
                Some(behind) => trees.nodes.cursor_from(&behind.to_bytes()),
                None => trees.nodes.cursor_at(trees.nodes.len()),
            }),
        }
    }

    /// Returns the entries with ids between these two, both included.
    pub(crate) fn range(
        self,
        start: EntryId,
        end: EntryId,
    ) -> impl Iterator<Item = StreamEntry<'v>> {
        self.nodes_from(start)
            .flat_map(|node| node.entries())
            .skip_while(move |entry| entry.id < start)
            .take_while(move |entry| entry.id <= end)
    }

    /// Returns the entries with ids between these two, both included, from the last one to the first.
    pub(crate) fn range_back(
        self,
        start: EntryId,
        end: EntryId,
    ) -> impl Iterator<Item = StreamEntry<'v>> {
        let back = |node: StreamNode<'v>| {
            let entries: SmallVec<[StreamEntry<'v>; 16]> = node.entries().collect();
            entries.into_iter().rev()
        };
        self.nodes_back(end)
            .flat_map(back)
            .skip_while(move |entry| entry.id > end)
            .take_while(move |entry| entry.id >= start)
    }

    /// Returns the entry with this id.
    pub(crate) fn get(self, id: EntryId) -> Option<StreamEntry<'v>> {
        let mut entries = self.nodes_from(id).next()?.entries();
        entries
            .find(|entry| entry.id >= id)
            .filter(|entry| entry.id == id)
    }

    /// Returns `true` if the parts of a packed block fit together. It reads all of them.
    pub(crate) fn check(self) -> bool {
        match self.source {
            StreamSource::Packed(stream) => stream.check(),
            StreamSource::Trees(_) => true,
        }
    }

    /// Returns the consumer groups in the order of their names, or none of those behind one that is damaged.
    pub(crate) fn groups(self) -> Box<dyn Iterator<Item = GroupView<'v>> + 'v> {
        match self.source {
            StreamSource::Packed(stream) => {
                let groups = stream.groups();
                Box::new(groups.map(|group| GroupView::Packed(Cow::Owned(group))))
            }
            StreamSource::Trees(trees) => {
                Box::new(TreeGroup::all(trees.groups).map(GroupView::Tree))
            }
        }
    }

    /// Returns the number of consumer groups.
    pub(crate) fn group_count(self) -> usize {
        match self.source {
            StreamSource::Packed(stream) => stream.group_count(),
            StreamSource::Trees(trees) => TreeGroup::count(trees.groups),
        }
    }

    /// Returns a consumer group; `None`: there is no such group.
    ///
    /// # Errors
    /// Its bytes are damaged.
    pub(crate) fn group(self, name: &[u8]) -> Result<Option<GroupView<'v>>, CallError> {
        Ok(match self.source {
            StreamSource::Packed(stream) => {
                let group = stream.group(name)?;
                group.map(|group| GroupView::Packed(Cow::Owned(group)))
            }
            StreamSource::Trees(trees) => TreeGroup::find(trees.groups, name).map(GroupView::Tree),
        })
    }
}

/// Nodes in their order; see [`StreamView::nodes`].
pub(crate) enum StreamNodes<'v> {
    /// The bytes of all nodes, and the place of the next one.
    Packed(&'v [u8], usize),
    Tree(TreeCursor<'v, KeyOrder>),
}

impl<'v> Iterator for StreamNodes<'v> {
    type Item = StreamNode<'v>;

    fn next(&mut self) -> Option<StreamNode<'v>> {
        match self {
            StreamNodes::Packed(nodes, place) => {
                let node = PackedNode::at(nodes, *place)?;
                *place = node.end();
                Some(node.into())
            }
            StreamNodes::Tree(cursor) => TreeNode::of(cursor.next()?).map(Into::into),
        }
    }
}

/// Nodes from the last one to the first; see [`StreamView::nodes_back`].
enum NodesBack<'v> {
    /// The nodes that are left, in their order.
    Packed(Vec<PackedNode<'v>>),
    Tree(TreeCursor<'v, KeyOrder>),
}

impl<'v> Iterator for NodesBack<'v> {
    type Item = StreamNode<'v>;

    fn next(&mut self) -> Option<StreamNode<'v>> {
        match self {
            NodesBack::Packed(nodes) => nodes.pop().map(Into::into),
            NodesBack::Tree(cursor) => TreeNode::of(cursor.prev()?).map(Into::into),
        }
    }
}
