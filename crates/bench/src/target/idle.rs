//! The resources that a cluster without requests uses.
//!
//! A client connects to all server processes, writes keys and reads them, and then keeps its
//! connections and does nothing.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use client::Client;
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::machine;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{Check, RunSample};
use crate::systems::{AtomicityProtocol, ClusterShape, ClusterTransport, KumikiCluster};

/// Keys that are there, and bytes of a value.
const KEYS: u64 = 1000;
const VALUE: usize = 1024;
/// Keys that are read at once.
const BATCH: usize = 8;
/// Threads that read, each over connections of its own.
const READERS: usize = 8;
/// How long the processes may take to become idle.
const REST: Duration = Duration::from_secs(1);
/// The shortest time of a measurement: work that is done once a second must count.
const SHORTEST: Duration = Duration::from_secs(5);
/// The interval at which it is checked if the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);

/// A cluster without requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdleJob {
    /// Server processes, each with one partition.
    pub nodes: usize,
    /// How messages travel.
    pub transport: ClusterTransport,
}

pub(super) fn run(job: &IdleJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let binary = context.unrecorded_server()?;
    let (address, note) = job.transport.prepare()?;
    let dir = context.directory(StorageMedium::Memory)?;
    let shape = ClusterShape {
        transport: job.transport,
        address,
        ..ClusterShape::partitions(job.nodes)
    };
    let mut servers = KumikiCluster::new(binary, dir.path(), shape)?;
    servers.start()?;
    let client = servers.connect(AtomicityProtocol::RampFDirect.reads())?;
    let all: Vec<u64> = (0..KEYS).collect();
    let filled = AtomicityProtocol::RampFDirect.load_all(&client, &all, VALUE);
    filled.map_err(|error| RunError::failed("loading")(&error))?;
    let mut sample = RunSample {
        note,
        ..RunSample::default()
    };
    let used = || [machine::own_cpu(), servers.cpu()];
    let before = read(&client, &all);
    wait(REST, context)?;
    let (begun, from) = (Instant::now(), used());
    wait(context.scale.time.max(SHORTEST), context)?;
    let (seconds, to) = (begun.elapsed().as_secs_f64(), used());
    let [own, theirs] = [0, 1].map(|i| (to[i] - from[i]) / seconds);
    sample.values.set("idle", own + theirs);
    sample.values.set("idle-servers", theirs);
    let after = before.and_then(|()| read(&client, &all));
    let check = Check::new("every key is right before and after", after);
    sample.checks.push(check);
    Ok(sample)
}

/// Reads all keys, by several threads.
fn read(client: &Client, keys: &[u64]) -> Result<(), RunError> {
    std::thread::scope(|scope| {
        let read = |some: &[u64]| {
            let mut batches = some.chunks(BATCH);
            batches.try_for_each(|keys| {
                AtomicityProtocol::RampFDirect
                    .read(client, keys, VALUE)
                    .map(drop)
            })
        };
        let parts = keys.chunks(keys.len().div_ceil(READERS));
        let threads: Vec<_> = parts.map(|some| scope.spawn(move || read(some))).collect();
        threads.into_iter().try_for_each(|thread| {
            let panicked = |_| {
                Err(RunError::Failed(
                    "a thread that reads has panicked".to_owned(),
                ))
            };
            thread.join().unwrap_or_else(panicked)
        })
    })
}

fn wait(time: Duration, context: &RunContext<'_>) -> Result<(), RunError> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if context.stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}
