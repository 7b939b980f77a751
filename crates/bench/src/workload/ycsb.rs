//! YCSB's workloads, as transactions of several operations.
//!
//! | workload | read | update | insert | scan | read and write | distribution |
//! |---|---|---|---|---|---|---|
//! | A | 50 | 50 | | | | zipfian |
//! | B | 95 | 5 | | | | zipfian |
//! | C | 100 | | | | | zipfian |
//! | D | 95 | | 5 | | | latest |
//! | E | | | 5 | 95 | | zipfian |
//! | F | 50 | | | | 50 | zipfian |
//!
//! Each operation draws its kind and its key for itself. In F a write depends on what was read in
//! the same transaction; the other workloads write blindly.

use std::sync::Arc;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::keys::{Chooser, Distribution, Population};

/// The longest scan of workload E.
const SCAN_MAX: usize = 100;

/// The shares of operations in percent; together 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // The kinds are those of the module's table.
pub struct Mix {
    pub read: u32,
    pub update: u32,
    pub insert: u32,
    pub scan: u32,
    pub modify: u32,
}

/// Transactions of several operations on records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct YcsbSettings {
    /// The kinds of the operations.
    pub mix: Mix,
    /// The distribution of their keys.
    pub distribution: Distribution,
    /// Keys that are there from the beginning.
    pub records: u64,
    /// Bytes of a value, at least [`crate::stamp::SHORTEST`].
    pub value_size: usize,
    /// Operations in a transaction.
    pub operations: usize,
}

impl YcsbSettings {
    /// Returns reads and blind updates of uniformly drawn keys: the workload of paper 2 (ten
    /// operations, four-byte values).
    #[must_use]
    pub fn reads_and_updates(read_percent: u32, records: u64) -> YcsbSettings {
        YcsbSettings {
            mix: Mix {
                read: read_percent.min(100),
                update: 100 - read_percent.min(100),
                ..Mix::default()
            },
            distribution: Distribution::Uniform,
            records,
            value_size: 4,
            operations: 10,
        }
    }

    /// Returns one of YCSB's six workloads; `None` if there is none with that letter.
    #[must_use]
    pub fn standard(letter: char, records: u64) -> Option<YcsbSettings> {
        let mix = |read, update, insert, scan, modify| Mix {
            read,
            update,
            insert,
            scan,
            modify,
        };
        let mix = match letter {
            'A' => mix(50, 50, 0, 0, 0),
            'B' => mix(95, 5, 0, 0, 0),
            'C' => mix(100, 0, 0, 0, 0),
            'D' => mix(95, 0, 5, 0, 0),
            'E' => mix(0, 0, 5, 95, 0),
            'F' => mix(50, 0, 0, 0, 50),
            _ => return None,
        };
        let distribution = match letter {
            'D' => Distribution::Latest,
            _ => Distribution::YCSB,
        };
        Some(YcsbSettings {
            mix,
            distribution,
            records,
            value_size: 100,
            operations: 10,
        })
    }
}

/// One operation to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YcsbOperation {
    /// Read the key, which is there.
    Read(u64),
    /// Give the key, which is there, a new value.
    Update(u64),
    /// Make the key.
    Insert(u64),
    /// Read so many keys from this one on.
    Scan(u64, usize),
    /// Read the key, which is there, and give it a new value.
    Modify(u64),
}

/// Draws the transactions of one writer.
pub struct Generator {
    mix: Mix,
    operations: usize,
    distinct: bool,
    chooser: Chooser,
    population: Arc<Population>,
    lane: usize,
    inserted: u64,
    rng: Rng,
}

impl Generator {
    /// Creates the transactions of the writer of `lane`. With `distinct`, no transaction touches a
    /// key twice.
    ///
    /// # Panics
    /// Panics if the mix does not add up to 100.
    #[must_use]
    pub fn new(
        ycsb: &YcsbSettings,
        chooser: Chooser,
        population: &Arc<Population>,
        lane: usize,
        seed: u64,
        distinct: bool,
    ) -> Generator {
        let Mix {
            read,
            update,
            insert,
            scan,
            modify,
        } = ycsb.mix;
        let sum = read + update + insert + scan + modify;
        assert_eq!(sum, 100, "percentages add up to 100");
        Generator {
            mix: ycsb.mix,
            operations: ycsb.operations,
            distinct,
            chooser,
            population: Arc::clone(population),
            lane,
            inserted: 0,
            rng: Rng::with_seed(seed.wrapping_add(lane as u64) ^ 0x5bd1_e995),
        }
    }

