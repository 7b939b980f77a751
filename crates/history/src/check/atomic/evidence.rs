//! Violations with their evidence.

use crate::Outcome;
use crate::check::evidence::explain;
use crate::check::facts::{ReadFact, ReadResult};
use crate::check::graph::{CycleStep, EdgeKind};
use crate::verdict::{Anomaly, Verdict, Violation};

use super::writers::{TimeUse, VersionWriters};

/// Returns the violation that a cycle is; `None` if it only shows that the guide was wrong.
pub(super) fn violation(
    writers: &VersionWriters<'_, '_>,
    cycle: &[CycleStep],
    time: TimeUse,
) -> Option<Verdict> {
    let facts = writers.facts;
    let has = |kind: EdgeKind| cycle.iter().any(|step| step.reason.kind() == kind);
    if time == TimeUse::Guides && !has(EdgeKind::Seen) {
        return None;
    }
    let mut readers = Vec::new();
    let mut evidence = Vec::new();
    let mut anomaly = None;
    for step in cycle {
        let found = match step.reason.kind() {
            EdgeKind::Seen => seen(writers, step),
            EdgeKind::Stale => stale(writers, step),
            _ => None,
        };
        let Some((reader, text)) = found else {
            evidence.push(explain(facts, step));
            continue;
        };
        readers.push(reader);
        evidence.push(text);
        if step.reason.kind() == EdgeKind::Stale && anomaly.is_none() {
            let missed = writers.wrote(step.from, step.reason.key());
            anomaly = missed.map(|missed| lost_or_stale(writers, missed));
        }
    }
    let anomaly = match anomaly {
        _ if has(EdgeKind::Between) => Anomaly::LostUpdate,
        Some(anomaly) => anomaly,
        None if has(EdgeKind::Seen) => Anomaly::FracturedRead,
        None if has(EdgeKind::Rt) => Anomaly::RealTimeViolation,
        None if has(EdgeKind::Wr) => Anomaly::DirtyRead,
        None => Anomaly::DirtyWrite,
    };
    readers.extend(cycle.iter().map(|step| step.from));
    let certain = !cycle.iter().any(|step| step.reason.is_inferred());
    Some(verdict(writers, anomaly, readers, evidence, certain))
}

fn verdict(
    writers: &VersionWriters<'_, '_>,
    anomaly: Anomaly,
    nodes: Vec<u32>,
    evidence: Vec<String>,
    certain: bool,
) -> Verdict {
    let mut transactions = Vec::new();
    for node in nodes {
        let id = writers.facts.transaction(node).id;
        if !transactions.contains(&id) {
            transactions.push(id);
        }
    }
    Verdict::Violated(Violation {
        anomaly,
        transactions,
        evidence,
        certain,
    })
}

/// Returns a reader that saw one write of a transaction, and another transaction's write of a key
/// that both wrote.
fn seen(writers: &VersionWriters<'_, '_>, step: &CycleStep) -> Option<(u32, String)> {
    let facts = writers.facts;
    let by = |read: &ReadFact, node: u32| match read.saw {
        ReadResult::Version(version) => writers.node(version) == node,
        ReadResult::Absence(_) => false,
    };
    let key = step.reason.key();
    let mut both = facts.reads.iter().filter_map(|read| {
        let other = facts.reads[facts.reads_of(read.node)].iter();
        let other = other.clone().find(|other| by(other, step.from));
        other
            .filter(|_| read.key == key && by(read, step.to))
            .map(|other| (read, other))
    });
    let (read, other) = both.next()?;
    let id = |node: u32| facts.transaction(node).id;
    let text = format!(
        "{} saw what {} wrote to {}, and of {}, which that one wrote too, what {} wrote",
        id(read.node),
        id(step.from),
        facts.name(other.key),
        facts.name(key),
        id(step.to),
    );
    Some((read.node, text))
}

/// Returns a reader that saw the state before a version that had been acknowledged.
fn stale(writers: &VersionWriters<'_, '_>, step: &CycleStep) -> Option<(u32, String)> {
    let facts = writers.facts;
    let saw = writers.wrote(step.to, step.reason.key())?;
    let reads = facts.reads.iter();
    let latest = reads
        .filter(|read| read.saw == ReadResult::Version(saw))
        .max_by_key(|read| facts.transaction(read.node).start)?;
    let left = format!("what {} left there", facts.transaction(step.to).id);
    Some((latest.node, missed_text(writers, latest, step.from, &left)))
}

fn missed_text(
    writers: &VersionWriters<'_, '_>,
    read: &ReadFact,
    missed: u32,
    saw: &str,
) -> String {
    let facts = writers.facts;
    let (reader, writer) = (facts.transaction(read.node), facts.transaction(missed));
    let key = facts.name(read.key);
    let how = if facts.end(missed) < reader.start {
        format!("ended (at {} ns)", writer.end)
    } else {
        "had been seen".to_owned()
    };
    format!(
        "{} wrote {key} and {how} before {} began (at {} ns), which saw {saw}",
        writer.id, reader.id, reader.start
    )
}

