//! The state that results from all records of a log.

use raft::eraftpb::{ConfState, Entry, HardState, SnapshotMetadata};

use super::entries::{Entries, bytes_of};
use super::record::SegmentStart;

/// Entries in memory, and Raft's durable state. The entries are consecutive; the first one follows
/// the floor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LogState {
    entries: Entries,
    /// The last entry that was removed, and its term.
    pub(super) floor: (u64, u64),
    pub(super) hard: HardState,
    /// The members at the start, and the entry as of which they were the members.
    pub(super) base: (u64, ConfState),
    /// The members now, and the entry since which they are the members.
    pub(super) conf: (u64, ConfState),
}

impl LogState {
    /// Returns the first record of a segment that is begun now.
    pub(super) fn start(&self) -> SegmentStart {
        SegmentStart {
            hard: self.hard.clone(),
            base: self.base.clone(),
            conf: self.conf.clone(),
            floor: self.floor,
            tail: self.tail(),
        }
    }

    /// Does the same as [`LogState::start`], but copies members only if they have changed.
    pub(super) fn update(&self, start: &mut SegmentStart) {
        start.hard.clone_from(&self.hard);
        for (from, to) in [(&self.base, &mut start.base), (&self.conf, &mut start.conf)] {
            if from != to {
                to.clone_from(from);
            }
        }
        start.tail = self.tail();
        start.floor = self.floor;
    }

    /// Returns the last entry and its term.
    pub(super) fn tail(&self) -> (u64, u64) {
        let last = self.entries.back().map(|entry| (entry.index, entry.term));
        last.unwrap_or(self.floor)
    }

    pub(super) fn last(&self) -> u64 {
        self.floor.0 + self.entries.len() as u64
    }

    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        let location = index.checked_sub(self.floor.0 + 1)?;
        self.entries.get(usize::try_from(location).ok()?)
    }

    /// Returns the term of an entry, or of the floor.
    pub(super) fn term(&self, index: u64) -> Option<u64> {
        if index == self.floor.0 {
            return Some(self.floor.1);
        }
        self.entry(index).map(|entry| entry.term)
    }

    /// Returns the entries from `low` up to and without `high`, which exist: as many as fit in
    /// `max` bytes, but at least one.
    pub(super) fn range(&self, low: u64, high: u64, max: u64) -> Vec<Entry> {
        let begin = (low - self.floor.0 - 1) as usize;
        let count = high.saturating_sub(low) as usize;
        let mut bytes = 0_u64;
        let fits = |(location, entry): &(usize, &Entry)| {
            bytes += bytes_of(entry);
            *location == 0 || bytes <= max
        };
        let all = self.entries.from(begin).take(count).enumerate();
        all.take_while(fits)
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// Returns the bytes of all entries.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.bytes()
    }

    /// Returns the last entry that must be dropped so that at most `bytes` are left; none behind
    /// `most`.
    pub(super) fn last_beyond(&self, bytes: u64, most: u64) -> u64 {
        let may_go = most.saturating_sub(self.floor.0) as usize;
        self.floor.0 + self.entries.count_beyond(bytes, may_go) as u64
    }

    /// Frees a part of the memory of dropped entries.
    pub(super) fn give_back(&mut self) {
        self.entries.give_back();
    }

    /// Returns `true` if an entry of this index can be appended.
    pub(super) fn has_place_for(&self, index: u64) -> bool {
        index > self.floor.0 && index <= self.last() + 1
    }

    /// Appends an entry, and drops those from its index on.
    pub(super) fn append(&mut self, entry: Entry) {
        let index = entry.index;
        assert!(
            self.has_place_for(index),
            "entry {index} in a log from {} to {}",
            self.floor.0,
            self.last()
        );
        self.entries.truncate((index - self.floor.0 - 1) as usize);
        self.entries.push_back(entry);
    }

    /// Drops entries up to `floor`, which is not above the last one.
    pub(super) fn compact(&mut self, floor: (u64, u64)) {
        let count = (floor.0 - self.floor.0) as usize;
        self.entries.drop_front(count);
        self.floor = floor;
    }

    /// Drops all entries: the log begins behind `floor`.
    pub(super) fn clear(&mut self, floor: (u64, u64)) {
        self.entries.truncate(0);
        self.floor = floor;
    }

    /// Replaces all entries by a snapshot.
    pub(super) fn replace(&mut self, meta: &SnapshotMetadata) {
        self.clear((meta.index, meta.term));
        self.base = (meta.index, meta.get_conf_state().clone());
        self.conf = self.base.clone();
        self.hard.commit = meta.index;
        self.hard.term = self.hard.term.max(meta.term);
    }
}
