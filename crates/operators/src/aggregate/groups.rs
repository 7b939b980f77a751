//! Which group a row belongs to.
//!
//! A group's key is a row of 64-bit words: one for each value (two for a decimal), and one whose bits
//! say which values are null. Texts are words by their numbers in an [`Interner`]. Groups are
//! found by their keys in one of two ways:
//!
//! - *direct*: as long as all keys lie in domains so small that their places there, put together, have
//!   at most [`DIRECT_BITS`] bits, these are an index of a table of groups. Domains grow.
//! - *hashed*: otherwise, and from then on, in an open-addressing table.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::rc::Rc;

use super::interner::Interner;
use crate::compute::intervals::Facts;
use crate::types::Class;
use crate::vector::{Bytes, Values, Vector};
use arrow_array::BinaryArray;
use arrow_schema::DataType;

/// A direct table has at most two to the power of this places.
const DIRECT_BITS: u32 = 16;
/// No group.
const NONE: u32 = u32::MAX;

/// Groups, and how they are found.
#[derive(Debug)]
pub(crate) struct Groups {
    keys: Vec<Key>,
    /// Words of a key.
    stride: usize,
    /// The keys of all groups, one behind the other.
    words: Vec<u64>,
    len: usize,
    index: Index,
    hasher: FixedState,
}

/// A value of the key.
#[derive(Debug)]
struct Key {
    data_type: DataType,
    class: Class,
    /// Its first word in the key.
    word: usize,
    texts: Interner,
}

#[derive(Debug)]
enum Index {
    Direct {
        domains: Vec<Domain>,
        table: Vec<u32>,
    },
    Hashed(HashTable<u32>),
}

/// Where a value's place, counted from 1 with 0 for null, stands in the index of a direct table.
#[derive(Clone, Copy, Debug)]
struct Domain {
    /// The least value.
    base: i64,
    /// How many values there may be.
    size: u64,
    shift: u32,
}

impl Domain {
    fn bits(&self) -> u32 {
        u64::BITS - self.size.leading_zeros()
    }
}

/// A value of the key, for the rows of a vector.
struct Words {
    low: Vec<u64>,
    high: Option<Vec<u64>>,
    valid: Option<Vec<u8>>,
}

impl Groups {
    /// No group yet, by keys of these types.
    pub(crate) fn new(keys: &[(DataType, Class)]) -> Groups {
        let mut word = 0;
        let mut all = Vec::new();
        for (data_type, class) in keys {
            let texts = Interner::new();
            all.push(Key {
                data_type: data_type.clone(),
                class: *class,
                word,
                texts,
            });
            word += if matches!(data_type, DataType::Decimal128(..)) {
                2
            } else {
                1
            };
        }
        Groups {
            keys: all,
            stride: word + 1,
            words: Vec::new(),
            len: 0,
            index: Index::Direct {
                domains: Vec::new(),
                table: Vec::new(),
            },
            hasher: FixedState::default(),
        }
    }

    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// About how many bytes their keys have.
    pub(crate) fn size(&self) -> usize {
        let texts: usize = self.keys.iter().map(|key| key.texts.size()).sum();
        self.words.len() * size_of::<u64>() + texts
    }

    /// The groups of rows with these keys, which are made if they are not there.
    pub(crate) fn assign(&mut self, keys: &[Rc<Vector>], facts: &[Facts], rows: usize) -> Vec<u32> {
        let words: Vec<Words> = self
            .keys
            .iter_mut()
            .zip(keys)
            .map(|(key, vector)| key.words(vector, rows))
            .collect();
        self.fit(facts);
        match &self.index {
            Index::Direct { domains, .. } => {
                let codes = codes(domains, &words, rows);
                self.direct(&codes, &words)
            }
            Index::Hashed(_) => self.hashed(&words, rows),
        }
    }

