//! A large collection: its trees, their changes, and the log of these.
//!
//! | type | trees | key | value |
//! |---|---|---|---|
//! | hash | of fields | 4 bytes of the field's hash, the field | see module `hash_field` |
//! | | of deadlines | the deadline, the field | none |
//! | set | one | 4 bytes of the member's hash, the member | none |
//! | list | three, by position (module `list_trees`) | none | the element |
//! | sorted set | by score | score (8 bytes, sortable), the member | none |
//! | | by member | 4 bytes of the member's hash, the member | score (8 bytes, sortable) |
//! | stream | of nodes, and of groups | see module `stream` | |
//!
//! Contract: [`CollectionRoots`] are those of a version whose nodes follow the contract of [`crate::tree`].

#![allow(unsafe_code)]

use base::transaction::Kind;

use smallvec::SmallVec;

use crate::element_hash::element_hash;
use crate::hash_field::HashField;
use crate::list_trees::{ListRoots, ListTreesView};
use crate::packed::{BlockForm, PackedEditor, PackedView};
use crate::stream::{self, StreamRoots, StreamTreesView};
use crate::tree::{FreedNodes, KeyOrder, ReplacedNodes, TreeRoot, TreeView, VersionStamp};

/// The bytes of a sortable score.
pub(crate) const SCORE: usize = 8;
/// The bytes of a hash before a field or a member.
const HASH: usize = 4;

/// The roots of a published collection.
#[derive(Clone, Copy, Debug)]
pub enum CollectionRoots {
    /// Of a hash: of its fields, and of their deadlines.
    Hash(TreeRoot<KeyOrder>, TreeRoot<KeyOrder>),
    /// Of a set.
    Set(TreeRoot<KeyOrder>),
    /// Of a list.
    List(ListRoots),
    /// Of a sorted set: by score, and by member.
    Sorted(TreeRoot<KeyOrder>, TreeRoot<KeyOrder>),
    /// Of a stream.
    Stream(StreamRoots),
}

