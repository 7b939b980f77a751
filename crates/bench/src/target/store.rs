//! Transactions on a store within this process.
//!
//! A run opens a new store, loads it, drives its workers, checks the data, closes it, and (for a
//! store with a log) opens it again to see that everything acknowledged came back.

mod check;
mod transfers;
mod ycsb;

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::affinity::Affinity;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::{CheckpointOptions, Db, EpochTime, Options, Stats};

use crate::driver::{Completions, DONE, Driven, Moment, Pace, Plan};
use crate::machine;
use crate::sample::{Check, RunError, Sample, Values};
use crate::target::{Context, Device, Place, Slow};
use crate::workload::Workload;

/// Workers beyond those that are driven: for loading and checking.
const SPARE: usize = 2;

/// Transactions on a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreJob {
    /// The work of the transactions.
    pub workload: Workload,
    /// When they begin.
    pub pace: Pace,
    /// Threads, each with a worker of the store.
    pub workers: usize,
    /// The store's log; `None`: nothing is logged.
    pub log: Option<LogKnobs>,
}

/// How the log is set up: the knobs of [`store::Options`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // They are named as in the store's options.
pub struct LogKnobs {
    pub place: Place,
    pub device: Device,
    pub loggers: usize,
    pub log_buffers: usize,
    pub log_buffer_size: usize,
    /// `None`: adaptive.
    pub epoch_time: Option<Duration>,
    pub durability_target: Duration,
    pub max_epoch_diff: Option<NonZeroU64>,
    pub log_warm_up: bool,
    pub measure_latency: bool,
    /// One log lies on a slower device than the others.
    pub slow: Option<Slow>,
}

impl LogKnobs {
    /// Returns the store's defaults, in a place.
    #[must_use]
    pub fn new(place: Place) -> LogKnobs {
        let options = Options::default();
        LogKnobs {
            place,
            device: Device::File,
            loggers: options.loggers,
            log_buffers: options.log_buffers,
            log_buffer_size: options.log_buffer_size,
            epoch_time: None,
            durability_target: options.durability_target,
            max_epoch_diff: None,
            log_warm_up: false,
            measure_latency: false,
            slow: None,
        }
    }
}

impl StoreJob {
    /// Checks that there is a processor for each worker and logger, and none too many.
    fn fits(&self, affinity: &Affinity) -> Result<(), RunError> {
        let (workers, loggers) = (affinity.workers().count(), affinity.loggers.len());
        let same = self.log.is_none_or(|log| log.loggers == loggers);
        if workers == self.workers && same {
            return Ok(());
        }
        let what = format!("the placement is one of {workers} workers and {loggers} loggers");
        Err(RunError::Skipped(what))
    }

    fn options(&self, dir: Option<&Path>, context: &Context<'_>) -> Result<Options, RunError> {
        let checkpoint = CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        };
        let options = Options {
            dir: dir.map(Path::to_owned),
            workers: self.workers + SPARE,
            checkpoint,
            ..Options::default()
        };
        let (Some(log), Some(dir)) = (&self.log, dir) else {
            return Ok(options);
        };
        let slow = log
            .slow
            .map(|slow| (slow, dir.join(format!("log{}", slow.log))));
        let disk = log.device.open(slow)?;
        Ok(Options {
            loggers: log.loggers,
            log_buffers: log.log_buffers,
            log_buffer_size: log.log_buffer_size,
            epoch_time: log.epoch_time.map_or(EpochTime::Adaptive, EpochTime::Fixed),
            durability_target: log.durability_target,
            max_epoch_diff: log.max_epoch_diff,
            log_warm_up: log.log_warm_up,
            measure_latency: log.measure_latency,
            affinity: context.affinity.cloned(),
            disk,
            ..options
        })
    }
}

/// The parts of a run that each workload implements.
trait Load: Sized {
    type Client<'r>: crate::driver::Client;

    /// Writes the initial data.
    fn load(&self, bench: &Bench<'_>) -> Result<(), String>;

    /// Returns a client for each worker.
    fn clients<'r>(&self, bench: &Bench<'r>) -> Result<Vec<Self::Client<'r>>, String>;

    /// Takes the acknowledged transactions from the clients.
    fn ended(&mut self, clients: Vec<Self::Client<'_>>);

    /// Checks the contents of the store, and returns their digest.
    fn check(&self, db: &Db) -> Result<u64, String>;
}

/// A store under test.
struct Bench<'r> {
    db: Db,
    workers: usize,
    pace: Pace,
    logged: bool,
    recorder: Option<&'r history::Recorder>,
    number: usize,
    seed: u64,
    plant: bool,
    affinity: Option<&'r Affinity>,
}

impl Bench<'_> {
    fn worker(&self) -> Result<store::Worker, String> {
        let worker = self.db.worker();
        worker.ok_or_else(|| "the store has no worker left".to_owned())
    }

    /// Returns the worker of a lane, whose number determines its logger.
    fn seat(&self, lane: usize) -> Result<Seat, String> {
        let worker = self.db.worker_at(lane);
        let places = self.affinity.iter().flat_map(|all| all.workers());
        let cpu = places.map(|(_, cpu)| cpu).nth(lane);
        Ok(Seat {
            worker: worker.ok_or_else(|| format!("the store has no worker {lane}"))?,
            cpu,
        })
    }

    /// Returns the ticket of transactions that became visible in this epoch.
    fn ticket(&self) -> Ticket {
        Ticket {
            db: self.db.clone(),
            asks: self.logged && self.pace != Pace::Closed,
            requested: 0,
        }
    }
}