    /// Draws the next transaction into `todo`.
    pub fn next(&mut self, todo: &mut Vec<YcsbOperation>) {
        todo.clear();
        for _ in 0..self.operations {
            let one = self.operation();
            if !self.distinct || !todo.iter().any(|other| other.key() == one.key()) {
                todo.push(one);
            }
        }
    }

    fn operation(&mut self) -> YcsbOperation {
        let Mix {
            read,
            update,
            insert,
            scan,
            ..
        } = self.mix;
        let ticket = self.rng.u32(..100);
        if ticket < read {
            return YcsbOperation::Read(self.chooser.draw(&mut self.rng));
        }
        if ticket < read + update {
            return YcsbOperation::Update(self.chooser.draw(&mut self.rng));
        }
        if ticket < read + update + insert {
            self.inserted += 1;
            return YcsbOperation::Insert(self.population.inserted(self.lane, self.inserted - 1));
        }
        let key = self.chooser.draw(&mut self.rng);
        if ticket < read + update + insert + scan {
            return YcsbOperation::Scan(key, self.rng.usize(1..=SCAN_MAX));
        }
        YcsbOperation::Modify(key)
    }

    /// Records that the last drawn transaction has committed: others may draw the keys that it
    /// inserted.
    pub fn committed(&self) {
        if self.mix.insert > 0 {
            self.population.commit(self.lane, self.inserted);
        }
    }
}

impl YcsbOperation {
    fn key(self) -> u64 {
        match self {
            YcsbOperation::Read(key)
            | YcsbOperation::Update(key)
            | YcsbOperation::Insert(key)
            | YcsbOperation::Scan(key, _)
            | YcsbOperation::Modify(key) => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(ycsb: &YcsbSettings, transactions: usize, distinct: bool) -> Vec<Vec<YcsbOperation>> {
        let population = Arc::new(Population::new(ycsb.records, 2));
        let chooser = Chooser::new(ycsb.distribution, Arc::clone(&population));
        let mut generator = Generator::new(ycsb, chooser, &population, 1, 5, distinct);
        let mut todo = Vec::new();
        let mut next = || {
            generator.next(&mut todo);
            generator.committed();
            todo.clone()
        };
        (0..transactions).map(|_| next()).collect()
    }

    #[test]
    fn the_mixes_are_those_of_the_table() {
        for (letter, kind, share) in [
            ('A', "Update", 0.5),
            ('B', "Update", 0.05),
            ('C', "Read", 1.0),
            ('D', "Insert", 0.05),
            ('E', "Scan", 0.95),
            ('F', "Modify", 0.5),
        ] {
            let ycsb = YcsbSettings::standard(letter, 1000).unwrap();
            let all: Vec<YcsbOperation> = draw(&ycsb, 2000, false).concat();
            assert_eq!(all.len(), 20_000);
            let of = all.iter().filter(|t| format!("{t:?}").starts_with(kind));
            let found = of.count() as f64 / 20_000.0;
            assert!((found - share).abs() < 0.02, "{letter}: {found} {kind}");
        }
        assert_eq!(YcsbSettings::standard('G', 1), None);
    }

    #[test]
    fn insertions_make_the_lanes_keys_one_after_the_other() {
        let ycsb = YcsbSettings::standard('D', 1000).unwrap();
        let all = draw(&ycsb, 200, false).concat();
        let inserted: Vec<u64> = all
            .iter()
            .filter_map(|todo| match todo {
                YcsbOperation::Insert(key) => Some(*key),
                _ => None,
            })
            .collect();
        let right: Vec<u64> = (0..inserted.len() as u64).map(|n| 1001 + 2 * n).collect();
        assert_eq!(inserted, right);
    }

    #[test]
    fn distinct_transactions_touch_no_key_twice() {
        let ycsb = YcsbSettings::standard('A', 20).unwrap();
        for todo in draw(&ycsb, 100, true) {
            let mut keys: Vec<u64> = todo.iter().map(|one| one.key()).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), todo.len());
        }
    }
}
