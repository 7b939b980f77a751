//! What a table asks its driver to do.

use super::operation::Operation;
use crate::error::LockError;
use crate::lock::{Answer, Ticket};

/// Names a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransactionNumber(pub u64);

/// A request of a table to its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum SharedCommand {
    /// Execute a transaction in the partition, and report its result to [`Shared::transacted`](super::Shared::transacted). A
    /// transaction that takes longer than [`Options::transaction_timeout`](super::Options::transaction_timeout) counts as unknown.
    Transact {
        /// The transaction's number.
        number: TransactionNumber,
        /// Its operations.
        operations: Vec<Operation>,
    },
    /// The answer to a request.
    Answer {
        /// The request.
        ticket: Ticket,
        /// Its answer.
        outcome: Result<Answer, LockError>,
    },
}
