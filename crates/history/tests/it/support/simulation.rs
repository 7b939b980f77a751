//! Clients of a store on a simulated clock, in one thread.

use std::collections::BTreeMap;

use fastrand::Rng;
use kumiki_history::{History, json};
use testkit::workload::mixed::{Options, Plans, Weights};
use testkit::workload::{Plan, Step};

/// The fault of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// There is none: transactions run one after the other.
    None,
    /// It validates writes only, against other writes.
    SnapshotIsolation,
    /// It validates nothing; reads see the state that is committed when they happen.
    ReadCommitted,
    /// Reads see writes at once, and some of their transactions abort.
    ReadUncommitted,
    /// It validates reads of keys, but not the keys that scans missed.
    UnprotectedScans,
    /// Transactions that only read see an old state.
    StaleReaders,
}

#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    pub(crate) seed: u64,
    pub(crate) processes: u32,
    pub(crate) transactions: usize,
    pub(crate) keys: usize,
    /// The weights of: modify, observe, cross, delete, scan, overwrite.
    pub(crate) weights: (u32, u32, u32, u32, u32, u32),
    /// The longest time that a client sleeps before and after its commit; it does so seldom.
    pub(crate) stall: u64,
    /// The share of transactions whose outcome gets lost, …
    pub(crate) lose: f64,
    /// … and that abort.
    pub(crate) abort: f64,
    pub(crate) fault: Fault,
}

impl Default for Simulation {
    fn default() -> Simulation {
        Simulation {
            seed: 1,
            processes: 4,
            transactions: 300,
            keys: 5,
            weights: (6, 4, 4, 3, 3, 0),
            stall: 20,
            lose: 0.0,
            abort: 0.0,
            fault: Fault::None,
        }
    }
}

type Map = BTreeMap<String, i64>;

/// The state that a transaction saw, to be validated: names with values, and scanned ranges with
/// results.
#[derive(Default)]
struct Footprint {
    reads: Vec<(String, Option<i64>)>,
    scans: Vec<(Step, Vec<(String, i64)>)>,
    writes: Vec<(String, Option<i64>)>,
    ops: Vec<String>,
}

/// A client in the middle of a transaction.
struct Client {
    plans: Plans,
    plan: Plan,
    next_step: usize,
    start: u64,
    /// The state that it reads, and the number of commits in it.
    snapshot: Map,
    seen_commits: usize,
    footprint: Footprint,
}

impl Simulation {
    pub(crate) fn run(&self) -> History {
        let text = match self.fault {
            Fault::None | Fault::StaleReaders => self.serial(),
            _ => self.interleaved(),
        };
        json::read(text.as_bytes()).expect("the simulation writes the format")
    }

    fn plans(&self, process: u32) -> Plans {
        let (modify, observe, cross, delete, scan, overwrite) = self.weights;
        let weights = Weights {
            modify,
            observe,
            cross,
            delete,
            scan,
            overwrite,
        };
        let options = Options {
            keys: self.keys,
            seed: self.seed,
            weights,
            ..Options::default()
        };
        Plans::new(&options, process)
    }

    /// Runs one commit at each tick of 10; around it, each client's transaction takes its time.
    fn serial(&self) -> String {
        let mut rng = Rng::with_seed(self.seed);
        let mut plans: Vec<Plans> = (0..self.processes).map(|p| self.plans(p)).collect();
        let mut free_at = vec![0u64; self.processes as usize];
        let mut map = Map::new();
        let mut states = vec![map.clone()];
        let mut lines = String::new();
        let mut now = 1000;
        for id in 0..self.transactions {
            now += 10;
            let ready: Vec<usize> = (0..free_at.len()).filter(|&p| free_at[p] < now).collect();
            let Some(process) = rng.choice(ready) else {
                continue;
            };
            let plan = plans[process].draw();
            let stall = |rng: &mut Rng| match rng.u8(..8) {
                0 => rng.u64(..=10 * self.stall),
                _ => rng.u64(..=20),
            };
            let start = now.saturating_sub(stall(&mut rng)).max(free_at[process]);
            let end = now + stall(&mut rng);
            free_at[process] = end + 1;
            let (lost, aborted) = (rng.f64() < self.lose, rng.f64() < self.abort);
            let takes_effect = !aborted && (!lost || rng.bool());
            let reads_only = plan
                .steps
                .iter()
                .all(|step| matches!(step, Step::Get { .. } | Step::Scan { .. }));
            let mut state = match self.fault {
                Fault::StaleReaders if reads_only => {
                    states[states.len().saturating_sub(30)].clone()
                }
                _ => map.clone(),
            };
            let mut footprint = Footprint::default();
            plan.steps
                .iter()
                .for_each(|step| footprint.step(&mut state, step));
            if takes_effect && !reads_only {
                map = state;
            }
            if self.fault == Fault::StaleReaders {
                states.push(map.clone());
            }
            let outcome = if aborted {
                "aborted"
            } else if lost {
                footprint
                    .ops
                    .retain(|op| op.contains("write") || op.contains("delete"));
                "unknown"
            } else {
                "committed"
            };
            line(
                &mut lines,
                process,
                id,
                (start, end),
                outcome,
                &footprint.ops,
            );
        }
        lines
    }

