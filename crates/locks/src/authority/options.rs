//! How a table in memory is set up.

use std::time::Duration;

use crate::limits::LockLimits;

/// How a table in memory is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What clients may ask for.
    pub limits: LockLimits,
    /// Number of parts of the table; a power of two.
    pub shards: usize,
    /// Number of tokens that are reserved at a time; even.
    pub block: u64,
    /// Leases up to this length are allowed from the beginning. Longer ones make a restart wait
    /// longer, and the first of them waits for a ledger.
    pub first_bound: Duration,
    /// Time that a new life waits besides the longest lease and a thirty-first part of it.
    pub margin: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: LockLimits::default(),
            shards: 64,
            block: 1 << 20,
            first_bound: Duration::from_secs(10),
            margin: Duration::from_millis(500),
        }
    }
}
