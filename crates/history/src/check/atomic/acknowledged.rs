//! Edges by time, at each key by itself.
//!
//! The acknowledged versions of a key follow each other by the time when they were acknowledged. A
//! point in time stands behind each of them; a transaction that begins later comes after the point,
//! and thereby after every version acknowledged before it.

use crate::check::facts::{ReadFact, ReadResult};
use crate::check::graph::{EdgeKind, EdgeReason};
use crate::verdict::Verdict;

use super::evidence;
use super::writers::{Edges, TimeUse, VersionWriters};

/// The times from which on all readers see the versions of each key.
pub(super) struct AcknowledgedVersions {
    /// For each key, the acknowledged versions with their times, by time.
    by_key: Vec<Vec<(u64, u32)>>,
    /// The place of each version there.
    places: Vec<Option<u32>>,
    /// The first point of each key.
    points: Vec<u32>,
    nodes: u32,
    inferred: bool,
}

impl AcknowledgedVersions {
    /// Collects them. Where time only guides, it orders no keys whose order is recorded.
    pub(super) fn collect(
        writers: &VersionWriters<'_, '_>,
        time: TimeUse,
        ordered: &[bool],
    ) -> AcknowledgedVersions {
        let facts = writers.facts;
        let end = |version: u32| facts.end(writers.node(version));
        let mut times: Vec<u64> = (0..facts.versions.len() as u32).map(end).collect();
        if time == TimeUse::Respected {
            for read in &facts.reads {
                if let ReadResult::Version(version) = read.saw
                    && writers.is_single(read.node)
                {
                    let time = &mut times[version as usize];
                    *time = facts.end(read.node).min(*time);
                }
            }
        }
        let mut acknowledged = AcknowledgedVersions {
            by_key: Vec::with_capacity(facts.by_key.len()),
            places: vec![None; facts.versions.len()],
            points: Vec::with_capacity(facts.by_key.len()),
            nodes: facts.nodes.len() as u32,
            inferred: time == TimeUse::Guides,
        };
        for (versions, &ordered) in facts.by_key.iter().zip(ordered) {
            let counts = time == TimeUse::Respected || !ordered;
            let known = versions.iter().map(|&at| (times[at as usize], at));
            let mut known: Vec<(u64, u32)> =
                known.filter(|known| counts && known.0 < u64::MAX).collect();
            known.sort_unstable();
            for (&(_, version), place) in known.iter().zip(0..) {
                acknowledged.places[version as usize] = Some(place);
            }
            acknowledged.points.push(acknowledged.nodes);
            acknowledged.nodes += known.len() as u32;
            acknowledged.by_key.push(known);
        }
        acknowledged
    }

    /// Returns the acknowledged versions of a key.
    pub(super) fn of(&self, key: u32) -> &[(u64, u32)] {
        &self.by_key[key as usize]
    }

    /// Returns the place of a version among those of its key.
    pub(super) fn place(&self, version: u32) -> Option<usize> {
        self.places[version as usize].map(|place| place as usize)
    }

    /// Returns the number of versions of a key that were acknowledged before this time.
    pub(super) fn before(&self, key: u32, time: u64) -> usize {
        self.of(key).partition_point(|known| known.0 < time)
    }

    /// Returns the point that stands behind the first `count` versions of a key; `None` behind
    /// none.
    pub(super) fn point(&self, key: u32, count: usize) -> Option<u32> {
        let last = count.checked_sub(1)?;
        Some(self.points[key as usize] + last as u32)
    }

    /// Returns the times of all points, in their order.
    pub(super) fn times(&self) -> impl Iterator<Item = u64> {
        self.by_key.iter().flatten().map(|known| known.0)
    }

    /// Adds edges between writers, through points. Returns the number of nodes.
    pub(super) fn edges(&self, writers: &VersionWriters<'_, '_>, edges: &mut Edges) -> u32 {
        let facts = writers.facts;
        for key in 0..self.by_key.len() as u32 {
            let reason = EdgeReason::new(EdgeKind::Rt, self.inferred, key);
            for (count, &(_, version)) in (1..).zip(self.of(key)) {
                let point = self.points[key as usize] + count as u32 - 1;
                edges.push((writers.node(version), point, reason));
                if let Some(before) = self.point(key, count - 1) {
                    edges.push((before, point, reason));
                }
            }
            for &version in &facts.by_key[key as usize] {
                let node = writers.node(version);
                let before = self.before(key, facts.transaction(node).start);
                if let Some(point) = self.point(key, before) {
                    edges.push((point, node, reason));
                }
            }
        }
        self.nodes
    }

    /// Adds edges by reads: a version that was acknowledged before a read began is not after the
    /// version that the read saw. The error is a read that saw that nothing was ever written.
    pub(super) fn missed(
        &self,
        writers: &VersionWriters<'_, '_>,
        edges: &mut Edges,
    ) -> Result<(), Verdict> {
        for read in &writers.facts.reads {
            match read.saw {
                ReadResult::Version(version) => self.order(writers, read, version, edges),
                ReadResult::Absence(_) if !writers.facts.deleted[read.key as usize] => {
                    let start = writers.facts.transaction(read.node).start;
                    if self.before(read.key, start) > 0 {
                        let (_, missed) = self.of(read.key)[0];
                        return Err(evidence::missed_write(writers, read, missed));
                    }
                }
                ReadResult::Absence(_) => {}
            }
        }
        Ok(())
    }

    fn order(
        &self,
        writers: &VersionWriters<'_, '_>,
        read: &ReadFact,
        version: u32,
        edges: &mut Edges,
    ) {
        let reason = EdgeReason::new(EdgeKind::Stale, false, read.key);
        let seen = writers.node(version);
        self.visit_before(writers, read, version, |node, _| {
            edges.push((node, seen, reason));
        });
    }

    /// Visits nodes, points among them, behind which `version` stands because `read` saw it.
    /// `visit` gets `true` for a node if the version had been acknowledged before that node's
    /// writer began, so that it cannot stand there.
    pub(super) fn visit_before(
        &self,
        writers: &VersionWriters<'_, '_>,
        read: &ReadFact,
        version: u32,
        mut visit: impl FnMut(u32, bool),
    ) {
        let facts = writers.facts;
        let before = self.before(read.key, facts.transaction(read.node).start);
        let place = self.place(version).filter(|&place| place < before);
        // The version itself is not before itself.
        let count = place.unwrap_or(before);
        if let Some(point) = self.point(read.key, count) {
            visit(point, false);
        }
        let Some(place) = place else {
            return;
        };
        let known = self.of(read.key);
        for &(_, other) in &known[place + 1..before] {
            let node = writers.node(other);
            let is_late = facts.transaction(node).start > known[place].0;
            visit(node, is_late);
            if is_late {
                return;
            }
        }
    }
}
