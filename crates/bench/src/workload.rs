//! What transactions do, and how it is known that they did it right.
//!
//! | workload | transactions | verified by |
//! |---|---|---|
//! | [`Ycsb`] | operations on keys that a distribution draws | the [stamp](crate::stamp) of every value that is read; after the run every key, and the [`Book`] of what was acknowledged |
//! | [`Transfers`] | amounts moved between accounts, and audits | the sum, in every audit and after the run |
//!
//! A workload is data. It does not know what runs it.

mod book;
mod ycsb;

use serde::{Deserialize, Serialize};

pub use book::{Book, Ledger};
pub use ycsb::{Generator, Mix, Todo, Ycsb};

/// What transactions do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Operations on records.
    Ycsb(Ycsb),
    /// Amounts moved between accounts.
    Transfers(Transfers),
}

/// Transfers between accounts, after [`testkit::workload::transfers`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transfers {
    /// How many accounts there are.
    pub accounts: usize,
    /// Of every so many transactions one is an audit.
    pub audit_every: usize,
}

impl Transfers {
    /// The workload's options; each account begins with the same balance.
    #[must_use]
    pub fn options(&self) -> testkit::workload::transfers::Options {
        testkit::workload::transfers::Options {
            accounts: self.accounts,
            audit_every: self.audit_every,
            ..Default::default()
        }
    }
}
