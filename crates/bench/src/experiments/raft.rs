//! Shared by the experiments on replicated partitions.

use crate::experiment::SweepPoint;
use crate::parameters::Param;
use crate::plot::{Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::target::{Consensus, ReplicaNetwork, ReplicasJob, TargetJob};

/// The paper does not say how many keys it has, or whether its transactions conflict. A relative of
/// the authors' code transfers between ten million slots and has groups of up to 100.
const COUNTERS: u64 = 10_000;
/// Transactions of a bulk, as in the paper.
pub(super) const BULK: usize = 100;
/// The most entries of a group, as in the paper.
const GROUP: usize = 64;

/// How transactions reach the followers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    Naive,
    /// Entries of a group.
    Group(usize),
    /// In bulks, on top of grouping.
    Bulk,
}

impl Transfer {
    /// The paper's grouping.
    pub(super) const GROUPED: Transfer = Transfer::Group(GROUP);

    /// Returns its name among the parameters.
    pub(super) fn param(self) -> Param {
        match self {
            Transfer::Naive => "naive".into(),
            Transfer::Group(size) => format!("group {size}").as_str().into(),
            Transfer::Bulk => "bulk".into(),
        }
    }
}

/// The place of the log, by its name among the parameters: as in the paper, and synced.
pub(super) const LOGS: [&str; 2] = ["memory", "disk"];

/// Returns a job: so many members and clients, and a log and a way to transfer it.
pub(super) fn job(log: &str, transfer: Transfer, nodes: usize, clients: usize) -> ReplicasJob {
    let (consensus, bulk) = match transfer {
        Transfer::Naive => (Consensus::Naive, 1),
        Transfer::Group(size) => (Consensus::Group(size), 1),
        Transfer::Bulk => (Consensus::Group(GROUP), BULK),
    };
    ReplicasJob {
        nodes,
        clients,
        consensus,
        bulk,
        counters: COUNTERS,
        log: (log == "disk").then_some(StorageMedium::Disk),
        network: ReplicaNetwork::Inside,
        workers: 1,
    }
}

/// Returns a point: so many members and clients, a log and a way to transfer it.
pub(super) fn point(log: &str, transfer: Transfer, nodes: usize, clients: usize) -> SweepPoint {
    let job = job(log, transfer, nodes, clients);
    let params = [
        ("log", log.into()),
        ("transfer", transfer.param()),
        ("nodes", nodes.into()),
        ("clients", clients.into()),
    ];
    SweepPoint::new(params, TargetJob::Replicas(job))
}

/// Returns the place of a point in a sweep.
pub(super) fn at(
    log: &str,
    transfer: Transfer,
    x: (&'static str, usize),
) -> Vec<(&'static str, Param)> {
    vec![
        ("log", log.into()),
        ("transfer", transfer.param()),
        (x.0, x.1.into()),
    ]
}

/// Returns a line for each way to transfer, over `x`, of the points with this log.
pub(super) fn lines(
    title: &'static str,
    caption: &'static str,
    (x, y): (&'static str, &'static str),
    log: &str,
    doubling: bool,
) -> Plot {
    Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x,
            y,
            series: &["transfer"],
            doubling,
        },
        only: vec![("log", vec![log.into()])],
        paper: Vec::new(),
    }
}

/// The columns of all of their tables.
pub(super) const COLUMNS: &[&str] = &[
    "log",
    "transfer",
    "nodes",
    "clients",
    "throughput",
    "latency-p50",
    "latency-p99",
    "entries-per-group",
    "device-syncs",
    "ceiling",
    "of-ceiling",
    "cpu",
];

/// The setting of those whose clients are in the leader's process.
pub(super) const SETTING: &str = "All members live in one process, each with a thread of its own; \
    their links are sockets on loopback. Clients are tasks of one further thread, for every way to \
    transfer alike: each has one request under way, and begins the next when the last is known to \
    be committed. A transaction adds to two of ten \
    thousand counters, which the clients share out among them, so that none waits for another's \
    locks. With the log on disk every member \
    syncs what it has before it counts, and a thread of the lowest priority keeps the processors \
    from idling, since a sync on an idle virtual machine can take forty times as long.";

/// The definition of the ceiling.
pub(super) const CEILING: &str = "The ceiling is the rate at which the device itself syncs one of \
    as many files as there are members, all at once, measured in each run, times the entries of a \
    group (times the transactions of a bulk): what no log that syncs each group can surpass.";
