//! How it is known that transactions over several partitions were atomic.
//!
//! A write puts one stamp, its own, on all of its keys; which keys these are follows from the stamp.
//! The client knows when each write began and ended.
//!
//! | seen | wrong if |
//! |---|---|
//! | a read: key *a* by write *T*, and key *b*, which *T* wrote, too, by another write *U* | *U* ended before *T* began, or *U* wrote *a*, too: whichever of the two is the later, its other part is missing |
//! | in the end: a key by write *U* | *U* did not write it; or a write of the key began after *U* had ended |
//!
//! Of two writes that overlap in time either may be the later. So a read that misses a part of a
//! write is found whenever the part that it saw instead is not of the same moment.

use fastrand::Rng;

use crate::stamp::Stamp;

/// The writer of what is there in the beginning.
pub(super) const LOADER: u32 = 0;

/// A write that was acknowledged: when it began and ended, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// A read saw `older` where it might have seen `newer`, of which it saw another key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    newer: Stamp,
    older: Stamp,
    key: u64,
}

/// All writes of a run.
pub(super) struct Book {
    pub(super) seed: u64,
    pub(super) keys: u64,
    pub(super) width: usize,
    /// For each writer, from 1 on, its writes, from sequence 1 on.
    pub(super) puts: Vec<Vec<Put>>,
}

/// Different keys, all alike.
pub(super) fn draw(rng: &mut Rng, keys: u64, width: usize) -> Vec<u64> {
    let mut drawn = Vec::with_capacity(width);
    while drawn.len() < width.min(keys as usize) {
        let key = rng.u64(0..keys);
        if !drawn.contains(&key) {
            drawn.push(key);
        }
    }
    drawn
}

/// The keys of a write.
pub(super) fn keys_of(seed: u64, stamp: Stamp, keys: u64, width: usize) -> Vec<u64> {
    let mix = stamp.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut rng = Rng::with_seed(seed ^ mix ^ u64::from(stamp.writer) << 48);
    draw(&mut rng, keys, width)
}

/// Compares the stamps that one read saw on `keys`; what cannot be judged yet goes to `seen`.
/// `siblings` gives the keys of a write.
pub(super) fn note(
    keys: &[u64],
    stamps: &[Stamp],
    siblings: impl Fn(Stamp) -> Vec<u64>,
    seen: &mut Vec<Seen>,
) -> Result<(), String> {
    for (&key, &newer) in keys.iter().zip(stamps) {
        if newer.writer == LOADER {
            continue;
        }
        let written = siblings(newer);
        let others = keys.iter().zip(stamps);
        for (&other, &older) in others
            .filter(|(other, stamp)| **other != key && **stamp != newer && written.contains(other))
        {
            let both = older.writer != LOADER && siblings(older).contains(&key);
            if both || older.writer == LOADER {
                return Err(fractured(newer, other, older));
            }
            seen.push(Seen {
                newer,
                older,
                key: other,
            });
        }
    }
    Ok(())
}

fn fractured(newer: Stamp, key: u64, older: Stamp) -> String {
    format!("a fractured read: it saw {newer:?}, but on its key {key} still {older:?}")
}

