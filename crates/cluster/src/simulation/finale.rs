//! After the faults: the cluster must come to rest, and then answer.
//!
//! | stage | what must hold |
//! |---|---|
//! | resting | every client's transaction has ended; no attempt, hold or waiting request is left |
//! | reading | all keys are read in one transaction, which ends the history; the accounts' sum |
//! | writing | every key, and a new one of each partition, can be written: no hold is left |
//! | flushing | each partition can be flushed: no range and no reader is left |

use std::time::Duration;

use base::Op;
use base::participant::Participant;

use super::client::{Answered, Client};
use super::doubt::Doubt;
use super::job::{Job, Step};
use super::machine::Ticket;
use super::world::{Event, World};

/// Within this time after the faults everything has ended.
const WITHIN: Duration = Duration::from_secs(90);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Reading,
    Writing,
    /// The next machine to be flushed.
    Flushing(usize),
    Over,
}

/// How far it is.
#[derive(Default)]
pub(super) struct Finale {
    stage: Stage,
    /// Whether a transaction is under way, since when, and the number of it.
    asked: Option<Duration>,
    number: u32,
    pub(super) doubts: Vec<Doubt>,
}

impl Finale {
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
}

impl World {
    /// Looks whether everything has come to rest; then goes on to the next stage.
    pub(super) fn rest(&mut self) {
        if self.now > self.plan.calm + WITHIN {
            let left = self.what_is_left();
            return self.fail(format!("{WITHIN:?} after the faults there is still {left}"));
        }
        self.after(PAUSE, Event::Rest);
        if self.finale.asked.is_some() || !self.what_is_left().is_empty() {
            return;
        }
        let node = self.random.usize(..self.machines.len());
        let keys = self.keys.clone();
        match self.finale.stage {
            Stage::Reading => {
                let job = self.last_read();
                self.ask(node, &job.ops(&keys));
            }
            Stage::Writing => {
                let fresh: Vec<String> = keys
                    .recorded
                    .iter()
                    .map(|key| format!("{{{}}}new", key.name))
                    .collect();
                let old = keys.recorded.iter().chain(&keys.accounts);
                let names = old.map(|key| &key.name).chain(&fresh);
                let ops: Vec<Op<'_>> = names.map(|name| Op::put(name.as_bytes(), b"0")).collect();
                self.ask(node, &ops);
            }
            Stage::Flushing(node) => {
                let id = self.machines[node].id;
                if self.topology.partition_at(id).is_some() {
                    self.ask(node, &[Op::Flush]);
                } else {
                    self.next_flush(node);
                }
            }
            Stage::Over => {}
        }
    }

    fn next_flush(&mut self, node: usize) {
        self.finale.stage = if node + 1 < self.machines.len() {
            Stage::Flushing(node + 1)
        } else {
            self.check_progress();
            self.count_machines();
            Stage::Over
        };
    }

    fn ask(&mut self, node: usize, ops: &[Op<'_>]) {
        self.finale.asked = Some(self.now);
        self.finale.number += 1;
        let number = self.finale.number;
        if !self.begin(node, ops, Ticket::Finale(number)) {
            self.finale.asked = None;
        }
    }

    fn last_read(&self) -> Job {
        let recorded = (0..self.keys.recorded.len()).map(Step::Get);
        let accounts = (0..self.keys.accounts.len()).map(Step::Balance);
        Job {
            steps: recorded.chain(accounts).collect(),
        }
    }

    pub(super) fn finale_answered(&mut self, node: usize, number: u32, answered: Answered) {
        let Some(asked) = self
            .finale
            .asked
            .take()
            .filter(|_| number == self.finale.number)
        else {
            return;
        };
        let replies = match answered.0 {
            Ok(replies) => replies,
            Err(abort) => {
                // Clocks may still be apart: it is tried again.
                return self.trace.note(self.now, format_args!("finale: {abort}"));
            }
        };
        self.trace
            .note(self.now, format_args!("finale: {replies:?}"));
        match self.finale.stage {
            Stage::Reading => {
                let own = self.topology.partition_at(self.machines[node].id);
                match self.last_read().seen(&self.keys, own, &replies) {
                    Ok(seen) => {
                        let time = (asked, self.now);
                        let outcome = history::Outcome::Committed;
                        self.chronicle
                            .record(self.processes, time, outcome, &seen.ops);
                        self.processes += 1;
                        self.settle_doubts();
                        self.check_sum(seen.sum);
                        self.finale.stage = Stage::Writing;
                    }
                    Err(why) => self.fail(why),
                }
            }
            Stage::Writing => self.finale.stage = Stage::Flushing(0),
            Stage::Flushing(node) => self.next_flush(node),
            Stage::Over => {}
        }
    }

    /// What has not ended, said for people; nothing if everything has.
    fn what_is_left(&mut self) -> String {
        let busy = self
            .clients
            .iter()
            .filter(|client| !Client::is_done(client))
            .count();
        let mut left = Vec::new();
        if busy > 0 {
            left.push(format!("{busy} clients at work"));
        }
        for group in self.groups.iter().filter(|group| group.leader.is_none()) {
            left.push(format!("partition {} without a leader", group.of));
        }
        for machine in &mut self.machines {
            let id = machine.id;
            let Some(running) = &mut machine.running else {
                left.push(format!("node {id} down"));
                continue;
            };
            let (transactions, waiting) = running.node.under_way();
            if transactions + waiting > 0 {
                left.push(format!(
                    "node {id} with {transactions} transactions and {waiting} waiting requests"
                ));
            }
            let undecided = running.partition.undecided();
            if !undecided.is_empty() {
                left.push(format!("node {id} with {undecided:?}"));
            }
        }
        left.join(", ")
    }

    /// Without faults most transactions take effect.
    fn check_progress(&mut self) {
        let counts = self.chronicle.counts;
        let all = counts.committed + counts.aborted + counts.unknown;
        if self.plan.faults.is_none() && (counts.aborted + counts.unknown) * 5 > all {
            self.fail(format!(
                "too few transactions took effect without faults: {counts:?}"
            ));
        }
    }

    fn count_machines(&mut self) {
        for at in 0..self.machines.len() {
            if let Some(running) = self.machines[at].running.take() {
                self.count(&running);
            }
        }
    }
}
