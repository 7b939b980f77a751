//! A partition's state of its keys: their holders, and their newest versions.

use std::collections::HashMap;
use std::rc::Rc;

/// A transaction, by its place.
pub(super) type TxnId = usize;

/// A committed version.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// Greater than those of earlier versions; 0 for the initial version.
    pub(super) id: u64,
    /// All keys that were written with it.
    pub(super) keys: Rc<[u64]>,
}

/// One part of a transaction that must be prepared.
#[derive(Clone, Debug)]
pub(super) struct PreparedPart {
    pub(super) txn: TxnId,
    pub(super) attempt: u32,
    /// The lower, the older: an older transaction waits, a younger one dies.
    pub(super) age: u64,
    pub(super) keys: Rc<[u64]>,
    pub(super) writes: bool,
}

#[derive(Clone, Default)]
struct LockHolders {
    readers: Vec<(u64, TxnId)>,
    writer: Option<(u64, TxnId)>,
}

/// The outcome of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    Yes,
    No,
    /// It waits for younger ones.
    Waits,
}

/// A partition.
#[derive(Default)]
pub(super) struct Partition {
    newest: HashMap<u64, Version, foldhash::fast::FixedState>,
    holds: HashMap<u64, LockHolders, foldhash::fast::FixedState>,
    waiting: Vec<PreparedPart>,
}

impl Partition {
    /// Returns the newest version of a key.
    pub(super) fn newest(&self, key: u64) -> Option<&Version> {
        self.newest.get(&key)
    }

    /// Returns the id of the newest version.
    pub(super) fn newest_id(&self, key: u64) -> u64 {
        self.newest(key).map_or(0, |version| version.id)
    }

    /// Makes this the newest version of a key, if it is.
    pub(super) fn install(&mut self, key: u64, version: Version) {
        if version.id > self.newest_id(key) {
            self.newest.insert(key, version);
        }
    }

    /// Holds the keys of a part, or lets it wait, or refuses it.
    pub(super) fn hold(&mut self, part: &PreparedPart) -> Vote {
        let mut vote = Vote::Yes;
        for key in &*part.keys {
            let Some(hold) = self.holds.get(key) else {
                continue;
            };
            let readers = hold.readers.iter().filter(|_| part.writes);
            for &(age, txn) in readers.chain(&hold.writer) {
                if txn == part.txn {
                    continue;
                }
                if age < part.age {
                    return Vote::No;
                }
                vote = Vote::Waits;
            }
        }
        match vote {
            Vote::Yes => {
                for &key in &*part.keys {
                    let hold = self.holds.entry(key).or_default();
                    let holder = (part.age, part.txn);
                    match part.writes {
                        true => hold.writer = Some(holder),
                        false => hold.readers.push(holder),
                    }
                }
            }
            _ => self.waiting.push(part.clone()),
        }
        vote
    }

    /// Gives up the keys that a transaction holds or waits for here. Returns the parts that need
    /// not wait any more, with their votes.
    pub(super) fn release(&mut self, txn: TxnId, keys: &[u64]) -> Vec<(PreparedPart, Vote)> {
        self.waiting.retain(|part| part.txn != txn);
        for key in keys {
            let Some(hold) = self.holds.get_mut(key) else {
                continue;
            };
            hold.readers.retain(|(_, other)| *other != txn);
            hold.writer = hold.writer.filter(|(_, other)| *other != txn);
            if hold.readers.is_empty() && hold.writer.is_none() {
                self.holds.remove(key);
            }
        }
        let concerned = |part: &PreparedPart| part.keys.iter().any(|key| keys.contains(key));
        let (mut again, rest): (Vec<PreparedPart>, Vec<PreparedPart>) =
            std::mem::take(&mut self.waiting)
                .into_iter()
                .partition(concerned);
        self.waiting = rest;
        // The oldest first: then no younger one blocks it.
        again.sort_by_key(|part| part.age);
        let mut votes = Vec::new();
        for part in again {
            let vote = self.hold(&part);
            if vote != Vote::Waits {
                votes.push((part, vote));
            }
        }
        votes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(txn: TxnId, keys: &[u64], writes: bool) -> PreparedPart {
        PreparedPart {
            txn,
            attempt: 1,
            age: txn as u64,
            keys: keys.into(),
            writes,
        }
    }

    fn votes(released: &[(PreparedPart, Vote)]) -> Vec<(TxnId, Vote)> {
        released
            .iter()
            .map(|(part, vote)| (part.txn, *vote))
            .collect()
    }

    #[test]
    fn the_older_waits_and_the_younger_dies() {
        let mut partition = Partition::default();
        assert_eq!(partition.hold(&part(5, &[1, 2], true)), Vote::Yes);
        assert_eq!(partition.hold(&part(6, &[2, 3], true)), Vote::No);
        assert_eq!(partition.hold(&part(4, &[2, 3], false)), Vote::Waits);
        assert_eq!(votes(&partition.release(5, &[1, 2])), [(4, Vote::Yes)]);
        assert_eq!(partition.hold(&part(6, &[3], true)), Vote::No);
        assert_eq!(partition.hold(&part(6, &[3], false)), Vote::Yes);
        assert_eq!(partition.hold(&part(3, &[3], true)), Vote::Waits);
        assert_eq!(votes(&partition.release(4, &[2, 3])), []);
        assert_eq!(votes(&partition.release(6, &[3])), [(3, Vote::Yes)]);
    }

    #[test]
    fn versions_only_grow() {
        let mut partition = Partition::default();
        let version = |id| Version {
            id,
            keys: [7].into(),
        };
        partition.install(7, version(5));
        partition.install(7, version(3));
        assert_eq!(partition.newest_id(7), 5);
        assert_eq!(partition.newest_id(8), 0);
    }
}
