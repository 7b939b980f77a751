//! Workers of a store that log, and their loggers: more of them than a machine has processors.
//!
//! | step | thread | what |
//! |---|---|---|
//! | execute | a worker | executes some transactions, and appends what they wrote to its open buffer |
//! | resume | a worker | looks if it may go on, after it has waited |
//! | look | a logger | begins the next epoch if it is time, and a cycle if there is something to do |
//! | write | a logger | has sealed and written the buffers that its cycle took |
//! | sync | a logger | its log is synced: closes the epoch, and gives the buffers back |
//!
//! The rules are those of the journal (`journal::threads`, `logger`, `handover`, `horizon`): with fixed
//! epochs the first logger whose time has come begins the next epoch, so that an epoch lasts as long as a
//! cycle where all loggers are busy; a cycle takes everything that the
//! logger's workers have appended; the least epoch that all loggers have closed is durable; a worker
//! waits while all of its buffers are with the logger, and while it is `max_epoch_diff` epochs ahead of
//! it.
//!
//! Simplifications, in addition to those that [`super`] names:
//!
//! 1. A worker executes several transactions as one piece of work, a small part of an epoch. All of
//!    them belong to the epoch in which the piece ends.
//! 2. A transaction takes the same time however many workers there are: caches, memory bandwidth,
//!    locks of the store and conflicts between transactions are those of one worker.
//! 3. Loggers share a disk, whose bytes come one after the other while syncs overlap; they do not
//!    share the bandwidth of memory.
//! 4. A thread keeps its processor for a whole piece of work.

mod log_thread;
mod state;
mod worker_thread;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use fastrand::Rng;

use super::Machines;
use super::costs::Line;
use super::machine::{ThreadId, ThreadScheduler};
use state::{SimulatedLogger, SimulatedWorker};

/// Pieces of work of a worker in an epoch.
const PIECES: u32 = 32;
/// The first epoch: no worker has to wait for one before it.
const FIRST_EPOCH: u64 = 1 << 20;
/// Measured times from when a thread should wake to when it runs: so many of them, by size.
pub const WAKES: usize = 8;

/// The service times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoggingCosts {
    /// A worker's, for a transaction.
    pub worker: f64,
    /// Bytes that a transaction logs.
    pub bytes: f64,
    /// A logger's processor time: once for each cycle, and for each byte.
    pub cycle: Line,
    /// The time from the beginning of a cycle's write to the end of its sync, likewise.
    pub device: Line,
    /// Times from when a thread should wake to when it runs.
    pub wakes: [f64; WAKES],
}

/// The configuration of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct LoggingConfig {
    /// Worker threads.
    pub workers: usize,
    /// Log threads; worker *i* is served by logger *i* mod `loggers`.
    pub loggers: usize,
    /// Buffers of a worker.
    pub buffers: usize,
    /// Bytes of a buffer.
    pub buffer_size: usize,
    /// The time of an epoch.
    pub epoch: Duration,
    /// The epochs that a worker may be ahead of its logger.
    pub max_epoch_diff: Option<NonZeroU64>,
    /// `true` if all logs lie on one device, which writes one after the other.
    pub shares_device: bool,
    /// Where threads run; apart, each has a processor of its own.
    pub machines: Machines,
    /// Service times.
    pub costs: LoggingCosts,
    /// The time before the window.
    pub warm_up: Duration,
    /// The window: transactions that begin in it count.
    pub time: Duration,
    /// The seed of the random choices.
    pub seed: u64,
}

/// The results of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoggingResult {
    /// Transactions a second.
    pub throughput: f64,
    /// The mean time from the beginning of a transaction to its durability.
    pub latency: Duration,
    /// Bytes written to all logs in a second.
    pub log_rate: f64,
    /// Processor time of a transaction, of workers and loggers.
    pub service: Duration,
}

/// A piece of work.
enum Step {
    Execute { worker: usize, transactions: u64 },
    Resume { worker: usize },
    Look { logger: usize, sleep: u64 },
    Write { logger: usize },
    Sync { logger: usize },
}

