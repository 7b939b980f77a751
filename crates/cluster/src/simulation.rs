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
//! | `reached` | the points that runs should reach |

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
mod world;

use ::simulation::catch;

pub use chronicle::Counts;
pub use reached::Point;

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
pub type Run = ::simulation::Run<Point, Counts>;

/// Runs a cluster; `keep_trace` keeps every event and the history as text.
#[must_use]
pub fn run(scenario: Scenario, seed: u64, keep_trace: bool) -> Run {
    let mut world = world::World::new(scenario, seed, keep_trace);
    if let Err(panic) = catch(|| world.run()) {
        world.fail(panic);
    }
    let history = keep_trace.then(|| world.chronicle.text().to_owned());
    Run {
        seed,
        failure: world.failure,
        hash: world.trace.hash(),
        reached: world.reached,
        counts: world.chronicle.counts,
        trace: world.trace.take_lines(),
        history: history.unwrap_or_default(),
    }
}
