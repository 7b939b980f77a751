//! The key that an operation takes: uniform, zipfian, latest.
//!
//! Keys are numbers. Those below `records` are there from the beginning; later ones are inserted by
//! *lanes*, one for each writer: the *n*-th insertion of lane *l* of *L* makes key `records + n·L +
//! l`. A lane publishes how many of its insertions have committed, so that a thread that draws a
//! key draws one that is there.
//!
//! | distribution | a key's share |
//! |---|---|
//! | [`Distribution::Uniform`] | the same for all |
//! | [`Distribution::Zipfian`] | falls with its rank to the power of `theta`; ranks are scattered over the keys |
//! | [`Distribution::Latest`] | zipfian too, rank 0 is the newest key |
//!
//! The zipfian generator is that of Gray et al., *Quickly generating billion-record synthetic
//! databases* (SIGMOD 1994), which YCSB uses as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// An odd constant: multiplying by it permutes 64-bit numbers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// How keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Few are hot, and lie anywhere.
    Zipfian {
        /// The skew; YCSB's is 0.99.
        theta: f64,
    },
    /// The newest are hot, with the skew of [`Distribution::YCSB`].
    Latest,
}

impl Distribution {
    /// YCSB's zipfian distribution.
    pub const YCSB: Distribution = Distribution::Zipfian { theta: 0.99 };
}

/// Returns the bytes of key number `index`: eight, spread over the key space like hashed keys.
#[must_use]
pub fn encode(index: u64) -> [u8; 8] {
    index.wrapping_mul(SPREAD).to_be_bytes()
}

/// Returns the number of a key; `None` if this module cannot have made it.
#[must_use]
pub fn decode(key: &[u8]) -> Option<u64> {
    let word = u64::from_be_bytes(key.try_into().ok()?);
    Some(word.wrapping_mul(inverse(SPREAD)))
}

/// Returns the inverse of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut i = 0;
    while i < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        i += 1;
    }
    x
}

/// The keys that are there, shared by all threads that draw from them.
#[derive(Debug)]
pub struct Population {
    records: u64,
    committed: Vec<AtomicU64>,
}

impl Population {
    /// Creates a population of `records` keys, without insertions by its `lanes` writers.
    ///
    /// # Panics
    /// Panics if there is no key or no lane.
    #[must_use]
    pub fn new(records: u64, lanes: usize) -> Population {
        assert!(records > 0 && lanes > 0, "there are keys and writers");
        Population {
            records,
            committed: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the keys that are there from the beginning.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the key that insertion number `n` of `lane` makes.
    #[must_use]
    pub fn inserted(&self, lane: usize, n: u64) -> u64 {
        self.records + n * self.committed.len() as u64 + lane as u64
    }

    /// Records that the first `n` insertions of `lane` have committed.
    pub fn commit(&self, lane: usize, n: u64) {
        self.committed[lane].store(n, Ordering::Release);
    }

    /// Returns all keys that are there.
    pub fn all(&self) -> impl Iterator<Item = u64> + '_ {
        let inserted = self
            .committed
            .iter()
            .enumerate()
            .flat_map(move |(lane, n)| {
                (0..n.load(Ordering::Acquire)).map(move |n| self.inserted(lane, n))
            });
        (0..self.records).chain(inserted)
    }

    /// Returns the key of `rank` among the newest: those of a random lane, and after its insertions
    /// the first keys.
    fn newest(&self, rank: u64, rng: &mut Rng) -> u64 {
        let lanes = self.committed.len() as u64;
        let lane = rng.usize(..self.committed.len());
        let inserted = self.committed[lane].load(Ordering::Acquire);
        match inserted.checked_sub(1 + rank / lanes) {
            Some(n) => self.inserted(lane, n),
            None => self.records - 1 - (rank - inserted * lanes) % self.records,
        }
    }
}

/// Draws keys, for one thread.
#[derive(Clone, Debug)]
pub struct Chooser {
    distribution: Distribution,
    population: Arc<Population>,
    zipf: Option<Zipf>,
}

impl Chooser {
    /// Prepares to draw; zipfian distributions take time in proportion to the keys. Clone it for
    /// each thread.
    #[must_use]
    pub fn new(distribution: Distribution, population: Arc<Population>) -> Chooser {
        let theta = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipfian { theta } => Some(theta),
            Distribution::Latest => Some(0.99),
        };
        Chooser {
            distribution,
            zipf: theta.map(|theta| Zipf::new(population.records, theta)),
            population,
        }
    }