    /// Sees to it that the index has room for what these keys may be.
    fn fit(&mut self, facts: &[Facts]) {
        let Index::Direct { domains, .. } = &self.index else {
            return;
        };
        let keys = self.keys.iter().zip(facts).enumerate();
        let wanted: Option<Vec<Domain>> = keys
            .map(|(at, (key, facts))| key.domain(facts, domains.get(at)))
            .collect();
        let same = |a: &Domain, b: &Domain| (a.base, a.size) == (b.base, b.size);
        match wanted {
            Some(wanted)
                if wanted.len() == domains.len()
                    && wanted.iter().zip(domains).all(|(a, b)| same(a, b)) => {}
            Some(mut wanted) => {
                let mut shift = 0;
                for domain in &mut wanted {
                    domain.shift = shift;
                    shift += domain.bits();
                }
                if shift <= DIRECT_BITS {
                    self.lay_out(wanted, shift)
                } else {
                    self.hash()
                }
            }
            None => self.hash(),
        }
    }

    /// Makes a direct table, with the groups that there are.
    fn lay_out(&mut self, domains: Vec<Domain>, bits: u32) {
        let mut table = vec![NONE; 1 << bits];
        for group in 0..self.len {
            let key = &self.words[group * self.stride..][..self.stride];
            let nulls = key[self.stride - 1];
            let place = |(at, domain): (usize, &Domain)| {
                let value = key[self.keys[at].word].wrapping_sub(domain.base as u64) + 1;
                if nulls >> at & 1 == 1 {
                    0
                } else {
                    value << domain.shift
                }
            };
            let code: u64 = domains.iter().enumerate().map(place).sum();
            table[code as usize] = group as u32;
        }
        self.index = Index::Direct { domains, table };
    }

    /// Goes over to hashing.
    fn hash(&mut self) {
        let mut table = HashTable::with_capacity(self.len.max(1024));
        let hash = |group: u32| {
            let key = &self.words[group as usize * self.stride..][..self.stride];
            self.hasher.hash_one(key)
        };
        for group in 0..self.len as u32 {
            table.insert_unique(hash(group), group, |&group| hash(group));
        }
        self.index = Index::Hashed(table);
    }

    fn direct(&mut self, codes: &[u32], words: &[Words]) -> Vec<u32> {
        let mut groups = Vec::with_capacity(codes.len());
        let Index::Direct { table, .. } = &mut self.index else {
            unreachable!("codes are for direct tables");
        };
        for (row, &code) in codes.iter().enumerate() {
            let mut group = table[code as usize];
            if group == NONE {
                group = self.len as u32;
                table[code as usize] = group;
                self.len += 1;
                push_key(&mut self.words, words, row);
            }
            groups.push(group);
        }
        groups
    }

    fn hashed(&mut self, words: &[Words], rows: usize) -> Vec<u32> {
        let Groups {
            stride,
            words: all,
            len,
            index,
            hasher,
            ..
        } = self;
        let Index::Hashed(table) = index else {
            unreachable!("called for hashed groups");
        };
        let mut groups = Vec::with_capacity(rows);
        for row in 0..rows {
            // The key is written behind the others, and stays there if it is new.
            push_key(all, words, row);
            let (known, key) = all.split_at(*len * *stride);
            let hash = hasher.hash_one(key);
            let at = |group: u32| &known[group as usize * *stride..][..*stride];
            match table.find(hash, |&group| at(group) == key) {
                Some(&group) => {
                    groups.push(group);
                    all.truncate(*len * *stride);
                }
                None => {
                    table.insert_unique(hash, *len as u32, |&group| hasher.hash_one(at(group)));
                    groups.push(*len as u32);
                    *len += 1;
                }
            }
        }
        groups
    }

