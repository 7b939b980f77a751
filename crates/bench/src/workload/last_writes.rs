//! The acknowledged writes, for a sample of the keys.
//!
//! Each writer keeps a [`ClientWrites`]: for the sampled keys that it wrote, its last write and the
//! transaction's place in the order of all. Together they make a [`LastWrites`], which knows the one
//! value that each sampled key must have.

use std::collections::HashMap;

use crate::stamp::Stamp;

/// Multiplying by it spreads key numbers, so that the sample has no pattern.
const SPREAD: u64 = 0xd6e8_feb8_6659_fd93;

/// The writes of one writer.
#[derive(Debug)]
pub struct ClientWrites {
    every: u64,
    writer: u32,
    last: HashMap<u64, (u64, u64)>,
}

impl ClientWrites {
    /// Creates an empty ledger that samples one key in `every`.
    #[must_use]
    pub fn new(every: u64, writer: u32) -> ClientWrites {
        ClientWrites {
            every: every.max(1),
            writer,
            last: HashMap::new(),
        }
    }

    /// Returns `true` if this key is one of the sample.
    #[must_use]
    pub fn samples(&self, key: u64) -> bool {
        sampled(self.every, key)
    }

    /// Records that the transaction at place `order` gave `key` the value of `sequence`. Of one
    /// transaction's writes to a key the last counts.
    pub fn wrote(&mut self, key: u64, order: u64, sequence: u64) {
        if self.samples(key) {
            self.last.insert(key, (order, sequence));
        }
    }
}

fn sampled(every: u64, key: u64) -> bool {
    (key.wrapping_mul(SPREAD) >> 20).is_multiple_of(every)
}

/// The value that each sampled key must have.
#[derive(Debug, Default)]
pub struct LastWrites {
    every: u64,
    last: HashMap<u64, (u64, Stamp)>,
}

impl LastWrites {
    /// Combines ledgers.
    #[must_use]
    pub fn of(ledgers: Vec<ClientWrites>) -> LastWrites {
        let mut last_writes = LastWrites {
            every: ledgers.first().map_or(1, |ledger| ledger.every),
            last: HashMap::new(),
        };
        for ledger in ledgers {
            for (key, (order, sequence)) in ledger.last {
                let stamp = Stamp {
                    writer: ledger.writer,
                    sequence,
                };
                let last = last_writes.last.entry(key).or_insert((order, stamp));
                if last.0 <= order {
                    *last = (order, stamp);
                }
            }
        }
        last_writes
    }

    /// Returns the last acknowledged write of a key, if it is sampled; a key that no transaction
    /// wrote has the value that was `loaded`.
    #[must_use]
    pub fn expected(&self, key: u64, loaded: Stamp) -> Option<Stamp> {
        let last = || self.last.get(&key).map_or(loaded, |&(_, stamp)| stamp);
        sampled(self.every, key).then(last)
    }

    /// Returns the number of sampled keys that were written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Returns `true` if no sampled key was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_write_that_comes_last_in_the_order_of_all_counts() {
        let (mut a, mut b) = (ClientWrites::new(1, 1), ClientWrites::new(1, 2));
        a.wrote(7, 100, 1);
        b.wrote(7, 90, 1);
        b.wrote(8, 91, 2);
        b.wrote(8, 91, 3);
        let last_writes = LastWrites::of(vec![a, b]);
        let stamp = |writer, sequence| Some(Stamp { writer, sequence });
        assert_eq!(last_writes.expected(7, Stamp::INITIAL), stamp(1, 1));
        assert_eq!(last_writes.expected(8, Stamp::INITIAL), stamp(2, 3));
        assert_eq!(
            last_writes.expected(9, Stamp::INITIAL),
            Some(Stamp::INITIAL)
        );
        assert_eq!((last_writes.len(), last_writes.is_empty()), (2, false));
    }

    #[test]
    fn the_sample_is_the_same_for_all_and_of_the_size_asked_for() {
        let ledger = ClientWrites::new(64, 1);
        let sampled = (0..64_000).filter(|&key| ledger.samples(key)).count();
        assert!((900..1100).contains(&sampled), "{sampled}");
        let last_writes = LastWrites::of(vec![ledger]);
        let expected =
            (0..64_000).filter(|&key| last_writes.expected(key, Stamp::INITIAL).is_some());
        assert_eq!(expected.count(), sampled);
    }
}
