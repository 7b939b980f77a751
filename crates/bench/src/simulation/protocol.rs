//! Clients, coordinators and participants.
//!
//! | step | where | two-phase locking | RAMP, a write | RAMP, a read |
//! |---|---|---|---|---|
//! | begin | client | asks the partition of most keys | the same | asks every partition |
//! | look | participant | – | – | answers with the newest versions |
//! | seen | client | – | – | asks again for what it lacks; RAMP-Small asks for all |
//! | start | coordinator | prepares its own part, asks the others to | the same | – |
//! | prepare | participant | holds the keys, or waits, or is against it | keeps the versions; is against it if a newer one is there | – |
//! | vote | coordinator | all are for it: tells the client | – | – |
//! | commit | all | keys are set and given up | versions become the newest | – |
//! | finish | coordinator | others may forget | tells the client; others may forget | – |
//!
//! An attempt that any participant votes against is given up everywhere, and begun again after a
//! pause that doubles. A transaction that has waited for a younger one continues in its place. A
//! transaction of one partition is executed there and needs no other partition.
//!
//! A role's service time is divided evenly into its steps: a client's into asking and taking
//! answers; a coordinator's and a participant's into prepare, commit and the rest.

mod client_role;
mod coordinator_role;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cluster::ramp::filter;
use fastrand::Rng;

use crate::error::RunError;
use crate::keys::{Chooser, Population};
use crate::systems::AtomicityProtocol;

use super::config::{SimulationConfig, SimulationResult};
use super::costs::Cost;
use super::machine::{ThreadId, ThreadScheduler};
use super::partition::{Partition, TxnId, Version};
use super::sizes::MessageSizes;

/// Pauses between attempts, in nanoseconds.
const FIRST_PAUSE: f64 = 300_000.0;
const LONGEST_PAUSE: f64 = 20_000_000.0;

/// A piece of work.
enum ProtocolStep {
    Begin,
    Asked {
        txn: TxnId,
    },
    Look {
        txn: TxnId,
        part: usize,
    },
    Seen {
        txn: TxnId,
    },
    Start {
        txn: TxnId,
    },
    Prepare {
        txn: TxnId,
        part: usize,
        attempt: u32,
    },
    Vote {
        txn: TxnId,
        attempt: u32,
        yes: bool,
        by: usize,
    },
    CommitAll {
        txn: TxnId,
    },
    Commit {
        txn: TxnId,
        part: usize,
    },
    Acknowledged {
        txn: TxnId,
    },
    Finish {
        txn: TxnId,
    },
    Aborted {
        txn: TxnId,
        part: usize,
    },
    Forgotten,
    Ended,
}

/// A transaction.
struct Txn {
    client: usize,
    writes: bool,
    age: u64,
    id: u64,
    keys: Rc<[u64]>,
    /// Partitions and their keys; the coordinator's is the first.
    parts: Vec<(usize, Rc<[u64]>)>,
    attempt: u32,
    /// `true` if the other partitions were asked to prepare.
    has_asked: bool,
    /// Votes, acknowledgements or answers that are missing.
    missing: usize,
    /// The versions that a read has seen, by key.
    seen: BTreeMap<u64, Version>,
    second_round: bool,
    /// The versions that the second round brings.
    wanted: Vec<(u64, Version)>,
}

#[derive(Clone, Copy, Default)]
struct SimulationCounts {
    messages: u64,
    bytes: u64,
    reads: u64,
    one_round: u64,
    attempts: u64,
    begun: u64,
    latency: u64,
    ended: u64,
}

/// The state of the simulation.
pub(super) struct ProtocolSimulation<'c> {
    config: &'c SimulationConfig,
    sizes: MessageSizes,
    machine: ThreadScheduler<ProtocolStep>,
    partitions: Vec<Partition>,
    txns: Vec<Txn>,
    free: Vec<TxnId>,
    /// When each client began.
    begun: Vec<u64>,
    chooser: Chooser,
    rng: Rng,
    clock: u64,
    counts: SimulationCounts,
    /// The share of keys for which a filter errs.
    errors: f64,
}

