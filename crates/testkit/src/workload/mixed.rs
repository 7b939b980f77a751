//! Few hot keys, with all transactions that conflict on them.
//!
//! | kind of plan | steps | errors that it finds |
//! |---|---|---|
//! | modify | get and put, one to four keys | lost updates, dirty reads |
//! | observe | get, two to five keys | read skew, long forks |
//! | cross | get two keys, put one of them | write skew |
//! | delete | get and delete a key | lost deletes, resurrected keys |
//! | scan | scan a range, perhaps get and put a key | phantoms |
//! | overwrite | put without looking | lost and reordered blind writes |
//!
//! Every value that is put is unique, so that a history of it can be checked.

use std::time::{Duration, Instant};

use fastrand::Rng;

use history::{Recorder, Value};

use super::{Counts, Plan, Step, Subject, record};

/// The options of the workload.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of threads, each with a subject of its own.
    pub processes: u32,
    /// The number of transactions of each process.
    pub transactions: usize,
    /// The time limit.
    pub at_most: Duration,
    /// The number of keys.
    pub keys: usize,
    /// The prefix of each key, before the number.
    pub prefix: String,
    /// The seed of the plans' random choices. The machine decides the schedule.
    pub seed: u64,
    /// The frequency of each kind of plan.
    pub weights: Weights,
}

/// The frequency of each kind of plan, relative to the others.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The kinds are those of the module's table.
pub struct Weights {
    pub modify: u32,
    pub observe: u32,
    pub cross: u32,
    pub delete: u32,
    pub scan: u32,
    pub overwrite: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            processes: 4,
            transactions: 1000,
            at_most: Duration::from_secs(60),
            keys: 8,
            prefix: "hot:".to_owned(),
            seed: 1,
            weights: Weights::default(),
        }
    }
}

impl Default for Weights {
    /// Returns weights without blind writes: only transactions that read them reveal their order.
    fn default() -> Weights {
        Weights {
            modify: 6,
            observe: 4,
            cross: 4,
            delete: 3,
            scan: 3,
            overwrite: 0,
        }
    }
}

/// Runs the workload and records it. `connect` makes the subject of each process, in its thread.
pub fn run<S: Subject>(
    options: &Options,
    recorder: &Recorder,
    connect: impl Fn(u32) -> S + Sync,
) -> Counts {
    let until = Instant::now() + options.at_most;
    let connect = &connect;
    let process = |number: u32| {
        let mut subject = connect(number);
        let mut log = recorder.process();
        let mut plans = Plans::new(options, log.process());
        let mut counts = Counts::default();
        for _ in 0..options.transactions {
            if Instant::now() >= until {
                break;
            }
            let plan = plans.draw();
            let entry = log.begin();
            let ended = subject.run(&plan);
            record(entry, &plan, &ended);
            counts.count(&ended);
        }
        counts
    };
    std::thread::scope(|scope| {
        let process = &process;
        let threads: Vec<_> = (0..options.processes)
            .map(|number| scope.spawn(move || process(number)))
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        let ended = ended.map(|counts| counts.expect("the subject does not panic"));
        ended.fold(Counts::default(), Counts::plus)
    })
}

/// The plans of one process.
pub struct Plans {
    rng: Rng,
    keys: Vec<String>,
    /// The end of the range of keys: behind all of them, and before other keys in the same store.
    end: String,
    weights: Weights,
    /// The last value that was written; the process number is in the upper bits.
    value: Value,
}

impl Plans {
    /// Makes the plans of process number `process`, which must be unique in the history.
    #[must_use]
    pub fn new(options: &Options, process: u32) -> Plans {
        let seed = options.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(process);
        Plans {
            rng: Rng::with_seed(seed),
            keys: (0..options.keys)
                .map(|i| format!("{}{i:06}", options.prefix))
                .collect(),
            end: format!("{}~", options.prefix),
            weights: options.weights,
            value: Value::from(process) << 32,
        }
    }

    /// Draws the next plan.
    pub fn draw(&mut self) -> Plan {
        let Weights {
            modify,
            observe,
            cross,
            delete,
            scan,
            overwrite,
        } = self.weights;
        let mut ticket = self
            .rng
            .u32(..modify + observe + cross + delete + scan + overwrite);
        for (weight, kind) in [
            (modify, Plans::modify as fn(&mut Plans) -> Vec<Step>),
            (observe, Plans::observe),
            (cross, Plans::cross),
            (delete, Plans::delete),
            (scan, Plans::scan),
            (overwrite, Plans::overwrite),
        ] {
            if ticket < weight {
                return Plan { steps: kind(self) };
            }
            ticket -= weight;
        }
        unreachable!("the ticket is below the sum of the weights")
    }

    fn modify(&mut self) -> Vec<Step> {
        let count = self.rng.usize(1..=4);
        self.pick(count)
            .into_iter()
            .flat_map(|key| self.get_put(key))
            .collect()
    }

    fn observe(&mut self) -> Vec<Step> {
        let count = self.rng.usize(2..=5);
        self.pick(count)
            .into_iter()
            .map(|key| Step::Get { key })
            .collect()
    }

    fn cross(&mut self) -> Vec<Step> {
        let keys = self.pick(2);
        let target = keys[self.rng.usize(..keys.len())].clone();
        let mut steps: Vec<Step> = keys.into_iter().map(|key| Step::Get { key }).collect();
        steps.push(self.put(target));
        steps
    }

    fn delete(&mut self) -> Vec<Step> {
        let key = self.pick(1).remove(0);
        vec![Step::Get { key: key.clone() }, Step::Delete { key }]
    }

    fn scan(&mut self) -> Vec<Step> {
        let (a, b) = (
            self.rng.usize(..self.keys.len()),
            self.rng.usize(..=self.keys.len()),
        );
        let from = self.keys[a.min(b)].clone();
        let to = self.keys.get(a.max(b)).cloned();
        let limit = if self.rng.bool() {
            usize::MAX
        } else {
            self.rng.usize(1..=self.keys.len())
        };
        let to = to.unwrap_or_else(|| self.end.clone());
        let mut steps = vec![Step::Scan {
            from,
            to: Some(to),
            limit,
        }];
        if self.rng.bool() {
            let key = self.pick(1).remove(0);
            steps.extend(self.get_put(key));
        }
        steps
    }

    fn overwrite(&mut self) -> Vec<Step> {
        let count = self.rng.usize(1..=3);
        self.pick(count)
            .into_iter()
            .map(|key| self.put(key))
            .collect()
    }

    fn get_put(&mut self, key: String) -> [Step; 2] {
        [Step::Get { key: key.clone() }, self.put(key)]
    }

    fn put(&mut self, key: String) -> Step {
        self.value += 1;
        Step::Put {
            key,
            value: self.value,
        }
    }

    /// Draws distinct keys, in random order.
    fn pick(&mut self, count: usize) -> Vec<String> {
        let count = count.min(self.keys.len());
        self.rng
            .choose_multiple(self.keys.iter(), count)
            .into_iter()
            .cloned()
            .collect()
    }
}
