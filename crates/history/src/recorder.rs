//! Recording from many threads.
//!
//! Every thread has a [`HistoryLog`] of its own and shares nothing with the others until it ends, so that
//! recording changes the timing of the transactions as little as possible.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::model::{History, HistoryOp, Key, Names, Outcome, RecordedTransaction, Value};

/// Collects the logs of the threads of one run.
pub struct Recorder {
    origin: Instant,
    processes: AtomicU32,
    logs: Mutex<Vec<(Names, Vec<RecordedTransaction>)>>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

impl Recorder {
    /// Returns a recorder whose time begins now.
    #[must_use]
    pub fn new() -> Recorder {
        Recorder {
            origin: Instant::now(),
            processes: AtomicU32::new(0),
            logs: Mutex::new(Vec::new()),
        }
    }

    /// Returns a log for one client, which runs one transaction after the other. The log is handed
    /// in when it is dropped.
    pub fn process(&self) -> HistoryLog<'_> {
        let process = self.processes.fetch_add(1, Ordering::Relaxed);
        HistoryLog {
            recorder: self,
            process,
            names: Names::default(),
            transactions: Vec::new(),
        }
    }

    /// Returns the history. All logs have been handed in: they borrow the recorder.
    #[must_use]
    pub fn finish(self) -> History {
        // A poisoned lock means that a client's thread panicked after its log was handed in whole.
        History::assemble(
            self.logs
                .into_inner()
                .unwrap_or_else(|poison| poison.into_inner()),
        )
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// The transactions of one client.
pub struct HistoryLog<'r> {
    recorder: &'r Recorder,
    process: u32,
    names: Names,
    transactions: Vec<RecordedTransaction>,
}

impl HistoryLog<'_> {
    /// Returns the number of this client in the history.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Begins a transaction: call it before its first operation is sent.
    pub fn begin(&mut self) -> HistoryEntry<'_> {
        let start = self.recorder.now();
        let (recorder, process) = (self.recorder, self.process);
        // Unique, and exact in programs whose numbers are floating-point.
        let id = u64::from(process) << 32 | self.transactions.len() as u64;
        let transaction = RecordedTransaction {
            process,
            id,
            start,
            end: start,
            outcome: Outcome::Unknown,
            ops: Vec::new(),
        };
        self.transactions.push(transaction);
        let transaction = self.transactions.last_mut().expect("it was just pushed");
        HistoryEntry {
            recorder,
            names: &mut self.names,
            transaction,
        }
    }
}

impl Drop for HistoryLog<'_> {
    fn drop(&mut self) {
        let log = (
            std::mem::take(&mut self.names),
            std::mem::take(&mut self.transactions),
        );
        self.recorder
            .logs
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
            .push(log);
    }
}

/// A transaction that is being recorded. Dropped without an outcome, it stays recorded as
/// [`Outcome::Unknown`].
pub struct HistoryEntry<'l> {
    recorder: &'l Recorder,
    names: &'l mut Names,
    transaction: &'l mut RecordedTransaction,
}

impl HistoryEntry<'_> {
    /// Restarts the transaction, which is tried again: the record of the last attempt does not
    /// count.
    pub fn restart(&mut self) {
        self.transaction.ops.clear();
    }

    /// Records that a read of `key` saw `value`; `version` if the store reports one.
    pub fn read(&mut self, key: &str, value: Option<Value>, version: Option<u64>) {
        let key = self.names.key(key);
        self.transaction.ops.push(HistoryOp::Read {
            key,
            value,
            version,
        });
    }

    /// Records that `key` gets `value`, which no other write of it has; `version` if the store
    /// reports one.
    pub fn write(&mut self, key: &str, value: Value, version: Option<u64>) {
        let key = self.names.key(key);
        self.transaction.ops.push(HistoryOp::Write {
            key,
            value,
            version,
        });
    }

    /// Records that `key` was present, or may have been, and is removed.
    pub fn delete(&mut self, key: &str, version: Option<u64>) {
        let key = self.names.key(key);
        self.transaction
            .ops
            .push(HistoryOp::Delete { key, version });
    }

    /// Records that a scan from `from` to `to` (exclusive) answered `found`. If it was asked for at
    /// most `limit` keys and found so many, it says nothing about keys behind the last.
    pub fn scan<'k>(
        &mut self,
        from: &str,
        to: Option<&str>,
        limit: usize,
        found: impl IntoIterator<Item = (&'k str, Value)>,
    ) {
        let names = &mut *self.names;
        let mut last = String::new();
        let mut pair = |(name, value): (&'k str, Value)| {
            last.clear();
            last.push_str(name);
            (names.key(name), value)
        };
        let found: Vec<(Key, Value)> = found.into_iter().map(&mut pair).collect();
        let to = if found.len() >= limit && !found.is_empty() {
            // The least name above the last key.
            last.push('\0');
            Some(self.names.key(&last))
        } else {
            to.map(|to| self.names.key(to))
        };
        let from = self.names.key(from);
        self.transaction
            .ops
            .push(HistoryOp::Scan { from, to, found });
    }

    /// Ends the transaction: call it when its outcome is known.
    pub fn end(self, outcome: Outcome) {
        self.transaction.end = self.recorder.now();
        self.transaction.outcome = outcome;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_record_into_one_history_whose_keys_are_in_order() {
        let recorder = Recorder::new();
        std::thread::scope(|scope| {
            for name in ["b", "a", "c"] {
                let recorder = &recorder;
                scope.spawn(move || {
                    let mut log = recorder.process();
                    let value = i64::from(log.process());
                    let mut entry = log.begin();
                    entry.read("z", None, None);
                    entry.restart();
                    entry.write(name, value, None);
                    entry.end(Outcome::Committed);
                });
            }
        });
        let history = recorder.finish();
        assert_eq!(history.transactions.len(), 3);
        let mut keys: Vec<(Key, &str)> = history
            .transactions
            .iter()
            .map(|transaction| match transaction.ops[..] {
                [HistoryOp::Write { key, .. }] => (key, history.name(key)),
                _ => panic!("one write each: {transaction:?}"),
            })
            .collect();
        keys.sort_unstable();
        assert_eq!(keys, [(Key(0), "a"), (Key(1), "b"), (Key(2), "c")]);
    }

    #[test]
    fn a_full_scan_ends_behind_its_last_key_and_a_lost_transaction_is_unknown() {
        let recorder = Recorder::new();
        let mut log = recorder.process();
        let mut entry = log.begin();
        entry.scan("a", Some("z"), 2, [("b", 1), ("c", 2)]);
        entry.scan("a", Some("z"), 3, [("b", 1), ("c", 2)]);
        drop(log);
        let history = recorder.finish();
        assert_eq!(history.transactions[0].outcome, Outcome::Unknown);
        let ends: Vec<&str> = history.transactions[0]
            .ops
            .iter()
            .map(|op| match op {
                HistoryOp::Scan { to: Some(to), .. } => history.name(*to),
                _ => panic!("two scans"),
            })
            .collect();
        assert_eq!(ends, ["c\0", "z"]);
    }
}