/// Returns a lost write if no reader ever saw an acknowledged version, nor any that may be newer;
/// else a stale read.
fn lost_or_stale(writers: &VersionWriters<'_, '_>, missed: u32) -> Anomaly {
    let facts = writers.facts;
    let version = &facts.versions[missed as usize];
    let writer = facts.transaction(version.node);
    let is_older = |read: &ReadFact| match read.saw {
        ReadResult::Version(saw) => saw != missed && facts.end(writers.node(saw)) < writer.start,
        ReadResult::Absence(_) => !facts.deleted[read.key as usize],
    };
    let later = facts
        .reads
        .iter()
        .filter(|read| read.key == version.key && facts.transaction(read.node).start > writer.end);
    let mut later = later.peekable();
    let was_missed = writer.outcome == Outcome::Committed && later.peek().is_some();
    if was_missed && later.all(is_older) {
        Anomaly::LostWrite
    } else {
        Anomaly::StaleRead
    }
}

/// Returns the violation of a read that saw one write of a transaction, and at another of its keys
/// that nothing was ever written.
pub(super) fn partial_read(
    writers: &VersionWriters<'_, '_>,
    read: &ReadFact,
    other: &ReadFact,
    writer: u32,
) -> Verdict {
    let facts = writers.facts;
    let (reader, id) = (
        facts.transaction(read.node).id,
        facts.transaction(writer).id,
    );
    let (key, missed) = (facts.name(read.key), facts.name(other.key));
    let evidence = vec![
        format!("{reader} saw what {id} wrote to {key}"),
        format!(
            "{reader} saw nothing at {missed}, which {id} wrote, too, and no transaction deleted"
        ),
    ];
    let nodes = vec![read.node, writer];
    verdict(writers, Anomaly::FracturedRead, nodes, evidence, true)
}

/// Returns the violation of a read that saw that nothing was ever written, although `missed` had
/// been.
pub(super) fn missed_write(
    writers: &VersionWriters<'_, '_>,
    read: &ReadFact,
    missed: u32,
) -> Verdict {
    let writer = writers.node(missed);
    let evidence = vec![missed_text(writers, read, writer, "nothing")];
    let anomaly = lost_or_stale(writers, missed);
    verdict(writers, anomaly, vec![read.node, writer], evidence, true)
}

/// Returns the violation of a read of nothing that can have seen no absence.
pub(super) fn no_absence(
    writers: &VersionWriters<'_, '_>,
    read: &ReadFact,
    needs: &[u32],
    time: TimeUse,
) -> Verdict {
    let facts = writers.facts;
    let (key, reader) = (facts.name(read.key), facts.transaction(read.node));
    let mut nodes = vec![read.node];
    let mut evidence: Vec<String> = Vec::new();
    for &need in needs {
        nodes.push(need);
        evidence.push(format!(
            "{} saw another write of {}, which wrote {key}, too",
            reader.id,
            facts.transaction(need).id
        ));
    }
    evidence.push(format!(
        "{} saw nothing at {key}, and no delete of it can be what it saw",
        reader.id
    ));
    let values = facts.by_key[read.key as usize].iter().copied();
    let earlier = |&version: &u32| {
        facts.versions[version as usize].value.is_some()
            && facts.end(writers.node(version)) < reader.start
    };
    let missed = values
        .filter(earlier)
        .max_by_key(|&version| facts.end(writers.node(version)));
    let anomaly = match missed {
        _ if time != TimeUse::Respected => Anomaly::FracturedRead,
        Some(missed) => {
            nodes.push(writers.node(missed));
            evidence.push(missed_text(writers, read, writers.node(missed), "nothing"));
            Anomaly::StaleRead
        }
        None => Anomaly::RealTimeViolation,
    };
    verdict(writers, anomaly, nodes, evidence, time != TimeUse::Guides)
}

/// Returns the violation of two transactions of one key that replaced the same version of it.
pub(super) fn lost_update(
    writers: &VersionWriters<'_, '_>,
    before: u32,
    both: [u32; 2],
) -> Verdict {
    let facts = writers.facts;
    let key = facts.name(facts.versions[before as usize].key);
    let nodes = both.map(|version| writers.node(version));
    let [a, b] = nodes.map(|node| facts.transaction(node).id);
    let saw = facts.transaction(writers.node(before)).id;
    let evidence = vec![format!(
        "{a} and {b} both saw what {saw} wrote to {key}, and replaced it"
    )];
    verdict(writers, Anomaly::LostUpdate, nodes.to_vec(), evidence, true)
}
