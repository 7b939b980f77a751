//! `raft-servers`: the cost of more servers (paper 5, figure 5).

use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::raft::{self, LOGS, Transfer, at, lines};
use crate::parameters::Scale;
use crate::plot::{Compare, Measure, Plot};

/// The paper's clients.
const CLIENTS: usize = 64;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "raft-servers",
    title: "Grouped log transfer, by servers",
    paper: Some("paper 5, figure 5"),
    about: &[
        "64 clients, grouped log transfer, and 3 to 11 members, of which a majority must have an \
         entry before it is committed. Here all members share the processors of one machine, so that \
         each of them also takes from what the others have; in the paper each has a machine.",
        raft::SETTING,
        raft::CEILING,
    ],
    points,
    plots,
    compare,
    columns: raft::COLUMNS,
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let counts = scale.pick(&[3, 5], &[3, 5, 11], &[3, 5, 7, 9, 11]);
    let mut points = Vec::new();
    for log in LOGS {
        let point = |&nodes: &usize| raft::point(log, Transfer::GROUPED, nodes, CLIENTS);
        let fewest = point(&counts[0]);
        let others = counts[1..].iter().map(point);
        let others: Vec<SweepPoint> = others.map(|point| point.against(&fewest)).collect();
        points.push(fewest);
        points.extend(others);
    }
    points
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y, log: &str| lines(title, caption, ("nodes", y), log, false);
    vec![
        plot(
            "Log in memory: throughput by servers",
            "Figure 5: it falls as servers are added.",
            "throughput",
            "memory",
        ),
        plot(
            "Log on disk: throughput by servers",
            "Every member syncs its log, on one device.",
            "throughput",
            "disk",
        ),
        plot(
            "Log in memory: median latency by servers",
            "From a client's request to its commit.",
            "latency-p50",
            "memory",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let row = |what, paper, log: &str| Compare {
        what,
        paper: Some(paper),
        ours: Measure::Ratio {
            metric: "throughput",
            of: at(log, Transfer::GROUPED, ("nodes", 11)),
            to: at(log, Transfer::GROUPED, ("nodes", 3)),
        },
        aim: None,
    };
    vec![
        row(
            "memory: 11 servers, by 3",
            "falls (text of section 4.2.3; how far is only drawn)",
            "memory",
        ),
        row(
            "disk: 11 servers, by 3",
            "the paper has no log on disk",
            "disk",
        ),
    ]
}
