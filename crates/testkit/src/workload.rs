//! Workloads that verify themselves, written once for everything that runs transactions.
//!
//! A [`Workload`] defines the initial data, the transactions of each client, and the conditions at
//! the end. A client draws [`Plan`]s, which are plain data. A [`Subject`] runs each as one
//! transaction: as a closure, as a one-shot transaction or as a `MULTI` block. The client gets the
//! outcome ([`Ended`]).
//!
//! | module | workload | condition |
//! |---|---|---|
//! | [`transfers`] | amounts that move between accounts | the sum is the same in every audit; each balance lies between what acknowledged transfers and those of unknown outcome make of it |
//! | [`counters`] | counters that clients increment and read | each lies between the acknowledged increments and those with an unknown outcome; no answer goes back; no value is given twice |
//! | [`collections`] | lists, hashes, sets and sorted sets: appends, transfers, moves, pops that wait, and a client's own collections | see there |
//! | [`mixed`] | few hot keys: reads and writes, inserts, deletes, scans | crate `history` accepts what was recorded |
//!
//! | module | contents |
//! |---|---|
//! | [`bounds`] | the bounds of a number |
//! | [`CollectionStep`], [`StreamStep`], [`CollectionModel`], [`StreamModel`] | operations on collections, as commands and on a model |
//! | [`resp`], [`ops`] | plans as commands of Redis, by a connection, and as operations of a store in this process |
//! | [`Serial`] | a reference subject: one lock around a map |
//!
//! ```
//! use kumiki_testkit::workload::{Extent, Serial, Subject, Transfers, Workload, run};
//!
//! let store = Serial::new();
//! let mut transfers = Transfers::new(Default::default());
//! store.clone().run(&transfers.setup());
//! let counts = run(&mut transfers, &Extent::default(), |_| store.clone())?;
//! assert_eq!(counts.committed, 4000);
//! # Ok::<(), String>(())
//! ```

pub mod bounds;
mod collection_model;
mod collection_step;
pub mod collections;
pub mod counters;
pub mod mixed;
pub mod ops;
pub mod resp;
mod seen;
mod serial;
mod stream_step;
pub mod transfers;

use std::time::{Duration, Instant};

use fastrand::Rng;
use history::recorder::HistoryEntry;
use history::{Outcome, Value};

use crate::error::TestkitError;

pub use collection_model::CollectionModel;
pub use collection_step::CollectionStep;
pub use collections::Collections;
pub use counters::Counters;
pub use seen::Seen;
pub use serial::Serial;
pub use stream_step::{StreamModel, StreamStep};
pub use transfers::Transfers;

/// A workload that verifies itself.
///
/// A harness executes [`Workload::setup`] before everything else. Then come rounds: it starts
/// clients, executes their plans, then [`Workload::reads`] when all have ended, and checks. A
/// transaction of unknown outcome may take effect in a later round, which the workload allows for.
/// [`run`] is such a harness.
pub trait Workload {
    /// The type of the workload's clients.
    type Client: Client + Send;

    /// Returns the transaction before all others.
    fn setup(&self) -> Plan;

    /// Makes a client, which draws its transactions from `random`.
    fn start(&self, random: Rng) -> Self::Client;

    /// Returns the transaction that reads what is checked at the end.
    fn reads(&self) -> Plan;

    /// Checks what clients have seen, and the results of [`Workload::reads`] after all of them had
    /// ended, if it was executed. Returns complaints.
    fn check(&mut self, clients: Vec<Self::Client>, found: Option<&[Seen]>) -> Vec<String>;
}

/// A client of a workload, which runs one transaction after another.
pub trait Client {
    /// Returns the next transaction.
    fn plan(&mut self) -> Plan;

    /// Takes the outcome of a transaction, and the times at which it began and ended.
    ///
    /// # Errors
    /// Returns an error if what was seen is wrong by itself.
    fn end(&mut self, plan: &Plan, ended: &Ended, times: Times) -> Result<(), TestkitError>;
}

