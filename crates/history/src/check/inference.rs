//! A serial execution of the history, found step by step, that determines the facts that were not
//! recorded: the order of segments, and which absence a read saw.
//!
//! A transaction can run once all have run that certainly precede it, and
//! 1. every key of which it saw *some* absence is absent now;
//! 2. where it begins a segment, the segment before is complete, and every reader of its last
//!    version has run.
//!
//! Transactions that take nothing from others run at once when they can. Those that begin a segment
//! or end an absence are *choices*: the one that must have taken effect by the earliest time goes
//! first. When nothing can run any more, the last choice was wrong, or an earlier one: it is
//! undone, and the next is tried. States from which no path led on are remembered, so that the
//! search does not try all orders of unrelated choices.
//!
//! The search is bounded. Nodes that are left after it are put behind, by time. Either way the
//! result is only a proposal, which the caller checks.

use std::collections::HashSet;

use super::execution::SerialExecution;
use super::facts::{FactMap, HistoryFacts, INITIAL, ReadFact};
use super::graph::SerializationGraph;
use super::order::{LAST, UNDECIDED, VersionOrders};

/// Completes `known`, of which `certain` are the edges.
pub(super) fn infer(
    facts: &HistoryFacts<'_>,
    known: &VersionOrders,
    certain: &SerializationGraph,
) -> VersionOrders {
    let mut execution = SerialExecution::new(facts, known, certain);
    execution.search();
    execution.finish()
}

/// A point at which there were several ways to continue.
struct ChoicePoint {
    /// The number of nodes that had run.
    ran: usize,
    /// The state, hashed.
    state: u64,
    /// The choices that were tried.
    tried: Vec<u32>,
}

/// Steps that may be undone, in addition to one per transaction.
const UNDO_BUDGET: usize = 1_000_000;

impl SerialExecution<'_> {
    /// Runs the nodes that can run, going back where that leads nowhere, until all ran or the
    /// budget is spent.
    fn search(&mut self) {
        let mut choices: Vec<ChoicePoint> = Vec::new();
        let mut dead: HashSet<u64> = HashSet::new();
        let mut furthest: Vec<u32> = Vec::new();
        let mut budget = UNDO_BUDGET + self.facts.nodes.len();
        loop {
            self.run_free();
            if self.is_complete() {
                return;
            }
            if self.trail.len() > furthest.len() && self.candidate(&[]).is_none() {
                furthest.clone_from(&self.trail);
            }
            let here = ChoicePoint {
                ran: self.trail.len(),
                state: self.state,
                tried: Vec::new(),
            };
            if !dead.contains(&here.state) {
                choices.push(here);
            }
            // This continues from the newest choice that has an untried alternative.
            let next = loop {
                let Some(choice) = choices.last_mut() else {
                    break None;
                };
                budget = budget.saturating_sub(self.trail.len() - choice.ran);
                while self.trail.len() > choice.ran {
                    self.undo();
                }
                if let Some(node) = self.candidate(&choice.tried) {
                    choice.tried.push(node);
                    break Some(node);
                }
                dead.insert(choice.state);
                choices.pop();
            };
            match next {
                Some(node) if budget > 0 => self.execute(node),
                _ => break,
            }
        }
        self.replay(&furthest);
    }

    /// Runs exactly these nodes.
    fn replay(&mut self, nodes: &[u32]) {
        while !self.trail.is_empty() {
            self.undo();
        }
        nodes.iter().for_each(|&node| self.execute(node));
    }

    /// Completes the result with the nodes that did not run.
    fn finish(mut self) -> VersionOrders {
        let mut ran = vec![false; self.certain.nodes() as usize];
        self.trail
            .iter()
            .for_each(|&node| ran[node as usize] = true);
        for (&key, state) in &self.keys {
            let mut heads = state.heads.clone();
            let rest = self.known.heads[key as usize].iter().copied();
            let mut rest: Vec<u32> = rest.filter(|&h| !ran[self.writer(h) as usize]).collect();
            rest.sort_by_key(|&head| self.deadlines[self.writer(head) as usize]);
            heads.append(&mut rest);
            self.result.join(key, &heads);
        }
        let mut absences: FactMap<u32, Vec<(u64, u32)>> = FactMap::default();
        for (i, read) in self.facts.reads.iter().enumerate() {
            if self.result.saw[i] == UNDECIDED {
                let known = absences
                    .entry(read.key)
                    .or_insert_with(|| self.absences(read.key));
                self.result.saw[i] = self.by_time(read, known);
            }
        }
        self.result
    }

    fn writer(&self, version: u32) -> u32 {
        self.facts.versions[version as usize].node
    }

    /// Returns the absences of a key in their order, each with the time by which it was there.
    fn absences(&self, key: u32) -> Vec<(u64, u32)> {
        let mut absences = Vec::new();
        let mut time = 0;
        let mut version = self.result.first(key);
        while version != LAST {
            time = self.deadlines[self.writer(version) as usize].max(time);
            if self.facts.versions[version as usize].value.is_none() {
                absences.push((time, version));
            }
            version = self.result.next[version as usize];
        }
        absences
    }

    fn by_time(&self, read: &ReadFact, absences: &[(u64, u32)]) -> u32 {
        let deadline = self.deadlines[read.node as usize];
        let before = absences.partition_point(|absence| absence.0 <= deadline);
        absences[..before]
            .last()
            .map_or(INITIAL, |absence| absence.1)
    }
}
