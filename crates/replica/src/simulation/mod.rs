//! Whole partitions in one thread and in virtual time, each from one seed.
//!
//! A run has three to six nodes: each a real member over a real engine, whose disk forgets what was
//! not synced, over a simulated network. Clients run transactions over few keys while nodes crash
//! and start again, stop for a while, lose their disks or find them full, are separated from each
//! other, and come and go as members. Then the faults stop.
//!
//! Every run is judged:
//! 1. What clients saw is strictly serializable, counters add up, money is neither made nor lost,
//!    keys expire when they should; a last read of everything belongs to it, so that what was
//!    acknowledged is still there (`book`).
//! 2. States and tables of sessions are equal on all nodes at equal indexes (`machine`).
//! 3. A prepared attempt is prepared at the next leader (`attempt`).
//! 4. No member fails, but for its disk.
//! 5. The partition serves soon after the faults, and everybody catches up (`finale`).
//!
//! | module | what |
//! |---|---|
//! | `plan` | what a seed decides beforehand |
//! | `world` | what happens next |
//! | `node`, `machine`, `clock`, `volume` | nodes, their turns, clocks and disks |
//! | `network` | messages between them |
//! | `client`, `job`, `attempt` | transactions |
//! | `admin` | changes of members |
//! | `faults` | what goes wrong |
//! | `book`, `finale` | the judgement |
//! | `reached` | what runs have met |
//! | `trace` | what happened, to compare and to read |

mod admin;
mod attempt;
mod book;
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
mod trace;
mod volume;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

pub use book::Counts;
pub use reached::{Point, Reached};

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

/// A run that takes longer than this is stuck: something waits for what never happens.
const STUCK: Duration = Duration::from_secs(20);

/// Runs a partition; `keep_trace` keeps every event and the history as text.
#[must_use]
pub fn run(seed: u64, keep_trace: bool) -> Run {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        // Nobody listens any more if it took too long.
        let _ = tell.send(run_here(seed, keep_trace));
    });
    told.recv_timeout(STUCK).unwrap_or_else(|_| Run {
        seed,
        failure: Some(format!("it hangs: there is no end after {STUCK:?}")),
        hash: 0,
        reached: Reached::default(),
        counts: Counts::default(),
        trace: Vec::new(),
        history: String::new(),
    })
}

fn run_here(seed: u64, keep_trace: bool) -> Run {
    let mut world = world::World::new(seed, keep_trace);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        world.fail(format!("a panic: {}", text.unwrap_or("without words")));
    }
    let history = keep_trace.then(|| world.book.text().to_owned());
    Run {
        seed,
        failure: world.failure.take(),
        hash: world.trace.hash(),
        reached: world.reached.clone(),
        counts: world.book.counts,
        trace: std::mem::take(&mut world.trace).into_lines(),
        history: history.unwrap_or_default(),
    }
}
