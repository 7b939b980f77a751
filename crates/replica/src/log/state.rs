//! What all records of a log together say.

use raft::eraftpb::{ConfState, Entry, HardState, SnapshotMetadata};

use super::entries::{Entries, bytes_of};
use super::record::Start;

/// Entries in memory, and what Raft must not forget. The entries follow one another, the first
/// behind the floor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    entries: Entries,
    /// The last entry that is not there any more, and its term.
    pub(super) floor: (u64, u64),
    pub(super) hard: HardState,
    /// The members to start with, and as of which entry.
    pub(super) base: (u64, ConfState),
    /// The members now, and since which entry.
    pub(super) conf: (u64, ConfState),
}

impl State {
    /// What a segment that is begun now says first.
    pub(super) fn start(&self) -> Start {
        Start {
            hard: self.hard.clone(),
            base: self.base.clone(),
            conf: self.conf.clone(),
            floor: self.floor,
            tail: self.tail(),
        }
    }

    /// As [`State::start`], but copies members only if they have changed.
    pub(super) fn update(&self, start: &mut Start) {
        start.hard.clone_from(&self.hard);
        for (from, to) in [(&self.base, &mut start.base), (&self.conf, &mut start.conf)] {
            if from != to {
                to.clone_from(from);
            }
        }
        start.tail = self.tail();
        start.floor = self.floor;
    }

    /// The last entry and its term.
    pub(super) fn tail(&self) -> (u64, u64) {
        let last = self.entries.back().map(|entry| (entry.index, entry.term));
        last.unwrap_or(self.floor)
    }

    pub(super) fn last(&self) -> u64 {
        self.floor.0 + self.entries.len() as u64
    }

    pub(super) fn entry(&self, index: u64) -> Option<&Entry> {
        let place = index.checked_sub(self.floor.0 + 1)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    /// The term of an entry, or of the floor.
    pub(super) fn term(&self, index: u64) -> Option<u64> {
        if index == self.floor.0 {
            return Some(self.floor.1);
        }
        self.entry(index).map(|entry| entry.term)
    }

    /// Entries from `low` up to and without `high`, which are there: as many as fit in `max` bytes,
    /// but at least one.
    pub(super) fn range(&self, low: u64, high: u64, max: u64) -> Vec<Entry> {
        let begin = (low - self.floor.0 - 1) as usize;
        let count = high.saturating_sub(low) as usize;
        let mut bytes = 0_u64;
        let fits = |(place, entry): &(usize, &Entry)| {
            bytes += bytes_of(entry);
            *place == 0 || bytes <= max
        };
        let all = self.entries.from(begin).take(count).enumerate();
        all.take_while(fits)
            .map(|(_, entry)| entry.clone())
            .collect()
    }

    /// Bytes of all entries.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.bytes()
    }

    /// The last entry that must go for no more than so many bytes to be left; none behind `most`.
    pub(super) fn last_beyond(&self, bytes: u64, most: u64) -> u64 {
        let may_go = most.saturating_sub(self.floor.0) as usize;
        self.floor.0 + self.entries.count_beyond(bytes, may_go) as u64
    }

    /// Gives a little of the memory back that dropped entries had.
    pub(super) fn give_back(&mut self) {
        self.entries.give_back();
    }

    /// Whether an entry of this index can be appended.
    pub(super) fn has_place_for(&self, index: u64) -> bool {
        index > self.floor.0 && index <= self.last() + 1
    }

    /// Takes an entry in the place of those from its index on.
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

    /// Drops all entries: nothing is known before the one behind `floor`.
    pub(super) fn clear(&mut self, floor: (u64, u64)) {
        self.entries.truncate(0);
        self.floor = floor;
    }

    /// A snapshot is in the place of all entries.
    pub(super) fn replace(&mut self, meta: &SnapshotMetadata) {
        self.clear((meta.index, meta.term));
        self.base = (meta.index, meta.get_conf_state().clone());
        self.conf = self.base.clone();
        self.hard.commit = meta.index;
        self.hard.term = self.hard.term.max(meta.term);
    }
}
