//! `raft-grouping`: the gain of grouped log transfer, by clients (paper 5, figures 3 and 4).

use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::raft::{self, LOGS, Transfer, at, lines};
use crate::parameters::Scale;
use crate::plot::{Aim, Compare, Measure, Plot};

/// The paper's servers.
const NODES: usize = 5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "raft-grouping",
    title: "Grouped log transfer, by clients",
    paper: Some("paper 5, figures 3 and 4"),
    about: &[
        "Five members hold one partition. Naive is plain Raft: one transaction at a time goes \
         through consensus, and is executed after it. Grouped, the leader executes first, under \
         locks, and up to 64 transactions of different clients share one append, one sync and one \
         transfer; groups of one show what pipelining alone gives.",
        raft::SETTING,
        raft::CEILING,
    ],
    points,
    plots,
    compare,
    columns: raft::COLUMNS,
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let counts = scale.pick(&[8], &[1, 4, 64], &[1, 2, 4, 8, 16, 32, 64]);
    let mut points = Vec::new();
    for log in LOGS {
        for &clients in counts {
            let point = |transfer| raft::point(log, transfer, NODES, clients);
            let naive = point(Transfer::Naive);
            let ones = point(Transfer::Group(1)).against(&naive);
            let grouped = point(Transfer::GROUPED).against(&naive);
            points.extend([naive, ones, grouped]);
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let over = |y| ("clients", y);
    vec![
        lines(
            "Log in memory: throughput by clients",
            "Figures 3 and 4. In the paper naive stops growing at four clients; grouped grows to 64, where it is 31.7 times as fast.",
            over("throughput"),
            "memory",
            true,
        ),
        lines(
            "Log on disk: throughput by clients",
            "Every member syncs its log. The paper keeps its log in memory.",
            over("throughput"),
            "disk",
            true,
        ),
        lines(
            "Log in memory: median latency by clients",
            "From a client's request to its commit.",
            over("latency-p50"),
            "memory",
            true,
        ),
        lines(
            "Log on disk: 99th percentile of the latency by clients",
            "What one transaction in a hundred takes at least.",
            over("latency-p99"),
            "disk",
            true,
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let place = |log: &str, transfer, clients: usize| at(log, transfer, ("clients", clients));
    let share = |log: &str, transfer| Measure::Share {
        metric: "throughput",
        at: place(log, transfer, 64),
    };
    let growth = |log: &str, transfer, from: usize| Measure::Ratio {
        metric: "throughput",
        of: place(log, transfer, 64),
        to: place(log, transfer, from),
    };
    let value = |metric, transfer| Measure::Value {
        metric,
        at: place("disk", transfer, 64),
    };
    let row = |what, paper, ours, aim| Compare {
        what,
        paper,
        ours,
        aim,
    };
    let grouped = Transfer::GROUPED;
    vec![
        row(
            "memory, 64 clients: grouped, by naive",
            Some("31.7 (text of section 4.2.2)"),
            share("memory", grouped),
            Some(Aim::AtLeast(31.7)),
        ),
        row(
            "memory, naive: 64 clients, by 4",
            Some("flat from 4 clients (text of section 4.2.1)"),
            growth("memory", Transfer::Naive, 4),
            None,
        ),
        row(
            "memory, grouped: 64 clients, by 1",
            Some("grows up to 64 clients (text of section 4.2.2)"),
            growth("memory", grouped, 1),
            None,
        ),
        row(
            "memory, 64 clients: groups of one, by naive",
            None,
            share("memory", Transfer::Group(1)),
            None,
        ),
        row(
            "disk, 64 clients: grouped, by naive",
            Some("the paper has no log on disk"),
            share("disk", grouped),
            None,
        ),
        row(
            "disk, 64 clients, grouped: syncs a second of the device by itself",
            None,
            value("device-syncs", grouped),
            None,
        ),
        row(
            "disk, 64 clients, grouped: ceiling, txn/s",
            None,
            value("ceiling", grouped),
            None,
        ),
        row(
            "disk, 64 clients, naive: ceiling, txn/s",
            None,
            value("ceiling", Transfer::Naive),
            None,
        ),
    ]
}
