//! `proxy-designs`: the load of paper 3, through our proxy and through the paper's own two (sections 4.3
//! and 5, figures 8 and 9, table 3).

use crate::experiment::{Experiment, SweepPoint};
use crate::paper_proxy::BatchLimits;
use crate::parameters::{Effort, Param, Scale};
use crate::plot::{Aim, Compare, CourseFigure, Measure, PaperMark, Plot, PlotKind};
use crate::target::{QueriesJob, QueryLoad, QueryMix, QueryNodesKind, QueryRoute, TargetJob};

use super::proxy::{NODES, PAPER_AGGREGATION, PAPER_CLIENTS, PAPER_THREADS, job};

const CLOSED: &str = "closed";
const OPEN: &str = "open";
/// Rounds in which nodes are a Redis Cluster.
const CLUSTER_ROUNDS: usize = 2;
/// The system that the others are compared with.
const BASELINE: QueryRoute = QueryRoute::Paper;
const SYSTEMS: [QueryRoute; 3] = [QueryRoute::Proxy, QueryRoute::Older, QueryRoute::Direct];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "proxy-designs",
    title: "Our proxy and the paper's own two, under the paper's load",
    paper: Some("paper 3, figures 8, 9 and 10, table 3"),
    about: &[
        "Writes of 5 bytes to keys of 5 bytes, by the paper's 288 connections: three machines with three \
         threads of 32 connections each; 'direct' clients have as many to each of the five nodes, 1,440. \
         With 'closed' each connection has one query under way. With 'open' queries begin on a schedule, \
         whether or not earlier ones are answered, at rates beyond what the systems carry: a connection \
         has up to 16 under way, and the rest waits in the client. Latencies count from when a query was \
         due, so that under overload they grow with the length of the run.",
        "'proxy' is ours, with one thread. 'paper' is paper 3's improved proxy: client threads and \
         aggregation threads, in the paper 26 and ten, and between them rings that they share by \
         compare-and-swap, one for each node and one for each client thread. 'older' is its earlier \
         proxy: a thread for each client and one for each node, queues behind mutexes, and the network \
         in another process. Nodes are Redis servers by themselves, or with 'nodes' = 'cluster' a Redis \
         Cluster. What both lack of the paper's is the network past the kernel: all systems \
         here have the kernel's, over loopback.",
        "The rows of 'paper' with other threads, batches and waits show what each of them does. 'batch' \
         is the number of queries in one packet at most, and 'wait' the microseconds that a packet waits \
         for more queries; in the paper none waits.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "nodes",
        "load",
        "sent",
        "system",
        "threads",
        "aggregation",
        "batch",
        "wait",
        "throughput",
        "latency-min",
        "latency-p50",
        "latency",
        "latency-p99",
        "latency-max",
        "unserved",
        "per-packet",
        "proxy-cpu",
        "server-cpu",
        "per-core",
    ],
};

/// A high rate of the open loop, beyond what the systems carry on few processors: shown over time, and
/// compared.
const HIGH: usize = 160_000;

/// What distinguishes a point.
#[derive(Clone, Copy)]
struct Design {
    nodes: QueryNodesKind,
    rate: Option<usize>,
    system: QueryRoute,
    threads: usize,
    aggregation: usize,
    batch: BatchLimits,
}

impl Design {
    fn of(system: QueryRoute, rate: Option<usize>) -> Design {
        let QueriesJob {
            threads,
            aggregation,
            batch,
            ..
        } = job(system, NODES, PAPER_CLIENTS);
        Design {
            nodes: QueryNodesKind::Servers,
            rate,
            system,
            threads,
            aggregation,
            batch,
        }
    }

