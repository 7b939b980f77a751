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
//! 1. The results that clients saw are strictly serializable, and money is neither made nor lost. A last
//!    read of everything is part of the history, so that all that was acknowledged must still be there.
//!    For read-atomic keys, the results are read atomic, and each key by itself is linearizable.
//! 2. Some time after the faults nothing is left over: no attempt, no hold, no waiting request, no
//!    client without an answer.
//! 3. Without faults most transactions take effect.
//!
//! | module | contents |
//! |---|---|
//! | `plan` | the parameters that a seed determines |
//! | `world` | the events |
//! | `machine`, `partition`, `book` | nodes, their engines and logs |
//! | `group`, `member` | partitions that several nodes hold, as a model of consensus |
//! | `client`, `job`, `keys` | transactions |
//! | `scatter` | transactions of read-atomic keys |
//! | `faults` | the faults |
//! | `tap` | listens to what nodes send |
//! | `finale`, `doubt`, `chronicle` | the judgement |
//! | `reached` | the points that runs should reach |

mod book;
mod chronicle;
mod client;
mod doubt;
mod environment;
mod faults;
mod finale;
mod group;
mod job;
mod keys;
mod machine;
mod machines;
mod member;
mod partition;
mod plan;
mod reached;
mod scatter;
mod scenario;
mod tap;
mod world;

use ::simulation::catch;

pub use chronicle::Counts;
pub use reached::Point;
pub use scenario::Scenario;

/// How a run ended.
pub type Run = ::simulation::Run<Point, Counts>;

/// Runs a cluster; `keep_trace` keeps every event and the history as text.
#[must_use]
pub fn run(scenario: Scenario, seed: u64, keep_trace: bool) -> Run {
    let mut world = world::World::new(scenario, seed, keep_trace);
    if let Err(panic) = catch(|| world.run()) {
        world.env.fail(panic);
    }
    let history = keep_trace.then(|| world.env.chronicle.text().to_owned());
    Run {
        seed,
        failure: world.env.failure,
        hash: world.env.trace.hash(),
        reached: world.env.reached,
        counts: world.env.chronicle.counts,
        trace: world.env.trace.take_lines(),
        history: history.unwrap_or_default(),
    }
}
