//! Checks if a read of nothing can have seen some absence: that before the first write of the key,
//! or the one that one of its deletes left.
//!
//! Each absence is tried by itself, against the edges that hold whichever absences the other reads
//! saw.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::check::facts::{ReadFact, ReadResult};
use crate::check::graph::SerializationGraph;
use crate::verdict::Verdict;

use super::acknowledged::AcknowledgedVersions;
use super::evidence;
use super::read_together::AbsencePredecessors;
use super::writers::{TimeUse, VersionWriters};

/// The judge of reads of nothing.
pub(super) struct AbsenceJudge<'a, 'f, 'h> {
    writers: &'a VersionWriters<'f, 'h>,
    graph: &'a SerializationGraph,
    needs: &'a AbsencePredecessors,
    /// The acknowledged versions, if keys are linearizable.
    acknowledged: Option<&'a AcknowledgedVersions>,
    /// A place for each node, behind all nodes that come before it.
    places: Vec<u32>,
    /// The search in which each node was visited last.
    visited: Vec<u32>,
    searches: u32,
}

impl<'a, 'f, 'h> AbsenceJudge<'a, 'f, 'h> {
    /// Returns a judge for a graph that has no cycle.
    pub(super) fn new(
        writers: &'a VersionWriters<'f, 'h>,
        graph: &'a SerializationGraph,
        needs: &'a AbsencePredecessors,
        time: TimeUse,
        acknowledged: Option<&'a AcknowledgedVersions>,
    ) -> AbsenceJudge<'a, 'f, 'h> {
        let facts = writers.facts;
        let starts = (0..facts.nodes.len() as u32).map(|node| facts.transaction(node).start);
        let points = acknowledged
            .into_iter()
            .flat_map(AcknowledgedVersions::times);
        AbsenceJudge {
            writers,
            graph,
            needs,
            acknowledged: acknowledged.filter(|_| time == TimeUse::Respected),
            places: places(graph, &starts.chain(points).collect::<Vec<u64>>()),
            visited: vec![0; graph.nodes() as usize],
            searches: 0,
        }
    }

    pub(super) fn judge(mut self, time: TimeUse) -> Result<(), Verdict> {
        let facts = self.writers.facts;
        for (at, read) in (0..).zip(&facts.reads) {
            let ReadResult::Absence(mark) = read.saw else {
                continue;
            };
            if !facts.deleted[read.key as usize] || self.is_possible(at, read, mark) {
                continue;
            }
            let needs = self.needs.of(at);
            return Err(evidence::no_absence(self.writers, read, needs, time));
        }
        Ok(())
    }

    fn is_possible(&mut self, at: u32, read: &ReadFact, mark: Option<u64>) -> bool {
        let facts = self.writers.facts;
        let (start, end) = (facts.transaction(read.node).start, facts.end(read.node));
        let early = |known: &AcknowledgedVersions| known.before(read.key, start) > 0;
        let is_first = self.needs.of(at).is_empty()
            && !self.acknowledged.is_some_and(early)
            && mark.is_none_or(|mark| self.is_marked(read.key, None, mark));
        if is_first {
            return true;
        }
        let versions = &facts.by_key[read.key as usize];
        let begun = |&version: &u32| facts.transaction(self.writers.node(version)).start <= end;
        let (past, future) = versions.split_at(versions.partition_point(begun));
        // Most reads see the absence that was left last. Only where time is ignored may it be one
        // of the future.
        let timeless = self.acknowledged.is_none();
        let future = future.iter().filter(|_| timeless);
        past.iter().rev().chain(future).any(|&version| {
            let left = &facts.versions[version as usize];
            left.value.is_none()
                && left.node != read.node
                && mark.is_none_or(|mark| self.is_marked(read.key, left.recorded, mark))
                && self.can_be(at, read, version)
        })
    }

    /// Returns `true` if no value was written after the absence `from` up to `mark`.
    fn is_marked(&self, key: u32, from: Option<u64>, mark: u64) -> bool {
        let facts = self.writers.facts;
        let mut versions = facts.by_key[key as usize].iter();
        from.is_none_or(|from| from <= mark)
            && !versions.any(|&version| {
                let version = &facts.versions[version as usize];
                let after = |recorded| from.is_none_or(|from| from < recorded) && recorded <= mark;
                version.value.is_some() && version.recorded.is_some_and(after)
            })
    }

    /// Returns `true` if the read can have seen the absence that the delete left.
    fn can_be(&mut self, at: u32, read: &ReadFact, delete: u32) -> bool {
        let writer = self.writers.node(delete);
        let needs = self.needs.of(at).iter();
        let mut before: Vec<u32> = needs.copied().filter(|&node| node != writer).collect();
        let mut contradicts = false;
        if let Some(known) = self.acknowledged {
            known.visit_before(self.writers, read, delete, |node, is_late| {
                before.push(node);
                contradicts |= is_late;
            });
        }
        let Some(mut after) = self.after(read, writer) else {
            return false;
        };
        if contradicts || after.iter().any(|node| before.contains(node)) {
            return false;
        }
        if self.reaches(&after, &[writer]) {
            return false;
        }
        after.push(writer);
        !self.reaches(&after, &before)
    }

    /// Returns the nodes that come after `writer` because a reader of one of its writes saw their
    /// writes, of another key. `None`: the reader saw that nothing was ever written.
    fn after(&self, read: &ReadFact, writer: u32) -> Option<Vec<u32>> {
        let facts = self.writers.facts;
        let mut after = Vec::new();
        for other in &facts.reads[facts.reads_of(read.node)] {
            if other.key == read.key || self.writers.wrote(writer, other.key).is_none() {
                continue;
            }
            match other.saw {
                ReadResult::Version(version) => after.push(self.writers.node(version)),
                ReadResult::Absence(_) if !facts.deleted[other.key as usize] => return None,
                // It may have been the absence that the same writer left.
                ReadResult::Absence(_) => {}
            }
        }
        after.retain(|&node| node != writer);
        Some(after)
    }

    /// Returns `true` if a path leads from some of `from` to some of `to`.
    fn reaches(&mut self, from: &[u32], to: &[u32]) -> bool {
        let place = |node: &u32| self.places[*node as usize];
        let Some(furthest) = to.iter().map(place).max() else {
            return false;
        };
        self.searches += 1;
        let mut to_visit = from.to_vec();
        while let Some(node) = to_visit.pop() {
            for &(next, _) in self.graph.edges(node) {
                if to.contains(&next) {
                    return true;
                }
                let at = next as usize;
                if self.visited[at] != self.searches && self.places[at] < furthest {
                    self.visited[at] = self.searches;
                    to_visit.push(next);
                }
            }
        }
        false
    }
}

/// Assigns a place to each node of a graph without cycles, behind all nodes from which a path leads
/// to it, and by time where that leaves a choice: then paths between nodes of one time are short.
fn places(graph: &SerializationGraph, times: &[u64]) -> Vec<u32> {
    let count = graph.nodes();
    let mut incoming = vec![0u32; count as usize];
    for node in 0..count {
        let edges = graph.edges(node).iter();
        edges.for_each(|&(to, _)| incoming[to as usize] += 1);
    }
    let entry = |node: u32| Reverse((times[node as usize], node));
    let free = (0..count).filter(|&node| incoming[node as usize] == 0);
    let mut queue: BinaryHeap<_> = free.map(entry).collect();
    let mut places = vec![0; count as usize];
    let mut next = 0;
    while let Some(Reverse((_, node))) = queue.pop() {
        places[node as usize] = next;
        next += 1;
        for &(to, _) in graph.edges(node) {
            incoming[to as usize] -= 1;
            if incoming[to as usize] == 0 {
                queue.push(entry(to));
            }
        }
    }
    debug_assert_eq!(next, count, "the graph has no cycle");
    places
}