/// The times at which a transaction began and ended, in nanoseconds on a clock that all clients
/// share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The time before it was sent.
    pub start: u64,
    /// The time after its answer had come.
    pub end: u64,
}

/// The numbers of transactions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that took effect.
    pub committed: u64,
    /// Transactions that did not take effect.
    pub aborted: u64,
    /// Transactions whose outcome is not known.
    pub unknown: u64,
}

impl Counts {
    /// Counts a transaction.
    pub fn count(&mut self, ended: &Ended) {
        match ended {
            Ended::Committed(_) => self.committed += 1,
            Ended::Aborted => self.aborted += 1,
            Ended::Unknown => self.unknown += 1,
        }
    }

    fn plus(self, other: Counts) -> Counts {
        Counts {
            committed: self.committed + other.committed,
            aborted: self.aborted + other.aborted,
            unknown: self.unknown + other.unknown,
        }
    }
}

/// The extent of a [`run`].
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The number of threads, each with a client and a subject of its own.
    pub processes: u32,
    /// The number of transactions of each process.
    pub transactions: usize,
    /// The time limit.
    pub at_most: Duration,
    /// The seed of the random choices.
    pub seed: u64,
}

impl Default for Extent {
    fn default() -> Extent {
        Extent {
            processes: 4,
            transactions: 1000,
            at_most: Duration::from_secs(60),
            seed: 1,
        }
    }
}

/// Runs a workload whose setup was executed: several clients, and the check. `connect` makes the
/// subject of each process, in its thread.
///
/// # Errors
/// Returns the first complaint.
pub fn run<W, S>(
    workload: &mut W,
    extent: &Extent,
    connect: impl Fn(u32) -> S + Sync,
) -> Result<Counts, TestkitError>
where
    W: Workload + Sync,
    S: Subject,
{
    let begun = Instant::now();
    let (connect, started) = (&connect, &*workload);
    let process = |number: u32| {
        move || -> Result<(W::Client, Counts), TestkitError> {
            let mut client = started.start(Rng::with_seed(extent.seed ^ u64::from(number) << 32));
            let (mut subject, mut counts) = (connect(number), Counts::default());
            let now = || begun.elapsed().as_nanos() as u64;
            for _ in 0..extent.transactions {
                if begun.elapsed() >= extent.at_most {
                    break;
                }
                let (plan, start) = (client.plan(), now());
                let ended = subject.run(&plan);
                counts.count(&ended);
                client.end(&plan, &ended, Times { start, end: now() })?;
            }
            Ok((client, counts))
        }
    };
    let ended: Result<Vec<_>, TestkitError> = std::thread::scope(|scope| {
        let threads = (0..extent.processes).map(|number| scope.spawn(process(number)));
        let threads: Vec<_> = threads.collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        let ended = threads.into_iter().map(join);
        ended
            .map(|one| one.expect("the subject does not panic"))
            .collect()
    });
    let (clients, counts): (Vec<_>, Vec<_>) = ended?.into_iter().unzip();
    let found = read(&mut connect(extent.processes), &workload.reads());
    match workload.check(clients, found.as_deref()).into_iter().next() {
        Some(complaint) => Err(TestkitError::Deviation(complaint)),
        None => Ok(counts.into_iter().fold(Counts::default(), Counts::plus)),
    }
}

/// Executes a transaction that reads, and returns its results; `None` if it does not commit.
pub fn read(subject: &mut impl Subject, plan: &Plan) -> Option<Vec<Seen>> {
    match subject.run(plan) {
        Ended::Committed(seen) => Some(seen),
        Ended::Aborted | Ended::Unknown => None,
    }
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads the key. Result: [`Seen::Value`].
    Get {
        /// The key.
        key: String,
    },
    /// Sets the key. Result: [`Seen::Done`].
    Put {
        /// The key.
        key: String,
        /// Its value; the store chooses the form, for example a decimal number.
        value: Value,
    },
    /// Adds to the value of the key, where absent counts as 0. Result: [`Seen::Value`], the sum.
    Add {
        /// The key.
        key: String,
        /// The number to add.
        delta: Value,
    },
    /// Deletes the key. Result: [`Seen::Deleted`].
    Delete {
        /// The key.
        key: String,
    },
    /// An operation on collections. Result: see [`CollectionStep`].
    Collection(CollectionStep),
    /// Reads the first `limit` keys from `from` to `to`. Result: [`Seen::Pairs`].
    Scan {
        /// The first key, inclusive.
        from: String,
        /// The end, exclusive; `None` for no end.
        to: Option<String>,
        /// The greatest number of keys.
        limit: usize,
    },
}

