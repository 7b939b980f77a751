//! The writers, whose order is to be found, and their versions.

use std::ops::Range;

use crate::check::facts::{HistoryFacts, versions_of};
use crate::check::graph::EdgeReason;
use crate::model::HistoryOp;

/// The use of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUse {
    /// Time is ignored.
    Ignored,
    /// Time orders writers where their order is not recorded. It may be wrong.
    Guides,
    /// Keys are linearizable.
    Respected,
}

pub(super) type Edges = Vec<(u32, u32, EdgeReason)>;

/// The writers, and their versions.
pub(super) struct VersionWriters<'f, 'h> {
    pub(super) facts: &'f HistoryFacts<'h>,
    versions_of: Vec<u32>,
}

impl<'f, 'h> VersionWriters<'f, 'h> {
    pub(super) fn new(facts: &'f HistoryFacts<'h>) -> VersionWriters<'f, 'h> {
        VersionWriters {
            facts,
            versions_of: versions_of(facts),
        }
    }

    pub(super) fn node(&self, version: u32) -> u32 {
        self.facts.versions[version as usize].node
    }

    /// Returns the versions that a node left, by key.
    pub(super) fn versions(&self, node: u32) -> Range<u32> {
        self.versions_of[node as usize]..self.versions_of[node as usize + 1]
    }

    /// Returns the version of a key that a node left.
    pub(super) fn wrote(&self, node: u32, key: u32) -> Option<u32> {
        let range = self.versions(node);
        let versions = &self.facts.versions[range.start as usize..range.end as usize];
        let at = versions.binary_search_by_key(&key, |version| version.key);
        at.ok().map(|at| range.start + at as u32)
    }

    /// Returns `true` if a node reads and writes one key alone, so that it sees the state that all
    /// readers see.
    pub(super) fn is_single(&self, node: u32) -> bool {
        let mut keys = self.facts.transaction(node).ops.iter().map(|op| match op {
            HistoryOp::Read { key, .. }
            | HistoryOp::Write { key, .. }
            | HistoryOp::Delete { key, .. } => Some(*key),
            HistoryOp::Scan { .. } => None,
        });
        let first = keys.next().flatten();
        first.is_some() && keys.all(|key| key == first)
    }
}
