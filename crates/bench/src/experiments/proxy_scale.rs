//! `proxy-scale`: the number of the proxy's threads that have clients (paper 3, section 6.4).

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Param, Scale};
use crate::plot::{Compare, Measure, Plot, PlotKind};
use crate::target::{QueriesJob, QueryRoute, TargetJob};

use super::proxy::{CLIENTS, NODES, PAPER_AGGREGATION, job};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "proxy-scale",
    title: "Threads of the proxy that have clients",
    paper: Some("paper 3, figure 10"),
    about: &[
        "The queries of proxy-throughput, to five nodes, by 96 clients, through a proxy with one \
         thread for nodes and more and more threads for clients. The paper has ten threads for nodes, \
         up to 26 for clients, and 18 cores. Where there are fewer cores than threads, proxy, nodes \
         and clients take turns, and the figure shows what more threads cost, not what they bring. \
         'inline' is the proxy whose threads with clients have their own connections to nodes. 'paper' is \
         paper 3's proxy, with ten threads for nodes and queues that all threads share.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "design",
        "threads",
        "throughput",
        "per-packet",
        "server-cpu",
        "proxy-cpu",
        "per-core",
        "latency-p50",
        "latency-p99",
    ],
};

const RINGS: &str = "rings";
const INLINE: &str = "inline";
const PAPER: &str = "paper";

fn at(design: &str, threads: usize) -> [(&'static str, Param); 2] {
    [("design", design.into()), ("threads", threads.into())]
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let counts = scale.pick(&[2], &[2, 4], &[2, 4, 8, 16, 26]);
    let of = |(design, route, aggregation): (&str, QueryRoute, usize)| {
        let point = |threads| {
            let job = QueriesJob {
                pinned: false,
                threads,
                aggregation,
                ..job(route, NODES, CLIENTS)
            };
            SweepPoint::new(at(design, threads), TargetJob::Queries(job))
        };
        let one = point(1);
        let more = counts.iter().map(|&threads| point(threads).against(&one));
        let mut all: Vec<SweepPoint> = more.collect();
        all.insert(0, one);
        all
    };
    let designs = [
        (RINGS, QueryRoute::Proxy, 1),
        (INLINE, QueryRoute::Proxy, 0),
        (PAPER, QueryRoute::Paper, PAPER_AGGREGATION * NODES),
    ];
    designs.into_iter().flat_map(of).collect()
}

fn plots() -> Vec<Plot> {
    vec![Plot {
        title: "Throughput by threads that have clients",
        caption: "After figure 10: in the paper linear up to 4 threads, then 1.5 times from 4 to 8 \
                  and 1.4 times from 8 to 16.",
        shape: PlotKind::Lines {
            x: "threads",
            y: "throughput",
            series: &["design"],
            doubling: true,
        },
        only: Vec::new(),
        paper: Vec::new(),
    }]
}

fn compare() -> Vec<Compare> {
    let share = |what, paper, threads| Compare {
        what,
        paper: Some(paper),
        ours: Measure::Share {
            metric: "throughput",
            at: at(RINGS, threads).into(),
        },
        aim: None,
    };
    vec![
        share("two threads with clients, by one", "2", 2),
        share("four threads with clients, by one", "4", 4),
        share("eight threads with clients, by one", "6", 8),
    ]
}
