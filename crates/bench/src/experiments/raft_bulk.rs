//! `raft-bulk`: the gain of bulks on top of grouping, by clients (paper 5, figure 6).

use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::raft::{self, LOGS, Transfer, at, lines};
use crate::parameters::Scale;
use crate::plot::{Aim, Compare, Measure, Plot};

/// The paper's servers.
const NODES: usize = 5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "raft-bulk",
    title: "Bulk transfer, by clients",
    paper: Some("paper 5, figure 6"),
    about: &[
        "A client packs a hundred transactions into one, for all of which the leader takes locks at \
         once, and of which all happen or none. Beside it the same clients send one transaction at a \
         time, grouped and naive.",
        raft::SETTING,
        raft::CEILING,
    ],
    points,
    plots,
    compare,
    columns: raft::COLUMNS,
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let counts = scale.pick(&[2], &[1, 2, 16], &[1, 2, 4, 8, 16]);
    let mut points = Vec::new();
    for log in LOGS {
        for &clients in counts {
            let point = |transfer| raft::point(log, transfer, NODES, clients);
            let naive = point(Transfer::Naive);
            let grouped = point(Transfer::GROUPED).against(&naive);
            let bulk = point(Transfer::Bulk).against(&naive);
            points.extend([naive, grouped, bulk]);
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y, log: &str| lines(title, caption, ("clients", y), log, true);
    vec![
        plot(
            "Log in memory: throughput by clients",
            "Figure 6: at most 283 times naive (2 clients), 201 times grouped alone (1 client).",
            "throughput",
            "memory",
        ),
        plot(
            "Log on disk: throughput by clients",
            "Every member syncs its log.",
            "throughput",
            "disk",
        ),
        plot(
            "Log in memory: median latency by clients",
            "From a client's request, a bulk as a whole, to its commit.",
            "latency-p50",
            "memory",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let place = |log: &str, transfer, clients: usize| at(log, transfer, ("clients", clients));
    let by_naive = |log: &str| Measure::Share {
        metric: "throughput",
        at: place(log, Transfer::Bulk, 2),
    };
    let by_grouped = |log: &str| Measure::Ratio {
        metric: "throughput",
        of: place(log, Transfer::Bulk, 1),
        to: place(log, Transfer::GROUPED, 1),
    };
    let ceiling = |transfer| Measure::Value {
        metric: "ceiling",
        at: place("disk", transfer, 2),
    };
    let row = |what, paper, ours, aim| Compare {
        what,
        paper,
        ours,
        aim,
    };
    vec![
        row(
            "memory, 2 clients: bulks, by naive",
            Some("283 (text of section 4.2.4)"),
            by_naive("memory"),
            Some(Aim::AtLeast(100.0)),
        ),
        row(
            "memory, 1 client: bulks, by grouped alone",
            Some("201 (text of section 4.2.4)"),
            by_grouped("memory"),
            None,
        ),
        row(
            "disk, 2 clients: bulks, by naive",
            Some("the paper has no log on disk"),
            by_naive("disk"),
            None,
        ),
        row(
            "disk, 1 client: bulks, by grouped alone",
            Some("the paper has no log on disk"),
            by_grouped("disk"),
            None,
        ),
        row(
            "disk, 2 clients, bulks: ceiling, txn/s",
            None,
            ceiling(Transfer::Bulk),
            None,
        ),
        row(
            "disk, 2 clients, naive: ceiling, txn/s",
            None,
            ceiling(Transfer::Naive),
            None,
        ),
    ]
}
