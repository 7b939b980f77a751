//! Workers of a store before their loggers, simulated with service times that are measured here.
//!
//! A job is one of two kinds. If the threads are *real*, a [`StoreJob`] is driven on a number of
//! processors, and the same is simulated on one machine with as many: this shows the quality of the
//! simulation. Otherwise there are only simulated threads, each with a processor of its own.

mod calibration;

use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::store::{self, StoreJob};
use crate::error::RunError;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{MetricValues, RunSample};
use crate::simulation::Machines;
use crate::simulation::logging::{self, LoggingConfig, LoggingCosts, LoggingResult};
use calibration::Calibrations;

/// The longest time that a simulation waits until the buffers are full.
const LONGEST_FILL: Duration = Duration::from_secs(2);

/// Workers of a store, and their loggers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggingJob {
    /// The workers, their transactions, and the log, whose epochs are fixed.
    pub store: StoreJob,
    /// The processors on which real threads are measured beside simulated ones; `None`: there are only
    /// simulated ones.
    pub cores: Option<usize>,
    /// The time that counts in a simulation without real threads. A quarter of it comes before, and
    /// the time in which the device could write all buffers.
    pub time: Duration,
}

pub(super) fn run(job: &LoggingJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    context.forbid_recording("simulated threads")?;
    let known = context.round_state.get::<Calibrations>();
    let (costs, checks) = known.of(&job.store, context)?;
    let mut sample = RunSample {
        checks,
        ..RunSample::default()
    };
    if sample.failure().is_some() {
        return Ok(sample);
    }
    let Some(cores) = job.cores else {
        // A device that is the bottleneck fills all buffers before the window begins.
        let filled = job.store.log.map_or(0.0, |log| {
            let buffers = job.store.workers * log.log_buffers * log.log_buffer_size;
            costs.device.of([0, buffers, 0, 0])
        });
        let filled = Duration::from_nanos(filled as u64).min(LONGEST_FILL);
        let time = (job.time / 4 + filled, job.time);
        let simulated = simulate(job, costs, Machines::Apart, time, context.seed);
        add_figures(&simulated, job.store.log.is_some(), &mut sample.values);
        return Ok(sample);
    };
    let measured = restricted(cores, || store::run(&job.store, context))?;
    sample.checks.extend(measured.checks);
    sample.values = measured.values;
    let time = (context.scale.warm_up, context.scale.time);
    let machines = Machines::Shared(cores);
    let simulated = simulate(job, costs, machines, time, context.seed);
    let values = &mut sample.values;
    values.set("simulated", simulated.throughput);
    if let Some(real) = values.get("throughput") {
        values.set("of-real", simulated.throughput / real);
        values.set("off", (simulated.throughput / real - 1.0).abs());
    }
    values.set("simulated-cpu", simulated.service.as_secs_f64() * 1e6);
    let latency = simulated.latency.as_secs_f64() * 1e3;
    values.set("simulated-latency", latency);
    if let Some(real) = values.get("latency") {
        values.set("latency-of-real", latency / real);
    }
    Ok(sample)
}

fn simulate(
    job: &LoggingJob,
    costs: LoggingCosts,
    machines: Machines,
    (warm_up, time): (Duration, Duration),
    seed: u64,
) -> LoggingResult {
    let workers = job.store.workers;
    let (Some(log), Some(epoch)) = (job.store.log, job.store.log.and_then(|log| log.epoch_time))
    else {
        // Nothing holds up workers without a log.
        let at_once = match machines {
            Machines::Apart => workers,
            Machines::Shared(processors) => workers.min(processors),
        };
        return LoggingResult {
            throughput: at_once as f64 * 1e9 / costs.worker,
            ..LoggingResult::default()
        };
    };
    logging::run(&LoggingConfig {
        workers,
        loggers: log.loggers,
        buffers: log.log_buffers,
        buffer_size: log.log_buffer_size,
        epoch,
        max_epoch_diff: log.max_epoch_diff,
        shares_device: log.place == StorageMedium::Disk,
        machines,
        costs,
        warm_up,
        time,
        seed,
    })
}

fn add_figures(simulated: &LoggingResult, has_log: bool, values: &mut MetricValues) {
    values.set("throughput", simulated.throughput);
    if has_log {
        values.set("latency", simulated.latency.as_secs_f64() * 1e3);
        values.set("log-rate", simulated.log_rate / 1e6);
    }
}

/// Runs `measure` on the first processors of this machine; threads that it starts stay there, too.
fn restricted(
    cores: usize,
    measure: impl FnOnce() -> Result<RunSample, RunError> + Send,
) -> Result<RunSample, RunError> {
    let usable = base::cpus::usable().map_err(RunError::of)?;
    if usable.len() < cores {
        let why = format!("this machine has {} processors", usable.len());
        return Err(RunError::Skipped(why));
    }
    let on_few = || {
        let mut set = CpuSet::new();
        usable[..cores].iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(None, &set).map_err(RunError::of)?;
        measure()
    };
    // A thread of its own: the affinity ends with it.
    std::thread::scope(|scope| {
        let panicked = |_| Err("the measuring thread panicked".into());
        scope.spawn(on_few).join().unwrap_or_else(panicked)
    })
}
