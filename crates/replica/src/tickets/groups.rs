//! How what is submitted falls into groups: each is of so many clients, and short.

use std::collections::VecDeque;

use hashbrown::HashSet;

/// Entries of a group, at most, for each of the clients that it may have.
pub(super) const EACH: usize = 64;
/// Bytes of a group's entries, unless one of them alone has more: a turn must be short beside an
/// election time-out.
pub(super) const GROUP_BYTES: usize = 4 << 20;

/// How the entries of the queue fall into groups: each of so many sources at most.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Entries of each group.
    counts: VecDeque<usize>,
    /// Sources of the last group.
    sources: HashSet<u64>,
    /// Places that are taken in the last group.
    taken: usize,
    /// Bytes of the last group.
    bytes: usize,
    /// The source of the last entry.
    last: u64,
}

impl Groups {
    /// An entry of so many bytes has come; `most`: places of a group.
    pub(super) fn add(&mut self, source: u64, bytes: usize, most: usize) {
        let count = self.counts.back().copied().unwrap_or(0);
        let has_place = source != 0 && (source == self.last || self.sources.contains(&source));
        let is_full = if most == 1 {
            // Not even a client's own share an append then.
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

    /// How many groups there are.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// The first group is taken; how many entries it has.
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
