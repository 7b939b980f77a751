//! Entries in memory, in blocks. Entries do not move when the log grows or loses its beginning, so
//! that a long log causes no pause.

use std::collections::VecDeque;

use raft::eraftpb::Entry;

/// Entries in a block.
const BLOCK: usize = 1024;
/// The overhead in bytes that is counted for an entry besides its data.
const OVERHEAD: u64 = 24;

/// The number of blocks that are freed at a time.
const GIVEN_BACK: usize = 2;

/// Consecutive entries, and the bytes of those that have not been dropped.
#[derive(Clone, Debug)]
struct EntryBlock {
    entries: Vec<Entry>,
    bytes: u64,
}

/// A queue of entries with access to any of them; see the module's description.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    /// All blocks but the last one are full; no block is empty.
    blocks: VecDeque<EntryBlock>,
    /// The number of entries of the first block that were dropped; their places are empty.
    dropped: usize,
    bytes: u64,
    /// Blocks whose memory is still to be freed, a little at a time.
    gone: Vec<EntryBlock>,
}

/// Returns the bytes for which an entry counts where bytes are limited.
pub(super) fn bytes_of(entry: &Entry) -> u64 {
    (entry.data.len() + entry.context.len()) as u64 + OVERHEAD
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        let last = self.blocks.back().map_or(0, |block| block.entries.len());
        self.blocks.len().saturating_sub(1) * BLOCK + last - self.dropped
    }

    /// Returns the bytes of all entries, as [`bytes_of`] counts.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, location: usize) -> Option<&Entry> {
        let location = location + self.dropped;
        self.blocks
            .get(location / BLOCK)?
            .entries
            .get(location % BLOCK)
    }

    pub(super) fn back(&self) -> Option<&Entry> {
        self.blocks.back()?.entries.last()
    }

    /// Returns the entries from a place on.
    pub(super) fn from(&self, location: usize) -> impl Iterator<Item = &Entry> {
        (location..self.len()).filter_map(|location| self.get(location))
    }

    pub(super) fn push_back(&mut self, entry: Entry) {
        let bytes = bytes_of(&entry);
        self.bytes += bytes;
        match self.blocks.back_mut() {
            Some(block) if block.entries.len() < BLOCK => {
                block.bytes += bytes;
                block.entries.push(entry);
            }
            _ => {
                let mut entries = Vec::with_capacity(BLOCK);
                entries.push(entry);
                self.blocks.push_back(EntryBlock { entries, bytes });
            }
        }
    }

    /// Keeps the first `len` entries.
    pub(super) fn truncate(&mut self, len: usize) {
        if len == 0 {
            self.gone.extend(self.blocks.drain(..));
            (self.dropped, self.bytes) = (0, 0);
        }
        while self.len() > len {
            let block = self.blocks.back_mut().expect("there are entries");
            let entry = block.entries.pop().expect("no block is empty");
            block.bytes -= bytes_of(&entry);
            self.bytes -= bytes_of(&entry);
            if block.entries.is_empty() {
                self.blocks.pop_back();
            }
        }
    }

    /// Drops the first `count` entries. The cost is small for any count.
    pub(super) fn drop_front(&mut self, count: usize) {
        let mut count = count.min(self.len());
        while count > 0 {
            let block = self.blocks.front_mut().expect("there are entries");
            let left = block.entries.len() - self.dropped;
            if count >= left {
                count -= left;
                self.bytes -= block.bytes;
                self.dropped = 0;
                self.gone.extend(self.blocks.pop_front());
                continue;
            }
            let some = &mut block.entries[self.dropped..self.dropped + count];
            let bytes = some.iter_mut().map(|one| bytes_of(&std::mem::take(one)));
            let bytes: u64 = bytes.sum();
            block.bytes -= bytes;
            self.bytes -= bytes;
            self.dropped += count;
            count = 0;
        }
    }

    /// Frees a part of the memory of dropped entries.
    pub(super) fn give_back(&mut self) {
        self.gone
            .truncate(self.gone.len().saturating_sub(GIVEN_BACK));
    }

    /// Returns the number of entries that must be dropped from the front so that at most `bytes`
    /// are left. Looks at no more than `most` entries.
    pub(super) fn count_beyond(&self, bytes: u64, most: usize) -> usize {
        let (mut count, mut left) = (0, self.bytes);
        while left > bytes && count < most.min(self.len()) {
            left -= self.get(count).map_or(0, bytes_of);
            count += 1;
        }
        count
    }
}

impl PartialEq for Entries {
    /// Compares the entries; the division into blocks does not matter.
    fn eq(&self, other: &Entries) -> bool {
        self.len() == other.len() && self.from(0).eq(other.from(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64) -> Entry {
        Entry {
            index,
            data: vec![7; (index % 5) as usize].into(),
            ..Entry::default()
        }
    }

    /// Compares the queue with a plain one, across the ends of blocks.
    #[test]
    fn it_is_a_queue() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut entries = Entries::default();
        let mut plain: VecDeque<Entry> = VecDeque::new();
        let mut next = 1;
        let mut most = 0;
        for _ in 0..400 {
            let count = random.usize(..700);
            match random.u32(..5) {
                0 => {
                    let count = count.min(plain.len());
                    entries.drop_front(count);
                    plain.drain(..count);
                }
                1 => {
                    let len = plain.len().saturating_sub(count);
                    entries.truncate(len);
                    plain.truncate(len);
                }
                2 if random.u32(..20) == 0 => {
                    entries.truncate(0);
                    plain.clear();
                }
                _ => {
                    for _ in 0..count {
                        entries.push_back(entry(next));
                        plain.push_back(entry(next));
                        next += 1;
                    }
                }
            }
            most = most.max(plain.len());
            assert_eq!(entries.len(), plain.len());
            assert_eq!(entries.back(), plain.back());
            assert!(entries.from(0).eq(plain.iter()));
            let bytes: u64 = plain.iter().map(bytes_of).sum();
            assert_eq!(entries.bytes(), bytes);
            let location = random.usize(..plain.len() + 2);
            assert_eq!(entries.get(location), plain.get(location));
            assert_eq!(entries.count_beyond(bytes, usize::MAX), 0);
            let half = entries.count_beyond(bytes / 2, usize::MAX);
            let left = |from: usize| plain.iter().skip(from).map(bytes_of).sum::<u64>();
            assert!(left(half) <= bytes / 2);
            assert!(half == 0 || left(half - 1) > bytes / 2);
            assert_eq!(entries.count_beyond(0, 3), plain.len().min(3));
            entries.give_back();
        }
        assert!(most > 4 * BLOCK, "{most}");
    }
}