impl Book {
    /// Whether every read that was noted may be.
    pub(super) fn judge<'s>(&self, seen: impl Iterator<Item = &'s Seen>) -> Result<(), String> {
        for Seen { newer, older, key } in seen {
            let (new, old) = (self.put(*newer)?, self.put(*older)?);
            if let (Some(new), Some(old)) = (new, old)
                && old.end < new.begin
            {
                return Err(fractured(*newer, *key, *older));
            }
        }
        Ok(())
    }

    /// Whether `held`, the stamps of all keys in the end, may be.
    pub(super) fn settle(&self, held: &[Stamp]) -> Result<(), String> {
        let mut newest = vec![0; held.len()];
        for (writer, puts) in (1..).zip(&self.puts) {
            for (sequence, put) in (1..).zip(puts) {
                let stamp = Stamp { writer, sequence };
                for key in keys_of(self.seed, stamp, self.keys, self.width) {
                    let newest = &mut newest[key as usize];
                    *newest = put.begin.max(*newest);
                }
            }
        }
        for ((key, &stamp), newest) in (0..).zip(held).zip(newest) {
            let end = self.put(stamp)?.map_or(0, |put| put.end);
            let written = stamp.writer == LOADER
                || keys_of(self.seed, stamp, self.keys, self.width).contains(&key);
            if !written || end < newest {
                return Err(format!(
                    "key {key} holds {stamp:?}, which is not its last write"
                ));
            }
        }
        Ok(())
    }

    /// A write; `None` for what was there in the beginning.
    fn put(&self, stamp: Stamp) -> Result<Option<Put>, String> {
        let Some(writer) = (stamp.writer as usize).checked_sub(1) else {
            return Ok(None);
        };
        let place = (stamp.sequence as usize).wrapping_sub(1);
        let put = self.puts.get(writer).and_then(|puts| puts.get(place));
        let put = put.ok_or_else(|| format!("{stamp:?} was seen and never acknowledged"))?;
        Ok(Some(*put))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 20;
    const WIDTH: usize = 8;

    fn stamp(writer: u32, sequence: u64) -> Stamp {
        Stamp { writer, sequence }
    }

    /// Two writes of one writer, one after the other, and one of another, beside both.
    fn book() -> Book {
        let put = |begin, end| Put { begin, end };
        Book {
            seed: 7,
            keys: KEYS,
            width: WIDTH,
            puts: vec![vec![put(10, 20), put(30, 40)], vec![put(15, 35)]],
        }
    }

    /// What the keys hold when these were written in this order.
    fn after(writes: &[Stamp]) -> Vec<Stamp> {
        let mut held = vec![stamp(LOADER, 0); KEYS as usize];
        for &stamp in writes {
            for key in keys_of(7, stamp, KEYS, WIDTH) {
                held[key as usize] = stamp;
            }
        }
        held
    }

    fn read(held: &[Stamp]) -> Result<(), String> {
        let keys: Vec<u64> = (0..KEYS).collect();
        let mut seen = Vec::new();
        note(&keys, held, |s| keys_of(7, s, KEYS, WIDTH), &mut seen)?;
        book().judge(seen.iter())
    }

    #[test]
    fn whole_writes_in_any_order_that_time_allows_are_right() {
        let [a, b, c] = [stamp(1, 1), stamp(1, 2), stamp(2, 1)];
        for order in [&[a, b, c][..], &[a, c, b], &[c, a, b], &[a, c], &[a]] {
            assert_eq!(read(&after(order)), Ok(()), "{order:?}");
        }
        for order in [&[a, b, c], &[a, c, b], &[c, a, b]] {
            assert_eq!(book().settle(&after(order)), Ok(()), "{order:?}");
        }
    }

    #[test]
    fn a_write_without_one_of_its_keys_is_seen() {
        let [a, b] = [stamp(1, 1), stamp(1, 2)];
        let mut held = after(&[a, b]);
        let before = after(&[a]);
        let key = keys_of(7, b, KEYS, WIDTH)[3] as usize;
        held[key] = before[key];
        assert!(read(&held).is_err());
        assert!(book().settle(&held).is_err());
        held = after(&[b]);
        held[key] = stamp(LOADER, 0);
        assert!(read(&held).is_err());
    }

    #[test]
    fn what_nobody_wrote_there_is_seen() {
        let a = stamp(1, 1);
        let mut held = after(&[a, stamp(1, 2), stamp(2, 1)]);
        let foreign = (0..KEYS).find(|key| !keys_of(7, a, KEYS, WIDTH).contains(key));
        held[foreign.expect("it has few keys") as usize] = a;
        assert!(book().settle(&held).is_err());
        assert!(
            read(&after(&[stamp(3, 1)])).is_ok(),
            "whole, though unknown"
        );
        assert!(book().settle(&after(&[stamp(3, 1)])).is_err());
    }
}
