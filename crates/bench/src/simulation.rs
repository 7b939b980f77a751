//! Transactions over many partitions, simulated: how throughput grows with their number, on
//! machines that we do not have.
//!
//! It is a discrete-event simulation. Clients begin a transaction when the last one has ended.
//! Client threads and server threads do pieces of work, one after the other; each piece takes a
//! *service time* that was measured here ([`costs`]), and a processor of its thread's machine.
//! Messages take a fixed time on their way, and have the sizes that our codec gives them ([`sizes`]).
//! What transactions do at each message follows the store's protocols (`protocol`): which keys lie
//! where, who holds them, who must wait or begin again, and which versions a reader meets are
//! simulated key by key.
//!
//! | module | what |
//! |---|---|
//! | [`costs`] | service times, and how they are fitted to measurements |
//! | [`sizes`] | bytes of messages |
//! | [`groups`] | something else: workers of one replicated partition, before one log |
//! | [`logging`] | something else: workers of a store, before the loggers of its journal |
//! | `machine` | time, threads, processors, messages under way |
//! | `partition` | what a partition knows of its keys: who holds them, which version is the newest |
//! | `protocol` | clients, coordinators, participants |
//!
//! What it leaves out: disks, losses, pauses of the network, and the memory hierarchy (a partition
//! with many keys is as fast as one with few).

mod config;
pub mod costs;
pub mod groups;
pub mod logging;
mod machine;
mod partition;
mod protocol;
pub mod sizes;
#[cfg(test)]
mod tests;

use crate::error::RunError;

pub use config::{Machines, SimulationConfig, SimulationResult};

/// Runs the simulation.
///
/// # Errors
/// Returns an error if a read saw a part of a write: then the simulation is wrong.
pub fn run(config: &SimulationConfig) -> Result<SimulationResult, RunError> {
    protocol::ProtocolSimulation::new(config).run()
}
