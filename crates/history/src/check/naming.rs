//! A cycle's name, and its evidence in words.

use crate::verdict::{Anomaly, Verdict, Violation};

use super::facts::Facts;
use super::graph::{Kind, Step};

/// Returns the violation that a cycle is.
pub(super) fn violation(facts: &Facts<'_>, cycle: &[Step]) -> Verdict {
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

fn name(facts: &Facts<'_>, cycle: &[Step]) -> Anomaly {
    let count = |kind: Kind| {
        cycle
            .iter()
            .filter(|step| step.reason.kind() == kind)
            .count()
    };
    let anti: Vec<&Step> = cycle
        .iter()
        .filter(|step| matches!(step.reason.kind(), Kind::Rw | Kind::ScanRw))
        .collect();
    if count(Kind::Rt) > 0 {
        return Anomaly::RealTimeViolation;
    }
    if count(Kind::ScanRw) > 0 {
        return Anomaly::Phantom;
    }
    match anti[..] {
        [] if count(Kind::Wr) == 0 => Anomaly::DirtyWrite,
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
fn is_lost_update(facts: &Facts<'_>, cycle: &[Step], anti: &[&Step]) -> bool {
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
fn is_fork(facts: &Facts<'_>, cycle: &[Step], a: &Step, b: &Step) -> bool {
    let reads_only = |node: u32| !facts.versions.iter().any(|version| version.node == node);
    let wr = cycle
        .iter()
        .filter(|step| step.reason.kind() == Kind::Wr)
        .count();
    wr == 2 && a.to != b.from && b.to != a.from && reads_only(a.from) && reads_only(b.from)
}

pub(super) fn explain(facts: &Facts<'_>, step: &Step) -> String {
    let (from, to) = (facts.transaction(step.from), facts.transaction(step.to));
    let key = facts.name(step.reason.key());
    let text = match step.reason.kind() {
        Kind::Ww => format!("{} wrote {key}, and {} overwrote that", from.id, to.id),
        Kind::Wr => format!("{} left {key} as {} saw it", from.id, to.id),
        Kind::Rw => format!("{} saw {key} as it was before {} wrote it", from.id, to.id),
        Kind::ScanRw => format!("{} scanned past {key} before {} wrote it", from.id, to.id),
        Kind::Rt => {
            format!(
                "{} ended (at {} ns) before {} began (at {} ns)",
                from.id, from.end, to.id, to.start
            )
        }
        Kind::Seen => format!(
            "{} wrote {key} before {}: both were seen at once",
            from.id, to.id
        ),
        Kind::Stale => format!("{} wrote {key}, and {} what was seen later", from.id, to.id),
        Kind::Between => {
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
