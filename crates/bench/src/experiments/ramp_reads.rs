//! `ramp-reads`: transactions of eight keys over four servers, by the share of reads (paper 1).

use crate::experiment::{Experiment, Point, Scale};
use crate::plot::{Compare, Measure, Plot, Shape};
use crate::target::{ClusterJob, Job, Place};

/// The paper's: four server processes, a client process with eight threads, a thousand keys of
/// 1 KB, all alike.
const NODES: usize = 4;
const THREADS: usize = 8;
const KEYS: u64 = 1000;
const WIDTH: usize = 8;
const VALUE: usize = 1024;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-reads",
    title: "Transactions over four servers, by the share of reads",
    paper: Some("paper 1, section 5"),
    about: &[
        "Four server processes hold a thousand keys of 1 KB. One client process with eight threads \
         runs transactions of eight random keys. Each is as a whole a read or a write; the share of \
         reads grows from 0 to 100 %.",
        "The columns are ways to make such transactions atomic. 's2pl' is strict two-phase locking \
         with two-phase commit for writes; reads are validated in a second round. 'memory' keeps \
         nothing, as the paper's servers do; 'disk' answers a write when all of its parts are \
         durable.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "reads",
        "system",
        "log",
        "throughput",
        "latency",
        "latency-p99",
        "cpu",
    ],
};

fn points(scale: &Scale) -> Vec<Point> {
    let shares = [0usize, 25, 50, 75, 100];
    let mut points = Vec::new();
    for &reads in scale.pick(&[50], &shares, &shares) {
        let point = |log: &str, place| {
            let job = ClusterJob {
                nodes: NODES,
                threads: THREADS,
                keys: KEYS,
                width: WIDTH,
                value: VALUE,
                reads: reads as f64 / 100.0,
                log: place,
            };
            let params = [
                ("system", "s2pl".into()),
                ("log", log.into()),
                ("reads", reads.into()),
            ];
            Point::new(params, Job::Cluster(job))
        };
        let memory = point("memory", None);
        let disk = point("disk", Some(Place::Disk)).against(&memory);
        points.extend([memory, disk]);
    }
    points
}

fn plots() -> Vec<Plot> {
    let lines = |y| Shape::Lines {
        x: "reads",
        y,
        series: &["system", "log"],
        doubling: false,
    };
    vec![
        Plot {
            title: "Throughput by the share of reads",
            caption: "Transactions of eight keys. Reads take no holds, and wait for none but those of writes under way.",
            shape: lines("throughput"),
            only: Vec::new(),
            paper: Vec::new(),
        },
        Plot {
            title: "Latency by the share of reads",
            caption: "From the client's request to its answer, reads and writes together.",
            shape: lines("latency"),
            only: Vec::new(),
            paper: Vec::new(),
        },
    ]
}

fn compare() -> Vec<Compare> {
    let at = |log: &str, reads: usize| {
        vec![
            ("system", "s2pl".into()),
            ("log", log.into()),
            ("reads", reads.into()),
        ]
    };
    let ratio = |of, to| Measure::Ratio {
        metric: "throughput",
        of,
        to,
    };
    vec![
        Compare {
            what: "s2pl in memory: reads alone, by writes alone",
            paper: Some("only drawn"),
            ours: ratio(at("memory", 100), at("memory", 0)),
            aim: None,
        },
        Compare {
            what: "s2pl, writes alone: on disk, by in memory",
            paper: Some("the paper keeps nothing"),
            ours: ratio(at("disk", 0), at("memory", 0)),
            aim: None,
        },
    ]
}
