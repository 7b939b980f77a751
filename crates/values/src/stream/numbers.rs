//! The numbers of a stream, and how far consumer groups have read: numbers of entries, of all that were ever added.
//!
//! Entries that were deleted one by one count as added, and the stream remembers only the last one of them: so
//! these numbers are unknown for ids before it.

use super::id::EntryId;

/// The numbers of a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct StreamNumbers {
    /// The last id that was given.
    pub(crate) last_id: EntryId,
    /// The greatest id that was deleted; the least id if there is none.
    pub(crate) deleted_id: EntryId,
    /// The number of entries that were ever added.
    pub(crate) added: u64,
    /// The number of entries.
    pub(crate) len: usize,
}

/// How far a consumer group has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupPosition {
    /// The id of the last entry that it has delivered.
    pub(crate) last_id: EntryId,
    /// The number of entries up to there, of all that were ever added.
    pub(crate) entries_read: Option<u64>,
}

/// The entries of a stream as numbers.
#[derive(Clone, Copy)]
pub(crate) struct StreamExtent {
    pub(super) numbers: StreamNumbers,
    /// The id of the first entry; the least id if there is none.
    pub(super) first_id: EntryId,
}

impl StreamExtent {
    /// Returns `true` if an entry from this id on may have been deleted.
    fn lacks_from(self, id: EntryId) -> bool {
        let StreamNumbers {
            len, deleted_id, ..
        } = self.numbers;
        len > 0 && deleted_id > EntryId::MIN && id <= deleted_id
    }

    /// Returns the number of entries up to this id.
    pub(crate) fn number_of(self, id: EntryId) -> Option<u64> {
        let StreamNumbers {
            last_id,
            deleted_id,
            added,
            len,
        } = self.numbers;
        let removed = added.saturating_sub(len as u64);
        if added == 0 || len == 0 && id <= last_id || id == last_id {
            return Some(added);
        }
        let is_behind = id > EntryId::MIN && id < deleted_id || id > last_id;
        match deleted_id < self.first_id && !is_behind {
            true if id < self.first_id => Some(removed),
            true if id == self.first_id => Some(removed.wrapping_add(1)),
            _ => None,
        }
    }

    /// Returns the number of entries that a group has still to read.
    pub(crate) fn lag(self, group: GroupPosition) -> Option<i64> {
        let StreamNumbers {
            deleted_id,
            added,
            len,
            ..
        } = self.numbers;
        if len == 0 {
            return Some(0);
        }
        if group.last_id < self.first_id && deleted_id < self.first_id {
            return Some(len as i64);
        }
        let read = group
            .entries_read
            .filter(|_| !self.lacks_from(group.last_id));
        let read = read.or_else(|| self.number_of(group.last_id))?;
        Some((added as i64).wrapping_sub(read as i64))
    }
}

impl GroupPosition {
    /// Notes that the group has delivered an entry of the stream, if it is behind those that it has delivered
    /// before.
    pub(crate) fn advance(&mut self, stream: StreamExtent, id: EntryId) {
        if id <= self.last_id {
            return;
        }
        let counts = self.last_id >= stream.first_id && !stream.lacks_from(self.last_id);
        self.entries_read = match self.entries_read {
            Some(read) if counts => Some(read.wrapping_add(1)),
            _ => stream.number_of(id),
        };
        self.last_id = id;
    }
}
