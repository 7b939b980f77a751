//! A consumer group that is read.

use std::borrow::Cow;

use super::group::{GroupConsumer, PendingEntry};
use super::id::EntryId;
use super::numbers::GroupPosition;
use super::packed_group::PackedGroup;
use super::tree_group::TreeGroup;

/// A consumer group. The key of a consumer is its position in a packed block, and its number in a tree.
#[derive(Clone)]
pub(crate) enum GroupView<'v> {
    Packed(Cow<'v, PackedGroup>),
    Tree(TreeGroup<'v>),
}

/// Pending entries in the order of their ids.
type PendingEntries<'g> = Box<dyn Iterator<Item = PendingEntry> + 'g>;

impl GroupView<'_> {
    /// Returns its name.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            GroupView::Packed(group) => &group.name,
            GroupView::Tree(group) => group.name,
        }
    }

    /// Returns how far it has read.
    pub(crate) fn position(&self) -> GroupPosition {
        match self {
            GroupView::Packed(group) => group.position,
            GroupView::Tree(group) => group.position,
        }
    }

    /// Returns its consumers with their keys, in the order of their names.
    pub(crate) fn consumers(&self) -> Vec<(usize, GroupConsumer)> {
        match self {
            GroupView::Packed(group) => group.consumers.iter().cloned().enumerate().collect(),
            GroupView::Tree(group) => group.consumers().collect(),
        }
    }

    /// Returns the number of its consumers.
    pub(crate) fn consumer_count(&self) -> usize {
        match self {
            GroupView::Packed(group) => group.consumers.len(),
            GroupView::Tree(group) => group.consumer_count(),
        }
    }

    /// Returns a consumer with its key.
    pub(crate) fn consumer(&self, name: &[u8]) -> Option<(usize, GroupConsumer)> {
        match self {
            GroupView::Packed(group) => {
                let at = group.consumer(name).ok()?;
                Some((at, group.consumers[at].clone()))
            }
            GroupView::Tree(group) => group.consumer(name),
        }
    }

    /// Returns the name of the consumer with this key.
    pub(crate) fn consumer_name(&self, consumer: usize) -> &[u8] {
        match self {
            GroupView::Packed(group) => {
                let consumer = group.consumers.get(consumer);
                consumer.map_or(b"", |consumer| &consumer.name)
            }
            GroupView::Tree(group) => group.consumer_name(consumer).unwrap_or_default(),
        }
    }

    /// Returns the number of pending entries.
    pub(crate) fn pending_count(&self) -> usize {
        match self {
            GroupView::Packed(group) => group.pending.len(),
            GroupView::Tree(group) => group.pending_count(),
        }
    }

    /// Returns the number of pending entries of the consumer with this key.
    pub(crate) fn pending_count_of(&self, consumer: usize) -> usize {
        match self {
            GroupView::Packed(_) => self.pending_of(consumer, EntryId::MIN).count(),
            GroupView::Tree(group) => group.pending_count_of(consumer),
        }
    }

    /// Returns the pending entry with this id.
    pub(crate) fn pending(&self, id: EntryId) -> Option<PendingEntry> {
        match self {
            GroupView::Packed(group) => {
                let entry = group.pending.get(group.pending_from(id));
                entry.filter(|entry| entry.id == id).copied()
            }
            GroupView::Tree(group) => group.pending(id),
        }
    }

    /// Returns the last pending entry.
    pub(crate) fn last_pending(&self) -> Option<PendingEntry> {
        match self {
            GroupView::Packed(group) => group.pending.last().copied(),
            GroupView::Tree(group) => group.last_pending(),
        }
    }

    /// Returns the pending entries from an id on.
    pub(crate) fn pending_from(&self, id: EntryId) -> PendingEntries<'_> {
        match self {
            GroupView::Packed(group) => {
                Box::new(group.pending[group.pending_from(id)..].iter().copied())
            }
            GroupView::Tree(group) => Box::new(group.pending_from(id)),
        }
    }

    /// Returns the pending entries of the consumer with this key from an id on.
    pub(crate) fn pending_of(&self, consumer: usize, id: EntryId) -> PendingEntries<'_> {
        match self {
            GroupView::Packed(_) => {
                let all = self.pending_from(id);
                Box::new(all.filter(move |entry| entry.consumer == consumer))
            }
            GroupView::Tree(group) => Box::new(group.pending_of(consumer, id)),
        }
    }
}
