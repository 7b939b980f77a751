//! Whole clusters in one thread and in virtual time, each from one seed.
//!
//! A run has two to seven nodes: each a real [`Node`](crate::Node) over a real engine, whose log is
//! kept in memory and knows which epochs are durable, over a simulated network. In half of the runs
//! there are partitions that three nodes hold, whose leader changes. Clients run
//! transactions over few keys while nodes crash and start again, links break, nodes are separated,
//! disks are slow and clocks wrong. Clients go away, also while they coordinate a write. Then the faults
//! stop.
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
//! | `plan`, `scenario` | the parameters that a seed determines |
//! | `memory_log`, `engine_partition` | the log of a partition, and its engine |
//! | `partition_replica`, `replica_group` | partitions that several nodes hold, as a model of consensus |
//! | `keys`, `client_transaction`, `read_atomic_transactions` | what clients ask for, and what the answers say |
//! | `environment` | time, network, and what is recorded of a run |
//! | `machine`, `machines` | processes with nodes: they step, crash and start again; leaders change |
//! | `outgoing_messages` | observes what nodes send, and lets crashes come between messages |
//! | `coordinated_write` | the state of clients that coordinate writes |
//! | `clients`, `coordinating_clients` | clients; writes that they coordinate |
//! | `faults` | the faults |
//! | `recorded_history`, `uncertain_transaction`, `final_check` | the judgement |
//! | `coverage` | the points that runs should reach |
//! | `world` | the events in their order |
//!
//! The table is in the order of layers. Machines answer and crash by putting a `MachineOutput` into a
//! list; the world hands it to the clients.

mod client_transaction;
mod clients;
mod coordinated_write;
mod coordinating_clients;
mod coverage;
mod engine_partition;
mod environment;
mod faults;
mod final_check;
mod keys;
mod machine;
mod machines;
mod memory_log;
mod outgoing_messages;
mod partition_replica;
mod plan;
mod read_atomic_transactions;
mod recorded_history;
mod replica_group;
mod scenario;
mod uncertain_transaction;
mod world;

use ::simulation::catch;

pub use coverage::Point;
pub use recorded_history::Counts;
pub use scenario::Scenario;

/// How a run ended.
pub type Run = ::simulation::Run<Point, Counts>;

/// Runs a cluster; `keep_trace` keeps every event and the history as text.
#[must_use]
pub fn run(scenario: Scenario, seed: u64, keep_trace: bool) -> Run {
    let mut world = world::World::new(scenario, seed, keep_trace);
    if let Err(panic) = catch(|| world.run()) {
        world.env.fail(panic.to_string());
    }
    let history = keep_trace.then(|| world.env.recorded_history.text().to_owned());
    Run {
        seed,
        failure: world.env.failure,
        hash: world.env.trace.hash(),
        reached: world.env.reached,
        counts: world.env.recorded_history.counts,
        trace: world.env.trace.take_lines(),
        history: history.unwrap_or_default(),
    }
}
