//! The systems that are measured: each kind of target can set itself up, run, and check itself.
//!
//! | target | measured | checked |
//! |---|---|---|
//! | [`StoreJob`] | transactions of a store within this process | every value read; every key after the run, and again after the store was opened anew |
//! | [`ClusterJob`] | transactions on server processes that form a cluster | no read sees a write in part; every key after the run, and again after the servers were killed |
//! | [`PairsJob`] | two kinds of these, by turns | the same |
//! | [`IdleJob`] | such processes without requests | every key before and after |
//! | [`CopyJob`] | copies of values within this process | what was copied last |
//! | [`MgetJob`] | `MGET` on such processes | every value read |
//! | [`ScaleJob`] | the same on simulated partitions, with service times of real ones | no simulated read sees a write in part |
//! | [`ReplicasJob`] | transactions on a replicated partition whose members live in this process | every counter on every member, and that all of them are the same; again after they were opened anew |
//! | [`PutsJob`] | puts on server processes that hold replicas of everything, ours or etcd's | every key after the run, and again after the servers were killed |
//! | [`QueriesJob`] | tiny queries of many clients to server processes, with and without a proxy before them | every reply to the byte; every key after the run |
//! | [`LocksJob`] | taking and releasing locks of the proxy, or of Cassandra's lightweight transactions | every answer; tokens rise; a client that does not hold a lock neither gets nor releases it |
//! | [`BeforeJob`] | requests to Cassandra, directly and through the proxy by turns | every row, by the client or by YCSB |
//! | [`ReadsJob`] | reads of a file, by this process or of a storage node that is another one | every page |
//! | [`PlacementJob`] | queries over pages, with their operators here or on the storage node | every answer, against a plain loop |
//! | [`DeviceJob`] | sequential writes and syncs of files | what was written is read back |

mod bare;
mod before;
mod cluster;
mod copying;
mod device;
mod idle;
mod layer;
mod locks;
mod mget;
mod pairs;
mod placement;
mod process;
mod puts;
mod queries;
mod reads;
mod replicas;
mod resp;
mod scaling;
mod store;
mod syncs;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use base::affinity::Affinity;
use serde::{Deserialize, Serialize};

pub use before::{BeforeJob, Load};
pub use cluster::{ClusterJob, Transport, Way};
pub use copying::CopyJob;
pub use device::DeviceJob;
pub use idle::IdleJob;
pub use layer::{Device, Slow};
pub use locks::{Keeper, LocksJob};
pub use mget::{MgetJob, Mgets};
pub use pairs::PairsJob;
pub use placement::{
    Data, PlacementJob, Query, QueryJob, Road as Carried, Stages, Variant, Way as OperatorsAt,
};
pub use puts::{PutsJob, System};
pub use queries::{QueriesJob, Road};
pub use reads::{Far, Order, Reader, ReadsJob};
pub use replicas::{Consensus, ReplicasJob};
pub use scaling::{Calibrations, ScaleJob};
pub use store::{LogKnobs, StoreJob};

use crate::experiment::Scale;
use crate::fixture::Fixtures;
use crate::peers::Peers;
use crate::sample::{RunError, Sample};

/// The measurement of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    /// Transactions on a store.
    Store(StoreJob),
    /// Transactions on a cluster.
    Cluster(ClusterJob),
    /// Two kinds of transactions on clusters, by turns.
    Pairs(PairsJob),
    /// A cluster without requests.
    Idle(IdleJob),
    /// Copies of values.
    Copy(CopyJob),
    /// Reads of several keys of a cluster by Redis clients.
    Mget(MgetJob),
    /// Transactions over many partitions, simulated.
    Scale(ScaleJob),
    /// Transactions on a replicated partition.
    Replicas(ReplicasJob),
    /// Puts on a replicated store.
    Puts(PutsJob),
    /// Tiny queries, with and without a proxy.
    Queries(QueriesJob),
    /// Locks.
    Locks(LocksJob),
    /// Requests to Cassandra, with and without a proxy.
    Before(BeforeJob),
    /// Reads of a file, here or of a storage node.
    Reads(ReadsJob),
    /// Queries over pages, with their operators here or on the storage node.
    Placement(PlacementJob),
    /// Writes to files.
    Device(DeviceJob),
}

