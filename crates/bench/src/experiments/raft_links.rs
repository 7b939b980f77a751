//! `raft-links`: grouping and bulks by the delay of the network (paper 5, sections 4.1 to 4.2.4).

use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::raft::{self, Transfer};
use crate::parameters::{Param, Scale};
use crate::plot::{Aim, Compare, Measure, PaperMark, Plot, PlotKind};
use crate::target::{ReplicaNetwork, ReplicasJob, TargetJob};

/// The paper's servers.
const NODES: usize = 5;
/// The paper's Gigabit Ethernet.
const MEGABITS: u64 = 1000;
/// Clients at which the paper's grouping gains most.
const MANY: usize = 64;
/// Clients at which the paper's bulks gain most.
const FEW: usize = 2;
/// The delays of links, in microseconds.
const DELAYS_US: [u64; 4] = [0, 100, 500, 2000];
/// The delay at which clients are swept.
const SWEPT_US: u64 = 100;
/// The name of links with a delay and a rate among the parameters.
const ETHERNET: &str = "1 Gb/s";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "raft-links",
    title: "Grouped log transfer and bulks, by the delay of links",
    paper: Some("paper 5, figures 3, 4 and 6, on its network"),
    about: &[
        "The paper's servers and clients are machines on a Gigabit Ethernet, and its gains come from \
         messages that are saved there. Here all members live in one process, each with a thread of \
         its own, and the clients are a process of their own; each member and the clients stand for \
         a machine. All bytes between machines pass a thread that forwards them: a machine sends a \
         gigabit a second, to all others together, and what it has sent arrives after the delay of \
         one way that the row names. Rows with loopback have no such thread in between.",
        "A client has a connection to the leader and one request under way; it begins the next one \
         when it has the answer. The leader executes the requests of all clients on one thread. A \
         transaction adds to two of ten thousand counters, which the clients share out among them. \
         The log is in memory, as in the paper. Where links have a delay, a thread of the lowest \
         priority keeps a processor from idling, so that pieces leave at their time; the table says \
         by how much they were late.",
        "The ceiling follows from the delay d and from the measured processor time t of a request, \
         divided by the number of processors: N clients cannot do more than N / (4 d + t) requests a \
         second, nor more than 1 / t, nor more than the busiest machine can send, and plain Raft \
         not more than 1 / (2 d + t), because it takes one request at a time through consensus. The \
         forwarding thread's processor time is part of t, and not of the column that is named \
         processor time.",
        "With a delay that outweighs all processor time, 64 clients thus gain at most 32 times by \
         grouping; bulks of a hundred gain at most 100 times with two clients.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "links",
        "delay",
        "transfer",
        "clients",
        "throughput",
        "latency-p50",
        "latency-p99",
        "entries-per-group",
        "ceiling",
        "of-ceiling",
        "cpu",
        "link-cpu",
        "link-late-p50",
        "link-late-p99",
    ],
};

/// Returns the delay among the parameters, in milliseconds.
fn delay_ms(delay_us: u64) -> Param {
    (delay_us as f64 / 1e3).into()
}

