//! Small puts on a replicated store of server processes, by closed-loop clients: Kumiki, or etcd.
//!
//! A run starts the processes, measures the speed of syncs of the disk by itself, drives the
//! clients against the leader, reads every key back, and kills the processes and starts them again
//! to see that everything acknowledged came back. Each client has keys of its own and one request
//! under way, so that it knows exactly what each of its keys must hold.

mod etcd;
mod grpc;
mod proto;
mod system;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

pub use system::ReplicatedSystem;

use crate::driver::{
    AsyncClient, DrivePlan, LoadSchedule, WindowEdge, client_runtime, drive_tasks,
};
use crate::error::RunError;
use crate::keep_awake::KeepAwake;
use crate::machine;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{Check, RunSample};
use crate::stamp::{self, Stamp};
use crate::sync_rate;
use system::{PutConnection, ReplicatedNodes};

/// Keys of each client.
const KEYS: u64 = 16;

/// Puts on a replicated store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PutsJob {
    /// The system.
    pub system: ReplicatedSystem,
    /// Server processes, all of which hold everything.
    pub nodes: usize,
    /// Clients, each with one put under way.
    pub clients: usize,
    /// Bytes of a value.
    pub value: usize,
}

pub(super) fn run(job: &PutsJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    context.forbid_recording("servers in processes of their own")?;
    assert!(job.value >= stamp::WHOLE, "values have room for a stamp");
    let runtime = client_runtime()?;
    let dir = context.directory(StorageMedium::Disk)?;
    let nodes = ReplicatedNodes::new(job.system, context, dir.path(), job.nodes)?;
    let mut run = PutRun {
        job,
        context,
        runtime: &runtime,
        nodes,
        sample: RunSample::default(),
    };
    let awake = KeepAwake::default();
    let device = sync_rate::measure(dir.path(), job.nodes, context.scale.time / 2)?;
    run.sample.values.set("device-syncs", device);
    let (leader, name) = run.runtime.block_on(run.nodes.start())?;
    run.check(&format!("{name} has a leader"), Ok(()));
    let Some(acknowledged) = run.drive(leader, &awake)? else {
        return Ok(run.sample);
    };
    if let Some(rate) = run.sample.values.get("throughput") {
        run.sample.values.set("per-sync", rate / device);
    }
    let held = run.read_back(leader, &acknowledged);
    run.check("every key holds its last write", held);
    if context.reopen && !context.stop.load(Ordering::Relaxed) {
        run.nodes.kill();
        let (leader, _) = run.runtime.block_on(run.nodes.start())?;
        let held = run.read_back(leader, &acknowledged);
        run.check("what was acknowledged is recovered", held);
    }
    Ok(run.sample)
}

struct PutRun<'r> {
    job: &'r PutsJob,
    context: &'r RunContext<'r>,
    runtime: &'r Runtime,
    nodes: ReplicatedNodes,
    sample: RunSample,
}

impl PutRun<'_> {
    fn check(&mut self, name: &str, outcome: Result<(), RunError>) {
        self.sample.checks.push(Check::new(name, outcome));
    }

    /// Drives the clients. Returns the number of acknowledged puts of each; `None` if an answer was
    /// wrong, which the sample says.
    fn drive(
        &mut self,
        leader: SocketAddr,
        awake: &KeepAwake,
    ) -> Result<Option<Vec<u64>>, RunError> {
        let callers = self.clients(leader);
        let callers = callers.map_err(|error| RunError::failed("connecting")(&error))?;
        let plan = DrivePlan {
            pace: LoadSchedule::Closed,
            warm_up: self.context.scale.warm_up,
            time: self.context.scale.time,
        };
        let mut used = [0.0; 2];
        let nodes = &self.nodes;
        let at = |moment| {
            let place = usize::from(moment == WindowEdge::End);
            used[place] = machine::own_cpu() - awake.cpu() + nodes.cpu();
        };
        let driven = drive_tasks(self.runtime, callers, plan, self.context.stop, at);
        let (driven, callers) = match driven {
            Ok(driven) => driven,
            Err(wrong @ RunError::Failed(_)) => {
                self.check("every put is acknowledged", Err(wrong));
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        driven.add_figures(&mut self.sample.values);
        let cpu = (used[1] - used[0]) * 1e6 / driven.transactions.max(1) as f64;
        self.sample.values.set("cpu", cpu);
        self.check("every put is acknowledged", Ok(()));
        Ok(Some(callers.iter().map(|caller| caller.puts).collect()))
    }

    fn clients(&self, leader: SocketAddr) -> Result<Vec<PutClient>, RunError> {
        let client = |number| {
            let link = self.runtime.block_on(self.nodes.connect(leader))?;
            Ok(PutClient {
                number,
                link,
                puts: 0,
                value: vec![0; self.job.value],
                plant: self.context.plant && number == 0,
            })
        };
        (0..self.job.clients as u64).map(client).collect()
    }

    /// Checks that every key holds its client's last write.
    fn read_back(&self, leader: SocketAddr, acknowledged: &[u64]) -> Result<(), RunError> {
        let all = async {
            let mut link = self.nodes.connect(leader).await?;
            for (client, &puts) in (0..).zip(acknowledged) {
                for place in 0..KEYS.min(puts) {
                    let last = puts - 1 - (puts - 1 - place) % KEYS;
                    let key = key(client, place);
                    let mut value = vec![0; self.job.value];
                    write(client, last, &mut value);
                    if link.get(&key).await? != Some(value) {
                        let key = String::from_utf8_lossy(&key).into_owned();
                        return Err(RunError::Failed(format!(
                            "{key} does not hold put {last} of its client"
                        )));
                    }
                }
            }
            Ok(())
        };
        self.runtime.block_on(all)
    }
}

fn key(client: u64, place: u64) -> Vec<u8> {
    format!("put:{client}:{place}").into_bytes()
}

/// Writes the value of a client's put.
fn write(client: u64, put: u64, value: &mut [u8]) {
    let stamp = Stamp {
        writer: client as u32 + 1,
        sequence: put,
    };
    stamp.write(client * KEYS + put % KEYS, value);
}

/// One client.
struct PutClient {
    number: u64,
    link: PutConnection,
    /// Acknowledged puts: all of them, because the client ends with the first that is not.
    puts: u64,
    value: Vec<u8>,
    plant: bool,
}

impl AsyncClient for PutClient {
    async fn call(&mut self) -> Result<(), RunError> {
        let key = key(self.number, self.puts % KEYS);
        write(self.number, self.puts, &mut self.value);
        if self.plant {
            self.value[0] ^= 1;
        }
        self.link.put(&key, &self.value).await?;
        self.puts += 1;
        Ok(())
    }
}
