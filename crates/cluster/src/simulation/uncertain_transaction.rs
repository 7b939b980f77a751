//! Transactions about which their clients do not know everything: whether they took effect, or what they
//! replaced.
//!
//! The logs tell, once everything has come to rest. A transaction that is there counts as committed,
//! another one as aborted, so that a read that has seen it shows the mistake; a transaction that was
//! acknowledged must be there. What a transaction replaced is taken from the logs, too: a checker need
//! not guess the order of writes.

use std::collections::BTreeSet;
use std::time::Duration;

use base::PartitionId;
use history::Outcome;

use super::client_transaction::{ClientStep, ClientTransaction, HistoryOps, text_of};
use super::environment::Environment;
use super::keys::Keys;
use super::machines::SimulatedMachines;
use super::memory_log::LogPosition;
use crate::topology::Topology;

/// A transaction about which its client does not know everything.
pub(super) struct UncertainTransaction {
    pub(super) process: u32,
    pub(super) start: Duration,
    /// When its client got the answer that it took effect, if it got one.
    pub(super) acknowledged: Option<Duration>,
    /// The partition of the node that coordinated it.
    pub(super) own: Option<PartitionId>,
    pub(super) transaction: ClientTransaction,
}

/// A key that a transaction wrote, and where.
struct FoundTransaction {
    name: Vec<u8>,
    partition: PartitionId,
    place: LogPosition,
}

impl UncertainTransaction {
    /// Records transactions in doubt.
    pub(super) fn record_all(
        env: &mut Environment,
        machines: &SimulatedMachines,
        uncertain: Vec<UncertainTransaction>,
    ) {
        for uncertain_transaction in uncertain {
            uncertain_transaction.record(env, machines);
            if env.failure.is_some() {
                return;
            }
        }
    }

    fn record(self, env: &mut Environment, machines: &SimulatedMachines) {
        let logs = PartitionLogs {
            keys: &env.keys,
            topology: &env.topology,
            machines,
        };
        let (outcome, end, ops) = match (logs.find(&self.transaction), self.acknowledged) {
            (Some(found), acknowledged) => {
                let end = acknowledged.unwrap_or(found.place.at);
                (Outcome::Committed, end, logs.history_ops(&self, &found))
            }
            (None, Some(_)) => {
                let steps = &self.transaction.steps;
                return env.fail(format!("{steps:?} was acknowledged and is not there"));
            }
            (None, None) => {
                let ops = self.transaction.attempted(&env.keys, self.own);
                (Outcome::Aborted, env.now, ops)
            }
        };
        let time = (self.start, end.max(self.start));
        env.recorded_history
            .record(self.process, time, outcome, &ops);
    }
}

/// What the logs of all partitions tell.
struct PartitionLogs<'w> {
    keys: &'w Keys,
    topology: &'w Topology,
    machines: &'w SimulatedMachines,
}

impl PartitionLogs<'_> {
    /// Finds a transaction in the logs, by its mark or the first value that it puts.
    fn find(&self, transaction: &ClientTransaction) -> Option<FoundTransaction> {
        let mark = transaction.steps.iter().find_map(|step| match step {
            ClientStep::Mark(name, partition) => Some((name.clone(), &b"1"[..], *partition)),
            _ => None,
        });
        let put = || {
            transaction.steps.iter().find_map(|step| match step {
                ClientStep::Put(at, _, text) => {
                    let key = &self.keys.recorded[*at];
                    Some((key.name.clone().into_bytes(), &text[..], key.partition))
                }
                _ => None,
            })
        };
        // A transaction that removes a key leaves a mark, which no other transaction writes.
        let (name, value, partition) = mark.or_else(put)?;
        let place = self
            .machines
            .with_log(self.topology, partition, |log| log.find_put(&name, value))?;
        Some(FoundTransaction {
            name,
            partition,
            place,
        })
    }

    /// Returns the history's operations of a transaction that took effect.
    fn history_ops(
        &self,
        uncertain_transaction: &UncertainTransaction,
        found: &FoundTransaction,
    ) -> String {
        let mut lines = HistoryOps::new(self.keys);
        let mut touched = BTreeSet::new();
        for step in &uncertain_transaction.transaction.steps {
            match step {
                ClientStep::Put(key, value, text) => {
                    if touched.insert(*key)
                        && let Some(before) = self.before(*key, found, Some(text))
                    {
                        lines.read(*key, before);
                    }
                    lines.write(*key, *value);
                }
                ClientStep::Delete(key) if touched.insert(*key) => {
                    self.history_removal(&mut lines, *key, found);
                }
                ClientStep::Flush => {
                    for key in 0..self.keys.recorded.len() {
                        let is_there =
                            Some(self.keys.recorded[key].partition) == uncertain_transaction.own;
                        if is_there && touched.insert(key) {
                            self.history_removal(&mut lines, key, found);
                        }
                    }
                }
                _ => {}
            }
        }
        lines.text
    }

    fn history_removal(&self, lines: &mut HistoryOps<'_>, key: usize, found: &FoundTransaction) {
        if let Some(before) = self.before(key, found, None) {
            lines.read(key, before);
            if before.is_some() {
                lines.delete(key);
            }
        }
    }

    /// Returns the value of a key before a transaction that put `put` there or removed it. Returns
    /// `None` if the transaction has left nothing there.
    fn before(
        &self,
        key: usize,
        found: &FoundTransaction,
        put: Option<&[u8]>,
    ) -> Option<Option<i64>> {
        let key = &self.keys.recorded[key];
        let name = key.name.as_bytes();
        self.machines.with_log(self.topology, key.partition, |log| {
            let tid = match put {
                Some(value) => log.find_put(name, value)?.tid,
                None if key.partition == found.partition => found.place.tid,
                None => log.find_sibling(name, &found.name)?.tid,
            };
            Some(log.value_before(name, tid).and_then(text_of))
        })
    }
}
