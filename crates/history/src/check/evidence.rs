//! A cycle's name, and its evidence in words.

use crate::verdict::{Anomaly, Verdict, Violation};

use super::facts::HistoryFacts;
use super::graph::{CycleStep, EdgeKind};

/// Returns the violation that a cycle is.
pub(super) fn violation(facts: &HistoryFacts<'_>, cycle: &[CycleStep]) -> Verdict {
    Verdict::Violated(Violation {
        anomaly: name(facts, cycle),
        transactions: cycle
            .iter()
            .map(|step| facts.transaction(step.from).id)
            .collect(),
        evidence: cycle.iter().map(|step| explain(facts, step)).collect(),
        certain: !cycle.iter().any(|step| step.reason.is_inferred()),
    })
}

fn name(facts: &HistoryFacts<'_>, cycle: &[CycleStep]) -> Anomaly {
    let count = |kind: EdgeKind| {
        cycle
            .iter()
            .filter(|step| step.reason.kind() == kind)
            .count()
    };
    let anti: Vec<&CycleStep> = cycle
        .iter()
        .filter(|step| matches!(step.reason.kind(), EdgeKind::Rw | EdgeKind::ScanRw))
        .collect();
    if count(EdgeKind::Rt) > 0 {
        return Anomaly::RealTimeViolation;
    }
    if count(EdgeKind::ScanRw) > 0 {
        return Anomaly::Phantom;
    }
    match anti[..] {
        [] if count(EdgeKind::Wr) == 0 => Anomaly::DirtyWrite,
        [] => Anomaly::DirtyRead,
        _ if is_lost_update(facts, cycle, &anti) => Anomaly::LostUpdate,
        [_] => Anomaly::ReadSkew,
        [_, _] if cycle.len() == 2 => Anomaly::WriteSkew,
        [a, b] if cycle.len() == 4 && is_fork(facts, cycle, a, b) => Anomaly::LongFork,
        _ => Anomaly::AntiDependencyCycle,
    }
}

/// Returns `true` if the cycle is about one key, and the transaction that saw its old version wrote
/// it, too.
fn is_lost_update(facts: &HistoryFacts<'_>, cycle: &[CycleStep], anti: &[&CycleStep]) -> bool {
    let key = anti[0].reason.key();
    let writes = |node: u32| {
        let versions = &facts.by_key[key as usize];
        versions
            .binary_search_by_key(&node, |&v| facts.versions[v as usize].node)
            .is_ok()
    };
    cycle.iter().all(|step| step.reason.key() == key)
        && anti.iter().all(|step| writes(step.from) && writes(step.to))
}

/// Returns `true` if two readers stand between two writers, each of which only one of them saw.
fn is_fork(facts: &HistoryFacts<'_>, cycle: &[CycleStep], a: &CycleStep, b: &CycleStep) -> bool {
    let reads_only = |node: u32| !facts.versions.iter().any(|version| version.node == node);
    let wr = cycle
        .iter()
        .filter(|step| step.reason.kind() == EdgeKind::Wr)
        .count();
    wr == 2 && a.to != b.from && b.to != a.from && reads_only(a.from) && reads_only(b.from)
}

pub(super) fn explain(facts: &HistoryFacts<'_>, step: &CycleStep) -> String {
    let (from, to) = (facts.transaction(step.from), facts.transaction(step.to));
    let key = facts.name(step.reason.key());
    let text = match step.reason.kind() {
        EdgeKind::Ww => format!("{} wrote {key}, and {} overwrote that", from.id, to.id),
        EdgeKind::Wr => format!("{} left {key} as {} saw it", from.id, to.id),
        EdgeKind::Rw => format!("{} saw {key} as it was before {} wrote it", from.id, to.id),
        EdgeKind::ScanRw => format!("{} scanned past {key} before {} wrote it", from.id, to.id),
        EdgeKind::Rt => {
            format!(
                "{} ended (at {} ns) before {} began (at {} ns)",
                from.id, from.end, to.id, to.start
            )
        }
        EdgeKind::Seen => format!(
            "{} wrote {key} before {}: both were seen at once",
            from.id, to.id
        ),
        EdgeKind::Stale => format!("{} wrote {key}, and {} what was seen later", from.id, to.id),
        EdgeKind::Between => {
            let reason = "between what a transaction read and what it wrote is nothing";
            format!("{} wrote {key} before {}: {reason}", from.id, to.id)
        }
    };
    if step.reason.is_inferred() {
        format!("{text} (inferred)")
    } else {
        text
    }
}
