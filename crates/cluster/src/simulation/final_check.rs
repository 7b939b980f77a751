//! After the faults: the cluster must come to rest, and then answer.
//!
//! | stage | what must hold |
//! |---|---|
//! | resting | every client's transaction has ended; no attempt, hold or waiting request is left |
//! | reading | all ordinary keys are read in one transaction, which ends their history; the accounts' sum |
//! | reading together | all read-atomic keys are read at once |
//! | reading each | each of them by itself has what was read at once: all partitions agree |
//! | writing | every key, and a new one of each partition, can be written: no hold is left |
//! | flushing | each partition can be flushed: no range and no reader is left |

use std::time::Duration;

use base::Op;
use base::participant::TwoPhaseCommit;
use base::partition::OwnedReply;

use super::client_transaction::{ClientStep, ClientTransaction};
use super::clients::{SimulatedClient, SimulatedClients};
use super::environment::{CallerId, ClientAnswer, Environment, Event};
use super::machines::SimulatedMachines;
use super::uncertain_transaction::UncertainTransaction;

/// Everything must have ended within this time after the faults.
const WITHIN: Duration = Duration::from_secs(90);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FinalStage {
    #[default]
    Reading,
    ReadingTogether,
    /// The next read-atomic key to be read.
    ReadingEach(usize),
    Writing,
    /// Writes read-atomic keys.
    WritingReadAtomic,
    /// The next machine to be flushed.
    Flushing(usize),
    Over,
}

/// Progress of the final check.
#[derive(Default)]
pub(super) struct FinalCheck {
    stage: FinalStage,
    /// Since when a transaction is under way, if one is. `number` counts the transactions.
    asked: Option<Duration>,
    number: u32,
    /// The last values of the read-atomic keys.
    read_together: Vec<OwnedReply>,
}

impl FinalCheck {
    pub(super) fn is_over(&self) -> bool {
        self.stage == FinalStage::Over
    }

