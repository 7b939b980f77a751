//! Shared by the experiments on the proxy.

use crate::experiment::{Param, Point};
use crate::target::{Job, QueriesJob, Road};

/// Nodes, as in the paper.
pub(super) const NODES: usize = 5;
/// Connections of clients: a third of the paper's 288, which come from three machines.
pub(super) const CLIENTS: usize = 96;

/// Returns a job at full speed, through one thread that has clients and nodes.
pub(super) fn job(road: Road, nodes: usize, clients: usize) -> QueriesJob {
    QueriesJob {
        road,
        nodes,
        pinned: true,
        clients,
        threads: 1,
        // The older design has threads of their own for nodes.
        aggregation: usize::from(road == Road::Older),
        rate: None,
    }
}

pub(super) fn at(road: Road, nodes: usize, clients: usize) -> [(&'static str, Param); 3] {
    [
        ("system", road.name().into()),
        ("nodes", nodes.into()),
        ("clients", clients.into()),
    ]
}

pub(super) fn point(road: Road, nodes: usize, clients: usize) -> Point {
    Point::new(
        at(road, nodes, clients),
        Job::Queries(job(road, nodes, clients)),
    )
}
