//! `proxy-cassandra`: Cassandra with and without the proxy before it.

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Effort, Param, Scale};
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::target::{CassandraJob, CassandraLoad, TargetJob};

use super::proxy::CLIENTS;

/// Requests a second, all clients together.
const RATE: f64 = 1000.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "proxy-cassandra",
    title: "Cassandra, with and without the proxy",
    paper: Some("paper 3, figure 2 and table 4"),
    about: &[
        "Real Cassandra nodes, each with a copy of everything, and 96 connections of clients: to each \
         node directly, or to a proxy with one thread. Each row has both ways, measured by turns on \
         the same nodes.",
        "'1 kq/s': tiny rows, nine of ten requests write, a thousand a second on a schedule, over bare \
         connections with prepared statements; bare round trips over loopback beside. 'YCSB A': half \
         reads and half updates of records of a kilobyte, as fast as 96 threads go, by YCSB's core \
         with a binding of ours over the Java driver; all nodes share one processor, so that they are \
         what is scarce; everything else runs where the system puts it. Every record that is read is \
         checked.",
        "The paper's proxy has a machine of its own, and so have its clients. Here clients, proxy and \
         nodes share the processors of one.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "load",
        "nodes",
        "protocol",
        "direct-throughput",
        "throughput",
        "ratio",
        "direct-p50",
        "latency-p50",
        "beside-direct",
        "round-trip",
        "direct-latency",
        "latency",
        "direct-p99",
        "latency-p99",
        "direct-server-cpu",
        "server-cpu",
        "proxy-cpu",
    ],
};

fn at(load: &CassandraLoad, nodes: u8) -> [(&'static str, Param); 3] {
    [
        ("load", load.name().into()),
        ("nodes", usize::from(nodes).into()),
        ("protocol", usize::from(load.version()).into()),
    ]
}

fn paced(version: u8, warm_up: u64) -> CassandraLoad {
    CassandraLoad::Paced {
        version,
        rate: RATE,
        warm_up,
    }
}

fn point(load: CassandraLoad, nodes: u8) -> SweepPoint {
    let job = CassandraJob {
        load,
        nodes,
        pinned: matches!(load, CassandraLoad::Ycsb { .. }),
        clients: CLIENTS,
    };
    SweepPoint::new(at(&load, nodes), TargetJob::Cassandra(job))
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let ycsb = |version| match scale.effort {
        Effort::Tiny | Effort::Quick => CassandraLoad::Ycsb {
            version,
            records: 2000,
            pairs: 2,
            seconds: 8,
        },
        Effort::Full => CassandraLoad::Ycsb {
            version,
            records: 100_000,
            pairs: 4,
            seconds: 15,
        },
    };
    // Nodes take a while to start, and to be warm.
    let (requests, rounds) = match scale.effort {
        Effort::Tiny => (100, 1),
        Effort::Quick => (5000, 1),
        Effort::Full => (20_000, 2),
    };
    let versions = scale.pick(&[4], &[4, 5], &[4, 5]);
    let low = versions
        .iter()
        .map(|&version| point(paced(version, requests), 1));
    let high: Vec<SweepPoint> = match scale.effort {
        Effort::Tiny => Vec::new(),
        Effort::Quick => vec![point(ycsb(4), 1)],
        Effort::Full => vec![point(ycsb(4), 1), point(ycsb(5), 1), point(ycsb(4), 3)],
    };
    let all = low.chain(high);
    all.map(|point| point.at_most(rounds)).collect()
}

fn plots() -> Vec<Plot> {
    vec![
        Plot {
            title: "Throughput through the proxy, by direct, under YCSB A",
            caption: "In the paper an earlier proxy gained up to 19 %.",
            shape: PlotKind::Bars {
                x: "nodes",
                y: "ratio",
                series: "protocol",
                relative: false,
            },
            only: vec![("load", vec!["YCSB A".into()])],
            paper: Vec::new(),
        },
        Plot {
            title: "Median latency through the proxy, by direct, at a thousand requests a second",
            caption: "Medians of one run.",
            shape: PlotKind::Bars {
                x: "load",
                y: "beside-direct",
                series: "protocol",
                relative: false,
            },
            only: vec![("load", vec!["1 kq/s".into()])],
            paper: Vec::new(),
        },
    ]
}

fn compare() -> Vec<Compare> {
    let row = |what, paper, metric, load: &str, nodes: usize, version: usize, aim| Compare {
        what,
        paper,
        ours: Measure::Value {
            metric,
            at: vec![
                ("load", load.into()),
                ("nodes", nodes.into()),
                ("protocol", version.into()),
            ],
        },
        aim,
    };
    let (most, least) = (Some(Aim::AtMost(1.25)), Some(Aim::AtLeast(1.19)));
    vec![
        row(
            "1 kq/s, version 4: median, by direct",
            Some("1.21, before other nodes"),
            "beside-direct",
            "1 kq/s",
            1,
            4,
            most,
        ),
        row(
            "1 kq/s, version 5: the same",
            None,
            "beside-direct",
            "1 kq/s",
            1,
            5,
            most,
        ),
        row(
            "YCSB A, one node on one core: throughput, by direct",
            Some("up to 1.19"),
            "ratio",
            "YCSB A",
            1,
            4,
            least,
        ),
        row("the same, version 5", None, "ratio", "YCSB A", 1, 5, None),
        row(
            "three nodes on one core: the same",
            None,
            "ratio",
            "YCSB A",
            3,
            4,
            least,
        ),
    ]
}
