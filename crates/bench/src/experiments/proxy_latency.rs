//! `proxy-latency`: the cost of the way through the proxy, at a low rate and under full load (paper
//! 3, section 6.3).

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Effort, Param, Scale};
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::target::{QueriesJob, QueryLoad, QueryRoute, TargetJob};

use super::proxy::{CLIENTS, NODES, job};

/// Queries a second, all clients together.
const RATE: f64 = 1000.0;
const LOW: &str = "1 kq/s";
const FULL: &str = "full";

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "proxy-latency",
    title: "Latency of tiny queries, with and without the proxy",
    paper: Some("paper 3, tables 3 and 4"),
    about: &[
        "The queries of proxy-throughput, to five nodes, by 96 clients: a thousand a second on a \
         schedule, or as many as there can be with one query of each client under way. Latencies at \
         the low rate count from when a query was to begin. 'paper' is paper 3's proxy, with 26 threads \
         for clients and ten for nodes, and 'older' its earlier one (see proxy-throughput).",
        "At the low rate a run goes in short slices, by turns: a bare round trip over loopback \
         between two threads, clients that know the nodes, and the way in question. So 'above', the \
         median less that of the direct way and less that of a bare round trip, is of figures that \
         were measured side by side. Nodes are on the processors where the system puts them.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "load",
        "system",
        "latency-min",
        "latency-p50",
        "latency",
        "latency-p99",
        "latency-max",
        "throughput",
        "round-trip",
        "beside-direct",
        "above",
        "mean-by-median",
    ],
};

fn at(load: &str, route: QueryRoute) -> [(&'static str, Param); 2] {
    [("load", load.into()), ("system", route.name().into())]
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let of = |(name, load): (&str, QueryLoad)| {
        let point = |route: QueryRoute| {
            let job = QueriesJob {
                pinned: false,
                load,
                ..job(route, NODES, CLIENTS)
            };
            SweepPoint::new(at(name, route), TargetJob::Queries(job))
        };
        let direct = point(QueryRoute::Direct);
        let proxy = point(QueryRoute::Proxy).against(&direct);
        let paper = point(QueryRoute::Paper).against(&direct);
        let older = point(QueryRoute::Older).against(&direct);
        match scale.effort {
            Effort::Tiny => vec![direct, proxy],
            _ => vec![direct, proxy, paper, older],
        }
    };
    let loads = [
        (LOW, QueryLoad::Paced { rate: RATE }),
        (FULL, QueryLoad::Closed),
    ];
    loads.into_iter().flat_map(of).collect()
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "load",
            y,
            series: "system",
            relative: false,
        },
        only: Vec::new(),
        paper: Vec::new(),
    };
    vec![
        plot(
            "Median latency",
            "In the paper 0.067 ms and 0.081 ms at a thousand queries a second, 0.48 ms and 217 ms \
             under full load (tables 4 and 3).",
            "latency-p50",
        ),
        plot(
            "99th percentile of the latency",
            "What one query in a hundred takes at least.",
            "latency-p99",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let value = |what, paper, metric, load, aim| Compare {
        what,
        paper,
        ours: Measure::Value {
            metric,
            at: at(load, QueryRoute::Proxy).into(),
        },
        aim,
    };
    let share = |what, paper, metric, aim| Compare {
        what,
        paper,
        ours: Measure::Share {
            metric,
            at: at(FULL, QueryRoute::Proxy).into(),
        },
        aim,
    };
    vec![
        value(
            "1 kq/s: median above direct and a bare round trip, µs",
            None,
            "above",
            LOW,
            Some(Aim::AtMost(20.0)),
        ),
        value(
            "1 kq/s: median, by direct",
            Some("1.21"),
            "beside-direct",
            LOW,
            None,
        ),
        value(
            "1 kq/s: mean, by median",
            Some("8.7"),
            "mean-by-median",
            LOW,
            Some(Aim::AtMost(1.5)),
        ),
        share(
            "full load: median, by direct",
            Some("455"),
            "latency-p50",
            Some(Aim::AtMost(20.0)),
        ),
        share("full load: mean, by direct", Some("258"), "latency", None),
        share("full load: p99, by direct", None, "latency-p99", None),
    ]
}