/// A client's worker, and the processor on which its thread must run.
struct Seat {
    worker: store::Worker,
    cpu: Option<usize>,
}

impl Seat {
    /// Pins the calling thread to its processor, on the first call.
    fn take(&mut self) -> Result<&mut store::Worker, String> {
        if let Some(cpu) = self.cpu.take() {
            base::cpus::pin_current_thread(cpu).map_err(|error| error.to_string())?;
        }
        Ok(&mut self.worker)
    }
}

/// Makes tickets of epochs: a ticket is the epoch's number, because a client that waits for a
/// transaction waits for its epoch.
struct Ticket {
    db: Db,
    /// `true` if another thread than the client's own will wait.
    asks: bool,
    requested: u64,
}

impl Ticket {
    /// Requests durability of what was observed, once for each epoch.
    fn of(&mut self, observed: store::Epoch) -> u64 {
        if self.db.durable_epoch() >= observed {
            return DONE;
        }
        if self.asks && observed.0 > self.requested {
            self.requested = observed.0;
            self.db.request_durable(observed);
        }
        observed.0
    }

    fn settle(&self, ticket: u64) -> Result<(), String> {
        if ticket == DONE {
            return Ok(());
        }
        let epoch = store::Epoch(ticket);
        if self.db.sync_inline(epoch) {
            return Ok(());
        }
        let waited = self.db.wait_durable(epoch);
        waited.map_err(|abort| abort.to_string())
    }
}

pub(super) fn run(job: &StoreJob, context: &Context<'_>) -> Result<Sample, RunError> {
    if let Some(affinity) = context.affinity {
        job.fits(affinity)?;
    }
    match &job.workload {
        Workload::Ycsb(ycsb) => run_load(job, context, ycsb::Load::new(ycsb, job, context)),
        Workload::Transfers(transfers) => {
            run_load(job, context, transfers::Load::new(transfers, job))
        }
    }
}

fn run_load<L: Load>(
    job: &StoreJob,
    context: &Context<'_>,
    mut load: L,
) -> Result<Sample, RunError> {
    let dir = match &job.log {
        Some(log) => Some(context.directory(log.place)?),
        None => None,
    };
    let dir = dir.as_ref().map(tempfile::TempDir::path);
    let mut sample = Sample::default();
    let open = || {
        let opened = Db::open(job.options(dir, context)?);
        opened.map_err(|error| RunError::failed("opening the store")(&error))
    };
    let bench = Bench {
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
        Err(RunError::Failed(what)) => {
            sample
                .checks
                .push(Check::new("every answer is right", Err(what)));
            return Ok(sample);
        }
        Err(other) => return Err(other),
    };
    driven.tell(&mut sample.values);
    sample
        .checks
        .push(Check::new("every answer is right", Ok(())));
    let held = load.check(&bench.db);
    sample
        .checks
        .push(Check::new("every key is right", held.clone().map(drop)));
    let closed = bench.db.close().map_err(|error| error.to_string());
    sample.checks.push(Check::new("the store closes", closed));
    drop(bench);
    if let (Ok(held), true, true) = (held, job.log.is_some(), context.reopen) {
        let again = open().and_then(|db| {
            let found = load.check(&db).map_err(RunError::Failed)?;
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
fn same(before: u64, after: Result<u64, RunError>) -> Result<(), String> {
    match after {
        Ok(after) if after == before => Ok(()),
        Ok(_) => Err("the recovered store holds other values than before".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn drive<C: crate::driver::Client>(
    job: &StoreJob,
    context: &Context<'_>,
    db: &Db,
    clients: Vec<C>,
    values: &mut Values,
) -> Result<(Driven, Vec<C>), RunError> {
    let completions = Arc::new(Completions::default());
    let watch = job.log.is_some().then(|| Watch::new(db, &completions));
    let plan = Plan {
        pace: job.pace,
        warm_up: context.scale.warm_up,
        time: context.scale.time,
    };
    let mut readings = Vec::new();
    let driven = crate::driver::drive(clients, &completions, plan, context.stop, |_: Moment| {
        readings.push((db.stats(), machine::own_cpu()));
    });
    drop(watch);
    let (driven, clients) = driven?;
    if let [(before, cpu_before), (after, cpu_after)] = &readings[..] {
        tell_log(before, after, driven.window, values);
        let cpu = (cpu_after - cpu_before) * 1e6 / driven.transactions.max(1) as f64;
        values.set("cpu", cpu);
    }
    Ok((driven, clients))
}

/// Records the completions of each advance of the durable epoch, at the moment at which it happens.
/// The store keeps its callbacks as long as it lives, and they must not keep the store alive.
struct Watch(Arc<Mutex<Option<Db>>>);

impl Watch {
    fn new(db: &Db, completions: &Arc<Completions>) -> Watch {
        let slot = Arc::new(Mutex::new(Some(db.clone())));
        let (seen, completions) = (Arc::clone(&slot), Arc::clone(completions));
        db.on_durable(Box::new(move || {
            if let Some(db) = &*seen.lock() {
                completions.advance(db.durable_epoch().0);
            }
        }));
        Watch(slot)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Outside of the lock: the last handle closes the store, which waits for log threads, one
        // of which may be in this callback.
        let db = self.0.lock().take();
        drop(db);
    }
}

fn tell_log(before: &Stats, after: &Stats, window: Duration, values: &mut Values) {
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
