//! A persistent, counted B+-tree of packed nodes: what a large collection is.
//!
//! A tree has entries, each a key and a value, in the order of the keys' bytes ([`KeyOrder`]), or values
//! alone, in an order that their positions define ([`PositionOrder`]). Inner nodes count the entries below
//! them, so that positions and ranks take logarithmic time.
//!
//! A published tree never changes. A [`TreeEditor`] makes the next version of it: it copies each node that it
//! changes, and the path to it, once, and shares all others. Readers need no lock.
//!
//! | module | has |
//! |---|---|
//! | `node`, `node_pool` | nodes in memory |
//! | `leaf`, `inner` | the layouts of the two kinds of nodes |
//! | `search_key` | comparisons of keys |
//! | `view`, `cursor` | reading |
//! | `versions` | roots, publication, and freeing of replaced nodes |
//! | `node_store` | the nodes that an editor has made and replaced |
//! | `editor`, `leaf_edit`, `inner_edit` | changes |
//! | `builder` | trees of sorted entries |
//!
//! # Versions
//!
//! Each version of a collection has a [`VersionStamp`], which is greater than those of the versions before
//! it. A node's birth is the stamp of the version that made it. The owner of the versions keeps a chain of
//! those that can still be read, and for each of them its [`TreeRoot`], its stamp and its [`ReplacedNodes`]:
//! the nodes that its successor does not have.
//!
//! 1. A transaction reads the current version, and makes an editor with a stamp greater than its:
//!    [`TreeRoot::edit`]. Dropping the editor frees what it made; the current version is as before.
//! 2. While the owner holds its lock, and if the version is still the current one, it publishes:
//!    [`TreeEditor::publish`] returns the new root, and the nodes for the list of the version before it.
//!    When the collection is deleted, [`TreeRoot::replace_all`] returns that list.
//! 3. When a version leaves the chain, and an older one stays in it, the owner moves
//!    [`ReplacedNodes::split_off_older`] to the list of that one. No version in the chain has the nodes that
//!    remain.
//! 4. As soon as no reader can have a reference to the version that left, the nodes that remain are freed:
//!    [`ReplacedNodes::free_some`], in slices.
//!
//! So each node is freed once, when the last version that has it has left. Versions leave in any order.
//!
//! Two trees may be of one collection, as a sorted set has them: their versions have the same stamps, and
//! their replaced nodes may be in one list.
//!
//! # Costs
//!
//! A change copies one leaf and the inner nodes above it, some 5 KB in a tree of a million entries. A leaf's
//! allocation is as large as its entries, up to the allocator's next size. Between two neighbouring leaves
//! there is a separator, as long as the equal prefix of their keys and one byte more; inner nodes are copied
//! with their separators, so that keys of which thousands share a prefix of kilobytes should begin with a
//! hash.

mod builder;
mod cursor;
mod editor;
mod inner;
mod inner_edit;
mod leaf;
mod leaf_edit;
mod node;
mod node_pool;
mod node_store;
mod search_key;
#[cfg(test)]
mod tests;
mod versions;
mod view;

pub use builder::TreeBuilder;
pub use cursor::TreeCursor;
pub use editor::TreeEditor;
pub(crate) use leaf::EntryRun;
pub use versions::{FreedNodes, PublishedTree, ReplacedNodes, TreeRoot};
pub use view::TreeView;

/// The number of a version of a collection. Later versions have greater ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionStamp(pub u64);

/// The greatest number of entries that a tree may have.
pub const MAX_ENTRIES: usize = u32::MAX as usize;

/// The greatest [`NodeLimits::leaf_bytes`].
const MAX_LEAF_BYTES: usize = 16 * 1024;

/// The sizes of nodes. A reader need not know them.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    /// The greatest number of bytes of a leaf that has several entries, at most 16384.
    pub leaf_bytes: usize,
    /// The greatest number of children of an inner node, at least 4.
    pub children: usize,
}

impl Default for NodeLimits {
    fn default() -> Self {
        NodeLimits {
            leaf_bytes: 2048,
            children: 64,
        }
    }
}

/// The order of a tree's entries: [`KeyOrder`] or [`PositionOrder`].
pub trait TreeOrder: Copy + Send + Sync + 'static {
    /// `true` if entries have keys.
    const KEYED: bool;
}

/// Entries have distinct keys, and are in the order of the keys' bytes.
#[derive(Clone, Copy, Debug)]
pub enum KeyOrder {}

/// Entries have no keys, and are where they were put.
#[derive(Clone, Copy, Debug)]
pub enum PositionOrder {}

impl TreeOrder for KeyOrder {
    const KEYED: bool = true;
}

impl TreeOrder for PositionOrder {
    const KEYED: bool = false;
}
