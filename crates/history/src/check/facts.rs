//! The transactions that count, their writes and their reads.
//!
//! The transactions that count are *nodes*: the committed ones, and those of unknown outcome of
//! which a node read a value. The state in which a node leaves a key is a *version*: a value or an
//! absence. The state that it saw of a key and did not write itself is a *read*.

use std::collections::HashMap;
use std::ops::Range;

use crate::model::{History, HistoryOp, Key, Outcome, RecordedTransaction, Value};
use crate::verdict::{Anomaly, Verdict, Violation};

pub(super) type FactMap<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// No version: the key was never written.
pub(super) const INITIAL: u32 = u32::MAX;

/// The state in which a node left a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenVersion {
    pub node: u32,
    pub key: u32,
    /// The value; `None` if the node deleted the key.
    pub value: Option<Value>,
    /// The recorded version.
    pub recorded: Option<u64>,
    pub replaces: Replaces,
}

/// The known facts about the version before a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaces {
    /// Its writer had read this version.
    Version(u32),
    /// Its writer had seen that the key was absent.
    Absence,
    /// Its writer had not looked.
    Unknown,
}

/// The state of a key that a node saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadFact {
    pub node: u32,
    pub key: u32,
    pub saw: ReadResult,
    /// `true` if a scan read it.
    pub scan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadResult {
    Version(u32),
    /// Nothing; with the recorded version of the absence.
    Absence(Option<u64>),
}

/// The treatment of transactions of unknown outcome that delete and of which no node read a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnknownDeletes {
    Dropped,
    Counted,
}

pub(super) struct HistoryFacts<'h> {
    pub history: &'h History,
    /// Indices into the history's transactions.
    pub nodes: Vec<u32>,
    pub versions: Vec<WrittenVersion>,
    /// The versions of each key, in the order of nodes.
    pub by_key: Vec<Vec<u32>>,
    /// In the order of nodes.
    pub reads: Vec<ReadFact>,
    /// The first read of each node.
    pub reads_of: Vec<u32>,
    /// For every key, `true` if some version of it is an absence.
    pub deleted: Vec<bool>,
    unseen: bool,
}

/// The writer of a value.
#[derive(Clone, Copy)]
pub(super) struct WrittenValue {
    pub transaction: u32,
    /// `true` if the transaction left this value, rather than overwriting it itself.
    pub is_last: bool,
    /// The version, once the transaction is a node and the value its last.
    pub version: u32,
}

pub(super) type WriteIndex = FactMap<(u32, Value), WrittenValue>;

impl<'h> HistoryFacts<'h> {
    /// Collects the transactions that count and their writes, but not their reads. The error is a
    /// verdict that needs no more of them.
    pub(super) fn of_writes(
        history: &'h History,
        unseen: UnknownDeletes,
    ) -> Result<(HistoryFacts<'h>, WriteIndex), Verdict> {
        let mut writes = collect_writes(history)?;
        let (nodes, has_unseen) = choose_nodes(history, &writes, unseen);
        let mut facts = HistoryFacts {
            history,
            nodes,
            versions: Vec::new(),
            by_key: vec![Vec::new(); history.names()],
            reads: Vec::new(),
            reads_of: vec![0],
            deleted: vec![false; history.names()],
            unseen: has_unseen,
        };
        facts.collect_versions(&mut writes);
        Ok((facts, writes))
    }

    pub(super) fn transaction(&self, node: u32) -> &'h RecordedTransaction {
        &self.history.transactions[self.nodes[node as usize] as usize]
    }

    pub(super) fn reads_of(&self, node: u32) -> Range<usize> {
        self.reads_of[node as usize] as usize..self.reads_of[node as usize + 1] as usize
    }

    pub(super) fn name(&self, key: u32) -> &'h str {
        self.history.name(Key(key))
    }

    /// Returns the time at which the node had certainly taken effect.
    pub(super) fn end(&self, node: u32) -> u64 {
        match self.transaction(node).outcome {
            Outcome::Unknown => u64::MAX,
            Outcome::Committed | Outcome::Aborted => self.transaction(node).end,
        }
    }

    /// Returns `true` if the answer may depend on [`UnknownDeletes`].
    pub(super) fn has_unseen(&self) -> bool {
        self.unseen
    }

    fn collect_versions(&mut self, writes: &mut WriteIndex) {
        let mut last = Vec::new();
        for (node, &transaction) in self.nodes.iter().enumerate() {
            last_writes(&self.history.transactions[transaction as usize], &mut last);
            for &(key, value, recorded) in &last {
                let version = self.versions.len() as u32;
                if let Some(written) = value.and_then(|value| writes.get_mut(&(key, value))) {
                    written.version = version;
                }
                self.deleted[key as usize] |= value.is_none();
                self.by_key[key as usize].push(version);
                let (node, replaces) = (node as u32, Replaces::Unknown);
                self.versions.push(WrittenVersion {
                    node,
                    key,
                    value,
                    recorded,
                    replaces,
                });
            }
        }
    }
}