impl Step {
    /// Returns the key; for a scan, the key at which it begins.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Step::Get { key }
            | Step::Put { key, .. }
            | Step::Add { key, .. }
            | Step::Delete { key }
            | Step::Scan { from: key, .. } => key,
            Step::Collection(step) => step.key(),
        }
    }
}

impl Plan {
    /// Makes a transaction that reads keys.
    pub fn reading(keys: impl IntoIterator<Item = String>) -> Plan {
        let get = |key| Step::Get { key };
        Plan {
            steps: keys.into_iter().map(get).collect(),
        }
    }
}

/// The operations of one transaction, in this order. Later steps see the effects of earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The operations.
    pub steps: Vec<Step>,
}

/// The outcome of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The plan took effect; there is one [`Seen`] for each step. Return this only if the store
    /// says so.
    Committed(Vec<Seen>),
    /// The plan did not take effect.
    Aborted,
    /// It is not known if the plan took effect.
    Unknown,
}

/// A client of a store that runs transactions, for one thread.
pub trait Subject {
    /// Runs the plan as one transaction. It may retry, but it must know that an attempt did not
    /// take effect before it makes another.
    fn run(&mut self, plan: &Plan) -> Ended;
}

/// Records the outcome of a plan.
///
/// # Panics
/// Panics if what was seen does not fit the plan: then the subject is wrong.
pub fn record(mut entry: HistoryEntry<'_>, plan: &Plan, ended: &Ended) {
    let outcome = match ended {
        Ended::Committed(seen) => {
            assert_eq!(
                seen.len(),
                plan.steps.len(),
                "one answer for each step of {plan:?}"
            );
            for (step, seen) in plan.steps.iter().zip(seen) {
                record_step(&mut entry, step, seen);
            }
            Outcome::Committed
        }
        // The writes of an attempt matter even if it failed: another transaction may see them.
        Ended::Aborted | Ended::Unknown => {
            for step in &plan.steps {
                match step {
                    Step::Put { key, value } => entry.write(key, *value, None),
                    Step::Delete { key } => entry.delete(key, None),
                    Step::Get { .. }
                    | Step::Add { .. }
                    | Step::Scan { .. }
                    | Step::Collection(_) => {}
                }
            }
            if *ended == Ended::Aborted {
                Outcome::Aborted
            } else {
                Outcome::Unknown
            }
        }
    };
    entry.end(outcome);
}

fn record_step(entry: &mut HistoryEntry<'_>, step: &Step, seen: &Seen) {
    match (step, seen) {
        (Step::Get { key }, Seen::Value(value)) => entry.read(key, *value, None),
        (Step::Get { key }, Seen::Versioned(value, version)) => {
            entry.read(key, *value, Some(*version));
        }
        (Step::Put { key, value }, Seen::Done) => entry.write(key, *value, None),
        (Step::Delete { key }, Seen::Deleted(true)) => entry.delete(key, None),
        (Step::Delete { key }, Seen::Deleted(false)) => entry.read(key, None, None),
        (Step::Scan { from, to, limit }, Seen::Pairs(pairs)) => {
            let pairs = pairs.iter().map(|(key, value)| (key.as_str(), *value));
            entry.scan(from, to.as_deref(), *limit, pairs);
        }
        // The values of sums are not unique, so that a history could not distinguish them.
        (Step::Add { .. }, _) => panic!("a plan that adds cannot be recorded"),
        _ => panic!("{seen:?} is no answer to {step:?}"),
    }
}
