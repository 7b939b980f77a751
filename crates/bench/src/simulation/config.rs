//! What is simulated, and the figures of that.

use std::time::Duration;

use super::costs::ServiceTimes;
use crate::keys::Distribution;
use crate::systems::AtomicityProtocol;

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
pub struct SimulationConfig {
    /// The way by which transactions are atomic.
    pub protocol: AtomicityProtocol,
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
    pub costs: ServiceTimes,
    /// Transactions that count. At least a tenth as many come before them.
    pub transactions: usize,
    /// The seed of the random choices.
    pub seed: u64,
    /// Makes readers use the results of the first round: a test of the check.
    pub plant: bool,
}

/// The results of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimulationResult {
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
