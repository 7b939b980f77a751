//! The values of groups' keys as words, and their places in a direct table.

use arrow_schema::DataType;

use super::text_interner::TextInterner;
use crate::compute::value_interval::ValueInterval;
use crate::types::Class;
use crate::vector::{Vector, VectorValues};

/// The logarithm of the most places of a direct table.
pub(super) const DIRECT_BITS: u32 = 16;

/// A value of the key.
#[derive(Debug)]
pub(super) struct GroupKey {
    pub(super) data_type: DataType,
    pub(super) class: Class,
    /// The place of its first word in the key.
    pub(super) word: usize,
    pub(super) texts: TextInterner,
}

/// The place of a value in the index of a direct table, counted from 1; 0 stands for null.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain {
    /// The least value.
    pub(super) base: i64,
    /// The number of values that are possible.
    pub(super) size: u64,
    pub(super) shift: u32,
}

impl Domain {
    pub(super) fn bits(&self) -> u32 {
        u64::BITS - self.size.leading_zeros()
    }

    fn place(&self, word: u64) -> u32 {
        (word.wrapping_sub(self.base as u64).wrapping_add(1) as u32) << self.shift
    }
}

/// A value of the key, for the rows of a vector. The words of a null have no meaning.
pub(super) struct Words<'a> {
    low: Low<'a>,
    high: Option<Vec<u64>>,
    valid: Option<&'a [u8]>,
}

/// The lower words, which are mostly the only ones.
enum Low<'a> {
    /// A word for each row.
    Own(Vec<u64>),
    /// A word for each text of an array, and the text of each row.
    Texts(Vec<u64>, &'a [u32]),
}

impl Words<'_> {
    fn low(&self, row: usize) -> u64 {
        match &self.low {
            Low::Own(words) => words[row],
            Low::Texts(words, index) => words.get(index[row] as usize).copied().unwrap_or(0),
        }
    }
}

impl GroupKey {
    /// Returns the words of a vector's values, of which none is constant.
    pub(super) fn words<'a>(&mut self, vector: &'a Vector) -> Words<'a> {
        let wide = matches!(self.data_type, DataType::Decimal128(..));
        let (low, high): (Vec<u64>, _) = match &vector.values {
            VectorValues::Bool(values) => {
                (values.iter().map(|&value| value.into()).collect(), None)
            }
            VectorValues::F64(values) => {
                (values.iter().map(|value| value.to_bits()).collect(), None)
            }
            VectorValues::Bytes(texts) => {
                let low = match self.texts.numbers_of_all(texts) {
                    Some(numbers) => Low::Texts(numbers, &texts.index),
                    None => Low::Own(self.texts.numbers(texts)),
                };
                let valid = vector.valid.as_deref();
                return Words {
                    low,
                    high: None,
                    valid,
                };
            }
            VectorValues::I64(values) => {
                let high = wide.then(|| values.iter().map(|&v| (v >> 63) as u64).collect());
                (values.iter().map(|&value| value as u64).collect(), high)
            }
            VectorValues::I128(values) => {
                let high = wide.then(|| values.iter().map(|&v| (v >> 64) as u64).collect());
                (values.iter().map(|&value| value as u64).collect(), high)
            }
        };
        Words {
            low: Low::Own(low),
            high,
            valid: vector.valid.as_deref(),
        }
    }

    /// Returns a domain with room for these words, not smaller than the known one; `None` if it
    /// would be too large.
    pub(super) fn domain(
        &self,
        interval: &ValueInterval,
        known: Option<&Domain>,
    ) -> Option<Domain> {
        let (base, size) = match self.class {
            Class::Bool => (0, 2),
            Class::Float => return None,
            // There is room for more texts, so that the table is not made anew for each of them.
            Class::Bytes => {
                let texts = self.texts.len() as u64;
                let known = known.map_or(0, |known| known.size);
                (0, if known >= texts { known } else { texts * 2 })
            }
            Class::Int if !interval.narrow => return None,
            Class::Int => {
                let (mut min, mut max) = (interval.min, interval.max.max(interval.min));
                if let Some(known) = known {
                    min = min.min(known.base.into());
                    max = max.max(i128::from(known.base) + i128::from(known.size) - 1);
                }
                (
                    i64::try_from(min).ok()?,
                    u64::try_from(max - min).ok()?.checked_add(1)?,
                )
            }
        };
        let domain = Domain {
            base,
            size,
            shift: 0,
        };
        (domain.bits() <= DIRECT_BITS).then_some(domain)
    }
}

/// Returns the places of keys in a direct table.
pub(super) fn codes(domains: &[Domain], words: &[Words<'_>], rows: usize) -> Vec<u32> {
    let mut codes = vec![0u32; rows];
    for (domain, words) in domains.iter().zip(words) {
        match (&words.low, words.valid) {
            (Low::Own(low), None) => {
                let rows = codes.iter_mut().zip(low);
                rows.for_each(|(code, &word)| *code |= domain.place(word));
            }
            (Low::Texts(numbers, index), None) => {
                let places: Vec<u32> = numbers.iter().map(|&word| domain.place(word)).collect();
                let rows = codes.iter_mut().zip(*index);
                rows.for_each(|(code, &at)| *code |= places[at as usize]);
            }
            (_, Some(valid)) => {
                for (row, (code, &valid)) in codes.iter_mut().zip(valid).enumerate() {
                    *code |= domain.place(words.low(row)) * u32::from(valid);
                }
            }
        }
    }
    codes
}

/// Writes the key of a row after others.
pub(super) fn push(all: &mut Vec<u64>, words: &[Words<'_>], row: usize) {
    let mut nulls = 0;
    for (at, words) in words.iter().enumerate() {
        let valid = words.valid.is_none_or(|valid| valid[row] == 1);
        all.push(if valid { words.low(row) } else { 0 });
        if let Some(high) = &words.high {
            all.push(if valid { high[row] } else { 0 });
        }
        nulls |= u64::from(!valid) << at;
    }
    all.push(nulls);
}
