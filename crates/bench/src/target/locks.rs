//! Taking and releasing locks, by one client with one connection.
//!
//! A run consists of slices, by turns: bare round trips over loopback, a proxy that keeps locks in
//! memory, and the one that is measured. So results that are compared were measured side by
//! side.

mod job;
mod lock_client;
mod lock_processes;
mod lock_turns;

pub use job::{LockBackend, LocksJob};

use std::time::Instant;

use crate::driver::BlockingClient;
use crate::error::RunError;
use crate::keep_awake::KeepAwake;
use crate::latency::Latencies;
use crate::run_context::RunContext;
use crate::sample::{Check, MetricValues, RunSample};
use crate::systems::EchoConnection;
use lock_client::{LightweightTransactions, LockClient, RespLocks};
use lock_processes::LockProcesses;
use lock_turns::{LockLatencies, LockTurns};

/// Slices of each kind in one run.
const SLICES: u64 = 8;
/// Turns of a proxy that are not counted.
const WARM_UP: u64 = 500;
/// Bytes of a request and of a reply on the bare connection: as long as those of `LOCK.ACQUIRE`.
const REQUEST: usize = 72;
const REPLY: usize = 36;

pub(super) fn run(job: &LocksJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let memory = lock_processes::start(LockBackend::Memory, context)?;
    let started = match job.service {
        LockBackend::Memory => None,
        other => Some(lock_processes::start(other, context)?),
    };
    // A thread that waits for the disk waits longer on a processor that sleeps.
    let awake = KeepAwake::default();
    let mut sample = RunSample::default();
    let measured = measure(job, context, &memory, started.as_ref(), &mut sample);
    drop(awake);
    let outcome = match measured {
        Err(RunError::Failed(wrong)) => {
            let all = std::iter::once(&memory).chain(&started);
            let alive = all.map(LockProcesses::check_alive).find(Result::is_err);
            Err(match alive {
                Some(Err(ended)) => RunError::Failed(format!("{ended} ({wrong})")),
                _ => RunError::Failed(wrong),
            })
        }
        other => Ok(other?),
    };
    sample
        .checks
        .push(Check::new("every answer is right", outcome));
    Ok(sample)
}

fn measure(
    job: &LocksJob,
    context: &RunContext<'_>,
    memory: &LockProcesses,
    started: Option<&LockProcesses>,
    sample: &mut RunSample,
) -> Result<(), RunError> {
    let failed = RunError::failed("connecting");
    let mut beside =
        RespLocks::connect(memory.address()).map(|client| LockTurns::new(client, false));
    let beside = beside.as_mut().map_err(|error| failed(error))?;
    let started = started.unwrap_or(memory);
    let address = started.address();
    match job.service {
        LockBackend::Memory
        | LockBackend::Durable
        | LockBackend::Replicated
        | LockBackend::Paper
        | LockBackend::Older => {
            let client = RespLocks::connect(address).map_err(|error| failed(&error))?;
            slices(job, context, client, beside, sample)
        }
        LockBackend::Cql | LockBackend::Lwt { .. } => {
            let client =
                LightweightTransactions::connect(address).map_err(|error| failed(&error))?;
            slices(job, context, client, beside, sample)
        }
    }
}

/// Measures bare round trips, the table in memory, and the measured one, by turns.
fn slices<D: LockClient>(
    job: &LocksJob,
    context: &RunContext<'_>,
    client: D,
    beside: &mut LockTurns<RespLocks>,
    sample: &mut RunSample,
) -> Result<(), RunError> {
    let mut own = LockTurns::new(client, context.plant);
    let mut bare =
        EchoConnection::new(REQUEST, REPLY).map_err(|error| RunError::failed("echoing")(&error))?;
    let is_memory = job.service == LockBackend::Memory;
    let mut took = InterleavedLatencies::default();
    beside.run(WARM_UP, &mut LockLatencies::default())?;
    warm_up(job, context, &mut own)?;
    let turns = job.turns.div_ceil(SLICES);
    for _ in 0..SLICES {
        context.check_stop()?;
        for _ in 0..turns {
            let begun = Instant::now();
            bare.run()?;
            took.bare.record(begun.elapsed());
        }
        if !is_memory {
            beside.run(turns, &mut took.memory)?;
        }
        own.run(turns, &mut took.own)?;
    }
    took.add_figures(&mut sample.values);
    Ok(())
}

/// The times of all slices of a kind.
#[derive(Default)]
struct InterleavedLatencies {
    bare: Latencies,
    /// The times of the proxy beside it; empty if that is the measured one.
    memory: LockLatencies,
    own: LockLatencies,
}

impl InterleavedLatencies {
    fn add_figures(&self, values: &mut MetricValues) {
        let LockLatencies { acquire, release } = &self.own;
        acquire.add_figures(values);
        values.set("latency-min", acquire.quantile_ms(0.0));
        for (metric, share) in [
            ("latency-p10", 0.1),
            ("latency-p25", 0.25),
            ("latency-p75", 0.75),
            ("latency-p90", 0.9),
        ] {
            values.set(metric, acquire.quantile_ms(share));
        }
        values.set("release-p50", release.quantile_ms(0.5));
        values.set("release", release.mean_ms());
        values.set("release-p99", release.quantile_ms(0.99));
        values.set("round-trip", self.bare.quantile_ms(0.5));
        // Quotients by zero are no numbers, and are left out.
        let of =
            |own: &Latencies, memory: &Latencies| own.quantile_ms(0.5) / memory.quantile_ms(0.5);
        values.set("of-memory", of(acquire, &self.memory.acquire));
        values.set("release-of-memory", of(release, &self.memory.release));
    }
}

fn warm_up<D: LockClient>(
    job: &LocksJob,
    context: &RunContext<'_>,
    own: &mut LockTurns<D>,
) -> Result<(), RunError> {
    let mut left = job.warm_up;
    while left > 0 {
        context.check_stop()?;
        let some = left.min(100);
        own.run(some, &mut LockLatencies::default())?;
        left -= some;
    }
    Ok(())
}