impl<'c> ProtocolSimulation<'c> {
    pub(super) fn new(config: &'c SimulationConfig) -> ProtocolSimulation<'c> {
        let population = Arc::new(Population::new(config.keys, 1));
        let bits = (8 * filter::BYTES) as f64;
        let set = 1.0 - (1.0 - 1.0 / bits).powi(4 * config.width as i32);
        ProtocolSimulation {
            config,
            sizes: MessageSizes::new(config.protocol, config.width, config.value),
            machine: ThreadScheduler::new(config.partitions + config.clients, config.machines),
            partitions: (0..config.partitions)
                .map(|_| Partition::default())
                .collect(),
            txns: Vec::new(),
            free: Vec::new(),
            begun: vec![0; config.clients],
            chooser: Chooser::new(config.draws, population),
            rng: Rng::with_seed(config.seed),
            clock: 0,
            counts: SimulationCounts::default(),
            errors: set.powi(4),
        }
    }

    pub(super) fn run(mut self) -> Result<SimulationResult, RunError> {
        for client in 0..self.config.clients {
            let thread = self.config.partitions + client;
            // They do not all begin at the same moment.
            self.machine
                .give(thread, client as u64 * 1000, 0.0, ProtocolStep::Begin);
        }
        let warm_up = self.config.transactions / 10;
        let warm_up = warm_up.max(3 * self.config.clients) as u64;
        let end = warm_up + self.config.transactions as u64;
        let mut before = (self.counts, self.machine.now(), self.machine.used());
        let mut is_warm = false;
        while self.counts.ended < end {
            let Some((thread, what)) = self.machine.next() else {
                return Err(RunError::Failed("the simulation stands still".to_owned()));
            };
            self.step(thread, what)?;
            if !is_warm && self.counts.ended >= warm_up {
                is_warm = true;
                before = (self.counts, self.machine.now(), self.machine.used());
            }
        }
        let time = (self.machine.now() - before.1).max(1);
        let used = self.machine.used() - before.2;
        let mut outcome = outcome(before.0, self.counts, (time, used));
        if self.config.protocol == AtomicityProtocol::S2pl {
            outcome.one_round = None;
        }
        Ok(outcome)
    }

    fn step(&mut self, thread: ThreadId, what: ProtocolStep) -> Result<(), RunError> {
        match what {
            ProtocolStep::Begin => self.begin(thread - self.config.partitions),
            ProtocolStep::Asked { txn } => self.ask(txn),
            ProtocolStep::Look { txn, part } => self.look(txn, part),
            ProtocolStep::Seen { txn } => return self.seen(txn),
            ProtocolStep::Start { txn } => return self.start(txn),
            ProtocolStep::Prepare { txn, part, attempt } => self.prepare(txn, part, attempt),
            ProtocolStep::Vote {
                txn,
                attempt,
                yes,
                by,
            } => self.vote(txn, attempt, yes, by),
            ProtocolStep::CommitAll { txn } => return self.commit_all(txn),
            ProtocolStep::Commit { txn, part } => self.commit(txn, part),
            ProtocolStep::Acknowledged { txn } => self.acknowledged(txn),
            ProtocolStep::Finish { txn } => self.finish(txn),
            ProtocolStep::Aborted { txn, part } => self.release(txn, part),
            ProtocolStep::Forgotten => {}
            ProtocolStep::Ended => self.ended(thread - self.config.partitions),
        }
        Ok(())
    }

    fn cost(&self, writes: bool) -> Cost {
        match writes {
            true => self.config.costs.write,
            false => self.config.costs.read,
        }
    }

    /// Sends a message: work for another thread.
    fn send(&mut self, to: ThreadId, bytes: usize, service: f64, what: ProtocolStep) {
        self.counts.messages += 1;
        self.counts.bytes += bytes as u64;
        let delay = self.config.delay.as_nanos() as u64;
        self.machine.give(to, delay, service, what);
    }

    fn draw(&mut self, client: usize, writes: bool) -> TxnId {
        let mut keys = Vec::with_capacity(self.config.width);
        while keys.len() < self.config.width.min(self.config.keys as usize) {
            let key = self.chooser.draw(&mut self.rng);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let mut parts: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for &key in &keys {
            parts.entry(self.partition_of(key)).or_default().push(key);
        }
        let parts = parts.into_iter().map(|(of, keys)| (of, keys.into()));
        let mut parts: Vec<(usize, Rc<[u64]>)> = parts.collect();
        // As our client does: the partition with most keys, and of several the last one.
        let most = (0..parts.len()).max_by_key(|&at| (parts[at].1.len(), parts[at].0));
        parts.swap(0, most.unwrap_or_default());
        self.clock += 1;
        let txn = Txn {
            client,
            writes,
            age: self.clock,
            id: self.clock,
            keys: keys.into(),
            missing: 0,
            parts,
            attempt: 0,
            has_asked: false,
            seen: BTreeMap::new(),
            second_round: false,
            wanted: Vec::new(),
        };
        match self.free.pop() {
            Some(place) => {
                self.txns[place] = txn;
                place
            }
            None => {
                self.txns.push(txn);
                self.txns.len() - 1
            }
        }
    }

    fn partition_of(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(hash) * self.config.partitions as u128) >> 64) as usize
    }
}

fn outcome(
    before: SimulationCounts,
    after: SimulationCounts,
    (time, used): (u64, f64),
) -> SimulationResult {
    let ended = after.ended - before.ended;
    let each = |count: u64| count as f64 / ended.max(1) as f64;
    let reads = after.reads - before.reads;
    let one_round = after.one_round - before.one_round;
    let attempts = after.attempts - before.attempts;
    SimulationResult {
        throughput: ended as f64 * 1e9 / time as f64,
        latency: std::time::Duration::from_nanos(each(after.latency - before.latency) as u64),
        service: std::time::Duration::from_nanos((used / ended.max(1) as f64) as u64),
        messages: each(after.messages - before.messages),
        bytes: each(after.bytes - before.bytes),
        one_round: (reads > 0).then(|| one_round as f64 / reads as f64),
        retries: each(attempts),
    }
}
