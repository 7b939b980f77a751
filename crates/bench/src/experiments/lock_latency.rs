//! `lock-latency`: locks by the proxy, and by lightweight transactions of Cassandra (paper 3, section
//! 6.5).

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::{Effort, Param, Scale};
use crate::plot::{Aim, Compare, Measure, PaperMark, Plot, PlotKind};
use crate::target::{LockBackend, LocksJob, TargetJob};
use cassandra::Paxos;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "lock-latency",
    title: "Taking and releasing a lock, by the proxy and by Cassandra",
    paper: Some("paper 3, figure 11"),
    about: &[
        "One client with one connection takes a lock with a name of 5 bytes and releases it, over and \
         over. 'memory', 'durable' and 'replicated' are the proxy, asked over RESP, with its table in \
         memory, in a store of its own on the disk, and in three Kumiki nodes with logs on the disk; \
         'paper' is paper 3's proxy with its threads (26 and ten), whose aggregation threads share a table \
         in memory, and 'older' its earlier one with the same table (in the paper it had none); \
         'cql' is the table in memory, asked with Cassandra's statements; 'lwt' are lightweight \
         transactions of real Cassandra nodes, each of which has a copy of everything. Latencies are \
         those of taking the lock.",
        "A run goes in slices, by turns: bare round trips over loopback, a proxy with its table in \
         memory, and what the row names. 'of memory' is the quotient of the medians of the row and of \
         that proxy in the same run.",
        "All processes share the processors of one machine. The paper has a machine for each of its \
         three to nine Cassandra nodes, so that its nodes do at the same time what nodes here do one \
         after the other.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "system",
        "nodes",
        "paxos",
        "latency-min",
        "latency-p10",
        "latency-p50",
        "latency-p90",
        "latency",
        "latency-p99",
        "latency-p999",
        "release-p50",
        "release-p99",
        "round-trip",
        "of-memory",
        "release-of-memory",
    ],
};

/// The shares of a distribution, in percent, with the metrics that have their latencies.
const QUANTILES: &[(f64, &str)] = &[
    (0.0, "latency-min"),
    (10.0, "latency-p10"),
    (25.0, "latency-p25"),
    (50.0, "latency-p50"),
    (75.0, "latency-p75"),
    (90.0, "latency-p90"),
    (99.0, "latency-p99"),
    (99.9, "latency-p999"),
];

/// Turns that are counted, and with Cassandra those before them.
struct Turns {
    counted: u64,
    before: u64,
}