    /// Runs the clients in turn, a step each.
    fn interleaved(&self) -> String {
        let mut rng = Rng::with_seed(self.seed);
        let mut map = Map::new();
        // The keys that each commit wrote.
        let mut commits: Vec<Vec<String>> = Vec::new();
        let mut clients: Vec<Client> = (0..self.processes)
            .map(|process| Client::new(self.plans(process), &map, 0, 0))
            .collect();
        let mut lines = String::new();
        let mut id = 0;
        let mut now = 0;
        while id < self.transactions {
            now += 1;
            let process = rng.usize(..clients.len());
            let client = &mut clients[process];
            if let Some(step) = client.plan.steps.get(client.next_step) {
                client.next_step += 1;
                match self.fault {
                    Fault::ReadUncommitted => client.footprint.step(&mut map, step),
                    Fault::ReadCommitted => {
                        let mut view = map.clone();
                        client.footprint.overlay(&mut view);
                        client.footprint.step(&mut view, step);
                    }
                    _ => client.footprint.step(&mut client.snapshot, step),
                }
                continue;
            }
            let outcome = self.commit(client, &mut map, &mut commits, &mut rng);
            line(
                &mut lines,
                process,
                id,
                (client.start, now),
                outcome,
                &client.footprint.ops,
            );
            id += 1;
            now += 1;
            let plans = std::mem::replace(&mut client.plans, self.plans(0));
            *client = Client::new(plans, &map, commits.len(), now);
        }
        lines
    }

    fn commit(
        &self,
        client: &Client,
        map: &mut Map,
        commits: &mut Vec<Vec<String>>,
        rng: &mut Rng,
    ) -> &'static str {
        let footprint = &client.footprint;
        let names = || footprint.writes.iter().map(|(name, _)| name.clone());
        let is_valid = match self.fault {
            Fault::SnapshotIsolation => !commits[client.seen_commits..]
                .iter()
                .flatten()
                .any(|name| names().any(|own| own == *name)),
            Fault::UnprotectedScans => {
                let is_same =
                    |(name, value): &(String, Option<i64>)| map.get(name).copied() == *value;
                let found = footprint.scans.iter().flat_map(|scan| &scan.1);
                footprint.reads.iter().all(is_same)
                    && found
                        .into_iter()
                        .all(|(name, value)| map.get(name) == Some(value))
            }
            Fault::ReadUncommitted => rng.u8(..8) > 0,
            _ => true,
        };
        if !is_valid {
            return "aborted";
        }
        if self.fault != Fault::ReadUncommitted {
            footprint.overlay(map);
        }
        commits.push(names().collect());
        "committed"
    }
}

impl Client {
    fn new(mut plans: Plans, map: &Map, seen_commits: usize, start: u64) -> Client {
        let plan = plans.draw();
        let (snapshot, footprint) = (map.clone(), Footprint::default());
        Client {
            plans,
            plan,
            next_step: 0,
            start,
            snapshot,
            seen_commits,
            footprint,
        }
    }
}

impl Footprint {
    /// Does a step on `map` and records it, as JSON.
    fn step(&mut self, map: &mut Map, step: &Step) {
        match step {
            Step::Get { key } => {
                let value = map.get(key).copied();
                if !self.writes.iter().any(|(name, _)| name == key) {
                    self.reads.push((key.clone(), value));
                }
                let value = value.map_or("null".to_owned(), |value| value.to_string());
                self.ops
                    .push(format!(r#"{{"read":"{key}","value":{value}}}"#));
            }
            Step::Put { key, value } => {
                map.insert(key.clone(), *value);
                self.writes.push((key.clone(), Some(*value)));
                self.ops
                    .push(format!(r#"{{"write":"{key}","value":{value}}}"#));
            }
            Step::Delete { key } => {
                if map.remove(key).is_some() {
                    self.writes.push((key.clone(), None));
                    self.ops.push(format!(r#"{{"delete":"{key}"}}"#));
                } else {
                    self.ops.push(format!(r#"{{"read":"{key}","value":null}}"#));
                }
            }
            Step::Scan { from, to, limit } => self.scan(map, step, from, to.as_deref(), *limit),
            Step::Add { .. } | Step::Collection(_) => panic!("{step:?} is not of this workload"),
        }
    }

    fn scan(&mut self, map: &Map, step: &Step, from: &str, to: Option<&str>, limit: usize) {
        let is_before_end = |key: &String| to.is_none_or(|to| key.as_str() < to);
        let range = map
            .range(from.to_owned()..)
            .take_while(|(key, _)| is_before_end(key));
        let found: Vec<(String, i64)> = range
            .take(limit)
            .map(|(key, value)| (key.clone(), *value))
            .collect();
        let pairs: Vec<String> = found
            .iter()
            .map(|(key, value)| format!(r#"["{key}",{value}]"#))
            .collect();
        let to = match found.last() {
            Some((last, _)) if found.len() == limit => format!(r#","to":"{last}\u0000""#),
            _ => to.map_or(String::new(), |to| format!(r#","to":"{to}""#)),
        };
        self.ops.push(format!(
            r#"{{"scan":"{from}"{to},"found":[{}]}}"#,
            pairs.join(",")
        ));
        self.scans.push((step.clone(), found));
    }

    fn overlay(&self, map: &mut Map) {
        for (name, value) in &self.writes {
            match value {
                Some(value) => drop(map.insert(name.clone(), *value)),
                None => drop(map.remove(name)),
            }
        }
    }
}

fn line(
    lines: &mut String,
    process: usize,
    id: usize,
    (start, end): (u64, u64),
    outcome: &str,
    ops: &[String],
) {
    use std::fmt::Write;
    let ops = ops.join(",");
    writeln!(
        lines,
        r#"{{"process":{process},"id":{id},"start":{start},"end":{end},"outcome":"{outcome}","ops":[{ops}]}}"#
    )
    .expect("a string grows");
}
