//! Whole clusters in one thread and in virtual time, each from one seed.
//!
//! A run has two to seven nodes: each a real [`Node`](crate::Node) over a real engine, whose log is
//! kept in memory and knows which epochs are durable, over a simulated network. In half of the runs
//! there are partitions that three nodes hold, whose leader changes. Clients run
//! transactions over few keys while nodes crash and start again, links break, nodes are separated,
//! disks are slow and clocks wrong. Then the faults stop.
//!
//! There are two scenarios: ordinary transactions alone, and transactions of read-atomic keys with
//! ordinary ones beside them.
//!
//! Every run is judged:
//! 1. What clients saw is strictly serializable, and money is neither made nor lost. A last read of
//!    everything belongs to it, so that what was acknowledged is still there.
//!    Of read-atomic keys, what clients saw is read atomic, and each key by itself is linearizable.
//! 2. Some time after the faults nothing is left over: no attempt, no hold, no waiting request, no
//!    client without an answer.
//! 3. Without faults most transactions take effect.
//!
//! | module | what |
//! |---|---|
//! | `plan` | what a seed decides beforehand |
//! | `world` | what happens next |
//! | `machine`, `partition`, `book` | nodes, their engines and logs |
//! | `group`, `member` | partitions that several nodes hold, as a model of consensus |
//! | `client`, `job`, `keys` | transactions |
//! | `scatter` | those of read-atomic keys |
//! | `faults` | what goes wrong |
//! | `tap` | listens to what nodes send |
//! | `finale`, `doubt`, `chronicle` | the judgement |
//! | `reached` | what runs have met |
//! | `trace` | what happened, to compare and to read |

mod book;
mod chronicle;
mod client;
mod doubt;
mod faults;
mod finale;
mod group;
mod job;
mod keys;
mod machine;
mod member;
mod partition;
mod plan;
mod reached;
mod scatter;
mod tap;
mod trace;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use chronicle::Counts;
pub use reached::{Point, Reached};

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Transactions of ordinary keys.
    TwoPhaseCommit,
    /// Of read-atomic keys, too.
    Ramp,
}

impl Scenario {
    /// As people type it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::TwoPhaseCommit => "2pc",
            Scenario::Ramp => "ramp",
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed, which gives the same run again.
    pub seed: u64,
    /// What is wrong, if anything is.
    pub failure: Option<String>,
    /// The same for the same events.
    pub hash: u64,
    /// What was met.
    pub reached: Reached,
    /// How the clients' transactions ended.
    pub counts: Counts,
    /// Every event, if asked for.
    pub trace: Vec<String>,
    /// The history as JSON lines, if asked for.
    pub history: String,
}

/// Runs a cluster; `keep_trace` keeps every event and the history as text.
#[must_use]
pub fn run(scenario: Scenario, seed: u64, keep_trace: bool) -> Run {
    let mut world = world::World::new(scenario, seed, keep_trace);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        world.fail(format!("a panic: {}", text.unwrap_or("without words")));
    }
    let history = keep_trace.then(|| world.chronicle.text().to_owned());
    Run {
        seed,
        failure: world.failure,
        hash: world.trace.hash(),
        reached: world.reached,
        counts: world.chronicle.counts,
        trace: world.trace.into_lines(),
        history: history.unwrap_or_default(),
    }
}
