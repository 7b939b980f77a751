//! Changes of leaves: in place if the editor has made the leaf, in a copy if not, and in up to three new
//! leaves if one has no room.

use std::ops::Range;

use smallvec::SmallVec;

use super::editor::{EditedNode, TreeChange, TreeEditor, TreeEnds};
use super::inner::{ChildSlot, Separator, separator};
use super::leaf::{EntryHead, EntryRun, EntryRuns, LeafRef, entry_head, leaf_bytes, splice};
use super::node::{NewNode, NodePtr};
use super::search_key::SearchKey;
use super::{NodeLimits, TreeOrder};

/// A leaf of which some entries are replaced by others.
struct SplicedLeaf<'a, O> {
    leaf: LeafRef<'a, O>,
    replaced: Range<usize>,
    /// The new entries: at most one, or some at an end of the tree.
    new: &'a EntryRuns<'a>,
}

impl<'a, O: TreeOrder> SplicedLeaf<'a, O> {
    fn count(&self) -> usize {
        self.leaf.count() - self.replaced.len() + self.new.count()
    }

    /// Returns the bytes of one leaf with the result.
    fn leaf_bytes(&self) -> usize {
        let removed = self.leaf.run(self.replaced.clone()).len();
        leaf_bytes::<O>(self.leaf.used() - removed + self.new.bytes(), self.count())
    }

