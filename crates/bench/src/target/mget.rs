//! `MGET` of keys of all nodes of a cluster of server processes, by Redis clients.
//!
//! | | on the wire | guarantee |
//! |---|---|---|
//! | `split` | to every node one `MGET` of its keys, all at once | none over the nodes |
//! | `ramp` | to one node, another one each time, one `MGET` of read-atomic keys | read atomic |
//! | `serializable` | the same, of ordinary keys | serializable |
//!
//! A client has a connection to each node, and one read of as many keys under way. No client writes
//! in the meantime: the comparison shows the cost of the guarantee where it is not needed.

use cluster::slot::{self, SLOTS};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::driver::{
    AsyncClient, DrivePlan, LoadSchedule, WindowEdge, client_runtime, drive_tasks,
};
use crate::error::RunError;
use crate::machine;
use crate::run_context::{RunContext, StorageMedium};
use crate::sample::{Check, RunSample};
use crate::stamp::Stamp;
use crate::systems::{AtomicityProtocol, ClusterShape, KumikiCluster, RespConnection};

/// Keys in all.
const KEYS: u64 = 1000;

/// See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MgetGuarantee {
    /// One for each node.
    Split,
    /// One, read atomic.
    Ramp,
    /// One, serializable.
    Serializable,
}

impl MgetGuarantee {
    /// All kinds; the baseline of the others first.
    pub const ALL: [MgetGuarantee; 3] = [
        MgetGuarantee::Split,
        MgetGuarantee::Ramp,
        MgetGuarantee::Serializable,
    ];

    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MgetGuarantee::Split => "split",
            MgetGuarantee::Ramp => "ramp",
            MgetGuarantee::Serializable => "serializable",
        }
    }

    /// Returns the way that gives the keys their names.
    fn protocol(self) -> AtomicityProtocol {
        match self {
            MgetGuarantee::Split | MgetGuarantee::Ramp => AtomicityProtocol::RampF,
            MgetGuarantee::Serializable => AtomicityProtocol::S2pl,
        }
    }
}

/// Reads of several keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MgetJob {
    /// How they are requested.
    #[serde(rename = "mgets")]
    pub guarantee: MgetGuarantee,
    /// Server processes, each with one partition.
    pub nodes: usize,
    /// Clients, each with one read under way.
    pub clients: usize,
    /// Keys of each node in a read.
    pub width: usize,
    /// Bytes of a value.
    pub value: usize,
}

pub(super) fn run(job: &MgetJob, context: &RunContext<'_>) -> Result<RunSample, RunError> {
    let binary = context.unrecorded_server()?;
    let dir = context.directory(StorageMedium::Memory)?;
    let mut servers = KumikiCluster::new(binary, dir.path(), ClusterShape::partitions(job.nodes))?;
    servers.start()?;
    let all: Vec<u64> = (0..KEYS).collect();
    let loader = servers.connect(client::Reads::ByNode)?;
    let filled = job.guarantee.protocol().load_all(&loader, &all, job.value);
    filled.map_err(|error| RunError::failed("loading")(&error))?;
    drop(loader);
    let runtime = client_runtime()?;
    let readers = readers(job, context, &servers, &runtime);
    let readers = readers.map_err(|error| RunError::failed("connecting")(&error))?;
    let plan = DrivePlan {
        pace: LoadSchedule::Closed,
        warm_up: context.scale.warm_up,
        time: context.scale.time,
    };
    let mut used = [[0.0; 2]; 2];
    let at = |moment| {
        let place = usize::from(moment == WindowEdge::End);
        used[place] = [machine::own_cpu(), servers.cpu()];
    };
    let driven = drive_tasks(&runtime, readers, plan, context.stop, at);
    let mut sample = RunSample::default();
    let outcome = match driven {
        Ok((driven, _)) => {
            driven.add_figures(&mut sample.values);
            let [before, after] = used;
            let spent = |i: usize| (after[i] - before[i]) * 1e6 / driven.transactions as f64;
            sample.values.set("cpu", spent(0) + spent(1));
            sample.values.set("server-cpu", spent(1));
            Ok(())
        }
        Err(wrong @ RunError::Failed(_)) => Err(wrong),
        Err(other) => return Err(other),
    };
    let check = Check::new("every value is what was loaded", outcome);
    sample.checks.push(check);
    Ok(sample)
}

fn readers(
    job: &MgetJob,
    context: &RunContext<'_>,
    servers: &KumikiCluster,
    runtime: &Runtime,
) -> Result<Vec<Reader>, RunError> {
    // Slots are divided evenly among the nodes, in their order.
    let mut keys = vec![Vec::new(); job.nodes];
    for key in 0..KEYS {
        let slot = slot::of(&job.guarantee.protocol().key(key));
        keys[usize::from(slot) * job.nodes / usize::from(SLOTS)].push(key);
    }
    let reader = |number: u64| {
        let links = servers
            .clients()
            .map(|at| runtime.block_on(RespConnection::connect(at)));
        Ok(Reader {
            job: *job,
            keys: keys.clone(),
            links: links.collect::<Result<_, RunError>>()?,
            rng: Rng::with_seed(context.seed.wrapping_add(number << 32)),
            turn: number as usize,
            plant: context.plant && number == 0,
        })
    };
    (0..job.clients as u64).map(reader).collect()
}

/// One client.
struct Reader {
    job: MgetJob,
    /// The keys of each node.
    keys: Vec<Vec<u64>>,
    /// A connection to each node.
    links: Vec<RespConnection>,
    rng: Rng,
    /// The node that is asked next.
    turn: usize,
    /// Takes a value for another key's, to see that it is found.
    plant: bool,
}

impl Reader {
    /// Returns the keys of each node, and their names.
    fn draw(&mut self) -> (Vec<u64>, Vec<[u8; 11]>) {
        let mut drawn = Vec::new();
        for keys in &self.keys {
            let some = (0..self.job.width).filter_map(|_| self.rng.choice(keys).copied());
            drawn.extend(some);
        }
        let names = drawn
            .iter()
            .map(|&key| self.job.guarantee.protocol().key(key));
        let names = names.collect();
        (drawn, names)
    }

    fn check(&self, keys: &[u64], values: &[Option<Vec<u8>>]) -> Result<(), RunError> {
        let is_right = |(&key, value): (&u64, &Option<Vec<u8>>)| {
            let value = value.as_ref().filter(|value| value.len() == self.job.value);
            let key = key + u64::from(self.plant);
            value.and_then(|value| Stamp::read(key, value)).is_some()
        };
        match keys.len() == values.len() && keys.iter().zip(values).all(is_right) {
            true => Ok(()),
            false => Err(RunError::Failed(
                "an MGET has answered what was not loaded".to_owned(),
            )),
        }
    }
}

impl AsyncClient for Reader {
    async fn call(&mut self) -> Result<(), RunError> {
        let (keys, names) = self.draw();
        let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
        let mut values = Vec::with_capacity(keys.len());
        if self.job.guarantee == MgetGuarantee::Split {
            for (link, names) in self.links.iter_mut().zip(names.chunks(self.job.width)) {
                link.send_mget(names).await?;
            }
            for link in &mut self.links {
                values.extend(link.receive_mget().await?);
            }
        } else {
            self.turn = (self.turn + 1) % self.links.len();
            values = self.links[self.turn].mget(&names).await?;
        }
        self.check(&keys, &values)
    }
}
