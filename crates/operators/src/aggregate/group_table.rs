//! Which group a row belongs to.
//!
//! A group's key is a row of 64-bit words: one for each value (two for a decimal), and one whose bits
//! say which values are null. Texts become words by their numbers in an [`TextInterner`]. Groups are found
//! by their keys in one of two ways:
//!
//! - *direct*: as long as all keys lie in small domains, whose places put together have at most
//!   [`DIRECT_BITS`] bits, these bits are an index into a table of groups. Domains grow.
//! - *hashed*: otherwise, and from then on, in an open-addressing table.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::ops::Range;
use std::rc::Rc;

use super::group_key::{self, DIRECT_BITS, Domain, GroupKey, Words};
use super::text_interner::TextInterner;
use crate::compute::value_interval::ValueInterval;
use crate::types::Class;
use crate::vector::{IndexedTexts, Vector, VectorValues};
use arrow_schema::DataType;
use pages::task::TaskError;

/// Marks a place without a group.
const NONE: u32 = u32::MAX;

/// Groups, and the index by which they are found.
#[derive(Debug)]
pub(crate) struct GroupTable {
    keys: Vec<GroupKey>,
    /// Words of a key.
    stride: usize,
    /// The keys of all groups, one after the other.
    words: Vec<u64>,
    len: usize,
    index: Index,
    hasher: FixedState,
}

#[derive(Debug)]
enum Index {
    Direct {
        domains: Vec<Domain>,
        table: Vec<u32>,
    },
    Hashed(HashTable<u32>),
}

impl GroupTable {
    /// Makes an empty set of groups with keys of these types.
    pub(crate) fn new(keys: &[(DataType, Class)]) -> GroupTable {
        let mut word = 0;
        let mut all = Vec::new();
        for (data_type, class) in keys {
            let texts = TextInterner::new();
            all.push(GroupKey {
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
        GroupTable {
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

    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns about how many bytes their keys have.
    pub(crate) fn size(&self) -> usize {
        let texts: usize = self.keys.iter().map(|key| key.texts.size()).sum();
        self.words.len() * size_of::<u64>() + texts
    }

    /// Returns the groups of rows with these keys, and makes those that do not exist.
    pub(crate) fn assign(
        &mut self,
        keys: &[Rc<Vector>],
        intervals: &[ValueInterval],
        rows: usize,
    ) -> Vec<u32> {
        let expanded: Vec<Option<Vector>> = keys
            .iter()
            .map(|vector| vector.constant.then(|| vector.expanded(rows)))
            .collect();
        let vectors = keys.iter().zip(&expanded);
        let vectors = vectors.map(|(vector, expanded)| expanded.as_ref().unwrap_or(vector));
        let words: Vec<Words<'_>> = self
            .keys
            .iter_mut()
            .zip(vectors)
            .map(|(key, vector)| key.words(vector))
            .collect();
        self.fit(intervals);
        match &self.index {
            Index::Direct { domains, .. } => {
                let codes = group_key::codes(domains, &words, rows);
                self.direct(&codes, &words)
            }
            Index::Hashed(_) => self.hashed(&words, rows),
        }
    }

    /// Makes room in the index for the values that these keys may have.
    fn fit(&mut self, intervals: &[ValueInterval]) {
        let Index::Direct { domains, .. } = &self.index else {
            return;
        };
        let keys = self.keys.iter().zip(intervals).enumerate();
        let wanted: Option<Vec<Domain>> = keys
            .map(|(at, (key, interval))| key.domain(interval, domains.get(at)))
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

    /// Makes a direct table that has the existing groups.
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

    /// Changes to hashing.
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

    fn direct(&mut self, codes: &[u32], words: &[Words<'_>]) -> Vec<u32> {
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
                group_key::push(&mut self.words, words, row);
            }
            groups.push(group);
        }
        groups
    }

    fn hashed(&mut self, words: &[Words<'_>], rows: usize) -> Vec<u32> {
        let GroupTable {
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
            // The key is written after the others, and stays there if it is new.
            group_key::push(all, words, row);
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

    /// Returns `true` if their keys have texts.
    pub(crate) fn have_texts(&self) -> bool {
        self.keys.iter().any(|key| key.class == Class::Bytes)
    }

    /// Returns the number of bytes of the texts of a group's key.
    pub(crate) fn text_bytes(&self, group: usize) -> usize {
        let keys = self.keys.iter().enumerate();
        let texts = keys.filter(|(_, key)| key.class == Class::Bytes);
        texts.map(|(at, key)| self.text(group, at, key).len()).sum()
    }

    /// Returns a text of a group's key.
    fn text<'k>(&self, group: usize, at: usize, key: &'k GroupKey) -> &'k [u8] {
        let words = &self.words[group * self.stride..][..self.stride];
        match words[self.stride - 1] >> at & 1 {
            0 => key.texts.text(words[key.word] as usize),
            _ => &[],
        }
    }

    /// Returns the values of some groups' keys.
    ///
    /// # Errors
    /// Returns an error if their texts have two gigabytes.
    pub(crate) fn values(&self, groups: Range<usize>) -> Result<Vec<Vector>, TaskError> {
        let at = |group: usize, word: usize| self.words[group * self.stride + word];
        let of = |(place, key): (usize, &GroupKey)| {
            let all = groups.clone();
            let low = |group: usize| at(group, key.word);
            let values = match key.class {
                Class::Bool => VectorValues::Bool(all.clone().map(|g| low(g) as u8).collect()),
                Class::Float => {
                    VectorValues::F64(all.clone().map(|g| f64::from_bits(low(g))).collect())
                }
                Class::Bytes => {
                    let texts = all.clone().map(|group| self.text(group, place, key));
                    VectorValues::Bytes(IndexedTexts::new(texts)?)
                }
                Class::Int => match key.data_type {
                    DataType::Decimal128(..) => VectorValues::I128(
                        all.clone()
                            .map(|g| (at(g, key.word + 1) as i128) << 64 | i128::from(low(g)))
                            .collect(),
                    ),
                    DataType::UInt64 => {
                        VectorValues::I128(all.clone().map(|g| low(g).into()).collect())
                    }
                    _ => VectorValues::I64(all.clone().map(|g| low(g) as i64).collect()),
                },
            };
            let valid = |group| u8::from(at(group, self.stride - 1) >> place & 1 == 0);
            let valid: Vec<u8> = all.map(valid).collect();
            Ok(Vector::new(values, valid.contains(&0).then_some(valid)))
        };
        self.keys.iter().enumerate().map(of).collect()
    }
}
