//! What is measured: each kind of target can set itself up, run, and check itself.
//!
//! A module below has the data of a job and one function that runs it; targets share what lies below
//! this module, such as [`crate::systems`] and [`crate::driver`].
//!
//! | target | measured | checked |
//! |---|---|---|
//! | [`StoreJob`] | transactions of a store within this process | every value read; every key after the run, and again after the store was opened anew |
//! | [`LoggingJob`] | the same beside simulated workers and loggers, and more of them simulated | the same |
//! | [`ClusterJob`] | transactions on server processes that form a cluster | no read sees a write in part; every key after the run, and again after the servers were killed |
//! | [`PairsJob`] | two kinds of these, by turns | the same |
//! | [`IdleJob`] | such processes without requests | every key before and after |
//! | [`CopyJob`] | copies of values within this process | what was copied last |
//! | [`MgetJob`] | `MGET` on such processes | every value read |
//! | [`ScaleJob`] | the same on simulated partitions, with service times of real ones | no simulated read sees a write in part |
//! | [`ReplicasJob`] | transactions on a replicated partition whose members live in this process | every counter on every member, and that all of them are the same; again after they were opened anew |
//! | [`ReplicaWorkersJob`] | the same by several workers of the leader, and by more of them simulated | the same |
//! | [`PutsJob`] | puts on server processes that hold replicas of everything, ours or etcd's | every key after the run, and again after the servers were killed |
//! | [`QueriesJob`] | tiny queries of many clients to server processes, with and without a proxy before them | every reply to the byte; every key after the run |
//! | [`LocksJob`] | taking and releasing locks of the proxy, or of Cassandra's lightweight transactions | every answer; tokens rise; a client that does not hold a lock neither gets nor releases it |
//! | [`CassandraJob`] | requests to Cassandra, directly and through the proxy by turns | every row, by the client or by YCSB |
//! | [`ReadsJob`] | reads of a file, by this process or of a storage node that is another one | every page |
//! | [`PlacementJob`] | queries over pages, with their operators here or on the storage node | every answer, against a plain loop |
//! | [`DeviceJob`] | sequential writes and syncs of files | what was written is read back |

mod cassandra_proxy;
mod cluster;
mod copying;
mod device;
mod idle;
mod locks;
mod logging;
mod mget;
mod pairs;
mod placement;
mod puts;
mod queries;
mod reads;
mod replica_workers;
mod replicas;
mod scaling;
mod store;

use serde::{Deserialize, Serialize};

pub use cassandra_proxy::{CassandraJob, CassandraLoad};
pub use cluster::ClusterJob;
pub use copying::CopyJob;
pub use device::DeviceJob;
pub use idle::IdleJob;
pub use locks::{LockBackend, LocksJob};
pub use logging::LoggingJob;
pub use mget::{MgetGuarantee, MgetJob};
pub use pairs::PairsJob;
pub use placement::{
    OperatorPlacement, PlacementJob, QueryJob, QueryTable, QueryVariant, ResultTransport, TpchQuery,
};
pub use puts::{PutsJob, ReplicatedSystem};
pub use queries::{QueriesJob, QueryLoad, QueryMix, QueryNodesKind, QueryRoute};
pub use reads::{AccessPattern, FileReader, ReadsJob, RemoteReaders};
pub use replica_workers::ReplicaWorkersJob;
pub use replicas::{Consensus, ReplicaClientsConfig, ReplicaNetwork, ReplicasJob, serve_clients};
pub use scaling::ScaleJob;
pub use store::{LogSettings, StoreJob};

use crate::error::RunError;
use crate::run_context::RunContext;
use crate::sample::RunSample;

/// The measurement of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetJob {
    /// Transactions on a store.
    Store(StoreJob),
    /// Transactions of a store's workers before its loggers, real and simulated.
    Logging(LoggingJob),
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
    /// Transactions of several workers of a replicated partition, real and simulated.
    Workers(ReplicaWorkersJob),
    /// Puts on a replicated store.
    Puts(PutsJob),
    /// Tiny queries, with and without a proxy.
    Queries(QueriesJob),
    /// Locks.
    Locks(LocksJob),
    /// Requests to Cassandra, with and without a proxy.
    #[serde(rename = "before")]
    Cassandra(CassandraJob),
    /// Reads of a file, here or of a storage node.
    Reads(ReadsJob),
    /// Queries over pages, with their operators here or on the storage node.
    Placement(PlacementJob),
    /// Writes to files.
    Device(DeviceJob),
}

impl TargetJob {
    /// Sets up, measures, checks, cleans up.
    ///
    /// # Errors
    /// Returns an error if there is no result. A check that fails is no error: the sample has it.
    pub fn run(&self, context: &RunContext<'_>) -> Result<RunSample, RunError> {
        match self {
            TargetJob::Store(job) => store::run(job, context),
            TargetJob::Logging(job) => logging::run(job, context),
            TargetJob::Cluster(job) => cluster::run(job, context),
            TargetJob::Pairs(job) => pairs::run(job, context),
            TargetJob::Idle(job) => idle::run(job, context),
            TargetJob::Copy(job) => copying::run(job, context),
            TargetJob::Mget(job) => mget::run(job, context),
            TargetJob::Scale(job) => scaling::run(job, context),
            TargetJob::Replicas(job) => replicas::run(job, context),
            TargetJob::Workers(job) => replica_workers::run(job, context),
            TargetJob::Puts(job) => puts::run(job, context),
            TargetJob::Queries(job) => queries::run(job, context),
            TargetJob::Locks(job) => locks::run(job, context),
            TargetJob::Cassandra(job) => cassandra_proxy::run(job, context),
            TargetJob::Reads(job) => reads::run(job, context),
            TargetJob::Placement(job) => placement::run(job, context),
            TargetJob::Device(job) => device::run(job, context),
        }
    }
}
