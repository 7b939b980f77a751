//! Streams: entries in the order of their ids, and consumer groups. A stream without entries exists.
//!
//! | module | has |
//! |---|---|
//! | `id`, `entry`, `numbers`, `group` | the parts of a stream |
//! | `packed_stream`, `packed_nodes`, `packed_group` | a stream as a packed block |
//! | `tree_nodes`, `tree_group`, `trees` | a large stream |
//! | `nodes`, `view`, `group_view` | reading both forms |
//! | `change`, `packed_editor`, `trees` | changes of both forms |
//! | `trim` | which entries trims remove |
//!
//! 1. No entry has an id above the last one that was given.
//! 2. The same changes make the same of both forms: a packed block of trees is that of the block that was changed so.

mod change;
mod entry;
mod group;
mod group_view;
mod id;
mod nodes;
mod numbers;
mod packed_editor;
mod packed_group;
mod packed_nodes;
mod packed_stream;
#[cfg(test)]
mod tests;
mod tree_group;
mod tree_nodes;
mod trees;
mod trim;
mod view;

pub(crate) use change::StreamChange;
pub(crate) use entry::StreamEntry;
pub(crate) use group::{GroupConsumer, GroupName, PendingEntry};
pub(crate) use group_view::GroupView;
pub(crate) use id::{EntryId, RequestedId};
pub(crate) use numbers::{GroupPosition, StreamExtent};
pub(crate) use packed_editor::PackedStreamEditor;
pub(crate) use packed_group::PackedGroup;
pub(crate) use packed_nodes::NODE_ENTRIES;
pub(crate) use packed_stream::is_large;
pub(crate) use trees::{StreamRoots, StreamTrees, StreamTreesView};
pub(crate) use trim::{StreamTrim, TrimGoal};
pub(crate) use view::StreamView;
