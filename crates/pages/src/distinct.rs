//! The distinct texts of a column, and the text of each row.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use crate::entry::{ALIGN, Keys};

/// Keys have two bytes at most.
const MOST: usize = 1 << 16;

/// The most bytes of texts in a page.
const LONGEST: usize = 1 << 20;

/// The distinct texts of rows, in the order in which they first came.
pub(crate) struct Distinct {
    table: HashTable<u16>,
    hasher: FixedState,
    offsets: Vec<i32>,
    bytes: Vec<u8>,
    rows: Vec<u16>,
    /// `true` if there are more texts than keys can number: later rows are not in `rows`.
    over: bool,
}

impl Default for Distinct {
    fn default() -> Distinct {
        Distinct {
            table: HashTable::new(),
            hasher: FixedState::default(),
            offsets: vec![0],
            bytes: Vec::new(),
            rows: Vec::new(),
            over: false,
        }
    }
}

impl Distinct {
    /// Adds a row with this text; null rows may have any.
    pub(crate) fn push(&mut self, text: &[u8]) {
        if self.over {
            return;
        }
        let Distinct {
            table,
            hasher,
            offsets,
            bytes,
            ..
        } = self;
        let hash = hasher.hash_one(text);
        if let Some(&key) = table.find(hash, |&key| of(offsets, bytes, key) == text) {
            self.rows.push(key);
            return;
        }
        let key = offsets.len() - 1;
        if key == MOST || bytes.len() + text.len() > LONGEST {
            self.over = true;
            return;
        }
        bytes.extend(text);
        offsets.push(bytes.len() as i32);
        table.insert_unique(hash, key as u16, |&key| {
            hasher.hash_one(of(offsets, bytes, key))
        });
        self.rows.push(key as u16);
    }

    /// Forgets all but the first `rows` rows and `entries` entries, of which there were so many at
    /// the same time.
    pub(crate) fn truncate(&mut self, rows: usize, entries: usize) {
        for key in entries..self.entries() {
            let text = of(&self.offsets, &self.bytes, key as u16);
            let hash = self.hasher.hash_one(text);
            if let Ok(found) = self
                .table
                .find_entry(hash, |&other| usize::from(other) == key)
            {
                found.remove();
            }
        }
        self.offsets.truncate(entries + 1);
        self.bytes.truncate(self.offsets[entries] as usize);
        self.rows.truncate(rows);
        self.over = false;
    }

    pub(crate) fn entries(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(crate) fn rows(&self) -> &[u16] {
        &self.rows
    }

    /// Returns the offsets of the texts, and their bytes.
    pub(crate) fn texts(&self) -> (&[i32], &[u8]) {
        (&self.offsets, &self.bytes)
    }

    /// Returns the length of keys.
    pub(crate) fn keys(&self) -> Keys {
        if self.entries() <= 1 << 8 {
            Keys::OneByte
        } else {
            Keys::TwoBytes
        }
    }

    /// Returns the number of bytes of keys and dictionary; `None` if there are too many texts.
    pub(crate) fn size(&self) -> Option<usize> {
        let keys = self.rows.len() * self.keys().bytes();
        let parts = [keys, 4 * self.offsets.len(), self.bytes.len()];
        let size = parts.iter().map(|part| part.next_multiple_of(ALIGN)).sum();
        (!self.over).then_some(size)
    }
}

fn of<'a>(offsets: &[i32], bytes: &'a [u8], key: u16) -> &'a [u8] {
    let key = usize::from(key);
    &bytes[offsets[key] as usize..offsets[key + 1] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_found_anew() {
        let mut distinct = Distinct::default();
        for text in ["a", "", "b", "a"] {
            distinct.push(text.as_bytes());
        }
        assert_eq!(distinct.rows(), [0, 1, 2, 0]);
        distinct.truncate(2, 2);
        for text in ["c", "b", "a"] {
            distinct.push(text.as_bytes());
        }
        assert_eq!(distinct.rows(), [0, 1, 2, 3, 0]);
        assert_eq!(distinct.texts(), (&[0, 1, 1, 2, 3][..], &b"acb"[..]));
    }

    #[test]
    fn keys_grow_and_end() {
        let mut distinct = Distinct::default();
        for n in 0..MOST {
            distinct.push(&n.to_le_bytes());
            let keys = if n < 256 {
                Keys::OneByte
            } else {
                Keys::TwoBytes
            };
            assert_eq!(distinct.keys(), keys);
        }
        assert!(distinct.size().is_some());
        distinct.push(b"one more");
        assert_eq!(distinct.size(), None);
        distinct.truncate(MOST, MOST);
        distinct.push(&7_usize.to_le_bytes());
        assert_eq!(distinct.rows()[MOST..], [7]);
        assert!(distinct.size().is_some());
    }
}