    /// Goes on to the next stage if everything has come to rest.
    pub(super) fn advance(
        &mut self,
        (env, machines, clients): (
            &mut Environment,
            &mut SimulatedMachines,
            &mut SimulatedClients,
        ),
    ) {
        if env.now > env.plan.faults_stop + WITHIN {
            let left = what_is_left(machines, clients);
            return env.fail(format!("{WITHIN:?} after the faults there is still {left}"));
        }
        env.after(PAUSE, Event::FinalCheck);
        if self.asked.is_some() || !what_is_left(machines, clients).is_empty() {
            return;
        }
        let node = env.random.usize(..machines.machines.len());
        let keys = env.keys.clone();
        match self.stage {
            FinalStage::Reading | FinalStage::ReadingTogether | FinalStage::ReadingEach(_) => {
                let transaction = self.last_read(env);
                self.ask(env, machines, node, &transaction.ops(&keys));
            }
            FinalStage::WritingReadAtomic => {
                let names = keys.recorded[..keys.read_atomic].iter();
                let ops: Vec<Op<'_>> = names
                    .map(|key| Op::put(key.name.as_bytes(), b"0"))
                    .collect();
                self.ask(env, machines, node, &ops);
            }
            FinalStage::Writing => {
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
            FinalStage::Flushing(node) => {
                let id = machines.machines[node].id;
                if env.topology.partition_at(id).is_some() {
                    self.ask(env, machines, node, &[Op::Flush]);
                } else {
                    self.next_flush(env, machines, node);
                }
            }
            FinalStage::Over => {}
        }
    }

    fn next_flush(&mut self, env: &mut Environment, machines: &mut SimulatedMachines, node: usize) {
        self.stage = if node + 1 < machines.machines.len() {
            FinalStage::Flushing(node + 1)
        } else {
            Self::check_progress(env);
            Self::count_machines(env, machines);
            FinalStage::Over
        };
    }

    fn ask(
        &mut self,
        env: &mut Environment,
        machines: &mut SimulatedMachines,
        node: usize,
        ops: &[Op<'_>],
    ) {
        self.asked = Some(env.now);
        self.number += 1;
        let number = self.number;
        if !machines.begin(env, node, ops, CallerId::FinalCheck(number)) {
            self.asked = None;
        }
    }

    fn last_read(&self, env: &Environment) -> ClientTransaction {
        let covered = env.keys.read_atomic;
        let steps = match self.stage {
            FinalStage::ReadingEach(key) => vec![ClientStep::Get(key)],
            FinalStage::ReadingTogether => (0..covered).map(ClientStep::Get).collect(),
            _ => {
                let ordinary = (covered..env.keys.recorded.len()).map(ClientStep::Get);
                let accounts = (0..env.keys.accounts.len()).map(ClientStep::Balance);
                ordinary.chain(accounts).collect()
            }
        };
        ClientTransaction {
            steps,
            ..ClientTransaction::default()
        }
    }

    pub(super) fn answered(
        &mut self,
        (env, machines, clients): (
            &mut Environment,
            &mut SimulatedMachines,
            &mut SimulatedClients,
        ),
        node: usize,
        number: u32,
        answered: ClientAnswer,
    ) {
        let Some(asked) = self.asked.take().filter(|_| number == self.number) else {
            return;
        };
        let replies = match answered.0 {
            Ok(replies) => replies,
            Err(abort) => {
                // Clocks may still be apart: the transaction is tried again.
                return env
                    .trace
                    .note(env.now, format_args!("final check: {abort}"));
            }
        };
        env.trace
            .note(env.now, format_args!("final check: {replies:?}"));
        match self.stage {
            FinalStage::Reading | FinalStage::ReadingTogether | FinalStage::ReadingEach(_) => {
                let own = env.topology.partition_at(machines.machines[node].id);
                match self.last_read(env).observed_by(&env.keys, own, &replies) {
                    Ok(observed_by) => {
                        let time = (asked, env.now);
                        let outcome = history::Outcome::Committed;
                        env.recorded_history
                            .record(env.processes, time, outcome, &observed_by.ops);
                        env.processes += 1;
                        env.check_sum(observed_by.sum);
                        self.next_read((env, machines, clients), replies);
                    }
                    Err(why) => env.fail(why),
                }
            }
            FinalStage::Writing if env.keys.read_atomic > 0 => {
                self.stage = FinalStage::WritingReadAtomic
            }
            FinalStage::Writing | FinalStage::WritingReadAtomic => {
                self.stage = FinalStage::Flushing(0)
            }
            FinalStage::Flushing(node) => self.next_flush(env, machines, node),
            FinalStage::Over => {}
        }
    }

    /// Adds a read to the history, and begins the next one.
    fn next_read(
        &mut self,
        (env, machines, clients): (
            &mut Environment,
            &mut SimulatedMachines,
            &mut SimulatedClients,
        ),
        replies: Vec<OwnedReply>,
    ) {
        let covered = env.keys.read_atomic;
        let looked = match self.stage {
            FinalStage::ReadingEach(key) if self.read_together[key] != replies[0] => {
                let (name, all) = (&env.keys.recorded[key].name, &self.read_together[key]);
                let why =
                    format!("{name} was read as {all:?} with others, and as {replies:?} alone");
                return env.fail(why);
            }
            FinalStage::ReadingEach(key) => key + 1,
            FinalStage::ReadingTogether => {
                self.read_together = replies;
                0
            }
            _ if covered > 0 => {
                UncertainTransaction::record_all(
                    env,
                    machines,
                    std::mem::take(&mut clients.uncertain),
                );
                return self.stage = FinalStage::ReadingTogether;
            }
            _ => {
                UncertainTransaction::record_all(
                    env,
                    machines,
                    std::mem::take(&mut clients.uncertain),
                );
                0
            }
        };
        self.stage = if looked < covered {
            FinalStage::ReadingEach(looked)
        } else {
            FinalStage::Writing
        };
    }

    /// Checks that most transactions take effect in a run without faults.
    fn check_progress(env: &mut Environment) {
        let counts = env.recorded_history.counts;
        let all = counts.committed + counts.aborted + counts.unknown;
        if env.plan.faults.is_none() && (counts.aborted + counts.unknown) * 5 > all {
            env.fail(format!(
                "too few transactions took effect without faults: {counts:?}"
            ));
        }
    }

    fn count_machines(env: &mut Environment, machines: &mut SimulatedMachines) {
        for at in 0..machines.machines.len() {
            if let Some(running) = machines.machines[at].running.take() {
                machines.count(env, &running);
            }
        }
    }
}

/// Describes what has not ended; empty if everything has.
fn what_is_left(machines: &mut SimulatedMachines, clients: &SimulatedClients) -> String {
    let busy = clients
        .clients
        .iter()
        .filter(|client| !SimulatedClient::is_done(client))
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