/// A collection that is read.
#[derive(Clone, Copy, Debug)]
pub enum CollectionView<'v> {
    /// A hash: its fields, and their deadlines.
    Hash(TreeView<'v, KeyOrder>, TreeView<'v, KeyOrder>),
    /// A set.
    Set(TreeView<'v, KeyOrder>),
    /// A list.
    List(ListTreesView<'v>),
    /// A sorted set: by score, and by member.
    Sorted(TreeView<'v, KeyOrder>, TreeView<'v, KeyOrder>),
    /// A stream.
    Stream(StreamTreesView<'v>),
}

/// The nodes that a version of a collection has and its successor has not.
#[derive(Debug, Default)]
#[must_use]
pub struct ReplacedTrees(pub(crate) [ReplacedNodes; 2]);

impl CollectionRoots {
    /// Returns the collection for reading.
    ///
    /// # Safety
    /// As for [`TreeRoot::view`].
    #[must_use]
    pub unsafe fn view<'v>(self) -> CollectionView<'v> {
        // SAFETY: by the caller.
        unsafe {
            match self {
                CollectionRoots::Hash(fields, deadlines) => {
                    CollectionView::Hash(fields.view(), deadlines.view())
                }
                CollectionRoots::Set(tree) => CollectionView::Set(tree.view()),
                CollectionRoots::List(trees) => CollectionView::List(trees.view()),
                CollectionRoots::Sorted(scores, members) => {
                    CollectionView::Sorted(scores.view(), members.view())
                }
                CollectionRoots::Stream(roots) => {
                    let trees = roots.trees.map(|tree| tree.view());
                    CollectionView::Stream(StreamTreesView::new(trees, roots.numbers))
                }
            }
        }
    }

    /// Returns all nodes of the collection.
    ///
    /// # Safety
    /// As for [`TreeRoot::replace_all`].
    pub unsafe fn replace_all(self) -> ReplacedTrees {
        // SAFETY: by the caller.
        unsafe {
            ReplacedTrees(match self {
                CollectionRoots::Set(tree) => [tree.replace_all(), ReplacedNodes::default()],
                CollectionRoots::List(trees) => [trees.replace_all(), ReplacedNodes::default()],
                CollectionRoots::Hash(first, second) | CollectionRoots::Sorted(first, second) => {
                    [first.replace_all(), second.replace_all()]
                }
                CollectionRoots::Stream(roots) => roots.trees.map(|tree| tree.replace_all()),
            })
        }
    }
}

impl ReplacedTrees {
    /// Returns `true` if there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(ReplacedNodes::is_empty)
    }

    /// Appends the nodes of others.
    pub fn append(&mut self, others: ReplacedTrees) {
        for (own, other) in self.0.iter_mut().zip(others.0) {
            own.append(other);
        }
    }

    /// Takes those that an older version has; see [`ReplacedNodes::split_off_older`].
    pub fn split_off_older(&mut self, older: VersionStamp) -> ReplacedTrees {
        ReplacedTrees(self.0.each_mut().map(|nodes| nodes.split_off_older(older)))
    }

    /// Frees so many nodes at most.
    ///
    /// # Safety
    /// As for [`ReplacedNodes::free_some`].
    pub unsafe fn free_some(&mut self, most: usize) -> FreedNodes {
        let mut all = FreedNodes::default();
        for nodes in &mut self.0 {
            // SAFETY: by the caller.
            let freed = unsafe { nodes.free_some(most - all.nodes) };
            all.nodes += freed.nodes;
            all.bytes += freed.bytes;
        }
        all
    }
}

impl<'v> CollectionView<'v> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            CollectionView::Hash(tree, _)
            | CollectionView::Set(tree)
            | CollectionView::Sorted(tree, _) => tree.len(),
            CollectionView::List(trees) => trees.len(),
            CollectionView::Stream(stream) => stream.len(),
        }
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the collection as one packed block.
    #[must_use]
    pub fn to_packed(&self, kind: Kind) -> Vec<u8> {
        let expires = matches!(self, CollectionView::Hash(_, deadlines) if !deadlines.is_empty());
        let form = match kind {
            Kind::Hash if expires => BlockForm::ExpiringPairs,
            Kind::Hash => BlockForm::Pairs,
            _ => BlockForm::Single,
        };
        let mut block = PackedEditor::new(form, b"");
        match self {
            CollectionView::Stream(stream) => return stream.to_packed(),
            CollectionView::Hash(fields, _) => {
                let fields = fields
                    .iter()
                    .filter_map(|(key, bytes)| HashField::of_tree(without_hash(key), bytes));
                fields.for_each(|field| block.push(field.name, &field.in_block(expires)));
            }
            CollectionView::Set(tree) => {
                tree.iter()
                    .for_each(|(key, _)| block.push(without_hash(key), b""));
            }
            CollectionView::List(trees) => trees
                .iter_from(0)
                .for_each(|element| block.push(element, b"")),
            CollectionView::Sorted(tree, _) => {
                tree.iter().for_each(|(key, _)| block.push(key, b""))
            }
        }
        block.into_changed().unwrap_or_default()
    }
}

/// Returns the key of a field or a member in a tree.
pub(crate) fn map_key(element: &[u8]) -> SmallVec<[u8; 64]> {
    let mut key: SmallVec<[u8; 64]> = SmallVec::new();
    key.extend_from_slice(&element_hash(element).to_be_bytes());
    key.extend_from_slice(element);
    key
}

/// Returns the field or the member of a key in a tree.
pub(crate) fn without_hash(key: &[u8]) -> &[u8] {
    key.get(HASH..).unwrap_or_default()
}

/// The most elements, and the most bytes, of a collection of several elements that is one packed block.
const BLOCK_ELEMENTS: usize = 128;
const BLOCK_BYTES: usize = 4096;
/// The same of hashes and sets: blocks keep the order in which elements came, as Redis's do up to 128 elements of
/// 64 bytes.
const UNORDERED_BLOCK_BYTES: usize = 17 * 1024;

/// Returns `true` if a value, as it is stored, becomes trees in memory.
#[must_use]
pub fn is_large(kind: Kind, bytes: &[u8]) -> bool {
    let most_bytes = match kind {
        Kind::String => return false,
        Kind::Stream => return stream::is_large(bytes, (BLOCK_ELEMENTS, BLOCK_BYTES)),
        Kind::List | Kind::SortedSet => BLOCK_BYTES,
        Kind::Hash | Kind::Set => UNORDERED_BLOCK_BYTES,
    };
    let view = PackedView::new(bytes);
    // The numeric order of integers is that of blocks.
    if view.form() == Some(BlockForm::Integers) {
        return false;
    }
    view.len() > BLOCK_ELEMENTS || bytes.len() > most_bytes && view.len() > 1
}