    /// Returns the next key's number.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let records = self.population.records;
        match (self.distribution, &self.zipf) {
            (Distribution::Zipfian { .. }, Some(zipf)) => scatter(zipf.rank(rng)) % records,
            (Distribution::Latest, Some(zipf)) => self.population.newest(zipf.rank(rng), rng),
            _ => rng.u64(..records),
        }
    }
}

/// Returns a hash of a rank, so that hot keys do not lie together.
fn scatter(rank: u64) -> u64 {
    let x = (rank ^ (rank >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Zipfian ranks from 0, the most frequent.
#[derive(Clone, Copy, Debug)]
struct Zipf {
    n: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    half: f64,
}

impl Zipf {
    fn new(n: u64, theta: f64) -> Zipf {
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let (all, two) = (zeta(n), zeta(2.min(n)));
        let n = n as f64;
        Zipf {
            n,
            zeta: all,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - two / all),
            half: 0.5f64.powf(theta),
        }
    }

    fn rank(&self, rng: &mut Rng) -> u64 {
        let u = rng.f64();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + self.half {
            return 1;
        }
        let rank = self.n * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, population: &Arc<Population>, draws: usize) -> Vec<u64> {
        let chooser = Chooser::new(distribution, Arc::clone(population));
        let mut rng = Rng::with_seed(3);
        let mut counts = vec![0; population.all().max().unwrap() as usize + 1];
        for _ in 0..draws {
            counts[chooser.draw(&mut rng) as usize] += 1;
        }
        counts
    }

    #[test]
    fn keys_are_read_back() {
        for index in [0, 1, 999_999, u64::MAX] {
            assert_eq!(decode(&encode(index)), Some(index));
        }
        assert_eq!(decode(b"short"), None);
    }

    #[test]
    fn uniform_draws_all_keys_alike() {
        let population = Arc::new(Population::new(100, 1));
        let counts = counts(Distribution::Uniform, &population, 100_000);
        assert!(counts.iter().all(|n| (800..1200).contains(n)), "{counts:?}");
    }

    #[test]
    fn zipfian_ranks_have_their_shares() {
        let zipf = Zipf::new(1000, 0.99);
        let mut rng = Rng::with_seed(1);
        let draws = 200_000;
        let mut counts = vec![0u32; 1000];
        for _ in 0..draws {
            counts[zipf.rank(&mut rng) as usize] += 1;
        }
        for rank in [0usize, 1, 10, 100] {
            let share = f64::from(counts[rank]) / f64::from(draws);
            let right = (rank as f64 + 1.0).powf(-0.99) / zipf.zeta;
            let off = share / right;
            assert!(
                (0.75..1.33).contains(&off),
                "rank {rank}: {share} is not {right}"
            );
        }
    }

    #[test]
    fn zipfian_keys_are_scattered() {
        let population = Arc::new(Population::new(1000, 1));
        let counts = counts(Distribution::YCSB, &population, 100_000);
        let hottest = counts.iter().max().copied().unwrap();
        let place = counts.iter().position(|&n| n == hottest).unwrap();
        assert!(hottest > 10_000, "the hottest key has {hottest} of 100000");
        assert_eq!(place as u64, scatter(0) % 1000);
    }

    #[test]
    fn latest_draws_what_was_just_inserted_and_nothing_later() {
        let population = Arc::new(Population::new(1000, 2));
        population.commit(0, 50);
        population.commit(1, 50);
        let counts = counts(Distribution::Latest, &population, 100_000);
        let (old, new) = counts.split_at(1000);
        assert_eq!(new.len(), 100);
        let new: u64 = new.iter().sum();
        assert!(new > old.iter().sum(), "{new} of 100000 are new");
        assert!(counts[1098] + counts[1099] > counts[1000] + counts[1001]);
    }
}
