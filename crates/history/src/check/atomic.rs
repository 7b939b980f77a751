//! Read atomicity: a transaction that sees one of another transaction's writes sees, of the other
//! keys that it wrote, that state or a later one.
//!
//! Writers stand in one order, which is that of the versions of every key. The known parts of the
//! order are edges of a graph, and a cycle is a violation:
//!
//! | edge | from | to | when |
//! |---|---|---|---|
//! | ww | A | B | versions are recorded, or B had read the version by A that it replaced |
//! | wr | A | B | B read what A wrote, and writes something itself |
//! | seen | A | B | a reader saw one of A's writes, and B's write of another key that A also wrote |
//! | rt | A | B | A was acknowledged before B began, and both write one key |
//! | stale | A | B | A was acknowledged before a reader of B's write of the same key began |
//! | between | A | B | one replaced what it read, in a transaction of one key, and the other is neither of both |
//!
//! The first three hold by read atomicity alone, which also forbids circles of writes and reads of
//! uncommitted writes. The last three hold where keys are linearizable. There a version is
//! acknowledged once its writer has ended, or once a reader of this key alone has seen it; a read
//! of several keys may see versions that other readers cannot see yet.
//!
//! No edge is a choice, so that no violation rests on anything that was not recorded. There is one
//! exception: read atomicity alone knows no time, but for keys whose order is not recorded it
//! assumes that writers came in the order of time if they did not overlap. A violation that rests
//! on that is not certain.
//!
//! It is seldom recorded which absence a read of nothing saw. The read is a violation if no absence
//! is possible.
//!
//! | module | what |
//! |---|---|
//! | `writers` | the writers and their versions |
//! | `read_together` | edges between versions that were read together |
//! | `acknowledged` | edges by time, at each key by itself |
//! | `absence` | checks if a read of nothing can have seen some absence |
//! | `evidence` | violations with their evidence |

mod absence;
mod acknowledged;
mod evidence;
mod read_together;
mod writers;

use crate::verdict::Verdict;

use super::facts::{HistoryFacts, ReadResult, Replaces};
use super::graph::{EdgeKind, EdgeReason, SerializationGraph};
use absence::AbsenceJudge;
use acknowledged::AcknowledgedVersions;
use read_together::AbsencePredecessors;
use writers::{Edges, TimeUse, VersionWriters};

/// Checks read atomicity alone.
pub(super) fn check(facts: &HistoryFacts<'_>) -> Verdict {
    run(facts, &[TimeUse::Ignored, TimeUse::Guides])
}

/// Checks read atomicity, and that every key is linearizable.
pub(super) fn check_strictly(facts: &HistoryFacts<'_>) -> Verdict {
    run(facts, &[TimeUse::Ignored, TimeUse::Respected])
}

/// Runs the checks in order: a violation that needs less says more, so it comes first.
fn run(facts: &HistoryFacts<'_>, times: &[TimeUse]) -> Verdict {
    let writers = VersionWriters::new(facts);
    let attempt = |&time: &TimeUse| writers.judge(time).err();
    times.iter().find_map(attempt).unwrap_or(Verdict::Accepted)
}

impl VersionWriters<'_, '_> {
    fn judge(&self, time: TimeUse) -> Result<(), Verdict> {
        let facts = self.facts;
        let transactions = facts.nodes.len() as u32;
        let mut edges = Edges::new();
        let ordered = self.recorded(&mut edges)?;
        self.replaced(&mut edges);
        let needs = AbsencePredecessors::collect(self, &mut edges)?;
        let mut nodes = transactions;
        let mut acknowledged = None;
        if time != TimeUse::Ignored {
            let of = AcknowledgedVersions::collect(self, time, &ordered);
            nodes = of.edges(self, &mut edges);
            if time == TimeUse::Respected {
                of.missed(self, &mut edges)?;
                self.between(&mut edges)?;
            }
            acknowledged = Some(of);
        }
        let graph = SerializationGraph::new(transactions, nodes, &edges);
        if let Some(cycle) = graph.find_cycle(facts) {
            return match evidence::violation(self, &cycle, time) {
                Some(verdict) => Err(verdict),
                // The guide was wrong, and the order of time with it.
                None => Ok(()),
            };
        }
        AbsenceJudge::new(self, &graph, &needs, time, acknowledged.as_ref()).judge(time)
    }

    /// Adds edges between recorded versions. Returns for each key `true` if all of its versions are
    /// recorded.
    fn recorded(&self, edges: &mut Edges) -> Result<Vec<bool>, Verdict> {
        let mut complete = Vec::with_capacity(self.facts.by_key.len());
        for (key, versions) in self.facts.by_key.iter().enumerate() {
            let recorded = |&version: &u32| {
                let recorded = self.facts.versions[version as usize].recorded;
                recorded.map(|recorded| (recorded, version))
            };
            let mut order: Vec<(u64, u32)> = versions.iter().filter_map(recorded).collect();
            complete.push(order.len() == versions.len());
            order.sort_unstable();
            for pair in order.windows(2) {
                if pair[0].0 == pair[1].0 {
                    let name = self.facts.name(key as u32);
                    let why = format!("two versions of {name} are the same");
                    return Err(Verdict::Unjudgeable(why));
                }
                let reason = EdgeReason::new(EdgeKind::Ww, false, key as u32);
                edges.push((self.node(pair[0].1), self.node(pair[1].1), reason));
            }
        }
        Ok(complete)
    }

    /// Adds edges to transactions that wrote after they had read.
    fn replaced(&self, edges: &mut Edges) {
        for read in &self.facts.reads {
            let ReadResult::Version(version) = read.saw else {
                continue;
            };
            if self.versions(read.node).is_empty() {
                continue;
            }
            let kind = match self.wrote(read.node, read.key) {
                Some(_) => EdgeKind::Ww,
                None => EdgeKind::Wr,
            };
            let reason = EdgeReason::new(kind, false, read.key);
            edges.push((self.node(version), read.node, reason));
        }
    }

    /// Adds the edges around transactions that read and write one key and nothing else. They leave
    /// no room between: a version before the new one is before the old one, and a version after the
    /// old one is after the new one.
    fn between(&self, edges: &mut Edges) -> Result<(), Verdict> {
        let facts = self.facts;
        let mut follower = vec![None; facts.versions.len()];
        for (at, version) in facts.versions.iter().enumerate() {
            let Replaces::Version(before) = version.replaces else {
                continue;
            };
            if !self.is_single(version.node) {
                continue;
            }
            if let Some(other) = follower[before as usize].replace(at as u32) {
                return Err(evidence::lost_update(self, before, [other, at as u32]));
            }
        }
        for at in 0..edges.len() {
            let (from, to, reason) = edges[at];
            let key = reason.key();
            if !matches!(
                reason.kind(),
                EdgeKind::Ww | EdgeKind::Seen | EdgeKind::Stale
            ) || from as usize >= facts.nodes.len()
            {
                continue;
            }
            let (Some(early), Some(late)) = (self.wrote(from, key), self.wrote(to, key)) else {
                continue;
            };
            let reason = EdgeReason::new(EdgeKind::Between, false, key);
            if let Replaces::Version(before) = facts.versions[late as usize].replaces
                && follower[before as usize] == Some(late)
                && before != early
            {
                edges.push((from, self.node(before), reason));
            }
            if let Some(next) = follower[early as usize]
                && next != late
            {
                edges.push((self.node(next), to, reason));
            }
        }
        Ok(())
    }
}
