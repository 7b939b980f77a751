//! Positions of `SCAN`.
//!
//! A cursor names a position in the order of keys, which is too long for the number that clients
//! carry; so the number is an index into a bounded table, which forgets the oldest entry first. A
//! cursor may be used more than once while it is remembered. A forgotten cursor, or one of an
//! earlier process of the server, is refused: continuing at another position would silently miss
//! keys.
//!
//! Invariant: numbers are never reused, and those of different processes of a server start at
//! random places below 2^48, so that a cursor of an earlier process is not mistaken for one of
//! this.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

/// The positions that are remembered.
pub(crate) struct Cursors {
    table: Mutex<Table>,
    /// The position from which the next random key is taken.
    sample: Mutex<Arc<[u8]>>,
    most: usize,
    most_bytes: usize,
}

struct Table {
    /// The number of the first position.
    first: u64,
    positions: VecDeque<Arc<[u8]>>,
    bytes: usize,
}

impl Cursors {
    /// Creates a table of at most `most` positions with at most `most_bytes` bytes in total.
    pub(crate) fn new(most: usize, most_bytes: usize) -> Cursors {
        let first = RandomState::new().hash_one(0u8) % (1 << 48) + 1;
        let table = Table {
            first,
            positions: VecDeque::new(),
            bytes: 0,
        };
        Cursors {
            table: Mutex::new(table),
            sample: Mutex::new([].into()),
            most,
            most_bytes,
        }
    }

    /// Returns the position from which the next random key is taken.
    pub(crate) fn sample(&self) -> Arc<[u8]> {
        Arc::clone(&self.sample.lock())
    }

    /// Sets the position from which the next random key is taken.
    pub(crate) fn set_sample(&self, position: &[u8]) {
        *self.sample.lock() = position.into();
    }

    /// Remembers a position and returns its number.
    pub(crate) fn remember(&self, position: &[u8]) -> u64 {
        let mut table = self.table.lock();
        table.bytes += position.len();
        table.positions.push_back(position.into());
        // The newest position is kept even if it alone exceeds the limit.
        while table.positions.len() > 1
            && (table.positions.len() > self.most || table.bytes > self.most_bytes)
        {
            let oldest = table.positions.pop_front().expect("more than one position");
            table.bytes -= oldest.len();
            table.first += 1;
        }
        table.first + table.positions.len() as u64 - 1
    }

    /// Returns the position with this number, as long as it is remembered.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<[u8]>> {
        let table = self.table.lock();
        let index = number.checked_sub(table.first)?;
        table.positions.get(usize::try_from(index).ok()?).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_remembered_and_forgotten_in_order() {
        let cursors = Cursors::new(2, 100);
        let numbers: Vec<u64> = [b"a", b"b", b"c"]
            .iter()
            .map(|p| cursors.remember(*p))
            .collect();
        assert_eq!(cursors.find(numbers[0]), None);
        assert_eq!(cursors.find(numbers[1]).as_deref(), Some(&b"b"[..]));
        assert_eq!(cursors.find(numbers[2]).as_deref(), Some(&b"c"[..]));
        assert_eq!(cursors.find(numbers[2]).as_deref(), Some(&b"c"[..]));
        assert_eq!(cursors.find(numbers[2] + 1), None);
        assert_eq!(cursors.find(0), None);
        let long = cursors.remember(&[0; 200]);
        assert_eq!(cursors.find(numbers[2]), None);
        assert_eq!(cursors.find(long).map(|p| p.len()), Some(200));
    }
}
