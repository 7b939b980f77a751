//! Transactions on a replicated partition all of whose members live in this process, each with a
//! thread of its own (paper 5, section 4).
//!
//! A run creates the partition, measures the speed of syncs of the disk by itself, drives the
//! clients against the leader, waits until all members have applied the same entries, and compares
//! their state: every counter with what was acknowledged, and all members with each other.
//!
//! Clients are tasks of one thread, with one request under way each. A request is one transaction
//! that adds to two counters, or a *bulk* of such transactions in one, of which all happen or none.

mod job;
mod members;
mod shared_worker;
mod state_check;

pub use job::{Consensus, ReplicasJob};

use std::sync::atomic::Ordering;

use fastrand::Rng;
use tokio::runtime::Runtime;

use crate::driver::{DrivePlan, Pace, WindowEdge, client_runtime, drive_tasks};
use crate::error::RunError;
use crate::keep_awake::KeepAwake;
use crate::machine;
use crate::run_context::RunContext;
use crate::sample::{Check, RunSample};
use crate::sync_rate;
use members::Members;
use shared_worker::{CounterClient, CounterShare, SharedWorker};
use state_check::AdditionLedger;

pub(super) fn run(job: &ReplicasJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    context.forbid_recording("replicas of one process")?;
    let runtime = client_runtime()?;
    let dir = match job.log {
        Some(place) => Some(context.directory(place)?),
        None => None,
    };
    let dir = dir.as_ref().map(tempfile::TempDir::path);
    let mut sample = RunSample::default();
    // A log in memory waits for no device.
    let awake = dir.map(|_| KeepAwake::default());
    if let Some(dir) = dir {
        let device = sync_rate::measure(dir, job.nodes, context.scale.time / 2)?;
        sample.values.set("device-syncs", device);
    }
    let members = Members::open(job, dir)?;
    let mut run = ReplicasRun {
        job,
        context,
        runtime: &runtime,
        members,
        sample,
    };
    let driven = run.drive(awake.as_ref());
    let ledger = match driven {
        Ok(ledger) => ledger,
        Err(wrong @ RunError::Failed(_)) => {
            run.check("every transaction is acknowledged", Err(wrong));
            return Ok(run.sample);
        }
        Err(other) => return Err(other),
    };
    run.check("every transaction is acknowledged", Ok(()));
    run.add_group_figures()?;
    let held = state_check::members(&run.members, &ledger, context.plant);
    run.check("every counter is right on every member", held.clone());
    run.members.close();
    if let (Ok(()), Some(dir), true) = (held, dir, context.reopen)
        && !context.stop.load(Ordering::Relaxed)
    {
        run.members = Members::open(job, Some(dir))?;
        run.members.wait_level()?;
        let held = state_check::members(&run.members, &ledger, false);
        run.check("what was acknowledged is recovered", held);
        run.members.close();
    }
    Ok(run.sample)
}

struct ReplicasRun<'r> {
    job: &'r ReplicasJob,
    context: &'r RunContext<'r>,
    runtime: &'r Runtime,
    members: Members,
    sample: RunSample,
}

impl ReplicasRun<'_> {
    fn check(&mut self, name: &str, outcome: Result<(), RunError>) {
        self.sample.checks.push(Check::new(name, outcome));
    }

    /// Drives the clients. Returns the acknowledged transactions.
    fn drive(&mut self, awake: Option<&KeepAwake>) -> Result<AdditionLedger, RunError> {
        let worker = SharedWorker::open(self.members.leader()?, self.runtime)?;
        let loaded = self.runtime.block_on(worker.load(self.job.counters));
        loaded.map_err(|error| RunError::failed("loading")(&error))?;
        let ledger = AdditionLedger::new(self.job.counters);
        let client = |number: u64| CounterClient {
            worker: worker.clone(),
            ledger: ledger.clone(),
            bulk: self.job.bulk,
            share: CounterShare {
                client: number,
                clients: self.job.clients as u64,
                counters: self.job.counters,
            },
            session: None,
            sequence: 0,
            rng: Rng::with_seed(self.context.seed.wrapping_add(number << 32)),
        };
        let clients = (1..=self.job.clients as u64).map(client).collect();
        let plan = DrivePlan {
            pace: Pace::Closed,
            warm_up: self.context.scale.warm_up,
            time: self.context.scale.time,
        };
        let mut used = [0.0; 2];
        let at = |moment| {
            let place = usize::from(moment == WindowEdge::End);
            used[place] = machine::own_cpu() - awake.map_or(0.0, KeepAwake::cpu);
        };
        let driven = drive_tasks(self.runtime, clients, plan, self.context.stop, at);
        let (driven, _) = driven?;
        driven.add_figures(&mut self.sample.values);
        let transactions = driven.transactions as f64 * self.job.bulk as f64;
        let rate = transactions / driven.window.as_secs_f64();
        self.sample.values.set("throughput", rate);
        let cpu = (used[1] - used[0]) * 1e6 / transactions;
        self.sample.values.set("cpu", cpu);
        Ok(ledger)
    }

    /// Adds how requests went through consensus, and the limit of that way.
    fn add_group_figures(&mut self) -> Result<(), RunError> {
        self.members.wait_level()?;
        let status = self.members.leader()?.status();
        let values = &mut self.sample.values;
        let size = status.entries as f64 / status.groups as f64;
        values.set("entries-per-group", size);
        let (Some(device), Some(rate)) = (values.get("device-syncs"), values.get("throughput"))
        else {
            return Ok(());
        };
        let ceiling = device * size * self.job.bulk as f64;
        values.set("ceiling", ceiling);
        values.set("of-ceiling", rate / ceiling);
        Ok(())
    }
}
