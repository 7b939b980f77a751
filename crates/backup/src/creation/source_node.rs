//! A node, and what the chain has of it.

use std::collections::BTreeMap;

use store::{CheckpointFiles, DataFile, DataFiles, DataSegment};

use crate::manifest::FilePiece;
use crate::source::{NodeDescription, NodeSource};

/// A node, and what the chain has of it.
pub(super) struct SourceNode<'a> {
    pub(super) source: &'a mut dyn NodeSource,
    pub(super) description: NodeDescription,
    pub(super) base: Option<CheckpointFiles>,
    pub(super) base_ms: u64,
    /// For each file: its identity, and the offset up to which the chain has it.
    pub(super) copied: BTreeMap<String, (u64, u64)>,
}

impl SourceNode<'_> {
    /// Notes the pieces of a backup.
    pub(super) fn note(&mut self, pieces: &[FilePiece]) {
        for piece in pieces {
            let copied = (piece.identity, piece.to);
            self.copied.insert(piece.file.clone(), copied);
        }
    }

    /// Returns how far the chain has a file.
    pub(super) fn end_of(&self, file: &DataFile) -> u64 {
        let copied = self.copied.get(&file.name);
        let copied = copied.filter(|(identity, _)| *identity == file.identity);
        copied.map_or(0, |(_, to)| *to)
    }

    /// Returns the number of the first segment of a log that the chain needs from now on: the last one of which it has
    /// a part, or the first one behind its base.
    pub(super) fn first_needed(&self, files: &DataFiles, log: usize) -> u32 {
        let of_base = self.base.as_ref();
        let of_base = of_base.and_then(|base| base.first_segments.get(log).copied());
        let segments = files.logs[log].iter();
        let known = segments.filter(|segment| self.end_of(&segment.file) > 0);
        let known = known.map(|segment| segment.number).max();
        known.or(of_base).unwrap_or_default()
    }

    /// Returns the reason why the files do not continue the chain.
    pub(super) fn break_in(&self, files: &DataFiles) -> Option<String> {
        let node = self.description.node;
        let mut last: BTreeMap<&str, (&str, u64, u64)> = BTreeMap::new();
        for (name, &(identity, to)) in &self.copied {
            if let Some((log, _)) = name.split_once('/').filter(|(log, _)| *log != "checkpoint") {
                // Names of one log are in the order of their numbers.
                last.insert(log, (name.as_str(), identity, to));
            }
        }
        for (log, (name, identity, to)) in last {
            let mut segments = files.logs.iter().flatten();
            let same = segments.find(|segment| segment.file.name == name);
            let continues = same.is_some_and(|segment| {
                segment.file.identity == identity && segment.file.bytes >= to
            });
            if !continues {
                return Some(format!(
                    "node {node} has removed what the last backup needs of {log}: a checkpoint has made it superfluous"
                ));
            }
        }
        let is_new = |segments: &&Vec<DataSegment>| {
            let first = segments.first();
            first.is_some_and(|first| {
                let (log, _) = first.file.name.split_once('/').unwrap_or_default();
                let prefix = format!("{log}/");
                first.number > 0 && !self.copied.keys().any(|name| name.starts_with(&prefix))
            })
        };
        let gap = files.logs.iter().find(is_new);
        gap.map(|_| format!("node {node} has removed the beginning of a new log"))
    }
}
