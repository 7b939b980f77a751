//! How a table that a partition keeps is set up.

use std::time::Duration;

use crate::limits::LockLimits;

/// How a table that a partition keeps is set up. All proxies of a table have the same `prefix`, and
/// should have the same margins.
#[derive(Clone, Debug)]
pub struct Options {
    /// What clients may ask for.
    pub limits: LockLimits,
    /// The prefix of the table's keys in the partition.
    pub prefix: Vec<u8>,
    /// Time to wait after a lease, besides a thirty-first part of it: clocks differ in speed.
    pub margin: Duration,
    /// The longest time for a request that waits for no other holder.
    pub request_timeout: Duration,
    /// The longest time for a transaction. Shorter than `request_timeout`, so that requests outlive
    /// a transaction that is lost.
    pub transaction_timeout: Duration,
    /// Most transactions under way at once.
    pub transactions: usize,
    /// Most keys in a transaction.
    pub batch: usize,
    /// Intervals at which the partition is asked for a key that a request waits for: the first one,
    /// and the longest; they double from one to the other.
    pub poll: (Duration, Duration),
    /// Interval at which all records are scanned for those whose proxies have gone.
    pub sweep: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: LockLimits::default(),
            prefix: b"lock/".to_vec(),
            margin: Duration::from_millis(50),
            request_timeout: Duration::from_secs(5),
            transaction_timeout: Duration::from_secs(1),
            transactions: 4,
            batch: 64,
            poll: (Duration::from_millis(5), Duration::from_millis(250)),
            sweep: Duration::from_secs(30),
        }
    }
}
