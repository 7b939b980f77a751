//! Edges between versions that were read together.

use crate::check::facts::{FactMap, ReadFact, ReadResult};
use crate::check::graph::{EdgeKind, EdgeReason};
use crate::verdict::Verdict;

use super::evidence;
use super::writers::{Edges, VersionWriters};

/// Writers that come before the absence that a read saw, because the same reader saw another of
/// their writes.
#[derive(Default)]
pub(super) struct AbsencePredecessors(FactMap<u32, Vec<u32>>);

impl AbsencePredecessors {
    /// Collects them, and the edges between writers whose writes were seen. The error is a read
    /// that saw a part of a transaction's writes, and of another key that nothing was ever written.
    pub(super) fn collect(
        writers: &VersionWriters<'_, '_>,
        edges: &mut Edges,
    ) -> Result<AbsencePredecessors, Verdict> {
        let mut needs = AbsencePredecessors::default();
        for node in 0..writers.facts.nodes.len() as u32 {
            if writers.facts.reads_of(node).len() > 1 {
                NodeReads::new(writers, node).compare(edges, &mut needs)?;
            }
        }
        Ok(needs)
    }

    /// Returns the writers before the absence that this read, an index into all reads, saw.
    pub(super) fn of(&self, read: u32) -> &[u32] {
        self.0.get(&read).map_or(&[], |needs| needs)
    }
}

/// All reads of one node.
struct NodeReads<'w, 'f, 'h> {
    writers: &'w VersionWriters<'f, 'h>,
    reads: &'f [ReadFact],
    /// The index of the first read.
    first: u32,
    /// The place of each key's read among them.
    places: FactMap<u32, u32>,
}

impl<'w, 'f, 'h> NodeReads<'w, 'f, 'h> {
    fn new(writers: &'w VersionWriters<'f, 'h>, node: u32) -> NodeReads<'w, 'f, 'h> {
        let range = writers.facts.reads_of(node);
        let first = range.start as u32;
        let reads = &writers.facts.reads[range];
        let places = reads.iter().zip(0..).map(|(read, at)| (read.key, at));
        NodeReads {
            writers,
            reads,
            first,
            places: places.collect(),
        }
    }

    fn compare(&self, edges: &mut Edges, needs: &mut AbsencePredecessors) -> Result<(), Verdict> {
        let mut compared = FactMap::default();
        for read in self.reads {
            let ReadResult::Version(version) = read.saw else {
                continue;
            };
            let writer = self.writers.node(version);
            if compared.insert(writer, ()).is_none() {
                self.siblings(writer, |at, key| {
                    let other = &self.reads[at as usize];
                    match other.saw {
                        ReadResult::Version(seen) if self.writers.node(seen) != writer => {
                            let reason = EdgeReason::new(EdgeKind::Seen, false, key);
                            edges.push((writer, self.writers.node(seen), reason));
                        }
                        ReadResult::Absence(_) if !self.writers.facts.deleted[key as usize] => {
                            return Err(evidence::partial_read(self.writers, read, other, writer));
                        }
                        ReadResult::Absence(_) => {
                            let before = needs.0.entry(self.first + at).or_default();
                            before.push(writer);
                        }
                        ReadResult::Version(_) => {}
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Visits the reads of keys that `writer` wrote, in the shorter of two ways.
    fn siblings(
        &self,
        writer: u32,
        mut visit: impl FnMut(u32, u32) -> Result<(), Verdict>,
    ) -> Result<(), Verdict> {
        let versions = self.writers.versions(writer);
        if versions.len() < self.reads.len() {
            for version in versions {
                let key = self.writers.facts.versions[version as usize].key;
                if let Some(&at) = self.places.get(&key) {
                    visit(at, key)?;
                }
            }
        } else {
            for (read, at) in self.reads.iter().zip(0..) {
                if self.writers.wrote(writer, read.key).is_some() {
                    visit(at, read.key)?;
                }
            }
        }
        Ok(())
    }
}
