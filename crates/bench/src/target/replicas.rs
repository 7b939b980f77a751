//! Transactions on a replicated partition all of whose members live in this process, each with a
//! thread of its own (paper 5, section 4).
//!
//! A run creates the partition, measures the speed of syncs of the disk by itself, drives the
//! clients against the leader, waits until all members have applied the same entries, and compares
//! their state: every counter with what was acknowledged, and all members with each other.
//!
//! Clients are tasks of one thread for each worker of the leader, with one request under way each. A request is one transaction
//! that adds to two counters, or a *bulk* of such transactions in one, of which all happen or none.
//!
//! | network | clients | links |
//! |---|---|---|
//! | [`ReplicaNetwork::Inside`] | tasks of this process, without a connection | sockets on loopback |
//! | [`ReplicaNetwork::Loopback`] | tasks of another process, each with a connection of TCP | sockets on loopback |
//! | [`ReplicaNetwork::Links`] | the same | with a delay and a rate, by a thread that forwards their bytes |

mod ceiling;
mod client_listener;
mod client_process;
mod counter_client;
mod frames;
mod job;
mod members;
mod remote_clients;
mod shared_worker;
mod state_check;
mod worker_threads;

pub use job::{Consensus, ReplicaNetwork, ReplicasJob};
pub use remote_clients::{ReplicaClientsConfig, serve_clients};

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use testkit::relay::{DelayedLinkFigures, DelayedLinks};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use crate::driver::{WindowEdge, client_runtime};
use crate::error::RunError;
use crate::keep_awake::KeepAwake;
use crate::machine;
use crate::run_context::RunContext;
use crate::sample::{Check, RunSample};
use crate::sync_rate;
use ceiling::RequestDemand;
use client_process::{ClientProcess, ClientReports};
use members::Members;
use remote_clients::ClientReport;
use shared_worker::SharedWorker;
use state_check::AdditionLedger;
use worker_threads::WorkerThreads;

/// The machine of the clients; the members have their nodes' numbers, from 1 on.
const CLIENTS_MACHINE: usize = 0;
/// Delays by which a run with links warms up longer: plain Raft opens one session after the other.
const WARM_UP_DELAYS: u32 = 250;
/// Delays by which it counts longer: with plain Raft a request of many clients waits for more than a
/// hundred.
const COUNTED_DELAYS: u32 = 500;
/// The interval at which a run with clients elsewhere checks if the user wants to stop.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn run(job: &ReplicasJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    context.forbid_recording("replicas of one process")?;
    if job.network != ReplicaNetwork::Inside {
        // Nothing is opened for a point that is skipped.
        context.laboratory("clients")?;
    }
    let runtime = client_runtime()?;
    let dir = match job.log {
        Some(place) => Some(context.directory(place)?),
        None => None,
    };
    let dir = dir.as_ref().map(tempfile::TempDir::path);
    let mut sample = RunSample::default();
    let links = match job.network.quality() {
        Some(quality) => Some(DelayedLinks::start(quality).map_err(RunError::of)?),
        None => None,
    };
    // Without a device and delays, nothing waits for long.
    let awake = (dir.is_some() || links.is_some()).then(KeepAwake::default);
    if let Some(dir) = dir {
        let device = sync_rate::measure(dir, job.nodes, context.scale.time / 2)?;
        sample.values.set("device-syncs", device);
    }
    let members = Members::open(job, dir, links.as_ref())?;
    let mut run = ReplicasRun {
        job,
        context,
        runtime: &runtime,
        links: links.as_ref(),
        awake: awake.as_ref(),
        members,
        sample,
    };
    let driven = run.drive();
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
        run.members = Members::open(job, Some(dir), run.links)?;
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
    links: Option<&'r DelayedLinks>,
    awake: Option<&'r KeepAwake>,
    members: Members,
    sample: RunSample,
}

