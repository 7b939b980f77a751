//! Whole partitions in one thread and in virtual time, each from one seed.
//!
//! A run has three to six nodes. Each is a real member over a real engine, whose disk forgets what
//! was not synced, over a simulated network. Clients run transactions over few keys while nodes
//! crash and start again, stop for a while, lose their disks or find them full, are separated from
//! each other, and come and go as members. Then the faults stop.
//!
//! Every run is judged:
//! 1. What clients saw is strictly serializable, counters add up, money is neither made nor lost,
//!    and keys expire when they should. A last read of everything is part of the history, so that
//!    what was acknowledged still exists (`book`).
//! 2. States and tables of sessions are equal on all nodes at equal indexes (`machine`).
//! 3. A prepared attempt is prepared at the next leader (`attempt`).
//! 4. No member fails, except because of its disk.
//! 5. The partition serves soon after the faults, and every member catches up (`finale`).
//!
//! | module | what |
//! |---|---|
//! | `plan` | the decisions of a seed before the run |
//! | `run` | a run from its beginning to its end: the events in their order |
//! | `world`, `actors`, `call` | the state of a run, and of those who act in it |
//! | `node`, `machine`, `clock`, `volume` | nodes, their turns, clocks and disks |
//! | `network` | messages between them |
//! | `client`, `job`, `attempt` | transactions |
//! | `admin` | changes of members |
//! | `faults` | the faults |
//! | `book`, `finale` | the judgement |
//! | `reached` | the points that runs should reach |

mod actors;
mod admin;
mod attempt;
mod book;
mod call;
mod client;
mod clock;
mod faults;
mod finale;
mod job;
mod machine;
mod network;
mod node;
mod plan;
mod reached;
mod run;
mod volume;
mod world;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ::simulation::catch;
pub use book::RunCounts;
pub use reached::Point;

/// The result of a run.
pub type Run = ::simulation::Run<Point, RunCounts>;

/// A run that takes longer than this is stuck: it waits for an event that never happens. Others take less than a
/// second on a processor of their own, and far longer on a machine that is busy.
const STUCK: Duration = Duration::from_secs(300);

/// Runs a partition. `keep_trace` keeps every event and the history as text.
#[must_use]
pub fn run(seed: u64, keep_trace: bool) -> Run {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        // The receiver is gone if the run took too long.
        let _ = tell.send(run_here(seed, keep_trace));
    });
    told.recv_timeout(STUCK)
        .unwrap_or_else(|_| Run::failed(seed, format!("it hangs: there is no end after {STUCK:?}")))
}

fn run_here(seed: u64, keep_trace: bool) -> Run {
    let mut world = world::World::new(seed, keep_trace);
    if let Err(panic) = catch(|| world.run()) {
        world.fail(panic.to_string());
    }
    let history = keep_trace.then(|| world.book.text().to_owned());
    Run {
        seed,
        failure: world.failure.take(),
        hash: world.trace.hash(),
        reached: world.reached.clone(),
        counts: world.book.counts.clone(),
        trace: world.trace.take_lines(),
        history: history.unwrap_or_default(),
    }
}
