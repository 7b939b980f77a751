//! Numbers for texts, so that groups of texts are groups of numbers.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use arrow_array::Array;

use crate::vector::IndexedTexts;

/// Texts, and the numbers that they were given, from 0 on.
#[derive(Debug)]
pub(crate) struct TextInterner {
    table: HashTable<u32>,
    /// The places at which texts end in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
    /// The numbers of texts of one byte, plus 1.
    short: Box<[u32; 256]>,
    hasher: FixedState,
}

impl TextInterner {
    /// Makes an empty interner.
    pub(crate) fn new() -> TextInterner {
        TextInterner {
            table: HashTable::new(),
            ends: Vec::new(),
            bytes: Vec::new(),
            short: Box::new([0; 256]),
            hasher: FixedState::default(),
        }
    }

    /// Returns the number of texts.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns how many bytes they have.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the text of a number.
    pub(crate) fn text(&self, number: usize) -> &[u8] {
        text(&self.ends, &self.bytes, number)
    }

    /// Returns the numbers of all of an array's texts, if there are no more texts than rows.
    pub(crate) fn numbers_of_all(&mut self, texts: &IndexedTexts) -> Option<Vec<u64>> {
        let all = 0..texts.data.len();
        (all.len() <= texts.index.len()).then(|| {
            all.map(|at| u64::from(self.number(crate::vector::text(&texts.data, at))))
                .collect()
        })
    }

    /// Returns the numbers of all rows' texts.
    pub(crate) fn numbers(&mut self, texts: &IndexedTexts) -> Vec<u64> {
        texts.map(|text| u64::from(self.number(text)))
    }

    fn number(&mut self, wanted: &[u8]) -> u32 {
        if let [byte] = wanted {
            let known = self.short[usize::from(*byte)];
            if known > 0 {
                return known - 1;
            }
        }
        let hash = self.hasher.hash_one(wanted);
        let TextInterner {
            table,
            ends,
            bytes,
            hasher,
            ..
        } = self;
        let same = |&number: &u32| text(ends, bytes, number as usize) == wanted;
        if let Some(&number) = table.find(hash, same) {
            return number;
        }
        let number = ends.len() as u32;
        bytes.extend_from_slice(wanted);
        ends.push(bytes.len());
        table.insert_unique(hash, number, |&number| {
            hasher.hash_one(text(ends, bytes, number as usize))
        });
        if let [byte] = wanted {
            self.short[usize::from(*byte)] = number + 1;
        }
        number
    }
}

fn text<'a>(ends: &[usize], bytes: &'a [u8], number: usize) -> &'a [u8] {
    let from = number.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[from..ends[number]]
}
