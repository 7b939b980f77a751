//! Checks that transactions over several partitions were atomic.
//!
//! A write puts one stamp, its own, on all of its keys; which keys these are follows from the stamp.
//! The client knows when each write began and ended, and which stamps each read saw.
//!
//! | seen | wrong if |
//! |---|---|
//! | a read: key *a* by write *T*, and key *b*, which *T* wrote, too, by another write *U* | *U* ended before *T* began, or *U* wrote *a*, too: whichever of the two is the later, its other part is missing |
//! | in the end: a key by write *U* | *U* did not write it; or a write of the key began after *U* had ended |
//!
//! Of two writes that overlap in time either may be the later. So a read that misses a part of a
//! write is detected whenever the part that it saw instead is not of the same moment.
//!
//! Reads are judged after the run, so that the judgement takes no time from the measurement.

use std::sync::Arc;

use fastrand::Rng;

use crate::error::RunError;
use crate::keys::{Chooser, Distribution, Population};
use crate::stamp::Stamp;

/// A write that was acknowledged: when it began and ended, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcknowledgedWrite {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// The keys that transactions take.
#[derive(Clone)]
pub(super) struct TransactionKeys {
    seed: u64,
    count: u64,
    width: usize,
    chooser: Chooser,
}

impl TransactionKeys {
    /// Creates it for `count` keys, `width` different ones in each transaction.
    pub(super) fn new(seed: u64, count: u64, width: usize, draws: Distribution) -> TransactionKeys {
        TransactionKeys {
            seed,
            count,
            width: width.min(count as usize),
            chooser: Chooser::new(draws, Arc::new(Population::new(count, 1))),
        }
    }

    /// Returns the keys of a read.
    pub(super) fn draw(&self, rng: &mut Rng) -> Vec<u64> {
        let mut drawn = Vec::with_capacity(self.width);
        while drawn.len() < self.width {
            let key = self.chooser.draw(rng);
            if !drawn.contains(&key) {
                drawn.push(key);
            }
        }
        drawn
    }

    /// Returns the keys of a write.
    pub(super) fn of(&self, stamp: Stamp) -> Vec<u64> {
        let mix = stamp.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = Rng::with_seed(self.seed ^ mix ^ u64::from(stamp.writer) << 48);
        self.draw(&mut rng)
    }
}

/// The results of reads: key after key.
#[derive(Default)]
pub(super) struct ObservedReads {
    seen: Vec<(u64, Stamp)>,
    ends: Vec<usize>,
}

impl ObservedReads {
    /// Adds a read that saw these stamps on these keys.
    pub(super) fn push(&mut self, keys: &[u64], stamps: &[Stamp]) {
        let pairs = keys.iter().copied().zip(stamps.iter().copied());
        self.seen.extend(pairs);
        self.ends.push(self.seen.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[(u64, Stamp)]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(&a, &b)| &self.seen[a..b])
    }
}

/// A write and its keys, in order.
struct WriteSet {
    put: AcknowledgedWrite,
    keys: Box<[u64]>,
}

impl WriteSet {
    fn has(&self, key: u64) -> bool {
        self.keys.binary_search(&key).is_ok()
    }
}

/// All writes of a run.
pub(super) struct WriteHistory {
    count: u64,
    /// For each writer, from 1 on, its writes, from sequence 1 on.
    writes: Vec<Vec<WriteSet>>,
}

impl WriteHistory {
    /// Creates the history; for each writer, from 1 on, `puts` has its writes, from sequence 1 on.
    pub(super) fn new(keys: &TransactionKeys, puts: &[Vec<AcknowledgedWrite>]) -> WriteHistory {
        let written = |writer, sequence, put| {
            let mut keys = keys.of(Stamp { writer, sequence });
            keys.sort_unstable();
            let keys = keys.into();
            WriteSet { put, keys }
        };
        let of = |(writer, puts): (u32, &Vec<AcknowledgedWrite>)| {
            let puts = (1..).zip(puts);
            puts.map(|(sequence, &put)| written(writer, sequence, put))
                .collect()
        };
        WriteHistory {
            count: keys.count,
            writes: (1..).zip(puts).map(of).collect(),
        }
    }

    /// Checks that every read is possible.
    pub(super) fn judge(&self, reads: &ObservedReads) -> Result<(), RunError> {
        reads.iter().try_for_each(|read| self.judge_one(read))
    }

