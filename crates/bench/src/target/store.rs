//! Transactions on a store within this process.
//!
//! A run opens a new store, loads it, drives its workers, checks the data, closes it, and (for a
//! store with a log) opens it again to see that everything acknowledged came back.

mod job;
mod read_back;
mod store_under_test;
mod transfers;
mod ycsb;

pub use job::{LogSettings, StoreJob};
use store_under_test::{StoreUnderTest, StoreWorkload};

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use store::{Db, Stats};

use crate::driver::{Completions, DrivePlan, DriveResult, WindowEdge};
use crate::error::RunError;
use crate::machine;
use crate::run_context::RunContext;
use crate::sample::{Check, MetricValues, RunSample};
use crate::workload::WorkloadSettings;

pub(super) fn run(job: &StoreJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    if let Some(affinity) = context.affinity {
        job.fits(affinity)?;
    }
    match &job.workload {
        WorkloadSettings::Ycsb(ycsb) => {
            run_load(job, context, ycsb::YcsbLoad::new(ycsb, job, context))
        }
        WorkloadSettings::Transfers(transfers) => {
            run_load(job, context, transfers::TransfersLoad::new(transfers, job))
        }
    }
}

fn run_load<L: StoreWorkload>(
    job: &StoreJob,
    context: &RunContext<'_>,
    mut load: L,
) -> Result<RunSample, RunError> {
    let dir = match &job.log {
        Some(log) => Some(context.directory(log.place)?),
        None => None,
    };
    let dir = dir.as_ref().map(tempfile::TempDir::path);
    let mut sample = RunSample::default();
    let open = || {
        let opened = Db::open(job.options(dir, context)?);
        opened.map_err(|error| RunError::failed("opening the store")(&error))
    };
    let bench = StoreUnderTest {
        db: open()?,
        workers: job.workers,
        pace: job.pace,
        logged: job.log.is_some(),
        recorder: context.recorder,
        number: context.number,
        seed: context.seed,
        plant: context.plant,
        affinity: context.affinity,
    };
    let clients = load.load(&bench).and_then(|()| load.clients(&bench));
    let clients = clients.map_err(|error| RunError::failed("loading")(&error))?;
    let driven = match drive(job, context, &bench.db, clients, &mut sample.values) {
        Ok((driven, clients)) => {
            load.ended(clients);
            driven
        }
        Err(wrong @ RunError::Failed(_)) => {
            sample
                .checks
                .push(Check::new("every answer is right", Err(wrong)));
            return Ok(sample);
        }
        Err(other) => return Err(other),
    };
    driven.add_figures(&mut sample.values);
    sample
        .checks
        .push(Check::new("every answer is right", Ok(())));
    let held = load.check(&bench.db);
    sample
        .checks
        .push(Check::new("every key is right", held.clone().map(drop)));
    let closed = bench.db.close().map_err(RunError::of);
    sample.checks.push(Check::new("the store closes", closed));
    drop(bench);
    if let (Ok(held), true, true) = (held, job.log.is_some(), context.reopen) {
        let again = open().and_then(|db| {
            let found = load.check(&db)?;
            db.close()
                .map_err(|error| RunError::failed("closing")(&error))?;
            Ok(found)
        });
        sample.checks.push(Check::new(
            "what was acknowledged is recovered",
            same(held, again),
        ));
    }
    Ok(sample)
}

/// Checks that the store holds after a recovery exactly what it held before.
fn same(before: u64, after: Result<u64, RunError>) -> Result<(), RunError> {
    match after {
        Ok(after) if after == before => Ok(()),
        Ok(_) => Err(RunError::Failed(
            "the recovered store holds other values than before".to_owned(),
        )),
        Err(error) => Err(error),
    }
}

fn drive<C: crate::driver::BlockingClient>(
    job: &StoreJob,
    context: &RunContext<'_>,
    db: &Db,
    clients: Vec<C>,
    values: &mut MetricValues,
) -> Result<(DriveResult, Vec<C>), RunError> {
    let completions = Arc::new(Completions::default());
    let watch = job
        .log
        .is_some()
        .then(|| DurabilityWatch::new(db, &completions));
    let plan = DrivePlan {
        pace: job.pace,
        warm_up: context.scale.warm_up,
        time: context.scale.time,
    };
    let mut readings = Vec::new();
    let driven = crate::driver::drive(
        clients,
        &completions,
        plan,
        context.stop,
        |_: WindowEdge| {
            readings.push((db.stats(), machine::own_cpu(), log_threads_cpu()));
        },
    );
    drop(watch);
    let (driven, clients) = driven?;
    if let [
        (before, cpu_before, log_before),
        (after, cpu_after, log_after),
    ] = &readings[..]
    {
        add_log_figures(before, after, driven.window, values);
        let by_transaction = 1e6 / driven.transactions.max(1) as f64;
        values.set("cpu", (cpu_after - cpu_before) * by_transaction);
        if job.log.is_some() {
            values.set("logger-cpu", (log_after - log_before) * by_transaction);
        }
    }
    Ok((driven, clients))
}

/// Returns the processor time of the journal's log threads, in seconds.
fn log_threads_cpu() -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return 0.0;
    };
    let cpu = |thread: std::fs::DirEntry| {
        let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        let number = name.trim_end().strip_prefix("log")?;
        number.parse::<u32>().ok()?;
        let id = thread.file_name().to_str()?.parse().ok()?;
        Some(machine::cpu_of_thread(id))
    };
    threads.flatten().filter_map(cpu).sum()
}

/// Records the completions of each advance of the durable epoch, at the moment at which it happens.
/// The store keeps its callbacks as long as it lives, and they must not keep the store alive.
struct DurabilityWatch(Arc<Mutex<Option<Db>>>);

impl DurabilityWatch {
    fn new(db: &Db, completions: &Arc<Completions>) -> DurabilityWatch {
        let slot = Arc::new(Mutex::new(Some(db.clone())));
        let (seen, completions) = (Arc::clone(&slot), Arc::clone(completions));
        db.on_durable(Box::new(move || {
            if let Some(db) = &*seen.lock() {
                completions.advance(db.durable_epoch().0);
            }
        }));
        DurabilityWatch(slot)
    }
}

impl Drop for DurabilityWatch {
    fn drop(&mut self) {
        // Outside of the lock: the last handle closes the store, which waits for log threads, one
        // of which may be in this callback.
        let db = self.0.lock().take();
        drop(db);
    }
}

fn add_log_figures(before: &Stats, after: &Stats, window: Duration, values: &mut MetricValues) {
    let seconds = window.as_secs_f64();
    let syncs = after.log_syncs - before.log_syncs;
    if syncs == 0 {
        return;
    }
    let bytes = after.log_bytes - before.log_bytes;
    values.set("log-rate", bytes as f64 / seconds / 1e6);
    values.set("sync-rate", syncs as f64 / seconds);
    let total = |stats: &Stats| stats.log_sync_mean_us as f64 * stats.log_syncs as f64;
    let mean = (total(after) - total(before)) / syncs as f64 / 1e3;
    values.set("sync-time", mean.max(0.0));
    let (old, new) = (&before.log_latency, &after.log_latency);
    let transactions = new.transactions - old.transactions;
    for (name, before, after) in [
        ("in-buffer", old.buffer, new.buffer),
        ("in-queue", old.queue, new.queue),
        ("in-write", old.write, new.write),
        ("in-notification", old.notification, new.notification),
    ] {
        if transactions > 0 {
            let ms = after.saturating_sub(before).as_secs_f64() * 1e3;
            values.set(name, ms / transactions as f64);
        }
    }
}
