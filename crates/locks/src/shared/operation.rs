//! Operations of transactions that own their bytes.

use base::ids::Version;
use base::transaction::{Expiry, Op, ScanContents, Transaction, When};

/// An operation of a transaction: the subset of [`base::transaction::Op`] that a table needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// [`Op::Check`].
    Check {
        /// The key.
        key: Vec<u8>,
        /// Its version.
        version: Version,
    },
    /// [`Op::Require`] that the key is present.
    Require {
        /// The key.
        key: Vec<u8>,
    },
    /// [`Op::Watch`].
    Watch {
        /// The key.
        key: Vec<u8>,
    },
    /// [`Op::Get`].
    Get {
        /// The key.
        key: Vec<u8>,
    },
    /// [`Op::ExpiryOf`].
    ExpiryOf {
        /// The key.
        key: Vec<u8>,
    },
    /// [`Op::Put`].
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// The condition.
        when: When,
        /// Time that the key stays after the transaction's time, in milliseconds; `None`: for good.
        expires_in_ms: Option<i64>,
    },
    /// [`Op::Scan`] with values.
    Scan {
        /// The first key.
        from: Vec<u8>,
        /// The key after the last one; `None`: to the end.
        to: Option<Vec<u8>>,
        /// Largest number of keys.
        limit: usize,
    },
}

impl Operation {
    /// Returns the operation in the form for a partition.
    #[must_use]
    pub fn as_op(&self) -> Op<'_> {
        match self {
            Operation::Check { key, version } => Op::Check {
                key,
                version: *version,
            },
            Operation::Require { key } => Op::Require { key, present: true },
            Operation::Watch { key } => Op::Watch { key },
            Operation::Get { key } => Op::Get { key },
            Operation::ExpiryOf { key } => Op::ExpiryOf { key },
            Operation::Put {
                key,
                value,
                when,
                expires_in_ms,
            } => Op::Put {
                key,
                value,
                when: *when,
                expiry: expires_in_ms.map_or(Expiry::Never, Expiry::InMs),
                get: false,
            },
            Operation::Scan { from, to, limit } => Op::Scan {
                from,
                to: to.as_deref(),
                limit: *limit,
                contents: ScanContents::Values,
            },
        }
    }
}

/// Returns the transaction of these operations.
#[must_use]
pub fn transaction(operations: &[Operation]) -> Transaction<'_> {
    Transaction::new(operations.iter().map(Operation::as_op).collect())
}
