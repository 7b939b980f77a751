//! Transactions of many keys on a cluster of server processes, by one client process (paper 1,
//! section 5).
//!
//! A run starts the processes, loads the keys, drives the client's threads, checks the keys, and
//! (with a log) kills the processes and starts them again to see that everything acknowledged came
//! back. A transaction as a whole reads its keys or writes all of them; `atomicity_check` checks
//! that it was atomic.

mod atomicity_check;

use client::Client;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::driver::{Completions, DONE, DrivePlan, DriveResult, LoadSchedule, WindowEdge};
use crate::error::RunError;
use crate::keep_awake::KeepAwake;
use crate::keys::Distribution;
use crate::machine;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{Check, RunSample};
use crate::stamp::{self, Stamp};
use crate::systems::{AtomicityProtocol, ClusterShape, ClusterTransport, KumikiCluster};

use atomicity_check::{AcknowledgedWrite, ObservedReads, TransactionKeys, WriteHistory};

/// Keys that are checked at once.
const BATCH: usize = 100;
/// Up to so many keys are all checked in the end; of more keys about as many are.
const CHECKED: u64 = 16_384;

/// Transactions on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterJob {
    /// Server processes, each with one partition.
    pub nodes: usize,
    /// Threads of each server that serve clients; `None`: its share of the processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_threads: Option<usize>,
    /// Threads of the client.
    pub threads: usize,
    /// The way by which transactions are atomic.
    #[serde(rename = "way")]
    pub protocol: AtomicityProtocol,
    /// Keys in all.
    pub keys: u64,
    /// How they are drawn.
    pub draws: Distribution,
    /// Keys in a transaction.
    pub width: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Share of transactions that read, from 0 to 1.
    pub reads: f64,
    /// Where the servers' logs lie; `None`: everything is in memory only.
    pub log: Option<StorageMedium>,
    /// How messages travel.
    #[serde(default)]
    pub transport: ClusterTransport,
}

pub(super) fn run(job: &ClusterJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    run_with(job, job.protocol.reads(), context)
}

/// As [`run`]; `reads` says where RAMP's reads run.
pub(super) fn run_with(
    job: &ClusterJob,
    reads: client::Reads,
    context: &RunContext<'_>,
) -> Result<RunSample, RunError> {
    let binary = context.unrecorded_server()?;
    assert!(job.value >= stamp::WHOLE, "values have room for a stamp");
    let (address, note) = job.transport.prepare()?;
    let dir = context.directory(job.log.unwrap_or(StorageMedium::Memory))?;
    let shape = ClusterShape {
        threads: job.server_threads,
        logged: job.log.is_some(),
        transport: job.transport,
        address,
        ..ClusterShape::partitions(job.nodes)
    };
    let mut servers = KumikiCluster::new(binary, dir.path(), shape)?;
    servers.start()?;
    let writes = job.protocol.writes();
    let client = servers.connect_with(reads, writes)?;
    let load = ClusterRun {
        job,
        context,
        keys: TransactionKeys::new(context.seed, job.keys, job.width, job.draws),
    };
    let filled = load.fill(&client).and_then(|()| load.learn(&client));
    filled.map_err(|error| RunError::failed("loading")(&error))?;
    let mut sample = RunSample {
        note,
        ..RunSample::default()
    };
    let Some(history) = load.drive(&client, &servers, &mut sample)? else {
        return Ok(sample);
    };
    let held = load.check(&client, &history);
    let outcome = held.clone().map(drop);
    sample
        .checks
        .push(Check::new("every key is right", outcome));
    if let (Ok(held), true, true) = (held, job.log.is_some(), context.reopen) {
        let what = "what was acknowledged is recovered";
        servers.kill();
        servers.start()?;
        let again = servers.connect_with(reads, writes).map_err(RunError::of);
        let again = again.and_then(|client| load.check(&client, &history));
        let same = again.and_then(|again| match again == held {
            true => Ok(()),
            false => Err(RunError::Failed(
                "the servers hold other values than before they were killed".to_owned(),
            )),
        });
        sample.checks.push(Check::new(what, same));
    }
    Ok(sample)
}

/// The work of transactions.
struct ClusterRun<'r> {
    job: &'r ClusterJob,
    context: &'r RunContext<'r>,
    keys: TransactionKeys,
}

