//! Entries in memory, in blocks: neither growing nor losing its beginning moves them, so that a long
//! log costs no pause.

use std::collections::VecDeque;

use raft::eraftpb::Entry;

/// Entries of a block.
const BLOCK: usize = 1024;
/// Bytes that an entry is taken to have besides its data.
const OVERHEAD: u64 = 24;

/// A queue of entries that is read anywhere; see the module's description.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    /// All but the last one are full; none is empty.
    blocks: VecDeque<Vec<Entry>>,
    /// Entries of the first block that were dropped; their places are empty.
    dropped: usize,
    bytes: u64,
}

/// What an entry counts for where bytes are limited.
pub(super) fn bytes_of(entry: &Entry) -> u64 {
    (entry.data.len() + entry.context.len()) as u64 + OVERHEAD
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        let last = self.blocks.back().map_or(0, Vec::len);
        self.blocks.len().saturating_sub(1) * BLOCK + last - self.dropped
    }

    /// Bytes of all entries, as [`bytes_of`] counts.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, place: usize) -> Option<&Entry> {
        let place = place + self.dropped;
        self.blocks.get(place / BLOCK)?.get(place % BLOCK)
    }

    pub(super) fn back(&self) -> Option<&Entry> {
        self.blocks.back()?.last()
    }

    /// The entries from a place on.
    pub(super) fn from(&self, place: usize) -> impl Iterator<Item = &Entry> {
        (place..self.len()).filter_map(|place| self.get(place))
    }

    pub(super) fn push_back(&mut self, entry: Entry) {
        self.bytes += bytes_of(&entry);
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK => block.push(entry),
            _ => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(entry);
                self.blocks.push_back(block);
            }
        }
    }

    /// Keeps the first `len` entries.
    pub(super) fn truncate(&mut self, len: usize) {
        while self.len() > len {
            let block = self.blocks.back_mut().expect("there are entries");
            let entry = block.pop().expect("no block is empty");
            self.bytes -= bytes_of(&entry);
            if block.is_empty() {
                self.blocks.pop_back();
            }
        }
        if self.len() == 0 {
            // Nothing but the places of dropped ones may be left.
            self.blocks.clear();
            self.dropped = 0;
        }
    }

    /// Drops the first `count` entries.
    pub(super) fn drop_front(&mut self, count: usize) {
        for _ in 0..count.min(self.len()) {
            let block = self.blocks.front_mut().expect("there are entries");
            let entry = std::mem::take(&mut block[self.dropped]);
            self.bytes -= bytes_of(&entry);
            self.dropped += 1;
            if self.dropped == block.len() {
                self.blocks.pop_front();
                self.dropped = 0;
            }
        }
    }

    /// How many of the last entries have no more than so many bytes together.
    pub(super) fn count_within(&self, bytes: u64) -> usize {
        let (mut count, mut sum) = (0, 0);
        for place in (0..self.len()).rev() {
            sum += self.get(place).map_or(0, bytes_of);
            if sum > bytes {
                break;
            }
            count += 1;
        }
        count
    }
}

impl PartialEq for Entries {
    /// However they lie in blocks.
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

    /// Against a plain queue, over block ends.
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
            let place = random.usize(..plain.len() + 2);
            assert_eq!(entries.get(place), plain.get(place));
            assert_eq!(entries.count_within(bytes), plain.len());
            if let Some(first) = plain.front() {
                let most = bytes - bytes_of(first);
                assert_eq!(entries.count_within(most), plain.len() - 1);
            }
        }
        assert!(most > 4 * BLOCK, "{most}");
    }
}
