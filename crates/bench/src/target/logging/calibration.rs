//! Measures service times of workers and loggers: one worker with one logger, with short epochs and with
//! long ones, and one worker without a log.

use std::num::NonZeroU64;
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::RunError;
use crate::run_context::RunContext;
use crate::sample::{Check, MetricValues};
use crate::simulation::costs::Line;
use crate::simulation::logging::{LoggingCosts, WAKES};
use crate::target::store::{self, LogSettings, StoreJob};

/// The epochs of the two runs with a log: small cycles and large ones.
const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_millis(40);
/// A run has at least so many long epochs.
const LONG_EPOCHS: u32 = 5;
/// Up to this epoch time a transaction costs what it does with short epochs.
const SHORTISH: Duration = Duration::from_millis(5);
/// Sleeps that are measured for each of the times that are kept.
const SLEEPS: usize = 8;
const SLEEP: Duration = Duration::from_micros(300);

/// Service times that were measured, each once.
#[derive(Default)]
pub(super) struct Calibrations(Mutex<Vec<Calibration>>);

/// The service times of a workload with a log, or without one.
struct Calibration {
    shape: StoreJob,
    short: LoggingCosts,
    long: LoggingCosts,
    checks: Vec<Check>,
}

impl Calibrations {
    /// Returns the service times of such transactions before such a log, which are measured on the first
    /// call, and the checks of those runs.
    pub(super) fn of(
        &self,
        job: &StoreJob,
        context: &RunContext<'_>,
    ) -> Result<(LoggingCosts, Vec<Check>), RunError> {
        let shape = StoreJob {
            workers: 1,
            log: job.log.map(|log| LogSettings {
                device: log.device,
                ..LogSettings::new(log.place)
            }),
            ..job.clone()
        };
        let mut known = self.0.lock();
        let place = match known.iter().position(|one| one.shape == shape) {
            Some(place) => place,
            None => {
                let measured = measure(shape, context)?;
                known.push(measured);
                known.len() - 1
            }
        };
        let found = &known[place];
        let epoch = job.log.and_then(|log| log.epoch_time);
        let costs = match epoch.is_some_and(|epoch| epoch <= SHORTISH) {
            true => found.short,
            false => found.long,
        };
        Ok((costs, found.checks.clone()))
    }
}

fn measure(shape: StoreJob, context: &RunContext<'_>) -> Result<Calibration, RunError> {
    let context = RunContext {
        disk: context.disk.clone(),
        memory: context.memory.clone(),
        // A store that is opened again shows nothing about service times.
        reopen: false,
        ..*context
    };
    let Some(log) = shape.log else {
        let sample = store::run(&shape, &context)?;
        let cpu = match sample.failure() {
            Some(_) => 0.0,
            None => needed(&sample.values, "cpu")?,
        };
        let costs = LoggingCosts {
            worker: cpu * 1e3,
            ..LoggingCosts::default()
        };
        return Ok(Calibration {
            shape,
            short: costs,
            long: costs,
            checks: sample.checks,
        });
    };
    let mut checks = Vec::new();
    let mut cycles = Vec::new();
    for epoch in [SHORT, LONG.min(context.scale.time / LONG_EPOCHS)] {
        let job = StoreJob {
            log: Some(LogSettings {
                epoch_time: Some(epoch),
                max_epoch_diff: None,
                ..log
            }),
            ..shape.clone()
        };
        let sample = store::run(&job, &context)?;
        let has_failed = sample.failure().is_some();
        checks.extend(sample.checks);
        if has_failed {
            return Ok(Calibration {
                shape,
                short: LoggingCosts::default(),
                long: LoggingCosts::default(),
                checks,
            });
        }
        cycles.push(MeasuredCycles::of(&sample.values)?);
    }
    let line = |time: fn(&MeasuredCycles) -> f64| {
        let terms = |one: &MeasuredCycles| ([1, one.bytes as usize, 0, 0], time(one));
        Line::fit(&cycles.iter().map(terms).collect::<Vec<_>>())
    };
    let (cycle, device) = (line(|one| one.cpu), line(|one| one.device));
    let wakes = wakes();
    let costs = |one: &MeasuredCycles| LoggingCosts {
        worker: one.worker,
        bytes: one.bytes_by_transaction,
        cycle,
        device,
        wakes,
    };
    Ok(Calibration {
        short: costs(&cycles[0]),
        long: costs(&cycles[1]),
        shape,
        checks,
    })
}

/// The cycles of a run: means, times in nanoseconds.
struct MeasuredCycles {
    bytes: f64,
    /// Processor time of the logger.
    cpu: f64,
    /// From the beginning of the write to the end of the sync.
    device: f64,
    /// Processor time of the worker for a transaction.
    worker: f64,
    bytes_by_transaction: f64,
}

impl MeasuredCycles {
    fn of(values: &MetricValues) -> Result<MeasuredCycles, RunError> {
        let get = |metric| needed(values, metric);
        let (throughput, cpu, logger) = (get("throughput")?, get("cpu")?, get("logger-cpu")?);
        let (bytes, syncs) = (get("log-rate")? * 1e6, get("sync-rate")?);
        Ok(MeasuredCycles {
            bytes: bytes / syncs,
            cpu: logger * 1e3 * throughput / syncs,
            device: get("sync-time")? * 1e6,
            worker: (cpu - logger).max(0.0) * 1e3,
            bytes_by_transaction: bytes / throughput,
        })
    }
}

/// Returns a positive figure. A run on a machine that is busy otherwise may have none.
fn needed(values: &MetricValues, metric: &str) -> Result<f64, RunError> {
    let found = values.get(metric).filter(|value| *value > 0.0);
    found.ok_or_else(|| {
        RunError::Skipped(format!(
            "the run is too short to measure service times: it has no {metric}"
        ))
    })
}

/// Returns how much later than asked for a sleeping thread runs, in nanoseconds: quantiles of equal
/// distance.
fn wakes() -> [f64; WAKES] {
    let measure = || {
        // As a logger does.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
        let late = || {
            let due = Instant::now() + SLEEP;
            park_timeout(SLEEP);
            due.elapsed().as_nanos() as f64
        };
        let mut all: Vec<f64> = std::iter::repeat_with(late).take(WAKES * SLEEPS).collect();
        all.sort_by(f64::total_cmp);
        std::array::from_fn(|place| all[place * SLEEPS + SLEEPS / 2])
    };
    // A thread of its own: the slack ends with it.
    std::thread::spawn(measure).join().unwrap_or_default()
}
