//! The nodes of a stream, as Redis has them: what trims approximately removes whole nodes.
//!
//! 1. A node has an entry.
//! 2. An entry is added to the last node, or to a new one if the last one has 100, deleted ones included,
//!    or would have more than 4 KiB in a packed block ([`NodeCounts`](super::packed_nodes::NodeCounts)).

use super::entry::StreamEntry;
use super::id::EntryId;
use super::packed_nodes::{PackedEntries, PackedNode};
use super::tree_nodes::{TreeEntries, TreeNode};

/// A node.
#[derive(Clone)]
pub(crate) struct StreamNode<'v> {
    /// The number of its entries.
    pub(crate) len: usize,
    /// The id of the entry with which it began.
    pub(crate) first_id: EntryId,
    entries: NodeEntries<'v>,
}

impl<'v> From<PackedNode<'v>> for StreamNode<'v> {
    fn from(node: PackedNode<'v>) -> StreamNode<'v> {
        StreamNode {
            len: node.counts.len.into(),
            first_id: node.first_id,
            entries: NodeEntries::Packed(node.entries()),
        }
    }
}

impl<'v> From<TreeNode<'v>> for StreamNode<'v> {
    fn from(node: TreeNode<'v>) -> StreamNode<'v> {
        StreamNode {
            len: node.counts.len.into(),
            first_id: node.first_id,
            entries: NodeEntries::Tree(node.entries()),
        }
    }
}

impl<'v> StreamNode<'v> {
    /// Returns its entries.
    pub(crate) fn entries(&self) -> NodeEntries<'v> {
        self.entries.clone()
    }

    /// Returns its last entry.
    pub(crate) fn last(&self) -> Option<StreamEntry<'v>> {
        self.entries().last()
    }
}

/// The entries of a node.
#[derive(Clone)]
pub(crate) enum NodeEntries<'v> {
    Packed(PackedEntries<'v>),
    Tree(TreeEntries<'v>),
}

impl<'v> Iterator for NodeEntries<'v> {
    type Item = StreamEntry<'v>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'v>> {
        match self {
            NodeEntries::Packed(entries) => entries.next(),
            NodeEntries::Tree(entries) => entries.next(),
        }
    }
}
