//! The states that nodes saw of keys that were not their own, and the anomalies that these alone
//! show.

use std::ops::Range;

use crate::model::{History, HistoryOp, Key, Outcome, Value};
use crate::verdict::{Anomaly, Verdict};

use super::facts::{
    HistoryFacts, INITIAL, ReadFact, ReadResult, Replaces, UnknownDeletes, WriteIndex, violation,
};

/// Collects the facts of a history. The error is a verdict that needs no graph.
pub(super) fn gather(
    history: &History,
    unseen: UnknownDeletes,
) -> Result<HistoryFacts<'_>, Verdict> {
    let (mut facts, writes) = HistoryFacts::of_writes(history, unseen)?;
    collect(&mut facts, &writes)?;
    Ok(facts)
}

/// Collects the reads of all nodes, and the versions that their writes replaced as far as they had
/// looked. The error is an anomaly that needs no graph.
fn collect(facts: &mut HistoryFacts<'_>, writes: &WriteIndex) -> Result<(), Verdict> {
    let mut reader = ReadCollector::new(facts.history.names(), writes);
    for node in 0..facts.nodes.len() as u32 {
        reader.read_all(facts, node)?;
        facts.reads_of.push(facts.reads.len() as u32);
    }
    Ok(())
}

/// Walks through the operations of one node after the other.
struct ReadCollector<'w> {
    node: u32,
    /// For every key, the node's last write so far.
    own: Vec<KeyNote>,
    /// For every key, the state that the node saw before it wrote the key.
    seen: Vec<KeyNote>,
    /// `true` if the node wrote anything.
    wrote: bool,
    writes: &'w WriteIndex,
}

/// A note about a key; it counts for one node only, so that notes need not be cleared.
#[derive(Clone, Copy)]
struct KeyNote {
    node: u32,
    value: Option<Value>,
    /// The version to which the value belongs, if it was read.
    version: u32,
}

