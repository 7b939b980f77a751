//! What the experiments of paper 1 have in common: four server processes, one client process of
//! eight threads, transactions that are as a whole a read or a write, and several ways to make
//! them atomic.

use crate::experiment::{Param, Point};
use crate::keys::Distribution;
use crate::plot::{Aim, Compare, Measure};
use crate::target::{ClusterJob, Job, Place, Transport, Way};

/// Server processes.
pub(super) const NODES: usize = 4;
/// The paper's thousand keys.
pub(super) const KEYS: u64 = 1000;
/// The columns' names of what all of them tell.
pub(super) const COLUMNS: [&str; 6] = [
    "throughput",
    "latency",
    "latency-p99",
    "server-cpu",
    "cpu",
    "one-round",
];
/// What the columns are.
pub(super) const ABOUT: &str = "The columns are ways to make such transactions atomic. 's2pl' is \
    strict two-phase locking with two-phase commit: a read holds everything that it has read until \
    it is decided. 'ramp-f', 'ramp-s' and 'ramp-h' are RAMP-Fast, RAMP-Small and RAMP-Hybrid on keys \
    that are declared read atomic: nothing is held. In all of these a server coordinates; in \
    'ramp-f-direct' the client runs reads by itself. All of them speak TCP. 'memory' keeps nothing, as \
    the paper's servers do; 'disk' answers a write when all of its parts are durable.";

/// The logs of the servers, by name.
pub(super) const LOGS: [(&str, Option<Place>); 2] = [("memory", None), ("disk", Some(Place::Disk))];

/// Transactions of `width` of the thousand keys, uniformly drawn.
pub(super) fn job(width: usize, reads: usize) -> ClusterJob {
    ClusterJob {
        nodes: NODES,
        server_threads: None,
        threads: 8,
        way: Way::S2pl,
        keys: KEYS,
        draws: Distribution::Uniform,
        width,
        value: 1024,
        reads: reads as f64 / 100.0,
        log: None,
        transport: Transport::Tcp,
    }
}

/// This job in all ways; two-phase locking is what the others are compared with.
pub(super) fn ways<const N: usize>(params: [(&str, Param); N], job: ClusterJob) -> Vec<Point> {
    let point = |way: Way| {
        let mut point = Point::new(params.clone(), Job::Cluster(ClusterJob { way, ..job }));
        point.id = format!("system={} {}", way.name(), point.id);
        point.params.insert("system".to_owned(), way.name().into());
        point
    };
    let baseline = point(Way::S2pl);
    let others = Way::ALL.into_iter().filter(|way| *way != Way::S2pl);
    let others = others.chain([Way::RampFDirect]);
    let others: Vec<Point> = others.map(|way| point(way).against(&baseline)).collect();
    std::iter::once(baseline).chain(others).collect()
}

/// Where a way is in a sweep.
pub(super) fn at<const N: usize>(
    way: Way,
    log: &str,
    more: [(&'static str, Param); N],
) -> Vec<(&'static str, Param)> {
    let mut at = vec![("system", way.name().into()), ("log", log.into())];
    at.extend(more);
    at
}

/// RAMP-Fast's throughput by that of two-phase locking, at a place in the sweep.
pub(super) fn beside_s2pl<const N: usize>(
    what: &'static str,
    log: &str,
    more: [(&'static str, Param); N],
    aim: f64,
) -> Compare {
    Compare {
        what,
        paper: Some("only drawn"),
        ours: Measure::Share {
            metric: "throughput",
            at: at(Way::RampF, log, more),
        },
        aim: Some(Aim::AtLeast(aim)),
    }
}
