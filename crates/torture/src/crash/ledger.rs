//! The books outside of the server: what was acknowledged, and which states are allowed afterwards.

use std::collections::BTreeSet;

use crate::crash::load::Log;
use crate::crash::op::{
    ACCOUNTS, COUNTERS, GROUPS, OWN_KEYS, account_key, counter_key, group_keys, own_key,
};
use crate::crash::private_keys::PrivateKeys;
use crate::crash::shared_keys::{Accounts, KeyCounters, KeyGroups};
use crate::crash::verdict::{CrashVerdict, FoundKeys};

/// The books of all keys of one data directory.
#[derive(Debug)]
pub struct CrashLedger {
    own: Vec<PrivateKeys>,
    counters: KeyCounters,
    accounts: Accounts,
    groups: KeyGroups,
    names: BTreeSet<String>,
}

impl CrashLedger {
    /// Creates the books of an empty store which `connections` connections will write.
    #[must_use]
    pub fn new(connections: usize) -> CrashLedger {
        let own = (0..connections).flat_map(|c| (0..OWN_KEYS).map(move |k| own_key(c, k)));
        let names = own
            .chain((0..COUNTERS).map(counter_key))
            .chain((0..ACCOUNTS).map(account_key))
            .chain((0..GROUPS).flat_map(group_keys))
            .collect();
        CrashLedger {
            own: (0..connections).map(PrivateKeys::new).collect(),
            counters: KeyCounters::default(),
            accounts: Accounts::default(),
            groups: KeyGroups::default(),
            names,
        }
    }

    /// As [`CrashLedger::new`], for a store on several nodes.
    #[must_use]
    pub fn scattered(connections: usize) -> CrashLedger {
        CrashLedger {
            own: (0..connections).map(PrivateKeys::scattered).collect(),
            ..CrashLedger::new(connections)
        }
    }

    /// Returns all keys that any connection writes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Judges the state that was found after a round. The next round starts from that state.
    pub fn judge(&mut self, logs: Vec<Log>, found: &FoundKeys) -> CrashVerdict {
        let mut verdict = CrashVerdict::default();
        for (own, log) in self.own.iter_mut().zip(&logs) {
            own.judge(&log.records, found, &mut verdict);
        }
        let mut records = Vec::new();
        for log in logs {
            verdict.wrong.extend(log.complaint);
            records.extend(log.records);
        }
        self.counters.judge(&records, found, &mut verdict);
        self.accounts.judge(&records, found, &mut verdict);
        self.groups.judge(&records, found, &mut verdict);
        for name in found
            .cells
            .keys()
            .filter(|name| !self.names.contains(*name))
        {
            verdict
                .wrong
                .push(format!("the key {name} was written by no client"));
        }
        let acked = records
            .iter()
            .filter(|r| r.op.writes() && r.acked.is_some());
        verdict.acknowledged = acked.count() as u64;
        verdict
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
