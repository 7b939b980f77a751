//! Read-atomic transactions (paper 1, section 2.2; RAMP): a reader sees all or nothing of what a
//! transaction wrote, without locks.
//!
//! | module | what |
//! |---|---|
//! | `classify` | which transactions are read atomic, and which are refused |
//! | [`filter`] | the filter of RAMP-Hybrid |
//! | [`read`] | a read, step by step |
//! | [`write`](mod@write) | a write that its client coordinates, step by step |
//! | [`slots`] | published versions that other processes read without the server |
//! | `key_query` | the question of each of a read's operations |
//! | `published_slots` | where the slots of a node's keys are |
//!
//! A write is a two-phase commit that holds nothing: each participant keeps its part beside the newest
//! versions, and makes it the newest only when all have it. A reader that finds one part as the newest
//! version at one partition, and not yet at another, asks the other for the part that it keeps.

mod classify;
pub mod filter;
mod key_query;
pub(crate) mod published_slots;
pub mod read;
pub mod slots;
pub mod write;

use std::fmt;
use std::str::FromStr;

use base::change::siblings;

pub use classify::{ReadAtomicRefusal, TransactionClass, check_one_kind, classify};
pub use published_slots::{PublishedSlots, RegionAccess, Renewal, UnknownRenewal};
pub use read::{ReadAtomicRead, ReadStep};
pub use write::{ReadAtomicWrite, WriteStage, WriteStep};

/// What a version tells of the keys that were written with it, and how many rounds a read takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// RAMP-Fast: all keys. A read needs one round, two if it meets a writer.
    #[default]
    Fast,
    /// RAMP-Small: nothing. A read always needs two rounds.
    Small,
    /// RAMP-Hybrid: a filter of a fixed size. A read needs one round, two if it meets a writer or the
    /// filter has a key in error.
    Hybrid,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Algorithm; 3] = [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid];

    /// Returns the name that options and results use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Fast => "fast",
            Algorithm::Small => "small",
            Algorithm::Hybrid => "hybrid",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no algorithm has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no algorithm: take fast, small or hybrid")]
pub struct UnknownAlgorithm(String);

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let known = Algorithm::ALL.into_iter().find(|one| one.name() == name);
        known.ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}

/// Returns what each version tells of the keys that are written; see [`base::change::siblings`]. The
/// keys may come in any order and repeatedly.
#[must_use]
pub fn siblings<'k>(algorithm: Algorithm, keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<u8> {
    match algorithm {
        Algorithm::Fast => {
            let mut sorted: Vec<&[u8]> = keys.into_iter().collect();
            sorted.sort_unstable();
            sorted.dedup();
            let mut bytes = Vec::new();
            sorted
                .iter()
                .for_each(|key| siblings::push(&mut bytes, key));
            bytes
        }
        Algorithm::Small => siblings::untold(),
        Algorithm::Hybrid => siblings::filtered(&filter::of(keys)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_are_known_by_their_names() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        let error = "Fast".parse::<Algorithm>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"Fast\" is no algorithm: take fast, small or hybrid"
        );
    }

    #[test]
    fn siblings_tell_what_their_algorithm_lets_them() {
        let keys: [&[u8]; 3] = [b"b", b"a", b"b"];
        let fast = siblings(Algorithm::Fast, keys);
        let told: Vec<_> = siblings::iter(&fast).collect();
        assert_eq!(told, [Some(&b"a"[..]), Some(b"b")]);
        let small = siblings(Algorithm::Small, keys);
        assert_eq!(siblings::read(&small), Some(siblings::Siblings::Untold));
        let hybrid = siblings(Algorithm::Hybrid, keys);
        let Some(siblings::Siblings::Filter(filter)) = siblings::read(&hybrid) else {
            panic!("{hybrid:?}");
        };
        assert!(filter::has(filter, b"a") && filter::has(filter, b"b"));
        assert!(!filter::has(filter, b"c"));
    }
}