impl Job {
    /// Sets up, measures, checks, cleans up.
    ///
    /// # Errors
    /// Returns an error if there is no result. A check that fails is no error: the sample has it.
    pub fn run(&self, context: &Context<'_>) -> Result<Sample, RunError> {
        match self {
            Job::Store(job) => store::run(job, context),
            Job::Cluster(job) => cluster::run(job, context),
            Job::Pairs(job) => pairs::run(job, context),
            Job::Idle(job) => idle::run(job, context),
            Job::Copy(job) => copying::run(job, context),
            Job::Mget(job) => mget::run(job, context),
            Job::Scale(job) => scaling::run(job, context),
            Job::Replicas(job) => replicas::run(job, context),
            Job::Puts(job) => puts::run(job, context),
            Job::Queries(job) => queries::run(job, context),
            Job::Locks(job) => locks::run(job, context),
            Job::Before(job) => before::run(job, context),
            Job::Reads(job) => reads::run(job, context),
            Job::Placement(job) => placement::run(job, context),
            Job::Device(job) => device::run(job, context),
        }
    }
}

/// The place of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// On the disk.
    Disk,
    /// In a file system in memory, whose syncs cost nothing.
    Memory,
}

impl Place {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Place::Disk => "disk",
            Place::Memory => "memory",
        }
    }
}

/// The surroundings of a run.
pub struct Context<'c> {
    /// The scale.
    pub scale: &'c Scale,
    /// The directory on the disk.
    pub disk: PathBuf,
    /// The directory in memory.
    pub memory: PathBuf,
    /// Set when the user wants to stop.
    pub stop: &'c AtomicBool,
    /// The recorder of transactions, if they are recorded.
    pub recorder: Option<&'c history::Recorder>,
    /// Distinguishes runs of one history.
    pub number: usize,
    /// The seed of the random choices.
    pub seed: u64,
    /// `true` if a store is opened again after the run, to see that everything is there.
    pub reopen: bool,
    /// The processors that loggers and workers run on, if they are given.
    pub affinity: Option<&'c Affinity>,
    /// Writes wrong values on purpose: a test of the checks.
    pub plant: bool,
    /// The program whose `serve` starts a server, if there is one.
    pub server: Option<&'c Path>,
    /// The program whose `storage-node` and `older-proxy` are the processes that only experiments
    /// need, if there is one.
    pub laboratory: Option<&'c Path>,
    /// Service times that were measured in this round.
    pub calibrations: &'c Calibrations,
    /// Fixtures for all points of this run of the experiment.
    pub fixtures: &'c Fixtures,
    /// Tables, and a storage node, of this run of the experiment.
    pub stages: &'c Stages,
    /// Programs of others.
    pub peers: &'c Peers,
}

impl<'c> Context<'c> {
    /// Returns the program whose `serve` starts a server. Points are skipped if there is none; they
    /// fail if the program that was named does not exist.
    pub(crate) fn server(&self) -> Result<&'c Path, RunError> {
        let none = || RunError::Skipped("there is no program to start servers with".to_owned());
        let program = self.server.ok_or_else(none)?;
        if !program.is_file() {
            let what = format!(
                "there is no program {}, whose servers are measured: `cargo build --release \
                 --package kumiki-cli` builds kumiki beside kumiki-bench, and --server names another",
                program.display()
            );
            return Err(RunError::Failed(what));
        }
        Ok(program)
    }

    /// Returns a new directory in a place; removed when it is dropped.
    pub(crate) fn directory(&self, place: Place) -> Result<tempfile::TempDir, RunError> {
        let above = match place {
            Place::Disk => &self.disk,
            Place::Memory => &self.memory,
        };
        if place == Place::Memory && !above.is_dir() {
            let reason = format!("{} is no directory", above.display());
            return Err(RunError::Skipped(reason));
        }
        let what = format!("cannot make a directory in {}", above.display());
        let failed = |error: std::io::Error| RunError::failed(&what)(&error);
        std::fs::create_dir_all(above).map_err(failed)?;
        let made = tempfile::Builder::new()
            .prefix(".kumiki-bench-")
            .tempdir_in(above);
        made.map_err(failed)
    }
}

/// Returns a runtime that runs the tasks of many clients, on the calling thread.
fn runtime() -> Result<tokio::runtime::Runtime, RunError> {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    built.map_err(|error| RunError::failed("making a runtime")(&error))
}
