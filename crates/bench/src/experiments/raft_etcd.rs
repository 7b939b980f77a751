//! `raft-etcd`: small puts on three replicas, beside etcd.

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::Scale;
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::target::{PutsJob, ReplicatedSystem, TargetJob};

const NODES: usize = 3;
const VALUE: usize = 64;
/// The number of clients of the aims.
const MANY: usize = 64;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "raft-etcd",
    title: "Puts on three replicas, beside etcd",
    paper: None,
    about: &[
        "Three server processes hold one replicated partition. Clients in one process each have one \
         put of 64 bytes under way, at the leader. A put is acknowledged when two of the three have \
         it on the disk. Beside it the same clients drive three processes of etcd, by its own \
         protocol, on the same disk and at almost the same time.",
        "All clients are tasks of one thread, for both systems. A thread of the lowest priority keeps \
         the processors from idling, because a sync on an idle virtual machine can take forty times \
         as long; that helps both alike. The device's own rate is that of one of three files which \
         are synced at once, measured in each run.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "system",
        "clients",
        "throughput",
        "latency-p50",
        "latency-p99",
        "device-syncs",
        "per-sync",
        "cpu",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let counts = scale.pick(&[MANY], &[1, 8, MANY], &[1, 2, 4, 8, 16, 32, MANY]);
    let both = |&clients: &usize| {
        let point = |system: ReplicatedSystem| {
            let job = PutsJob {
                system,
                nodes: NODES,
                clients,
                value: VALUE,
            };
            let params = [
                ("system", system.name().into()),
                ("clients", clients.into()),
            ];
            SweepPoint::new(params, TargetJob::Puts(job))
        };
        let etcd = point(ReplicatedSystem::Etcd);
        let kumiki = point(ReplicatedSystem::Kumiki).against(&etcd);
        [etcd, kumiki]
    };
    counts.iter().flat_map(both).collect()
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "clients",
            y,
            series: &["system"],
            doubling: true,
        },
        only: Vec::new(),
        paper: Vec::new(),
    };
    vec![
        plot(
            "Throughput by clients",
            "Puts a second. Grey: etcd.",
            "throughput",
        ),
        plot(
            "Median latency by clients",
            "From the request to its acknowledgement.",
            "latency-p50",
        ),
        plot(
            "99th percentile of the latency by clients",
            "What one put in a hundred takes at least.",
            "latency-p99",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let share = |what, metric, clients: usize, aim| Compare {
        what,
        paper: None,
        ours: Measure::Share {
            metric,
            at: vec![("system", "kumiki".into()), ("clients", clients.into())],
        },
        aim,
    };
    let most = Some(Aim::AtMost(1.0));
    let value = |what, metric, system: &str| Compare {
        what,
        paper: None,
        ours: Measure::Value {
            metric,
            at: vec![("system", system.into()), ("clients", MANY.into())],
        },
        aim: None,
    };
    vec![
        share(
            "64 clients: throughput, by etcd's",
            "throughput",
            MANY,
            Some(Aim::AtLeast(3.0)),
        ),
        share("64 clients: p99, by etcd's", "latency-p99", MANY, most),
        share(
            "64 clients: median latency, by etcd's",
            "latency-p50",
            MANY,
            None,
        ),
        value(
            "64 clients, etcd: puts for a sync of the device",
            "per-sync",
            "etcd",
        ),
        value(
            "64 clients, Kumiki: puts for a sync of the device",
            "per-sync",
            "kumiki",
        ),
    ]
}