    fn at(self) -> [(&'static str, Param); 8] {
        // Those of each client are no parameter, and clients without a proxy have none.
        let threads: Param = match self.system {
            QueryRoute::Older => "clients".into(),
            QueryRoute::Direct => "none".into(),
            _ => self.threads.into(),
        };
        let load = if self.rate.is_some() { OPEN } else { CLOSED };
        let wait = usize::try_from(self.batch.wait_us).unwrap_or(usize::MAX);
        [
            ("nodes", self.nodes.name().into()),
            ("load", load.into()),
            ("sent", self.rate.unwrap_or(0).into()),
            ("system", self.system.name().into()),
            ("threads", threads),
            ("aggregation", self.aggregation.into()),
            ("batch", self.batch.queries.into()),
            ("wait", wait.into()),
        ]
    }

    fn point(self) -> SweepPoint {
        let load = match self.rate {
            None => QueryLoad::Closed,
            Some(rate) => QueryLoad::Open { rate: rate as f64 },
        };
        let job = QueriesJob {
            pinned: false,
            kind: self.nodes,
            threads: self.threads,
            aggregation: self.aggregation,
            batch: self.batch,
            mix: QueryMix::Writes,
            load,
            ..job(self.system, NODES, PAPER_CLIENTS)
        };
        SweepPoint::new(self.at(), TargetJob::Queries(job))
    }
}

/// Rates of the open loop, in queries a second.
fn rates(scale: &Scale) -> &'static [usize] {
    match scale.effort {
        Effort::Tiny => &[5_000],
        Effort::Quick => &[20_000, HIGH],
        Effort::Full => &[10_000, 20_000, 40_000, 80_000, HIGH, 320_000],
    }
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    let loads = std::iter::once(None).chain(rates(scale).iter().copied().map(Some));
    for rate in loads {
        let baseline = Design::of(BASELINE, rate).point();
        let others = SYSTEMS.map(|system| Design::of(system, rate).point().against(&baseline));
        points.push(baseline);
        points.extend(others);
    }
    let cluster = |system| {
        let design = Design {
            nodes: QueryNodesKind::Cluster,
            ..Design::of(system, None)
        };
        design.point()
    };
    let of_cluster = cluster(BASELINE);
    // Nodes take seconds to know each other.
    let others = SYSTEMS.map(|system| cluster(system).against(&of_cluster).at_most(CLUSTER_ROUNDS));
    if scale.effort != Effort::Tiny {
        points.push(of_cluster.at_most(CLUSTER_ROUNDS));
        points.extend(others);
    }
    let usual = Design::of(BASELINE, None);
    let baseline = usual.point();
    let threads = scale.pick(&[], &[1], &[1, 2, 4, 8, 16]);
    let of_threads = threads.iter().flat_map(|&threads| {
        [1, PAPER_AGGREGATION].map(|of_node| Design {
            threads,
            aggregation: of_node * NODES,
            ..usual
        })
    });
    let fewer = Design {
        aggregation: NODES,
        ..usual
    };
    let batches = scale.pick(&[], &[1], &[1, 4, 16]);
    let of_batches = batches.iter().map(|&queries| Design {
        batch: BatchLimits {
            queries,
            ..usual.batch
        },
        ..usual
    });
    let waits = scale.pick(&[], &[200], &[50, 200, 1000]);
    let of_waits = waits.iter().map(|&wait_us| Design {
        batch: BatchLimits {
            wait_us,
            ..usual.batch
        },
        ..usual
    });
    let sweep = std::iter::once(fewer)
        .chain(of_threads)
        .chain(of_batches)
        .chain(of_waits);
    points.extend(sweep.map(|design| design.point().against(&baseline)));
    points
}

fn plots() -> Vec<Plot> {
    let by_rate = |title, caption, y| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "sent",
            y,
            series: &["system"],
            doubling: true,
        },
        only: vec![("load", vec![OPEN.into()])],
        paper: Vec::new(),
    };
    let usual = Design::of(BASELINE, None).batch;
    let servers = ("nodes", vec![QueryNodesKind::Servers.name().into()]);
    let plain = vec![
        servers.clone(),
        ("load", vec![CLOSED.into()]),
        ("system", vec![BASELINE.name().into()]),
        ("batch", vec![usual.queries.into()]),
        ("wait", vec![0.into()]),
    ];
    let over_time = |title, caption, y| Plot {
        title,
        caption,
        shape: PlotKind::Course {
            y,
            series: &["system"],
        },
        only: vec![("load", vec![OPEN.into()]), ("sent", vec![HIGH.into()])],
        paper: Vec::new(),
    };
    vec![
        over_time(
            "Throughput over time, at 160 kq/s sent",
            "After figure 8: queries answered in each twentieth of a run.",
            CourseFigure::Rate,
        ),
        over_time(
            "Latency over time, at 160 kq/s sent",
            "Where it rises throughout, queries come faster than they are answered.",
            CourseFigure::Latency,
        ),
        by_rate(
            "Throughput by the rate at which clients send",
            "After figure 8. In the paper, at a high rate that it does not state, 7.45 million queries a \
             second through the proxy, 1.3 times what clients reach without it.",
            "throughput",
        ),
        by_rate(
            "Median latency by that rate",
            "After table 3: at the high rate 217 ms through the proxy, 0.48 ms without it.",
            "latency-p50",
        ),
        by_rate(
            "99th percentile of the latency by that rate",
            "What one query in a hundred takes at least.",
            "latency-p99",
        ),
        Plot {
            title: "Queries in a packet",
            caption: "After figure 9, whose mean is 2.9.",
            shape: PlotKind::Bars {
                x: "sent",
                y: "per-packet",
                series: "system",
                relative: false,
            },
            only: vec![
                servers,
                ("batch", vec![usual.queries.into()]),
                ("wait", vec![0.into()]),
                (
                    "threads",
                    vec![
                        1.into(),
                        PAPER_THREADS.into(),
                        "clients".into(),
                        "none".into(),
                    ],
                ),
                (
                    "system",
                    SYSTEMS
                        .into_iter()
                        .chain([BASELINE])
                        .map(|one| one.name().into())
                        .collect(),
                ),
            ],
            paper: vec![PaperMark::Bar {
                value: 2.9,
                series: BASELINE.name(),
            }],
        },
        Plot {
            title: "Client threads of the paper's proxy",
            caption: "Closed loop. After figure 10, with one and two aggregation threads for each node.",
            shape: PlotKind::Lines {
                x: "threads",
                y: "throughput",
                series: &["aggregation"],
                doubling: true,
            },
            only: plain,
            paper: Vec::new(),
        },
    ]
}