/// Collects the last write of a transaction to each key: key, value and recorded version.
fn last_writes(
    transaction: &RecordedTransaction,
    last: &mut Vec<(u32, Option<Value>, Option<u64>)>,
) {
    last.clear();
    for op in transaction.ops.iter().rev() {
        let (key, value, version) = match *op {
            HistoryOp::Write {
                key,
                value,
                version,
            } => (key.0, Some(value), version),
            HistoryOp::Delete { key, version } => (key.0, None, version),
            HistoryOp::Read { .. } | HistoryOp::Scan { .. } => continue,
        };
        last.push((key, value, version));
    }
    // The sort is stable: the last write of a key comes first, and stays.
    last.sort_by_key(|write| write.0);
    last.dedup_by_key(|write| write.0);
}

fn collect_writes(history: &History) -> Result<WriteIndex, Verdict> {
    let mut writes = WriteIndex::default();
    let mut last = Vec::new();
    for (index, transaction) in history.transactions.iter().enumerate() {
        let written = WrittenValue {
            transaction: index as u32,
            is_last: false,
            version: INITIAL,
        };
        for op in &transaction.ops {
            if let HistoryOp::Write { key, value, .. } = *op
                && let Some(other) = writes.insert((key.0, value), written)
            {
                let ids = [other.transaction, index as u32]
                    .map(|index| history.transactions[index as usize].id);
                return Err(Verdict::Unjudgeable(format!(
                    "transactions {} and {} both write {value} to {}",
                    ids[0],
                    ids[1],
                    history.name(key)
                )));
            }
        }
        last_writes(transaction, &mut last);
        for &(key, value, _) in &last {
            if let Some(written) = value.and_then(|value| writes.get_mut(&(key, value))) {
                written.is_last = true;
            }
        }
    }
    Ok(writes)
}

/// Visits the values that a transaction says that it saw.
fn values_seen(transaction: &RecordedTransaction, mut visit: impl FnMut(u32, Value)) {
    for op in &transaction.ops {
        match op {
            HistoryOp::Read {
                key,
                value: Some(value),
                ..
            } => visit(key.0, *value),
            HistoryOp::Scan { found, .. } => {
                found.iter().for_each(|(key, value)| visit(key.0, *value))
            }
            HistoryOp::Read { value: None, .. }
            | HistoryOp::Write { .. }
            | HistoryOp::Delete { .. } => {}
        }
    }
}

/// Returns the transactions that count, in the history's order, and `true` if there are some of
/// unknown outcome whose deletes may or may not have happened.
fn choose_nodes(
    history: &History,
    writes: &WriteIndex,
    unseen: UnknownDeletes,
) -> (Vec<u32>, bool) {
    let outcome = |index: u32| history.transactions[index as usize].outcome;
    let all = 0..history.transactions.len() as u32;
    let mut counts: Vec<bool> = all
        .clone()
        .map(|index| outcome(index) == Outcome::Committed)
        .collect();
    let mut to_visit: Vec<u32> = all
        .clone()
        .filter(|&index| counts[index as usize])
        .collect();
    let visit = |to_visit: &mut Vec<u32>, counts: &mut Vec<bool>| {
        while let Some(index) = to_visit.pop() {
            values_seen(&history.transactions[index as usize], |key, value| {
                if let Some(written) = writes.get(&(key, value))
                    && !counts[written.transaction as usize]
                    && outcome(written.transaction) == Outcome::Unknown
                {
                    counts[written.transaction as usize] = true;
                    to_visit.push(written.transaction);
                }
            });
        }
    };
    if all.clone().any(|index| outcome(index) == Outcome::Unknown) {
        visit(&mut to_visit, &mut counts);
    }
    let deletes = |index: &u32| {
        let ops = &history.transactions[*index as usize].ops;
        ops.iter().any(|op| matches!(op, HistoryOp::Delete { .. }))
    };
    let unseen_ones: Vec<u32> = all
        .clone()
        .filter(|&index| outcome(index) == Outcome::Unknown && !counts[index as usize])
        .filter(deletes)
        .collect();
    let has_unseen = !unseen_ones.is_empty();
    if unseen == UnknownDeletes::Counted {
        unseen_ones
            .iter()
            .for_each(|&index| counts[index as usize] = true);
        to_visit = unseen_ones;
        visit(&mut to_visit, &mut counts);
    }
    (
        all.filter(|&index| counts[index as usize]).collect(),
        has_unseen,
    )
}

/// Returns the first version of each node: versions are in the order of nodes.
pub(super) fn versions_of(facts: &HistoryFacts<'_>) -> Vec<u32> {
    let mut starts = vec![0; facts.nodes.len() + 1];
    facts
        .versions
        .iter()
        .for_each(|version| starts[version.node as usize + 1] += 1);
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    starts
}

/// Returns a violation that needs no inference.
pub(super) fn violation(
    facts: &HistoryFacts<'_>,
    anomaly: Anomaly,
    node: u32,
    what: String,
) -> Verdict {
    let id = facts.transaction(node).id;
    let evidence = vec![format!("transaction {id} {what}")];
    Verdict::Violated(Violation {
        anomaly,
        transactions: vec![id],
        evidence,
        certain: true,
    })
}
