//! Shared by the experiments on the proxy.

use crate::experiment::SweepPoint;
use crate::parameters::Param;
use crate::target::{QueriesJob, QueryRoute, TargetJob};

/// Nodes, as in the paper.
pub(super) const NODES: usize = 5;
/// Connections of clients: a third of the paper's 288, which come from three machines.
pub(super) const CLIENTS: usize = 96;

/// Returns a job at full speed, through one thread that has clients and nodes.
pub(super) fn job(route: QueryRoute, nodes: usize, clients: usize) -> QueriesJob {
    QueriesJob {
        route,
        nodes,
        pinned: true,
        clients,
        threads: 1,
        // The older design has threads of their own for nodes.
        aggregation: usize::from(route == QueryRoute::Older),
        rate: None,
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
