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

use super::book::{Book, Place};
use super::job::{Job, Lines, Step, text_of};
use super::world::World;

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

impl World {
    /// Records the transactions in doubt.
    pub(super) fn settle_doubts(&mut self) {
        for doubt in std::mem::take(&mut self.finale.doubts) {
            let found = self.find(&doubt.job);
            let (outcome, end, ops) = match found {
                Some(found) => {
                    let ops = self.retell(&doubt, &found);
                    (
                        Outcome::Committed,
                        doubt.told.unwrap_or(found.place.at),
                        ops,
                    )
                }
                None if doubt.told.is_some() => {
                    let steps = &doubt.job.steps;
                    return self.fail(format!("{steps:?} was acknowledged and is not there"));
                }
                None => {
                    let ops = doubt.job.attempted(&self.keys, doubt.own);
                    (Outcome::Aborted, self.now, ops)
                }
            };
            let time = (doubt.start, end.max(doubt.start));
            self.chronicle.record(doubt.process, time, outcome, &ops);
        }
    }

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
        let place = self.with_book(partition, |book| book.find_put(&name, value))?;
        Some(Found {
            name,
            partition,
            place,
        })
    }

    fn with_book<T>(&self, of: PartitionId, ask: impl FnOnce(&Book) -> T) -> T {
        let node = usize::from(self.topology.node_of(of).0) - 1;
        let group = self.group_at(node);
        let book = group.map_or(&self.machines[node].book, |group| &self.groups[group].book);
        ask(&book.borrow())
    }

    /// Returns the history's operations of a transaction that took effect.
    fn retell(&self, doubt: &Doubt, found: &Found) -> String {
        let mut lines = Lines::new(&self.keys);
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
        self.with_book(key.partition, |book| {
            let tid = match put {
                Some(value) => book.find_put(name, value)?.tid,
                None if key.partition == found.partition => found.place.tid,
                None => book.find_sibling(name, &found.name)?.tid,
            };
            Some(book.value_before(name, tid).and_then(text_of))
        })
    }
}