impl<'w> ReadCollector<'w> {
    fn new(keys: usize, writes: &'w WriteIndex) -> ReadCollector<'w> {
        let nothing = vec![
            KeyNote {
                node: u32::MAX,
                value: None,
                version: INITIAL
            };
            keys
        ];
        ReadCollector {
            node: 0,
            own: nothing.clone(),
            seen: nothing,
            wrote: false,
            writes,
        }
    }

    fn read_all(&mut self, facts: &mut HistoryFacts<'_>, node: u32) -> Result<(), Verdict> {
        self.node = node;
        self.wrote = false;
        let transaction = facts.transaction(node);
        for op in &transaction.ops {
            match op {
                HistoryOp::Write { key, value, .. } => self.write(key.0, Some(*value)),
                HistoryOp::Delete { key, .. } => self.write(key.0, None),
                HistoryOp::Read {
                    key,
                    value,
                    version,
                } => {
                    self.read(facts, (key.0, *value), *version, false)?;
                }
                HistoryOp::Scan { from, to, found } => {
                    let end = to.map_or(facts.history.names() as u32, |to| to.0);
                    self.scan(facts, from.0..end, found)?;
                }
            }
        }
        self.link(facts);
        Ok(())
    }

    fn write(&mut self, key: u32, value: Option<Value>) {
        self.wrote = true;
        self.own[key as usize] = KeyNote {
            node: self.node,
            value,
            version: INITIAL,
        };
    }

    /// Adds a scan: a read of every key in its range that was ever written.
    fn scan(
        &mut self,
        facts: &mut HistoryFacts<'_>,
        range: Range<u32>,
        found: &[(Key, Value)],
    ) -> Result<(), Verdict> {
        let mut next = range.start;
        for (key, value) in found {
            if key.0 < next || key.0 >= range.end {
                let what = format!("answers {} out of order or range", facts.name(key.0));
                return Err(violation(facts, Anomaly::MalformedScan, self.node, what));
            }
            self.miss(facts, next..key.0)?;
            self.read(facts, (key.0, Some(*value)), None, true)?;
            next = key.0 + 1;
        }
        self.miss(facts, next..range.end.max(next))
    }

    fn miss(&mut self, facts: &mut HistoryFacts<'_>, keys: Range<u32>) -> Result<(), Verdict> {
        for key in keys {
            if !facts.by_key[key as usize].is_empty() {
                self.read(facts, (key, None), None, true)?;
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        facts: &mut HistoryFacts<'_>,
        (key, value): (u32, Option<Value>),
        version: Option<u64>,
        scan: bool,
    ) -> Result<(), Verdict> {
        let own = self.own[key as usize];
        if own.node == self.node {
            return self.same(facts, Anomaly::OwnWriteMissed, (key, value), own.value);
        }
        let before = self.seen[key as usize];
        if before.node == self.node {
            return self.same(
                facts,
                Anomaly::NonRepeatableRead,
                (key, value),
                before.value,
            );
        }
        let mut noted = KeyNote {
            node: self.node,
            value,
            version: INITIAL,
        };
        let saw = match value {
            // Keys that no transaction wrote are always absent.
            None if facts.by_key[key as usize].is_empty() => return Ok(()),
            None => ReadResult::Absence(version),
            Some(number) => {
                // Often the last reader saw the same.
                let is_known = before.value == value && before.version != INITIAL;
                let source = if is_known {
                    before.version
                } else {
                    self.source(facts, key, number)?
                };
                noted.version = source;
                if let Some(version) = version {
                    facts.versions[source as usize]
                        .recorded
                        .get_or_insert(version);
                }
                ReadResult::Version(source)
            }
        };
        self.seen[key as usize] = noted;
        facts.reads.push(ReadFact {
            node: self.node,
            key,
            saw,
            scan,
        });
        Ok(())
    }

    /// Compares a read with the state that the node must see again.
    fn same(
        &self,
        facts: &HistoryFacts<'_>,
        anomaly: Anomaly,
        (key, value): (u32, Option<Value>),
        before: Option<Value>,
    ) -> Result<(), Verdict> {
        if before == value {
            return Ok(());
        }
        let name = facts.name(key);
        let saw = |value: Option<Value>| value.map_or("nothing".to_owned(), |v| v.to_string());
        let what = if anomaly == Anomaly::OwnWriteMissed {
            format!(
                "reads {name} = {} after leaving {} there",
                saw(value),
                saw(before)
            )
        } else {
            format!("reads {name} = {}, then {}", saw(before), saw(value))
        };
        Err(violation(facts, anomaly, self.node, what))
    }

    /// Returns the version that has the value, if reading it was allowed.
    fn source(&self, facts: &HistoryFacts<'_>, key: u32, value: Value) -> Result<u32, Verdict> {
        let what = || format!("reads {} = {value}", facts.name(key));
        let Some(written) = self.writes.get(&(key, value)) else {
            let what = format!("{}, which no transaction wrote", what());
            return Err(violation(facts, Anomaly::GarbageRead, self.node, what));
        };
        if written.version != INITIAL {
            return Ok(written.version);
        }
        let writer = &facts.history.transactions[written.transaction as usize];
        let (anomaly, why) = if writer.outcome == Outcome::Aborted {
            (Anomaly::AbortedRead, "aborted")
        } else {
            debug_assert!(!written.is_last, "a node's last writes are versions");
            (Anomaly::IntermediateRead, "overwrote it itself")
        };
        let what = format!("{}, but its writer {} {why}", what(), writer.id);
        let Verdict::Violated(mut found) = violation(facts, anomaly, self.node, what) else {
            unreachable!("it was made as a violation")
        };
        found.transactions.push(writer.id);
        Err(Verdict::Violated(found))
    }

    /// Notes the versions that the node replaced, as far as it had looked.
    fn link(&self, facts: &mut HistoryFacts<'_>) {
        if !self.wrote {
            return;
        }
        let begin = *facts.reads_of.last().expect("it begins with 0") as usize;
        for i in begin..facts.reads.len() {
            let read = facts.reads[i];
            if self.own[read.key as usize].node != self.node {
                continue;
            }
            let versions = &facts.by_key[read.key as usize];
            // Versions are in the order of nodes, and this node has exactly one of the key.
            let at = versions.partition_point(|&v| facts.versions[v as usize].node < self.node);
            facts.versions[versions[at] as usize].replaces = match read.saw {
                ReadResult::Version(version) => Replaces::Version(version),
                ReadResult::Absence(_) => Replaces::Absence,
            };
        }
    }
}
