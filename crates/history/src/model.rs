//! A history: the reads and writes of every transaction, the time when it ran, and its outcome.
//!
//! A checker relies on these rules, which the recorder of a history must keep:
//! 1. No two writes of one key have the same value. A read thereby names the write that it saw.
//! 2. `start` was taken before the transaction's first operation was sent, `end` after its outcome
//!    was known, both from one monotone clock common to all processes.
//! 3. The operations are those of the attempt that counted, in their order. A read or a scan after
//!    a write of the same transaction sees that write.
//! 4. Keys do not exist before the history begins. Data loaded beforehand is a transaction of its
//!    own.

use std::collections::HashMap;

/// A value that is written. Unique among the writes of one key.
pub type Value = i64;

/// A key of one [`History`]: an index into its names, which are in byte order, so that keys
/// compare as their names do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub u32);

/// One operation and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryOp {
    /// The key's value, or `None` when it was absent.
    Read {
        /// The key.
        key: Key,
        /// The value that was seen.
        value: Option<Value>,
        /// The version that the store reports for this value; see [`crate::json`].
        version: Option<u64>,
    },
    /// The key got a value.
    Write {
        /// The key.
        key: Key,
        /// The new value.
        value: Value,
        /// The version that the store gave to it.
        version: Option<u64>,
    },
    /// The key was removed. A removal that found nothing is recorded as a read of nothing.
    Delete {
        /// The key.
        key: Key,
        /// The version that the store gave to the absence.
        version: Option<u64>,
    },
    /// All keys from `from` up to, not including, `to` (`None`: the end).
    Scan {
        /// The first name of the range, not necessarily of a key that exists.
        from: Key,
        /// The name behind the range.
        to: Option<Key>,
        /// The keys and values that were found, in the order of the answer.
        found: Vec<(Key, Value)>,
    },
}

/// The outcome of a transaction, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took effect.
    Committed,
    /// It did not take effect.
    Aborted,
    /// The client got no answer: the connection broke, or the server died. It may take effect at
    /// any later time.
    Unknown,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedTransaction {
    /// The client that ran it.
    pub process: u32,
    /// Unique in the history.
    pub id: u64,
    /// Nanoseconds since the history began.
    pub start: u64,
    /// Nanoseconds since the history began, not before `start`.
    pub end: u64,
    /// The outcome.
    pub outcome: Outcome,
    /// The operations, in order.
    pub ops: Vec<HistoryOp>,
}

/// A recorded history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    names: Vec<Box<str>>,
    /// The transactions, by start.
    pub transactions: Vec<RecordedTransaction>,
}

impl History {
    /// Returns the name of a key.
    ///
    /// # Panics
    /// Panics if the key is another history's.
    #[must_use]
    pub fn name(&self, key: Key) -> &str {
        &self.names[key.0 as usize]
    }

    /// Returns the number of names: keys, and bounds of scans.
    #[must_use]
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// Returns the history of the keys whose names `counts` accepts, without transactions that then
    /// do nothing; for stores that guarantee different things for different keys. Scans are left
    /// out.
    #[must_use]
    pub fn of_keys(&self, counts: impl Fn(&str) -> bool) -> History {
        let transactions = self.transactions.iter().filter_map(|transaction| {
            let ops = transaction.ops.iter().filter(|op| match op {
                HistoryOp::Read { key, .. }
                | HistoryOp::Write { key, .. }
                | HistoryOp::Delete { key, .. } => counts(self.name(*key)),
                HistoryOp::Scan { .. } => false,
            });
            let ops: Vec<HistoryOp> = ops.cloned().collect();
            (!ops.is_empty()).then_some(RecordedTransaction {
                ops,
                ..*transaction
            })
        });
        History {
            names: self.names.clone(),
            transactions: transactions.collect(),
        }
    }

    /// Assembles parts whose keys are numbered by the order of their first appearance.
    pub(crate) fn assemble(parts: Vec<(Names, Vec<RecordedTransaction>)>) -> History {
        let mut all: Vec<Box<str>> = parts
            .iter()
            .flat_map(|(names, _)| names.list.iter().cloned())
            .collect();
        all.sort_unstable();
        all.dedup();
        let mut transactions = Vec::with_capacity(parts.iter().map(|(_, part)| part.len()).sum());
        for (names, mut part) in parts {
            let place = |name: &str| Key(all.partition_point(|other| &**other < name) as u32);
            let places: Vec<Key> = names.list.iter().map(|name| place(name)).collect();
            part.iter_mut()
                .flat_map(|transaction| &mut transaction.ops)
                .for_each(|op| {
                    op.rename(|key| places[key.0 as usize]);
                });
            transactions.append(&mut part);
        }
        transactions.sort_by_key(|transaction| (transaction.start, transaction.end));
        History {
            names: all,
            transactions,
        }
    }
}

impl HistoryOp {
    fn rename(&mut self, name: impl Fn(Key) -> Key) {
        match self {
            HistoryOp::Read { key, .. }
            | HistoryOp::Write { key, .. }
            | HistoryOp::Delete { key, .. } => {
                *key = name(*key);
            }
            HistoryOp::Scan { from, to, found } => {
                *from = name(*from);
                *to = to.map(&name);
                found.iter_mut().for_each(|(key, _)| *key = name(*key));
            }
        }
    }
}

/// Names in the order of their first appearance.
#[derive(Default)]
pub(crate) struct Names {
    list: Vec<Box<str>>,
    places: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
}

impl Names {
    pub(crate) fn key(&mut self, name: &str) -> Key {
        if let Some(&place) = self.places.get(name) {
            return Key(place);
        }
        let place = self.list.len() as u32;
        self.list.push(name.into());
        self.places.insert(name.into(), place);
        Key(place)
    }
}
