//! Shared by the experiments on the proxy.

use crate::experiment::SweepPoint;
use crate::paper_proxy::BatchLimits;
use crate::parameters::Param;
use crate::target::{QueriesJob, QueryLoad, QueryMix, QueryNodesKind, QueryRoute, TargetJob};

/// Nodes, as in the paper.
pub(super) const NODES: usize = 5;
/// Connections of clients: a third of the paper's.
pub(super) const CLIENTS: usize = 96;
/// The paper's connections of clients to the proxy: three machines with three threads, which have 32
/// connections each. Clients without the proxy have as many to each node.
pub(super) const PAPER_CLIENTS: usize = 3 * 3 * 32;
/// Client threads of the paper's proxy.
pub(super) const PAPER_THREADS: usize = 26;
/// Aggregation threads of the paper's proxy for each of its five nodes.
pub(super) const PAPER_AGGREGATION: usize = 2;

/// Returns a job at full speed. Our proxy has one thread, for clients and nodes; the paper's has the
/// paper's threads, its earlier one a thread for each client and one for each node.
pub(super) fn job(route: QueryRoute, nodes: usize, clients: usize) -> QueriesJob {
    let (threads, aggregation) = match route {
        QueryRoute::Paper => (PAPER_THREADS, PAPER_AGGREGATION * nodes),
        QueryRoute::Older => (1, nodes),
        _ => (1, 0),
    };
    QueriesJob {
        route,
        nodes,
        kind: QueryNodesKind::Servers,
        pinned: true,
        clients,
        threads,
        aggregation,
        batch: BatchLimits::default(),
        mix: QueryMix::Mixed,
        load: QueryLoad::Closed,
    }
}

pub(super) fn at(route: QueryRoute, nodes: usize, clients: usize) -> [(&'static str, Param); 3] {
    [
        ("system", route.name().into()),
        ("nodes", nodes.into()),
        ("clients", clients.into()),
    ]
}

pub(super) fn point(route: QueryRoute, nodes: usize, clients: usize) -> SweepPoint {
    SweepPoint::new(
        at(route, nodes, clients),
        TargetJob::Queries(job(route, nodes, clients)),
    )
}
