//! What a table asks its driver to do.

use super::ledger::Ledger;
use crate::error::LockError;
use crate::lock::{Answer, Ticket};

/// A request of a table to its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum AuthorityCommand {
    /// Keep this ledger durably in the place of the one before, and report to
    /// [`Authority::ledger_kept`](super::Authority::ledger_kept). There is one such command at a time; when it is reported as
    /// failed, the ledger must not be kept later.
    KeepLedger(Ledger),
    /// The answer to a request that waited.
    Answer {
        /// The request.
        ticket: Ticket,
        /// Its answer.
        outcome: Result<Answer, LockError>,
    },
}
