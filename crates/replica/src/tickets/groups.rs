//! Divides submissions into groups: each has a limited number of clients, and is short.

use std::collections::VecDeque;

use hashbrown::HashSet;

/// The greatest number of entries of a group for each client that it may have.
pub(super) const EACH: usize = 64;
/// The greatest number of bytes of a group's entries, unless a single entry has more: a turn must
/// be short compared with an election time-out.
pub(super) const GROUP_BYTES: usize = 4 << 20;

/// The division of the queue's entries into groups, each of a limited number of sources.
#[derive(Debug, Default)]
pub(super) struct GroupBoundaries {
    /// The number of entries of each group.
    counts: VecDeque<usize>,
    /// The sources of the last group.
    sources: HashSet<u64>,
    /// The number of places that are taken in the last group.
    taken: usize,
    /// The bytes of the last group.
    bytes: usize,
    /// The source of the last entry.
    last: u64,
}

impl GroupBoundaries {
    /// Adds an entry of `bytes` bytes; `most` is the number of places of a group.
    pub(super) fn add(&mut self, source: u64, bytes: usize, most: usize) {
        let count = self.counts.back().copied().unwrap_or(0);
        let has_place = source != 0 && (source == self.last || self.sources.contains(&source));
        let is_full = if most == 1 {
            // Then not even the entries of one client share an append.
            true
        } else {
            !has_place && self.taken == most
                || count == most * EACH
                || self.bytes + bytes > GROUP_BYTES
        };
        let begins = count == 0 || is_full;
        if begins {
            self.counts.push_back(0);
            self.sources.clear();
            (self.taken, self.bytes) = (0, 0);
        }
        self.bytes += bytes;
        if begins || !has_place {
            self.taken += 1;
            if source != 0 {
                self.sources.insert(source);
            }
        }
        self.last = source;
        *self.counts.back_mut().expect("there is one") += 1;
    }

    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Takes the first group, and returns the number of its entries.
    pub(super) fn take(&mut self) -> usize {
        let count = self.counts.pop_front().unwrap_or(0);
        if self.counts.is_empty() {
            self.clear();
        }
        count
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.sources.clear();
        (self.taken, self.bytes, self.last) = (0, 0, 0);
    }
}