fn at(service: LockBackend) -> [(&'static str, Param); 3] {
    let (nodes, paxos) = match service {
        LockBackend::Memory | LockBackend::Durable | LockBackend::Paper | LockBackend::Older => {
            (0, "none")
        }
        LockBackend::Replicated => (3, "none"),
        LockBackend::Cql => (1, "none"),
        LockBackend::Lwt { nodes, paxos } => (nodes, paxos.name()),
    };
    [
        ("system", service.name().into()),
        ("nodes", usize::from(nodes).into()),
        ("paxos", paxos.into()),
    ]
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let turns = match scale.effort {
        Effort::Tiny => Turns {
            counted: 40,
            before: 20,
        },
        Effort::Quick => Turns {
            counted: 400,
            before: 600,
        },
        Effort::Full => Turns {
            counted: 2000,
            before: 3000,
        },
    };
    let counts = scale.pick(&[1], &[1, 3], &[1, 3, 5]);
    let variants = scale.pick(
        &[Paxos::V1],
        &[Paxos::V1, Paxos::V2],
        &[Paxos::V1, Paxos::V2],
    );
    // Nodes take up to a minute to start and another to be warm.
    let rounds = scale.pick(&[1], &[1], &[2])[0];
    let lwt = counts.iter().flat_map(|&nodes| {
        let service = move |&paxos: &Paxos| LockBackend::Lwt { nodes, paxos };
        variants.iter().map(service)
    });
    let ours = [
        LockBackend::Memory,
        LockBackend::Paper,
        LockBackend::Older,
        LockBackend::Durable,
        LockBackend::Replicated,
    ];
    let ours = ours.into_iter().map(|service| point(service, &turns));
    let cassandras = std::iter::once(LockBackend::Cql).chain(lwt);
    let theirs = cassandras.map(|service| point(service, &turns).at_most(rounds));
    ours.chain(theirs).collect()
}

fn point(service: LockBackend, turns: &Turns) -> SweepPoint {
    let job = LocksJob {
        service,
        turns: turns.counted,
        warm_up: turns.before,
    };
    SweepPoint::new(at(service), TargetJob::Locks(job))
}

fn plots() -> Vec<Plot> {
    let lines = |title, caption, y, paper| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "nodes",
            y,
            series: "paxos",
            relative: false,
        },
        only: vec![("system", vec!["lwt".into()])],
        paper,
    };
    vec![
        Plot {
            title: "Median latency of taking a lock",
            caption: "After figure 11, whose curves are not available as numbers.",
            shape: PlotKind::Bars {
                x: "nodes",
                y: "latency-p50",
                series: "system",
                relative: false,
            },
            only: vec![("paxos", vec!["none".into(), "v1".into()])],
            paper: Vec::new(),
        },
        Plot {
            title: "Distribution of the latency of taking a lock",
            caption: "After figure 11, which reads as one: the latency that a share of the locks did not \
                      exceed.",
            shape: PlotKind::Quantiles {
                quantiles: QUANTILES,
                series: &["system", "nodes", "paxos"],
            },
            only: vec![(
                "system",
                ["memory", "paper", "older", "cql", "lwt"]
                    .map(Param::from)
                    .into(),
            )],
            paper: Vec::new(),
        },
        lines(
            "A lock by lightweight transactions, by one of the proxy with its table in memory",
            "Medians of the same run. In the paper the proxy takes about 1/35 of the time; it does not say with how many nodes.",
            "of-memory",
            vec![PaperMark::Line {
                value: 35.0,
                label: "paper",
            }],
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let of_memory = |what, paper, nodes, paxos, aim| Compare {
        what,
        paper,
        ours: Measure::Value {
            metric: "of-memory",
            at: at(LockBackend::Lwt { nodes, paxos }).into(),
        },
        aim,
    };
    let own = |what, metric, service, aim| Compare {
        what,
        paper: None,
        ours: Measure::Value {
            metric,
            at: at(service).into(),
        },
        aim,
    };
    let least = Some(Aim::AtLeast(35.0));
    vec![
        of_memory(
            "five nodes, Paxos v1: median, by the proxy's in memory",
            Some("35 (how many nodes is not said)"),
            5,
            Paxos::V1,
            least,
        ),
        of_memory("five nodes, Paxos v2: the same", None, 5, Paxos::V2, least),
        of_memory("three nodes, Paxos v1: the same", None, 3, Paxos::V1, None),
        of_memory("three nodes, Paxos v2: the same", None, 3, Paxos::V2, None),
        of_memory("one node, Paxos v1: the same", None, 1, Paxos::V1, None),
        own(
            "the paper's proxy: median, by ours in memory",
            "of-memory",
            LockBackend::Paper,
            Some(Aim::AtLeast(1.0)),
        ),
        own(
            "the paper's earlier proxy: the same",
            "of-memory",
            LockBackend::Older,
            Some(Aim::AtLeast(1.0)),
        ),
        own("durable: the same", "of-memory", LockBackend::Durable, None),
        own(
            "replicated: the same",
            "of-memory",
            LockBackend::Replicated,
            None,
        ),
        own(
            "asked over CQL: the same",
            "of-memory",
            LockBackend::Cql,
            None,
        ),
        own(
            "table in memory: median, ms",
            "latency-p50",
            LockBackend::Memory,
            None,
        ),
    ]
}