    /// Returns entries of the result: of the new ones all or none.
    fn runs(&self, entries: Range<usize>) -> EntryRuns<'a> {
        let Range { start, end } = self.replaced;
        let mut runs = EntryRuns::default();
        if entries.start < start {
            runs.push(self.leaf.run(entries.start..entries.end.min(start)));
        }
        let behind = start + self.new.count();
        if entries.start <= start && entries.end >= behind {
            self.new.runs().iter().for_each(|run| runs.push(run));
        }
        if entries.end > behind {
            let from = entries.start.max(behind) - behind + end;
            runs.push(self.leaf.run(from..entries.end - behind + end));
        }
        runs.add_count(entries.len());
        runs
    }

    /// Returns the parts that become leaves, when one has no room.
    fn parts(&self, limits: NodeLimits, ends: TreeEnds) -> Vec<EntryRuns<'a>> {
        let (place, count) = (self.replaced.start, self.count());
        let cut = if ends.last && self.replaced.is_empty() && place == self.leaf.count() {
            // Entries that are appended leave full leaves behind.
            place
        } else if ends.first && self.replaced.is_empty() && place == 0 {
            self.new.count()
        } else {
            self.middle()
        };
        let halves = [self.runs(0..cut), self.runs(cut..count)];
        if halves.iter().all(|half| fits::<O>(half, limits)) {
            return halves.into();
        }
        // The new entry is large: it is a leaf of its own.
        let mut parts = vec![
            self.runs(0..place),
            self.runs(place..place + 1),
            self.runs(place + 1..count),
        ];
        parts.retain(|part| part.count() > 0);
        parts
    }

    /// Returns the first entry that has half of the bytes before it, neither the first one nor behind all.
    fn middle(&self) -> usize {
        let count = self.count();
        let half = self.runs(0..count).bytes() / 2;
        let (mut low, mut high) = (1, count - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.runs(0..middle).bytes() < half {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The entries that take the place of others.
#[derive(Clone, Copy)]
enum NewEntries<'a> {
    None,
    One { key: &'a [u8], value: &'a [u8] },
    Run(EntryRun<'a>),
}

impl<'a> NewEntries<'a> {
    fn value(value: Option<&'a [u8]>) -> NewEntries<'a> {
        match value {
            Some(value) => NewEntries::One { key: b"", value },
            None => NewEntries::None,
        }
    }

    /// Returns the lengths in front of the entry, if it is one.
    fn head<O: TreeOrder>(self) -> EntryHead {
        match self {
            NewEntries::One { key, value } => entry_head::<O>(key, value),
            NewEntries::None | NewEntries::Run(_) => EntryHead::new(),
        }
    }

    /// Returns the entries, given what is in front of them.
    fn runs(self, head: &'a EntryHead) -> EntryRuns<'a> {
        let mut runs = EntryRuns::default();
        match self {
            NewEntries::None => {}
            NewEntries::One { key, value } => runs.push_entry(head, key, value),
            NewEntries::Run(run) => runs.push_run(run),
        }
        runs
    }
}

fn fits<O: TreeOrder>(runs: &EntryRuns<'_>, limits: NodeLimits) -> bool {
    runs.count() == 1 || runs.leaf_bytes::<O>() <= limits.leaf_bytes
}

impl<O: TreeOrder> TreeEditor<O> {
    /// Makes the first leaf of an empty tree.
    pub(super) fn first_leaf(&mut self, change: TreeChange<'_>) -> Option<NodePtr> {
        let new = match change {
            TreeChange::Put { key, value } => NewEntries::One { key, value },
            TreeChange::Splice { value, .. } => NewEntries::value(value),
            TreeChange::Extend { run, .. } => NewEntries::Run(run),
            TreeChange::Remove { .. } => NewEntries::None,
        };
        let head = new.head::<O>();
        let runs = new.runs(&head);
        if runs.count() == 0 {
            return None;
        }
        let new = runs.leaf::<O>(self.store.stamp(), 0, None);
        Some(self.store.adopt(new))
    }

    pub(super) fn edit_leaf(
        &mut self,
        node: NodePtr,
        change: TreeChange<'_>,
        ends: TreeEnds,
    ) -> EditedNode {
        let Some((replaced, new)) = self.entries_of(node, change) else {
            return EditedNode::Unchanged;
        };
        let leaf = LeafRef::<O>::new(self.store.read(node));
        let head = new.head::<O>();
        let runs = new.runs(&head);
        if runs.count() == 0 && replaced.len() == leaf.count() {
            self.store.discard(node);
            return EditedNode::Several(SmallVec::new());
        }
        let spliced = SplicedLeaf {
            leaf,
            replaced,
            new: &runs,
        };
        let bytes = spliced.leaf_bytes();
        let capacity = self.store.read(node).capacity();
        let is_own = self.store.is_own(node);
        let has_room = spliced.count() == 1 || bytes <= self.limits.leaf_bytes;
        if self.store.may_change(node) && has_room && bytes <= capacity && capacity / 2 <= bytes {
            let replaced = spliced.replaced;
            splice::<O>(&mut self.store.write(node), replaced, &runs);
            return EditedNode::One(node);
        }
        let stamp = self.store.stamp();
        if has_room {
            // A leaf that grows again and again in one version is not copied each time.
            let growth = if is_own { bytes / 4 } else { 0 };
            let room = bytes.max((bytes + growth).min(self.limits.leaf_bytes));
            let source = Some((leaf, spliced.replaced.start));
            let new = spliced.runs(0..spliced.count()).leaf(stamp, room, source);
            self.store.discard(node);
            return EditedNode::One(self.store.adopt(new));
        }
        let parts = spliced.parts(self.limits, ends).into_iter();
        let leaves = parts.map(|part| part.leaf::<O>(stamp, 0, None)).collect();
        self.store.discard(node);
        EditedNode::Several(self.adopt_leaves(leaves))
    }

    /// Returns the entries of a leaf that a change replaces, and the new ones.
    fn entries_of<'c>(
        &self,
        node: NodePtr,
        change: TreeChange<'c>,
    ) -> Option<(Range<usize>, NewEntries<'c>)> {
        let leaf = LeafRef::<O>::new(self.store.read(node));
        match change {
            TreeChange::Put { key, value } => {
                let replaced = match leaf.search(SearchKey::new(key)) {
                    Ok((index, _)) => index..index + 1,
                    Err(index) => index..index,
                };
                Some((replaced, NewEntries::One { key, value }))
            }
            TreeChange::Remove { key } => {
                let (index, _) = leaf.search(SearchKey::new(key)).ok()?;
                Some((index..index + 1, NewEntries::None))
            }
            TreeChange::Splice { from, to, value } => Some((from..to, NewEntries::value(value))),
            TreeChange::Extend { position, run } => {
                Some((position..position, NewEntries::Run(run)))
            }
        }
    }

    fn adopt_leaves(&mut self, leaves: Vec<NewNode>) -> SmallVec<[ChildSlot; 3]> {
        let mut slots: SmallVec<[ChildSlot; 3]> = SmallVec::new();
        for new in leaves {
            let leaf = LeafRef::<O>::new(new.as_ref());
            let separator = match slots.last() {
                Some(left) if O::KEYED => {
                    let left = LeafRef::<O>::new(self.store.read(left.node));
                    separator(left.last_key(), leaf.first_key())
                }
                _ => Separator::new(),
            };
            let node = self.store.adopt(new);
            slots.push(self.slot(node, separator));
        }
        slots
    }
}