fn point(network: ReplicaNetwork, transfer: Transfer, clients: usize) -> SweepPoint {
    let (links, delay_us) = match network {
        ReplicaNetwork::Links { delay_us, .. } => (ETHERNET, delay_us),
        ReplicaNetwork::Inside | ReplicaNetwork::Loopback => ("loopback", 0),
    };
    let job = ReplicasJob {
        network,
        ..raft::job("memory", transfer, NODES, clients)
    };
    let params = [
        ("links", links.into()),
        ("delay", delay_ms(delay_us)),
        ("transfer", transfer.param()),
        ("clients", clients.into()),
    ];
    SweepPoint::new(params, TargetJob::Replicas(job))
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let delays = scale.pick(&[SWEPT_US], &DELAYS_US, &DELAYS_US);
    let links = delays.iter().map(|&delay_us| ReplicaNetwork::Links {
        delay_us,
        megabits: MEGABITS,
    });
    let usual = scale.pick(&[FEW], &[FEW, MANY], &[FEW, 16, MANY]);
    let swept = scale.pick(&[FEW], &[1, FEW, 4, MANY], &[1, FEW, 4, 8, 16, 32, MANY]);
    let mut points = Vec::new();
    for network in std::iter::once(ReplicaNetwork::Loopback).chain(links) {
        let is_swept =
            matches!(network, ReplicaNetwork::Links { delay_us, .. } if delay_us == SWEPT_US);
        for &clients in if is_swept { swept } else { usual } {
            let naive = point(network, Transfer::Naive, clients);
            let grouped = point(network, Transfer::GROUPED, clients).against(&naive);
            let bulk = point(network, Transfer::Bulk, clients).against(&naive);
            points.extend([naive, grouped]);
            // The paper's bulks end at 16 clients.
            points.extend((clients <= 16).then_some(bulk));
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let only = |delay: Option<u64>, clients: Option<usize>| {
        let delay = delay.map(|delay| ("delay", vec![delay_ms(delay)]));
        let clients = clients.map(|clients| ("clients", vec![clients.into()]));
        let links = ("links", vec![ETHERNET.into()]);
        std::iter::once(links).chain(delay).chain(clients).collect()
    };
    let gain = |title, caption, clients, paper| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "delay",
            y: "throughput",
            series: "transfer",
            relative: true,
        },
        only: only(None, Some(clients)),
        paper,
    };
    let by_clients = |title, caption, y| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "clients",
            y,
            series: &["transfer"],
            doubling: true,
        },
        only: only(Some(SWEPT_US), None),
        paper: Vec::new(),
    };
    let line = |value, label| vec![PaperMark::Line { value, label }];
    vec![
        gain(
            "64 clients: throughput by that of plain Raft, by delay",
            "Delays of one way, in milliseconds. The delay alone allows 32 times.",
            MANY,
            line(31.7, "31.7 (text of section 4.2.2)"),
        ),
        gain(
            "2 clients: throughput by that of plain Raft, by delay",
            "Delays of one way, in milliseconds. The delay alone allows 100 times.",
            FEW,
            line(283.0, "283 (text of section 4.2.4)"),
        ),
        by_clients(
            "0.1 ms: throughput by clients",
            "Figures 3, 4 and 6. Plain Raft gains by a second client, whose request travels while that of the first goes through consensus.",
            "throughput",
        ),
        by_clients(
            "0.1 ms: median latency by clients",
            "From a client's request, a bulk as a whole, to the answer: at least four delays.",
            "latency-p50",
        ),
    ]
}

fn at(delay_us: u64, transfer: Transfer, clients: usize) -> Vec<(&'static str, Param)> {
    vec![
        ("links", ETHERNET.into()),
        ("delay", delay_ms(delay_us)),
        ("transfer", transfer.param()),
        ("clients", clients.into()),
    ]
}

/// Rows of both gains at a delay: as measured, as the ceilings allow, and the one by the other.
macro_rules! gains {
    ($($delay_us:literal, $text:literal);*) => {
        vec![$(
            (
                $delay_us,
                [
                    concat!($text, " ms, 64 clients: grouped, by naive"),
                    concat!($text, " ms, 64 clients: ceiling of grouped, by that of naive"),
                    concat!($text, " ms, 64 clients: gain of grouping, by that of the ceilings"),
                ],
                [
                    concat!($text, " ms, 2 clients: bulks, by naive"),
                    concat!($text, " ms, 2 clients: ceiling of bulks, by that of naive"),
                    concat!($text, " ms, 2 clients: gain of bulks, by that of the ceilings"),
                ],
            ),
        )*]
    };
}

fn compare() -> Vec<Compare> {
    let rows = gains!(0, "0"; 100, "0.1"; 500, "0.5"; 2000, "2");
    let share = |metric, at: &[(&'static str, Param)]| Measure::Share {
        metric,
        at: at.to_vec(),
    };
    let gain = |[gain, ceiling, both]: [&'static str; 3], paper, at: Vec<_>| {
        let row = |what, paper, metric, aim| Compare {
            what,
            paper,
            ours: share(metric, &at),
            aim,
        };
        [
            row(gain, Some(paper), "throughput", None),
            row(ceiling, None, "ceiling", None),
            row(both, None, "of-ceiling", Some(Aim::AtLeast(0.8))),
        ]
    };
    let both = |(delay_us, grouped, bulk)| {
        let grouped = gain(
            grouped,
            "31.7 (text of section 4.2.2)",
            at(delay_us, Transfer::GROUPED, MANY),
        );
        let bulk = gain(
            bulk,
            "283 (text of section 4.2.4)",
            at(delay_us, Transfer::Bulk, FEW),
        );
        grouped.into_iter().chain(bulk)
    };
    rows.into_iter().flat_map(both).collect()
}
