//! After the faults: the cluster must come to rest, and then answer.
//!
//! | stage | what must hold |
//! |---|---|
//! | resting | every client's transaction has ended; no attempt, hold or waiting request is left |
//! | reading | all ordinary keys are read in one transaction, which ends their history; the accounts' sum |
//! | gathering | all read-atomic keys are read at once |
//! | looking | each of them by itself has what was read at once: all partitions agree |
//! | writing | every key, and a new one of each partition, can be written: no hold is left |
//! | flushing | each partition can be flushed: no range and no reader is left |

use std::time::Duration;

use base::Op;
use base::participant::Participant;
use base::partition::OwnedReply;

use super::client::{Answered, Client};
use super::doubt::Doubt;
use super::job::{Job, Step};
use super::machine::Ticket;
use super::world::{Event, World};

/// Everything must have ended within this time after the faults.
const WITHIN: Duration = Duration::from_secs(90);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Reading,
    Gathering,
    /// The next read-atomic key to be read.
    Looking(usize),
    Writing,
    /// Writes read-atomic keys.
    Scattering,
    /// The next machine to be flushed.
    Flushing(usize),
    Over,
}

/// Progress of the finale.
#[derive(Default)]
pub(super) struct Finale {
    stage: Stage,
    /// Since when a transaction is under way, if one is. `number` counts the transactions.
    asked: Option<Duration>,
    number: u32,
    pub(super) doubts: Vec<Doubt>,
    /// The last values of the read-atomic keys.
    gathered: Vec<OwnedReply>,
}

impl Finale {
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }
}

impl World {
    /// Goes on to the next stage if everything has come to rest.
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
            Stage::Reading | Stage::Gathering | Stage::Looking(_) => {
                let job = self.last_read();
                self.ask(node, &job.ops(&keys));
            }
            Stage::Scattering => {
                let names = keys.recorded[..keys.read_atomic].iter();
                let ops: Vec<Op<'_>> = names
                    .map(|key| Op::put(key.name.as_bytes(), b"0"))
                    .collect();
                self.ask(node, &ops);
            }
            Stage::Writing => {
                let ordinary = &keys.recorded[keys.read_atomic..];
                let fresh: Vec<String> = ordinary
                    .iter()
                    .map(|key| format!("{{{}}}new", key.name))
                    .collect();
                let old = ordinary.iter().chain(&keys.accounts);
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
        let covered = self.keys.read_atomic;
        let steps = match self.finale.stage {
            Stage::Looking(key) => vec![Step::Get(key)],
            Stage::Gathering => (0..covered).map(Step::Get).collect(),
            _ => {
                let ordinary = (covered..self.keys.recorded.len()).map(Step::Get);
                let accounts = (0..self.keys.accounts.len()).map(Step::Balance);
                ordinary.chain(accounts).collect()
            }
        };
        Job {
            steps,
            ..Job::default()
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
                // Clocks may still be apart: the transaction is tried again.
                return self.trace.note(self.now, format_args!("finale: {abort}"));
            }
        };
        self.trace
            .note(self.now, format_args!("finale: {replies:?}"));
        match self.finale.stage {
            Stage::Reading | Stage::Gathering | Stage::Looking(_) => {
                let own = self.topology.partition_at(self.machines[node].id);
                match self.last_read().seen(&self.keys, own, &replies) {
                    Ok(seen) => {
                        let time = (asked, self.now);
                        let outcome = history::Outcome::Committed;
                        self.chronicle
                            .record(self.processes, time, outcome, &seen.ops);
                        self.processes += 1;
                        self.check_sum(seen.sum);
                        self.next_read(replies);
                    }
                    Err(why) => self.fail(why),
                }
            }
            Stage::Writing if self.keys.read_atomic > 0 => self.finale.stage = Stage::Scattering,
            Stage::Writing | Stage::Scattering => self.finale.stage = Stage::Flushing(0),
            Stage::Flushing(node) => self.next_flush(node),
            Stage::Over => {}
        }
    }

    /// Adds a read to the history, and begins the next one.
    fn next_read(&mut self, replies: Vec<OwnedReply>) {
        let covered = self.keys.read_atomic;
        let looked = match self.finale.stage {
            Stage::Looking(key) if self.finale.gathered[key] != replies[0] => {
                let (name, all) = (&self.keys.recorded[key].name, &self.finale.gathered[key]);
                let why =
                    format!("{name} was read as {all:?} with others, and as {replies:?} alone");
                return self.fail(why);
            }
            Stage::Looking(key) => key + 1,
            Stage::Gathering => {
                self.finale.gathered = replies;
                0
            }
            _ if covered > 0 => {
                self.settle_doubts();
                return self.finale.stage = Stage::Gathering;
            }
            _ => {
                self.settle_doubts();
                0
            }
        };
        self.finale.stage = if looked < covered {
            Stage::Looking(looked)
        } else {
            Stage::Writing
        };
    }

    /// Describes what has not ended; empty if everything has.
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

    /// Checks that most transactions take effect in a run without faults.
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