    /// The values of all groups' keys.
    pub(crate) fn values(&self) -> Vec<Vector> {
        let at = |group: usize, word: usize| self.words[group * self.stride + word];
        let of = |(place, key): (usize, &Key)| {
            let all = 0..self.len;
            let low = |group: usize| at(group, key.word);
            let values = match key.class {
                Class::Bool => Values::Bool(all.clone().map(|g| low(g) as u8).collect()),
                Class::Float => Values::F64(all.clone().map(|g| f64::from_bits(low(g))).collect()),
                Class::Bytes => {
                    let texts = (0..key.texts.len()).map(|number| key.texts.text(number));
                    let data = BinaryArray::from_iter_values(texts);
                    Values::Bytes(Bytes {
                        data,
                        index: all.clone().map(|g| low(g) as u32).collect(),
                    })
                }
                Class::Int => match key.data_type {
                    DataType::Decimal128(..) => Values::I128(
                        all.clone()
                            .map(|g| (at(g, key.word + 1) as i128) << 64 | i128::from(low(g)))
                            .collect(),
                    ),
                    DataType::UInt64 => Values::I128(all.clone().map(|g| low(g).into()).collect()),
                    _ => Values::I64(all.clone().map(|g| low(g) as i64).collect()),
                },
            };
            let valid = |group| u8::from(at(group, self.stride - 1) >> place & 1 == 0);
            let valid: Vec<u8> = all.map(valid).collect();
            Vector::new(values, valid.contains(&0).then_some(valid))
        };
        self.keys.iter().enumerate().map(of).collect()
    }
}

impl Key {
    fn words(&mut self, vector: &Vector, rows: usize) -> Words {
        let vector = if vector.constant {
            &vector.expanded(rows)
        } else {
            vector
        };
        let wide = matches!(self.data_type, DataType::Decimal128(..));
        let (mut low, mut high): (Vec<u64>, _) = match &vector.values {
            Values::Bool(values) => (values.iter().map(|&value| value.into()).collect(), None),
            Values::F64(values) => (values.iter().map(|value| value.to_bits()).collect(), None),
            Values::Bytes(texts) => (self.texts.numbers(texts), None),
            Values::I64(values) => {
                let high = wide.then(|| values.iter().map(|&v| (v >> 63) as u64).collect());
                (values.iter().map(|&value| value as u64).collect(), high)
            }
            Values::I128(values) => {
                let high = wide.then(|| values.iter().map(|&v| (v >> 64) as u64).collect());
                (values.iter().map(|&value| value as u64).collect(), high)
            }
        };
        if let Some(valid) = &vector.valid {
            let clear = |words: &mut Vec<u64>| {
                words
                    .iter_mut()
                    .zip(valid)
                    .for_each(|(word, &valid)| *word *= u64::from(valid));
            };
            clear(&mut low);
            high.iter_mut().for_each(clear);
        }
        Words {
            low,
            high,
            valid: vector.valid.clone(),
        }
    }

    /// A domain with room for these words, not smaller than the one that there is; `None` if that
    /// would be too large.
    fn domain(&self, facts: &Facts, known: Option<&Domain>) -> Option<Domain> {
        let (base, size) = match self.class {
            Class::Bool => (0, 2),
            Class::Float => return None,
            // With room for others, so that the table is not made anew for each of them.
            Class::Bytes => {
                let texts = self.texts.len() as u64;
                let known = known.map_or(0, |known| known.size);
                (0, if known >= texts { known } else { texts * 2 })
            }
            Class::Int if !facts.narrow => return None,
            Class::Int => {
                let (mut min, mut max) = (facts.min, facts.max.max(facts.min));
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

/// Where keys stand in a direct table.
fn codes(domains: &[Domain], words: &[Words], rows: usize) -> Vec<u32> {
    let mut codes = vec![0u32; rows];
    for (domain, words) in domains.iter().zip(words) {
        let place = |word: u64| {
            (word.wrapping_sub(domain.base as u64).wrapping_add(1) as u32) << domain.shift
        };
        match &words.valid {
            None => {
                codes
                    .iter_mut()
                    .zip(&words.low)
                    .for_each(|(code, &word)| *code |= place(word));
            }
            Some(valid) => {
                let rows = codes.iter_mut().zip(words.low.iter().zip(valid));
                rows.for_each(|(code, (&word, &valid))| *code |= place(word) * u32::from(valid));
            }
        }
    }
    codes
}

/// Writes the key of a row behind others.
fn push_key(all: &mut Vec<u64>, words: &[Words], row: usize) {
    let mut nulls = 0;
    for (at, words) in words.iter().enumerate() {
        all.push(words.low[row]);
        if let Some(high) = &words.high {
            all.push(high[row]);
        }
        if words.valid.as_ref().is_some_and(|valid| valid[row] == 0) {
            nulls |= 1 << at;
        }
    }
    all.push(nulls);
}