fn compare() -> Vec<Compare> {
    let closed = |system| Design::of(system, None);
    let open = |system| Design::of(system, Some(HIGH));
    let ratio = |what, metric, of: Design, to: Design| Compare {
        what,
        paper: None,
        ours: Measure::Ratio {
            metric,
            of: of.at().into(),
            to: to.at().into(),
        },
        aim: None,
    };
    let quoted = |paper, row: Compare| Compare {
        paper: Some(paper),
        ..row
    };
    let aims = |aim, row: Compare| Compare {
        aim: Some(aim),
        ..row
    };
    let packed = |what, design: Design| Compare {
        what,
        paper: Some("2.9"),
        ours: Measure::Value {
            metric: "per-packet",
            at: design.at().into(),
        },
        aim: None,
    };
    let (proxy, paper, older, direct) = (
        QueryRoute::Proxy,
        QueryRoute::Paper,
        QueryRoute::Older,
        QueryRoute::Direct,
    );
    let one_thread = Design {
        threads: 1,
        ..closed(paper)
    };
    let (faster, slower) = (Aim::AtLeast(1.0), Aim::AtMost(1.0));
    vec![
        aims(
            faster,
            ratio(
                "closed: throughput of ours, by the paper's",
                "throughput",
                closed(proxy),
                closed(paper),
            ),
        ),
        aims(
            faster,
            ratio(
                "closed: the same, by the paper's with one client thread",
                "throughput",
                closed(proxy),
                one_thread,
            ),
        ),
        aims(
            faster,
            ratio(
                "closed: queries of a core of ours, by the paper's",
                "per-core",
                closed(proxy),
                closed(paper),
            ),
        ),
        aims(
            faster,
            ratio(
                "closed: the same, by the paper's with one client thread",
                "per-core",
                closed(proxy),
                one_thread,
            ),
        ),
        aims(
            slower,
            ratio(
                "closed: median of ours, by the paper's",
                "latency-p50",
                closed(proxy),
                closed(paper),
            ),
        ),
        quoted(
            "about 200 (derived: 1/200 of the line rate, with Cassandra nodes and other machines)",
            ratio(
                "closed: throughput of the paper's, by its earlier one",
                "throughput",
                closed(paper),
                closed(older),
            ),
        ),
        ratio(
            "closed: queries of a core of the paper's, by its earlier one",
            "per-core",
            closed(paper),
            closed(older),
        ),
        packed("closed: queries in a packet of the paper's", closed(paper)),
        aims(
            faster,
            ratio(
                "160 kq/s sent: throughput of ours, by the paper's",
                "throughput",
                open(proxy),
                open(paper),
            ),
        ),
        aims(
            slower,
            ratio(
                "160 kq/s sent: median of ours, by the paper's",
                "latency-p50",
                open(proxy),
                open(paper),
            ),
        ),
        quoted(
            "1.3",
            ratio(
                "160 kq/s sent: throughput of the paper's, by direct",
                "throughput",
                open(paper),
                open(direct),
            ),
        ),
        aims(
            Aim::AtLeast(1.3),
            quoted(
                "1.3",
                ratio(
                    "160 kq/s sent: throughput of ours, by direct",
                    "throughput",
                    open(proxy),
                    open(direct),
                ),
            ),
        ),
        quoted(
            "455",
            ratio(
                "160 kq/s sent: median of the paper's, by direct",
                "latency-p50",
                open(paper),
                open(direct),
            ),
        ),
        aims(
            slower,
            quoted(
                "455",
                ratio(
                    "160 kq/s sent: median of ours, by direct",
                    "latency-p50",
                    open(proxy),
                    open(direct),
                ),
            ),
        ),
        packed(
            "160 kq/s sent: queries in a packet of the paper's",
            open(paper),
        ),
    ]
}
