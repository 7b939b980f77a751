//! How far consumer groups have read: numbers of entries, of all that were ever added to the stream.
//!
//! Entries that were deleted one by one count as added, and the stream remembers only the last one of them: so
//! these numbers are unknown for ids before it.

use super::{ConsumerGroup, EntryId, StreamView};

impl StreamView<'_> {
    /// Returns `true` if an entry from this id on may have been deleted.
    fn lacks_from(self, id: EntryId) -> bool {
        self.len() > 0 && self.deleted_id() > EntryId::MIN && id <= self.deleted_id()
    }

    /// Returns the number of entries up to this id.
    pub(crate) fn number_of(self, id: EntryId) -> Option<u64> {
        let (first, deleted) = (self.first_id(), self.deleted_id());
        let removed = self.added().saturating_sub(self.len() as u64);
        if self.added() == 0 || self.len() == 0 && id <= self.last_id() || id == self.last_id() {
            return Some(self.added());
        }
        let is_behind = id > EntryId::MIN && id < deleted || id > self.last_id();
        match deleted < first && !is_behind {
            true if id < first => Some(removed),
            true if id == first => Some(removed.wrapping_add(1)),
            _ => None,
        }
    }

    /// Returns the number of entries that a group has still to read.
    pub(crate) fn lag(self, group: &ConsumerGroup<'_>) -> Option<i64> {
        let (first, added) = (self.first_id(), self.added() as i64);
        if self.len() == 0 {
            return Some(0);
        }
        if group.last_id < first && self.deleted_id() < first {
            return Some(self.len() as i64);
        }
        let read = group
            .entries_read
            .filter(|_| !self.lacks_from(group.last_id));
        let read = read.or_else(|| self.number_of(group.last_id))?;
        Some(added.wrapping_sub(read as i64))
    }
}

impl ConsumerGroup<'_> {
    /// Notes that the group has delivered an entry of the stream, if it is behind those that it has delivered
    /// before.
    pub(crate) fn advance(&mut self, stream: StreamView<'_>, id: EntryId) {
        if id <= self.last_id {
            return;
        }
        let counts = self.last_id >= stream.first_id() && !stream.lacks_from(self.last_id);
        self.entries_read = match self.entries_read {
            Some(read) if counts => Some(read.wrapping_add(1)),
            _ => stream.number_of(id),
        };
        self.last_id = id;
        self.changed = true;
    }
}
