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
use base::participant::TwoPhaseCommit;
use base::partition::OwnedReply;

use super::client::{Client, Clients};
use super::doubt::Doubt;
use super::environment::{Answered, Environment, Event, Ticket};
use super::job::{Job, Step};
use super::machines::Machines;

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
    /// The last values of the read-atomic keys.
    gathered: Vec<OwnedReply>,
}

impl Finale {
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Goes on to the next stage if everything has come to rest.
    pub(super) fn rest(
        &mut self,
        (env, machines, clients): (&mut Environment, &mut Machines, &mut Clients),
    ) {
        if env.now > env.plan.calm + WITHIN {
            let left = what_is_left(machines, clients);
            return env.fail(format!("{WITHIN:?} after the faults there is still {left}"));
        }
        env.after(PAUSE, Event::Rest);
        if self.asked.is_some() || !what_is_left(machines, clients).is_empty() {
            return;
        }
        let node = env.random.usize(..machines.machines.len());
        let keys = env.keys.clone();
        match self.stage {
            Stage::Reading | Stage::Gathering | Stage::Looking(_) => {
                let job = self.last_read(env);
                self.ask(env, machines, node, &job.ops(&keys));
            }
            Stage::Scattering => {
                let names = keys.recorded[..keys.read_atomic].iter();
                let ops: Vec<Op<'_>> = names
                    .map(|key| Op::put(key.name.as_bytes(), b"0"))
                    .collect();
                self.ask(env, machines, node, &ops);
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
                self.ask(env, machines, node, &ops);
            }
            Stage::Flushing(node) => {
                let id = machines.machines[node].id;
                if env.topology.partition_at(id).is_some() {
                    self.ask(env, machines, node, &[Op::Flush]);
                } else {
                    self.next_flush(env, machines, node);
                }
            }
            Stage::Over => {}
        }
    }

    fn next_flush(&mut self, env: &mut Environment, machines: &mut Machines, node: usize) {
        self.stage = if node + 1 < machines.machines.len() {
            Stage::Flushing(node + 1)
        } else {
            Self::check_progress(env);
            Self::count_machines(env, machines);
            Stage::Over
        };
    }

    fn ask(&mut self, env: &mut Environment, machines: &mut Machines, node: usize, ops: &[Op<'_>]) {
        self.asked = Some(env.now);
        self.number += 1;
        let number = self.number;
        if !machines.begin(env, node, ops, Ticket::Finale(number)) {
            self.asked = None;
        }
    }

    fn last_read(&self, env: &Environment) -> Job {
        let covered = env.keys.read_atomic;
        let steps = match self.stage {
            Stage::Looking(key) => vec![Step::Get(key)],
            Stage::Gathering => (0..covered).map(Step::Get).collect(),
            _ => {
                let ordinary = (covered..env.keys.recorded.len()).map(Step::Get);
                let accounts = (0..env.keys.accounts.len()).map(Step::Balance);
                ordinary.chain(accounts).collect()
            }
        };
        Job {
            steps,
            ..Job::default()
        }
    }

    pub(super) fn finale_answered(
        &mut self,
        (env, machines, clients): (&mut Environment, &mut Machines, &mut Clients),
        node: usize,
        number: u32,
        answered: Answered,
    ) {
        let Some(asked) = self.asked.take().filter(|_| number == self.number) else {
            return;
        };
        let replies = match answered.0 {
            Ok(replies) => replies,
            Err(abort) => {
                // Clocks may still be apart: the transaction is tried again.
                return env.trace.note(env.now, format_args!("finale: {abort}"));
            }
        };
        env.trace.note(env.now, format_args!("finale: {replies:?}"));
        match self.stage {
            Stage::Reading | Stage::Gathering | Stage::Looking(_) => {
                let own = env.topology.partition_at(machines.machines[node].id);
                match self.last_read(env).seen(&env.keys, own, &replies) {
                    Ok(seen) => {
                        let time = (asked, env.now);
                        let outcome = history::Outcome::Committed;
                        env.chronicle
                            .record(env.processes, time, outcome, &seen.ops);
                        env.processes += 1;
                        env.check_sum(seen.sum);
                        self.next_read((env, machines, clients), replies);
                    }
                    Err(why) => env.fail(why),
                }
            }
            Stage::Writing if env.keys.read_atomic > 0 => self.stage = Stage::Scattering,
            Stage::Writing | Stage::Scattering => self.stage = Stage::Flushing(0),
            Stage::Flushing(node) => self.next_flush(env, machines, node),
            Stage::Over => {}
        }
    }

    /// Adds a read to the history, and begins the next one.
    fn next_read(
        &mut self,
        (env, machines, clients): (&mut Environment, &mut Machines, &mut Clients),
        replies: Vec<OwnedReply>,
    ) {
        let covered = env.keys.read_atomic;
        let looked = match self.stage {
            Stage::Looking(key) if self.gathered[key] != replies[0] => {
                let (name, all) = (&env.keys.recorded[key].name, &self.gathered[key]);
                let why =
                    format!("{name} was read as {all:?} with others, and as {replies:?} alone");
                return env.fail(why);
            }
            Stage::Looking(key) => key + 1,
            Stage::Gathering => {
                self.gathered = replies;
                0
            }
            _ if covered > 0 => {
                Doubt::settle_all(env, machines, std::mem::take(&mut clients.doubts));
                return self.stage = Stage::Gathering;
            }
            _ => {
                Doubt::settle_all(env, machines, std::mem::take(&mut clients.doubts));
                0
            }
        };
        self.stage = if looked < covered {
            Stage::Looking(looked)
        } else {
            Stage::Writing
        };
    }

    /// Checks that most transactions take effect in a run without faults.
    fn check_progress(env: &mut Environment) {
        let counts = env.chronicle.counts;
        let all = counts.committed + counts.aborted + counts.unknown;
        if env.plan.faults.is_none() && (counts.aborted + counts.unknown) * 5 > all {
            env.fail(format!(
                "too few transactions took effect without faults: {counts:?}"
            ));
        }
    }

    fn count_machines(env: &mut Environment, machines: &mut Machines) {
        for at in 0..machines.machines.len() {
            if let Some(running) = machines.machines[at].running.take() {
                machines.count(env, &running);
            }
        }
    }
}

/// Describes what has not ended; empty if everything has.
fn what_is_left(machines: &mut Machines, clients: &Clients) -> String {
    let busy = clients
        .clients
        .iter()
        .filter(|client| !Client::is_done(client))
        .count();
    let mut left = Vec::new();
    if busy > 0 {
        left.push(format!("{busy} clients at work"));
    }
    for group in machines
        .groups
        .iter()
        .filter(|group| group.leader.is_none())
    {
        left.push(format!("partition {} without a leader", group.of));
    }
    for machine in &mut machines.machines {
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
