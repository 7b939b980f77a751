//! The leader's workers: threads that execute at the same time, each for its share of the clients, as the
//! threads of a server do. What they have executed goes to one log.

use std::sync::{Arc, Barrier};

use replica::ReplicatedPartition;
use tokio::runtime::Runtime;

use super::counter_client::{CounterClient, CounterShare};
use super::job::ReplicasJob;
use super::shared_worker::{SharedWorker, WorkerSession};
use super::state_check::{AcknowledgedAdditions, AdditionLedger};
use crate::driver::{
    DrivePlan, DriveResult, LoadSchedule, WindowEdge, client_runtime, drive_tasks,
};
use crate::error::RunError;
use crate::machine;
use crate::run_context::RunContext;

/// See the module's description.
pub(super) struct WorkerThreads<'r> {
    pub(super) job: &'r ReplicasJob,
    pub(super) leader: &'r Arc<ReplicatedPartition>,
    pub(super) context: &'r RunContext<'r>,
}

/// The results of all threads.
pub(super) struct WorkersReport {
    pub(super) driven: DriveResult,
    pub(super) ledger: AdditionLedger,
    /// The threads' processor time within the window, in seconds.
    pub(super) cpu: f64,
}

/// The results of one thread.
struct ThreadReport {
    driven: DriveResult,
    counts: Vec<AcknowledgedAdditions>,
    cpu: f64,
}

impl WorkerThreads<'_> {
    /// Drives the clients of all workers; those of the first one on this thread, by `runtime`. `at` is called at
    /// the edges of its window, which begin and end together for all but the time in which threads wake.
    pub(super) fn drive(
        &self,
        runtime: &Runtime,
        at: impl FnMut(WindowEdge),
    ) -> Result<WorkersReport, RunError> {
        let start = Barrier::new(self.job.workers);
        let reports: Result<Vec<ThreadReport>, RunError> = std::thread::scope(|scope| {
            let other = |number| {
                let start = &start;
                scope.spawn(move || match client_runtime() {
                    Ok(runtime) => self.drive_one(number, &runtime, start, |_| ()),
                    Err(error) => {
                        start.wait();
                        Err(error)
                    }
                })
            };
            let others: Vec<_> = (1..self.job.workers).map(other).collect();
            let first = self.drive_one(0, runtime, &start, at);
            let others = others.into_iter().map(|thread| {
                let panicked = |_| Err("a thread of clients panicked".into());
                thread.join().unwrap_or_else(panicked)
            });
            std::iter::once(first).chain(others).collect()
        });
        let mut reports = reports?.into_iter();
        let first = reports.next().expect("this thread's is the first");
        let mut all = WorkersReport {
            driven: first.driven,
            ledger: AdditionLedger::of(first.counts),
            cpu: first.cpu,
        };
        for report in reports {
            all.driven.merge(&report.driven);
            all.ledger.add(&report.counts);
            all.cpu += report.cpu;
        }
        Ok(all)
    }

    /// Drives the clients of one worker on this thread.
    fn drive_one(
        &self,
        number: usize,
        runtime: &Runtime,
        start: &Barrier,
        mut at: impl FnMut(WindowEdge),
    ) -> Result<ThreadReport, RunError> {
        let opened = SharedWorker::open(self.leader, runtime);
        // A thread that cannot go on lets the others begin.
        start.wait();
        let worker = opened?;
        let job = self.job;
        let ledger = AdditionLedger::new(job.counters);
        let client = |client: usize| {
            let share = CounterShare {
                client: client as u64,
                clients: job.clients as u64,
                counters: job.counters,
            };
            let session = WorkerSession::new(&worker);
            CounterClient::new(session, &ledger, job.bulk, share, self.context.seed)
        };
        let numbers = (1..=job.clients).filter(|client| client % job.workers == number);
        let clients = numbers.map(client).collect();
        let plan = DrivePlan {
            pace: LoadSchedule::Closed,
            warm_up: self.context.scale.warm_up,
            time: self.context.scale.time,
        };
        let mut used = [0.0; 2];
        let at = |edge| {
            used[usize::from(edge == WindowEdge::End)] = machine::cpu_of_this_thread();
            at(edge);
        };
        let (driven, _) = drive_tasks(runtime, clients, plan, self.context.stop, at)?;
        Ok(ThreadReport {
            driven,
            counts: ledger.counts(),
            cpu: used[1] - used[0],
        })
    }
}
