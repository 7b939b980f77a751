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

use super::book::Place;
use super::environment::Environment;
use super::job::{Job, Lines, Step, text_of};
use super::keys::Keys;
use super::machines::Machines;
use crate::topology::Topology;

/// A transaction about which its client does not know everything.
pub(super) struct Doubt {
    pub(super) process: u32,
    pub(super) start: Duration,
    /// When its client got the answer that it took effect, if it got one.
    pub(super) told: Option<Duration>,
    /// The partition of the node that coordinated it.
    pub(super) own: Option<PartitionId>,
    pub(super) job: Job,
}

/// A key that a transaction wrote, and where.
struct Found {
    name: Vec<u8>,
    partition: PartitionId,
    place: Place,
}

impl Doubt {
    /// Records transactions in doubt.
    pub(super) fn settle_all(env: &mut Environment, machines: &Machines, doubts: Vec<Doubt>) {
        for doubt in doubts {
            doubt.settle(env, machines);
            if env.failure.is_some() {
                return;
            }
        }
    }

    fn settle(self, env: &mut Environment, machines: &Machines) {
        let logs = Logs {
            keys: &env.keys,
            topology: &env.topology,
            machines,
        };
        let (outcome, end, ops) = match (logs.find(&self.job), self.told) {
            (Some(found), told) => {
                let end = told.unwrap_or(found.place.at);
                (Outcome::Committed, end, logs.retell(&self, &found))
            }
            (None, Some(_)) => {
                let steps = &self.job.steps;
                return env.fail(format!("{steps:?} was acknowledged and is not there"));
            }
            (None, None) => {
                let ops = self.job.attempted(&env.keys, self.own);
                (Outcome::Aborted, env.now, ops)
            }
        };
        let time = (self.start, end.max(self.start));
        env.chronicle.record(self.process, time, outcome, &ops);
    }
}

/// What the logs of all partitions tell.
struct Logs<'w> {
    keys: &'w Keys,
    topology: &'w Topology,
    machines: &'w Machines,
}

impl Logs<'_> {
    /// Finds a transaction in the logs, by its mark or the first value that it puts.
    fn find(&self, job: &Job) -> Option<Found> {
        let mark = job.steps.iter().find_map(|step| match step {
            Step::Mark(name, partition) => Some((name.clone(), &b"1"[..], *partition)),
            _ => None,
        });
        let put = || {
            job.steps.iter().find_map(|step| match step {
                Step::Put(at, _, text) => {
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
            .with_log(self.topology, partition, |book| book.find_put(&name, value))?;
        Some(Found {
            name,
            partition,
            place,
        })
    }

    /// Returns the history's operations of a transaction that took effect.
    fn retell(&self, doubt: &Doubt, found: &Found) -> String {
        let mut lines = Lines::new(self.keys);
        let mut touched = BTreeSet::new();
        for step in &doubt.job.steps {
            match step {
                Step::Put(key, value, text) => {
                    if touched.insert(*key)
                        && let Some(before) = self.before(*key, found, Some(text))
                    {
                        lines.read(*key, before);
                    }
                    lines.write(*key, *value);
                }
                Step::Delete(key) if touched.insert(*key) => {
                    self.retell_removal(&mut lines, *key, found);
                }
                Step::Flush => {
                    for key in 0..self.keys.recorded.len() {
                        let is_there = Some(self.keys.recorded[key].partition) == doubt.own;
                        if is_there && touched.insert(key) {
                            self.retell_removal(&mut lines, key, found);
                        }
                    }
                }
                _ => {}
            }
        }
        lines.text
    }

    fn retell_removal(&self, lines: &mut Lines<'_>, key: usize, found: &Found) {
        if let Some(before) = self.before(key, found, None) {
            lines.read(key, before);
            if before.is_some() {
                lines.delete(key);
            }
        }
    }

    /// Returns the value of a key before a transaction that put `put` there or removed it. Returns
    /// `None` if the transaction has left nothing there.
    fn before(&self, key: usize, found: &Found, put: Option<&[u8]>) -> Option<Option<i64>> {
        let key = &self.keys.recorded[key];
        let name = key.name.as_bytes();
        self.machines
            .with_log(self.topology, key.partition, |book| {
                let tid = match put {
                    Some(value) => book.find_put(name, value)?.tid,
                    None if key.partition == found.partition => found.place.tid,
                    None => book.find_sibling(name, &found.name)?.tid,
                };
                Some(book.value_before(name, tid).and_then(text_of))
            })
    }
}