impl ClusterRun<'_> {
    /// Writes all keys.
    fn fill(&self, client: &Client) -> Result<(), RunError> {
        let all: Vec<u64> = (0..self.job.keys).collect();
        self.job.protocol.load_all(client, &all, self.job.value)
    }

    /// Makes a client that reads by itself learn where the keys are. It would also learn that by
    /// reading for a while: longer than short runs last, if there are many keys.
    fn learn(&self, client: &Client) -> Result<(), RunError> {
        if !self.job.transport.is_one_sided() {
            return Ok(());
        }
        let all: Vec<u64> = (0..self.job.keys).collect();
        let mut batches = all.chunks(BATCH);
        batches.try_for_each(|some| {
            let read = self.job.protocol.read(client, some, self.job.value);
            read.map(drop)
        })
    }

    /// Drives the threads. `None` if an answer was wrong, which the sample says.
    fn drive(
        &self,
        client: &Client,
        servers: &KumikiCluster,
        sample: &mut RunSample,
    ) -> Result<Option<WriteHistory>, RunError> {
        let completions = Completions::default();
        let threads = (1..=self.job.threads as u32).map(|writer| ClientThread {
            client,
            job: *self.job,
            keys: self.keys.clone(),
            rng: Rng::with_seed(self.context.seed.wrapping_add(u64::from(writer) << 32)),
            writer,
            clock: completions.origin(),
            puts: Vec::new(),
            reads: ObservedReads::default(),
            plant: self.context.plant && writer == 1,
        });
        let plan = DrivePlan {
            pace: LoadSchedule::Closed,
            warm_up: self.context.scale.warm_up,
            time: self.context.scale.time,
        };
        let awake = self.job.log.map(|_| KeepAwake::default());
        let mut use_of = ResourceUse::default();
        let at = |moment| use_of.note(moment, servers, client, awake.as_ref());
        let threads = threads.collect();
        let driven = crate::driver::drive(threads, &completions, plan, self.context.stop, at);
        drop(awake);
        let (driven, threads) = match driven {
            Ok(driven) => driven,
            Err(wrong @ RunError::Failed(_)) => {
                let outcome = Err(wrong);
                sample
                    .checks
                    .push(Check::new("every answer is right", outcome));
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        driven.add_figures(&mut sample.values);
        use_of.add_figures(&driven, sample);
        let served = match driven.transactions {
            0 => Err(RunError::Failed(
                "no transaction began within the window".to_owned(),
            )),
            _ => Ok(()),
        };
        sample.checks.push(Check::new("the servers serve", served));
        sample
            .checks
            .push(Check::new("every answer is right", Ok(())));
        let puts: Vec<Vec<AcknowledgedWrite>> =
            threads.iter().map(|thread| thread.puts.clone()).collect();
        let history = WriteHistory::new(&self.keys, &puts);
        let mut reads = threads.iter().map(|thread| &thread.reads);
        let whole = reads.try_for_each(|reads| history.judge(reads));
        sample
            .checks
            .push(Check::new("no read is fractured", whole));
        Ok(Some(history))
    }

    /// Reads all keys, or a sample if there are many: each holds a last write. Returns their
    /// stamps.
    fn check(
        &self,
        client: &Client,
        history: &WriteHistory,
    ) -> Result<Vec<(u64, Stamp)>, RunError> {
        let step = self.job.keys.div_ceil(CHECKED) as usize;
        let some: Vec<u64> = (0..self.job.keys).step_by(step).collect();
        let mut held = Vec::new();
        for some in some.chunks(BATCH) {
            let stamps = self.job.protocol.read(client, some, self.job.value)?;
            held.extend(some.iter().copied().zip(stamps));
        }
        history.settle(&held)?;
        Ok(held)
    }
}

/// The use of resources at the window's beginning and end.
#[derive(Default)]
struct ResourceUse {
    client: [f64; 2],
    servers: [f64; 2],
    /// RAMP's reads, and those of several rounds: the client's own and the servers' together.
    reads: [[u64; 2]; 2],
}

impl ResourceUse {
    fn note(
        &mut self,
        moment: WindowEdge,
        servers: &KumikiCluster,
        client: &Client,
        awake: Option<&KeepAwake>,
    ) {
        let place = usize::from(moment == WindowEdge::End);
        self.client[place] = machine::own_cpu() - awake.map_or(0.0, KeepAwake::cpu);
        self.servers[place] = servers.cpu();
        let own = client.read_counts();
        let [reads, several] = servers.ramp_reads();
        self.reads[place] = [own.reads + reads, own.several_rounds + several];
    }

    fn add_figures(&self, driven: &DriveResult, sample: &mut RunSample) {
        let spent = |used: [f64; 2]| (used[1] - used[0]) * 1e6 / driven.transactions as f64;
        let (client, servers) = (spent(self.client), spent(self.servers));
        sample.values.set("cpu", client + servers);
        sample.values.set("server-cpu", servers);
        let [before, after] = self.reads;
        let reads = after[0].saturating_sub(before[0]);
        if reads > 0 {
            let several = after[1].saturating_sub(before[1]) as f64;
            let one = (1.0 - several / reads as f64).max(0.0);
            sample.values.set("one-round", one);
        }
    }
}

/// One thread of the client.
struct ClientThread<'r> {
    client: &'r Client,
    job: ClusterJob,
    keys: TransactionKeys,
    rng: Rng,
    writer: u32,
    clock: std::time::Instant,
    /// Its writes: the sequence is the place, from 1 on.
    puts: Vec<AcknowledgedWrite>,
    reads: ObservedReads,
    /// Leaves a key out of a write, to see that it is found.
    plant: bool,
}

impl ClientThread<'_> {
    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn get(&mut self) -> Result<(), RunError> {
        let keys = self.keys.draw(&mut self.rng);
        let stamps = self.job.protocol.read(self.client, &keys, self.job.value)?;
        self.reads.push(&keys, &stamps);
        Ok(())
    }

    fn put(&mut self) -> Result<(), RunError> {
        let stamp = Stamp {
            writer: self.writer,
            sequence: self.puts.len() as u64 + 1,
        };
        let mut keys = self.keys.of(stamp);
        if self.plant && self.puts.len().is_multiple_of(2) {
            keys.pop();
        }
        let begin = self.now();
        let protocol = self.job.protocol;
        protocol.write(self.client, &keys, stamp, self.job.value)?;
        let end = self.now();
        self.puts.push(AcknowledgedWrite { begin, end });
        Ok(())
    }
}

impl crate::driver::BlockingClient for ClientThread<'_> {
    fn run(&mut self) -> Result<u64, RunError> {
        if self.rng.f64() < self.job.reads {
            self.get()?;
        } else {
            self.put()?;
        }
        Ok(DONE)
    }

    fn settle(&mut self, _: u64) -> Result<(), RunError> {
        Ok(())
    }
}