impl ReplicasRun<'_> {
    fn check(&mut self, name: &str, outcome: Result<(), RunError>) {
        self.sample.checks.push(Check::new(name, outcome));
    }

    /// Drives the clients. Returns the acknowledged transactions.
    fn drive(&mut self) -> Result<AdditionLedger, RunError> {
        let (_, leader) = self.members.leader()?;
        let worker = SharedWorker::open(leader, self.runtime)?;
        let loaded = self.runtime.block_on(worker.load(self.job.counters));
        loaded.map_err(|error| RunError::failed("loading")(&error))?;
        match self.job.network {
            ReplicaNetwork::Inside => self.drive_inside(),
            ReplicaNetwork::Loopback | ReplicaNetwork::Links { .. } => self.drive_remote(worker),
        }
    }

    /// Drives clients of this process.
    fn drive_inside(&mut self) -> Result<AdditionLedger, RunError> {
        let threads = WorkerThreads {
            job: self.job,
            leader: &self.members.leader()?.1,
            context: self.context,
        };
        let mut used = [[0.0; 2]; 2];
        let at = |edge| {
            let cpu = [self.usage().cpu, self.members.cpu_of_leader()];
            used[usize::from(edge == WindowEdge::End)] = cpu;
        };
        let report = threads.drive(self.runtime, at)?;
        let driven = &report.driven;
        driven.add_figures(&mut self.sample.values);
        let [all, leader] = [0, 1].map(|place| used[1][place] - used[0][place]);
        let followers = (self.job.nodes - 1).max(1) as f64;
        // Little else runs in this process.
        let follower = (all - report.cpu - leader) / followers;
        let transactions = (driven.transactions * self.job.bulk as u64) as f64;
        for (metric, cpu) in [
            ("worker-cpu", report.cpu),
            ("leader-cpu", leader),
            ("follower-cpu", follower),
        ] {
            self.sample.values.set(metric, cpu * 1e6 / transactions);
        }
        let seconds = driven.window.as_secs_f64();
        self.add_transaction_figures(driven.transactions, seconds, all);
        Ok(report.ledger)
    }

    /// Drives clients of a process of their own.
    fn drive_remote(&mut self, worker: Rc<SharedWorker>) -> Result<AdditionLedger, RunError> {
        let program = self.context.laboratory("clients")?;
        let failed = |error: std::io::Error| RunError::failed("listening for clients")(&error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listens = listener.local_addr().map_err(failed)?;
        let quality = self.job.network.quality().unwrap_or_default();
        let config = ReplicaClientsConfig {
            leader: self.client_address(listens)?,
            clients: self.job.clients,
            bulk: self.job.bulk,
            counters: self.job.counters,
            seed: self.context.seed,
            warm_up: self.context.scale.warm_up + quality.delay * WARM_UP_DELAYS,
            time: self.context.scale.time + quality.delay * COUNTED_DELAYS,
        };
        let (process, reports) = ClientProcess::start(program, &config)?;
        let serve = async {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            spawn_local(client_listener::serve(listener, worker));
            Ok(())
        };
        let (report, used) = self.serve_until_done(serve, process, reports)?;
        self.sample.values.0.extend(report.values.0.clone());
        self.add_remote_figures(&report, &used);
        Ok(AdditionLedger::of(report.acknowledged))
    }

    /// Returns the address at which clients reach the leader, which listens for them at `listens`.
    fn client_address(&self, listens: SocketAddr) -> Result<SocketAddr, RunError> {
        let (node, _) = self.members.leader()?;
        let Some(links) = self.links else {
            return Ok(listens);
        };
        let link = links.add(CLIENTS_MACHINE, usize::from(node.0), listens);
        link.map_err(|error| RunError::failed("linking clients")(&error))
    }

    /// Serves the clients until they have reported. Returns what was used in the time that counts.
    fn serve_until_done(
        &self,
        serve: impl Future<Output = Result<(), RunError>>,
        process: ClientProcess,
        reports: ClientReports,
    ) -> Result<(ClientReport, ProcessUsage), RunError> {
        let (links, awake) = (self.links, self.awake);
        std::thread::scope(|scope| {
            let (send, mut done) = oneshot::channel();
            scope.spawn(move || {
                let mut used = [ProcessUsage::default(), ProcessUsage::default()];
                let at = |edge| used[usize::from(edge == WindowEdge::End)] = usage(links, awake);
                let report = reports.read(at);
                // Without a receiver the run was stopped.
                let _ = send.send(report.map(|report| (report, used[1].since(&used[0]))));
            });
            let serve = async {
                serve.await?;
                loop {
                    if let Ok(reported) = timeout(LOOK, &mut done).await {
                        break reported.map_err(RunError::of)?;
                    }
                    self.context.check_stop()?;
                }
            };
            let ended = self.runtime.block_on(LocalSet::new().run_until(serve));
            // Its end also ends the thread that reads from it.
            drop(process);
            ended
        })
    }

    fn usage(&self) -> ProcessUsage {
        usage(self.links, self.awake)
    }

    /// Adds the figures of so many requests, for which all processes used `cpu` seconds.
    fn add_transaction_figures(&mut self, requests: u64, seconds: f64, cpu: f64) {
        let transactions = requests as f64 * self.job.bulk as f64;
        let values = &mut self.sample.values;
        values.set("throughput", transactions / seconds);
        values.set("cpu", cpu * 1e6 / transactions);
    }

    /// Adds the figures of clients elsewhere, of links, and the limit that delay and processors set.
    fn add_remote_figures(&mut self, report: &ClientReport, used: &ProcessUsage) {
        let ClientReport {
            requests, seconds, ..
        } = *report;
        self.add_transaction_figures(requests, seconds, used.cpu + report.cpu);
        let quality = self.job.network.quality().unwrap_or_default();
        let busiest = used.links.sent.iter().max().copied().unwrap_or_default();
        let sending = quality.sending_time(busiest as usize).as_secs_f64();
        let demand = RequestDemand {
            clients: self.job.clients,
            one_at_a_time: self.job.consensus == Consensus::Naive,
            delay: quality.delay.as_secs_f64(),
            cpu: (used.cpu + report.cpu + used.links.cpu) / requests as f64,
            cores: self.context.scale.cores,
            sending: sending / requests as f64,
        };
        let ceiling = demand.ceiling() * self.job.bulk as f64;
        let values = &mut self.sample.values;
        let rate = values.get("throughput").unwrap_or_default();
        values.set("ceiling", ceiling);
        values.set("of-ceiling", rate / ceiling);
        if self.links.is_some() {
            let transactions = requests as f64 * self.job.bulk as f64;
            values.set("link-cpu", used.links.cpu * 1e6 / transactions);
            values.set("link-late-p50", used.links.late_us(0.5) as f64);
            values.set("link-late-p99", used.links.late_us(0.99) as f64);
        }
    }

    /// Adds how requests went through consensus, and the limit of that way.
    fn add_group_figures(&mut self) -> Result<(), RunError> {
        self.members.wait_level()?;
        let (_, leader) = self.members.leader()?;
        let status = leader.status();
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

/// What this process has used until a moment.
#[derive(Clone, Default)]
struct ProcessUsage {
    /// Processor time of all but the links, in seconds.
    cpu: f64,
    links: DelayedLinkFigures,
}

impl ProcessUsage {
    fn since(&self, earlier: &ProcessUsage) -> ProcessUsage {
        ProcessUsage {
            cpu: self.cpu - earlier.cpu,
            links: self.links.since(&earlier.links),
        }
    }
}

fn usage(links: Option<&DelayedLinks>, awake: Option<&KeepAwake>) -> ProcessUsage {
    let links = links.map(DelayedLinks::figures).unwrap_or_default();
    let cpu = machine::own_cpu() - awake.map_or(0.0, KeepAwake::cpu) - links.cpu;
    ProcessUsage { cpu, links }
}
