//! The work of transactions, and how its correctness is checked.
//!
//! | workload | transactions | verified by |
//! |---|---|---|
//! | [`YcsbSettings`] | operations on keys that a distribution draws | the [stamp](crate::stamp) of every value that is read; after the run every key, and the [`LastWrites`] of what was acknowledged |
//! | [`TransferSettings`] | amounts moved between accounts, and audits | the sum, in every audit and after the run |
//!
//! A workload is data. It is independent of the system that runs it.

mod last_writes;
mod ycsb;

use serde::{Deserialize, Serialize};

pub use last_writes::{ClientWrites, LastWrites};
pub use ycsb::{Generator, Mix, YcsbOperation, YcsbSettings};

/// The work of transactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadSettings {
    /// Operations on records.
    Ycsb(YcsbSettings),
    /// Amounts moved between accounts.
    Transfers(TransferSettings),
}

/// Transfers between accounts, after [`testkit::workload::transfers`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferSettings {
    /// The number of accounts.
    pub accounts: usize,
    /// One transaction in so many is an audit.
    pub audit_every: usize,
}

impl TransferSettings {
    /// Returns the workload's options; each account begins with the same balance.
    #[must_use]
    pub fn options(&self) -> testkit::workload::transfers::Options {
        testkit::workload::transfers::Options {
            accounts: self.accounts,
            audit_every: self.audit_every,
            ..Default::default()
        }
    }
}
