//! A row of a table of locks, as the value of a lock.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format: 1 |
//! | for each part | |
//! | 2, *n* | length, name of the column; none: the row's marker |
//! | 8 | how long before the lock's lease it ends, in microseconds |
//! | 4, *m* | length, value |
//!
//! Numbers are big-endian. Cassandra has an end for each cell, and one for the *marker* that INSERT
//! writes; a row exists as long as any part of it does. A lock has one lease, which is that of the part
//! that ends last; the other parts store how much earlier they end. So the living parts can be computed
//! from the rest of the lease, without a clock.
//!
//! Invariants:
//! 1. Names of parts differ, and parts are in the order of their names.
//! 2. No part of a lock without end has an end.

use std::collections::BTreeMap;
use std::time::Duration;

use ::locks::{Lock, LockLease};
use cql::notation::NotationReader;

const FORMAT: u8 = 1;

/// The name of the marker.
const MARKER: &str = "";

/// A part of a row that lives.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    value: Vec<u8>,
    left: LockLease,
}

/// The living parts of a row, besides its key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LockRow(BTreeMap<String, Part>);

/// Some columns of a row would end and others not, which one lease cannot express.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mixed;

impl LockRow {
    /// Returns the row in a lock's value; `None`: the value is no row.
    pub(crate) fn of(lock: &Lock) -> Option<LockRow> {
        let mut reader = NotationReader::new(&lock.value);
        if reader.byte().ok()? != FORMAT {
            return None;
        }
        let mut parts = BTreeMap::new();
        while !reader.rest().is_empty() {
            let name = reader.string().ok()?.to_owned();
            let earlier = Duration::from_micros(reader.long().ok()?.try_into().ok()?);
            let value = reader.bytes().ok()??.to_vec();
            let left = match lock.left {
                LockLease::Endless => LockLease::Endless,
                LockLease::For(left) if left > earlier => LockLease::For(left - earlier),
                LockLease::For(_) => continue,
            };
            parts.insert(name, Part { value, left });
        }
        Some(LockRow(parts))
    }

    /// Returns `true` if no part lives: then there is no such row.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a column.
    pub(crate) fn value(&self, column: &str) -> Option<&[u8]> {
        self.0.get(column).map(|part| &*part.value)
    }

    /// Sets a column; `None` removes it.
    pub(crate) fn set(&mut self, column: &str, value: Option<&[u8]>, left: LockLease) {
        match value {
            None => drop(self.0.remove(column)),
            Some(value) => {
                let value = value.to_vec();
                self.0.insert(column.to_owned(), Part { value, left });
            }
        }
    }

    /// Marks that the row is there even if no column has a value.
    pub(crate) fn mark(&mut self, left: LockLease) {
        self.set(MARKER, Some(b""), left);
    }

    /// Returns the row as the value of a lock, and the lock's lease.
    ///
    /// # Errors
    /// Returns [`Mixed`] if one lease cannot express the parts' ends.
    pub(crate) fn encode(&self) -> Result<(Vec<u8>, LockLease), Mixed> {
        let longest = self.0.values().map(|part| part.left).reduce(LockLease::max);
        let lease = longest.unwrap_or(LockLease::Endless);
        let mut bytes = vec![FORMAT];
        for (name, part) in &self.0 {
            let earlier = match (lease, part.left) {
                (LockLease::For(lease), LockLease::For(left)) => lease - left,
                (LockLease::Endless, LockLease::Endless) => Duration::ZERO,
                // The row stays without the marker, unless all of its columns are removed one by one.
                (LockLease::Endless, LockLease::For(_)) if name == MARKER => continue,
                _ => return Err(Mixed),
            };
            bytes.extend((name.len() as u16).to_be_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend((earlier.as_micros() as u64).to_be_bytes());
            bytes.extend((part.value.len() as u32).to_be_bytes());
            bytes.extend(&part.value);
        }
        Ok((bytes, lease))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::locks::FencingToken;

    fn seconds(seconds: u64) -> LockLease {
        LockLease::For(Duration::from_secs(seconds))
    }

    fn lock(value: &[u8], left: LockLease) -> Lock {
        Lock {
            value: value.into(),
            token: FencingToken(1),
            left,
            waiters: 0,
        }
    }

    #[test]
    fn parts_end_at_their_times() {
        let mut row = LockRow::default();
        row.mark(seconds(10));
        row.set("note", Some(b"n"), seconds(20));
        row.set("owner", Some(b"me"), seconds(30));
        let (bytes, lease) = row.encode().expect("all end");
        assert_eq!(lease, seconds(30));
        let at = |left| LockRow::of(&lock(&bytes, seconds(left))).expect("a row");
        assert_eq!(at(30), row);
        let later = at(15);
        assert_eq!(later.value("owner"), Some(&b"me"[..]));
        assert_eq!(later.value("note"), Some(&b"n"[..]));
        assert!(!later.0.contains_key(MARKER), "it had ten seconds");
        assert_eq!(at(10).value("note"), None);
        assert!(!at(1).is_gone());
    }

    #[test]
    fn a_row_of_columns_alone_goes_with_the_last() {
        let mut row = LockRow::default();
        row.set("owner", Some(b""), LockLease::Endless);
        let (bytes, lease) = row.encode().expect("none ends");
        assert_eq!(lease, LockLease::Endless);
        assert_eq!(LockRow::of(&lock(&bytes, lease)).expect("a row"), row);
        row.set("owner", None, LockLease::Endless);
        assert!(row.is_gone());
    }

    #[test]
    fn what_one_lease_cannot_say_is_told() {
        let mut row = LockRow::default();
        row.mark(seconds(5));
        row.set("owner", Some(b"me"), LockLease::Endless);
        let (bytes, lease) = row.encode().expect("the marker does not matter");
        assert_eq!(lease, LockLease::Endless);
        let read = LockRow::of(&lock(&bytes, lease)).expect("a row");
        assert_eq!(read.0.len(), 1);
        row.set("note", Some(b""), seconds(5));
        assert_eq!(row.encode(), Err(Mixed));
    }

    #[test]
    fn what_is_no_row_is_refused() {
        let mut row = LockRow::default();
        row.set("owner", Some(b"me"), seconds(5));
        let (bytes, lease) = row.encode().expect("it ends");
        for end in [0, 2, bytes.len() - 1] {
            assert_eq!(LockRow::of(&lock(&bytes[..end], lease)), None, "{end}");
        }
        assert_eq!(LockRow::of(&lock(b"anna", lease)), None);
        for seed in 0..2000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut noise = bytes.clone();
            noise[random.usize(..bytes.len())] = random.u8(..);
            if let Some(read) = LockRow::of(&lock(&noise, lease)) {
                assert!(read.0.len() <= 1);
            }
        }
    }
}
