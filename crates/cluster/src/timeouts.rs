//! Time limits of a node.

use std::time::Duration;

/// Time limits of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For another node's answer. Then the attempt is given up.
    pub answer: Duration,
    /// For keys that another transaction holds.
    pub hold: Duration,
    /// For a transaction, all its attempts together. An outcome that is not known by then is
    /// reported as such.
    pub transaction: Duration,
    /// For a node that cannot be reached, before the caller gets an error.
    pub unreachable: Duration,
    /// After being prepared for this long without a decision, a participant asks.
    pub doubt: Duration,
    /// After being committed for this long without a notice to forget, a participant asks.
    pub forget: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            answer: Duration::from_secs(5),
            hold: Duration::from_secs(10),
            transaction: Duration::from_secs(20),
            unreachable: Duration::from_secs(1),
            doubt: Duration::from_secs(1),
            forget: Duration::from_secs(5),
        }
    }
}
