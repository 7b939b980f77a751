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
//! | `machine` | time, threads, processors, messages under way |
//! | `partition` | what a partition knows of its keys: who holds them, which version is the newest |
//! | `protocol` | clients, coordinators, participants |
//!
//! What it leaves out: disks, losses, pauses of the network, and the memory hierarchy (a partition
//! with many keys is as fast as one with few).

pub mod costs;
mod machine;
mod partition;
mod protocol;
pub mod sizes;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::keys::Distribution;
use crate::target::Way;

use costs::Costs;

/// Where threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machines {
    /// Clients and servers share one machine with so many processors.
    Shared(usize),
    /// Each server has a machine with one processor, and each client one of its own.
    Apart,
}

/// The configuration of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The way by which transactions are atomic.
    pub way: Way,
    /// Servers, each with one partition and one thread.
    pub partitions: usize,
    /// Clients, each with one transaction under way.
    pub clients: usize,
    /// Keys in all.
    pub keys: u64,
    /// How they are drawn.
    pub draws: Distribution,
    /// Keys in a transaction.
    pub width: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Share of transactions that read.
    pub reads: f64,
    /// Where threads run.
    pub machines: Machines,
    /// The time for which a message is under way.
    pub delay: Duration,
    /// Service times.
    pub costs: Costs,
    /// Transactions that count. At least a tenth as many come before them.
    pub transactions: usize,
    /// The seed of the random choices.
    pub seed: u64,
    /// Makes readers use the results of the first round: a test of the check.
    pub plant: bool,
}

/// The results of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Transactions a second.
    pub throughput: f64,
    /// Their mean latency.
    pub latency: Duration,
    /// Processor time of a transaction, of the client and all servers.
    pub service: Duration,
    /// Messages of a transaction.
    pub messages: f64,
    /// Bytes of a transaction's messages.
    pub bytes: f64,
    /// Share of reads that took one round; of RAMP alone.
    pub one_round: Option<f64>,
    /// How often a transaction began again.
    pub retries: f64,
}

/// Runs the simulation.
///
/// # Errors
/// Returns an error if a read saw a part of a write: then the simulation is wrong.
pub fn run(config: &Config) -> Result<Outcome, String> {
    protocol::World::new(config).run()
}