    fn judge_one(&self, read: &[(u64, Stamp)]) -> Result<(), RunError> {
        for &(key, newer) in read {
            let Some(new) = self.find(newer)? else {
                continue;
            };
            for &(other, older) in read {
                if older == newer || !new.has(other) {
                    continue;
                }
                let is_wrong = match self.find(older)? {
                    Some(old) => old.has(key) || old.put.end < new.put.begin,
                    None => true,
                };
                if is_wrong {
                    return Err(RunError::Failed(format!(
                        "a fractured read: it saw {newer:?}, but on its key {other} {older:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Checks that `held`, the keys and their stamps in the end, is possible.
    pub(super) fn settle(&self, held: &[(u64, Stamp)]) -> Result<(), RunError> {
        let mut newest = vec![0; self.count as usize];
        for written in self.writes.iter().flatten() {
            for &key in &written.keys {
                let newest = &mut newest[key as usize];
                *newest = written.put.begin.max(*newest);
            }
        }
        for &(key, stamp) in held {
            let by = self.find(stamp)?;
            let end = by.map_or(0, |by| by.put.end);
            let is_written = by.is_none_or(|by| by.has(key));
            if !is_written || end < newest[key as usize] {
                return Err(RunError::Failed(format!(
                    "key {key} holds {stamp:?}, which is not its last write"
                )));
            }
        }
        Ok(())
    }

    /// Returns a write; `None` for the initial value.
    fn find(&self, stamp: Stamp) -> Result<Option<&WriteSet>, RunError> {
        let Some(writer) = (stamp.writer as usize).checked_sub(1) else {
            return Ok(None);
        };
        let place = (stamp.sequence as usize).wrapping_sub(1);
        let written = self.writes.get(writer).and_then(|all| all.get(place));
        let written = written
            .ok_or_else(|| RunError::Failed(format!("{stamp:?} was seen and never acknowledged")));
        written.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 20;

    fn keys() -> TransactionKeys {
        TransactionKeys::new(7, KEYS, 8, Distribution::Uniform)
    }

    fn stamp(writer: u32, sequence: u64) -> Stamp {
        Stamp { writer, sequence }
    }

    /// Returns a history with two writes of one writer, one after the other, and one of another,
    /// concurrent with both.
    fn history() -> WriteHistory {
        let put = |begin, end| AcknowledgedWrite { begin, end };
        WriteHistory::new(
            &keys(),
            &[vec![put(10, 20), put(30, 40)], vec![put(15, 35)]],
        )
    }

    /// Returns the stamps of keys after these writes in this order.
    fn after(writes: &[Stamp]) -> Vec<(u64, Stamp)> {
        let mut held: Vec<_> = (0..KEYS).map(|key| (key, Stamp::INITIAL)).collect();
        for &stamp in writes {
            for key in keys().of(stamp) {
                held[key as usize].1 = stamp;
            }
        }
        held
    }

    fn read(held: &[(u64, Stamp)]) -> Result<(), RunError> {
        let (keys, stamps): (Vec<u64>, Vec<Stamp>) = held.iter().copied().unzip();
        let mut reads = ObservedReads::default();
        reads.push(&keys[..1], &stamps[..1]);
        reads.push(&keys, &stamps);
        history().judge(&reads)
    }

    #[test]
    fn whole_writes_in_any_order_that_time_allows_are_right() {
        let [a, b, c] = [stamp(1, 1), stamp(1, 2), stamp(2, 1)];
        for order in [&[a, b, c][..], &[a, c, b], &[c, a, b], &[a, c], &[a]] {
            assert_eq!(read(&after(order)), Ok(()), "{order:?}");
        }
        for order in [&[a, b, c], &[a, c, b], &[c, a, b]] {
            assert_eq!(history().settle(&after(order)), Ok(()), "{order:?}");
        }
    }

    #[test]
    fn a_write_without_one_of_its_keys_is_seen() {
        let [a, b] = [stamp(1, 1), stamp(1, 2)];
        let mut held = after(&[a, b]);
        let before = after(&[a]);
        let key = keys().of(b)[3] as usize;
        held[key] = before[key];
        assert!(read(&held).is_err());
        assert!(history().settle(&held).is_err());
        held = after(&[b]);
        held[key].1 = Stamp::INITIAL;
        assert!(read(&held).is_err());
    }

    #[test]
    fn parts_of_two_writes_of_the_same_keys_are_seen_although_they_overlap() {
        let [a, c] = [stamp(1, 1), stamp(2, 1)];
        let both: Vec<u64> = keys().of(a).into_iter().collect();
        let both: Vec<u64> = both
            .into_iter()
            .filter(|key| keys().of(c).contains(key))
            .collect();
        assert!(both.len() > 1, "eight of twenty, twice");
        let mut held = after(&[a, c]);
        held[both[0] as usize].1 = a;
        assert!(read(&held).is_err());
    }

    #[test]
    fn a_value_that_no_writer_wrote_there_is_seen() {
        let a = stamp(1, 1);
        let mut held = after(&[a, stamp(1, 2), stamp(2, 1)]);
        let foreign = (0..KEYS).find(|key| !keys().of(a).contains(key));
        held[foreign.expect("it has few keys") as usize].1 = a;
        assert!(history().settle(&held).is_err());
        let unknown = after(&[stamp(3, 1)]);
        assert!(read(&unknown).is_err() && history().settle(&unknown).is_err());
    }

    #[test]
    fn writes_take_different_keys_as_their_stamps_say() {
        let hot = TransactionKeys::new(7, 1000, 64, Distribution::YCSB);
        let mut drawn = hot.of(stamp(1, 1));
        assert_eq!(drawn, hot.of(stamp(1, 1)));
        assert_ne!(drawn, hot.of(stamp(1, 2)));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 64);
    }
}