/// Transactions of an epoch that began within the window.
#[derive(Default)]
struct EpochAccount {
    transactions: u64,
    /// The sum of the times at which they began.
    begun: f64,
}

struct LoggingSimulation {
    config: LoggingConfig,
    rng: Rng,
    threads: ThreadScheduler<Step>,
    workers: Vec<SimulatedWorker>,
    loggers: Vec<SimulatedLogger>,
    current: u64,
    /// When the next epoch begins.
    next_tick: u64,
    durable: u64,
    /// When the device has written what it was given.
    device_free: u64,
    accounts: BTreeMap<u64, EpochAccount>,
    /// Transactions of the whole run.
    executed: u64,
    result: WindowTotals,
}

/// What happened within the window.
#[derive(Default)]
struct WindowTotals {
    transactions: u64,
    durable: u64,
    /// The sum of their latencies.
    waited: f64,
    bytes: f64,
}

/// Runs the simulation.
#[must_use]
pub fn run(config: &LoggingConfig) -> LoggingResult {
    let simulation = LoggingSimulation {
        config: *config,
        rng: Rng::with_seed(config.seed),
        threads: ThreadScheduler::new(config.workers + config.loggers, config.machines),
        workers: vec![SimulatedWorker::default(); config.workers],
        loggers: vec![SimulatedLogger::new(FIRST_EPOCH - 1); config.loggers],
        current: FIRST_EPOCH,
        next_tick: config.epoch.as_nanos() as u64,
        durable: FIRST_EPOCH - 1,
        device_free: 0,
        accounts: BTreeMap::new(),
        executed: 0,
        result: WindowTotals::default(),
    };
    simulation.run()
}

impl LoggingSimulation {
    fn run(mut self) -> LoggingResult {
        for worker in 0..self.workers.len() {
            self.threads.give(worker, 0, 0.0, Step::Resume { worker });
        }
        for logger in 0..self.loggers.len() {
            self.sleep(logger);
        }
        let end = self.window().1;
        // What does not become durable in ten more windows is behind by more than the run is long.
        let last = end + 10 * (self.config.time.as_nanos() as u64);
        while let Some((_, step)) = self.threads.next() {
            let now = self.threads.now();
            let is_settled = self.result.durable == self.result.transactions;
            if now >= last || now >= end && is_settled {
                break;
            }
            match step {
                Step::Execute {
                    worker,
                    transactions,
                } => self.executed(worker, transactions),
                Step::Resume { worker } => self.resume(worker),
                Step::Look { logger, sleep } => self.look(logger, sleep),
                Step::Write { logger } => self.written(logger),
                Step::Sync { logger } => self.synced(logger),
            }
        }
        let seconds = self.config.time.as_secs_f64();
        let latency = self.result.waited / (self.result.durable.max(1)) as f64;
        LoggingResult {
            throughput: self.result.transactions as f64 / seconds,
            latency: Duration::from_nanos(latency as u64),
            log_rate: self.result.bytes / seconds,
            service: Duration::from_nanos(
                (self.threads.used() / self.executed.max(1) as f64) as u64,
            ),
        }
    }

    /// Returns the first moment of the window, and the first one behind it.
    fn window(&self) -> (u64, u64) {
        let begin = self.config.warm_up.as_nanos() as u64;
        (begin, begin + self.config.time.as_nanos() as u64)
    }

    fn is_in_window(&self, moment: u64) -> bool {
        let (begin, end) = self.window();
        (begin..end).contains(&moment)
    }

    fn log_thread(&self, logger: usize) -> ThreadId {
        self.config.workers + logger
    }

    fn logger_of(&self, worker: usize) -> usize {
        worker % self.config.loggers
    }

    /// Draws the time until a thread that is woken runs.
    fn wake_time(&mut self) -> u64 {
        self.config.costs.wakes[self.rng.usize(..WAKES)] as u64
    }
}

#[cfg(test)]
mod tests;
