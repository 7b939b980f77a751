//! `ramp-size`: transactions over four servers, by the number of their keys (paper 1, section 5.3).

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::Scale;
use crate::plot::{Compare, Measure, Plot, PlotKind};
use crate::target::ClusterJob;

use super::ramp::{self, Said};

/// The paper's share of reads, in percent.
const READS: usize = 95;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-size",
    title: "Transactions over four servers, by their size",
    paper: Some("paper 1, figure 5"),
    about: &[
        "Four server processes hold a thousand keys of 1 KB. One client process with eight threads \
         runs transactions of 1 to 64 random keys. Each is as a whole a read or a write; 95 % are \
         reads.",
        ramp::ABOUT,
    ],
    points,
    plots,
    compare,
    columns: &[
        "size",
        "log",
        "system",
        ramp::COLUMNS[0],
        ramp::COLUMNS[1],
        ramp::COLUMNS[2],
        ramp::COLUMNS[3],
        ramp::COLUMNS[4],
        ramp::COLUMNS[5],
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let all = [1usize, 2, 4, 8, 16, 32, 64];
    let mut points = Vec::new();
    for &size in scale.pick(&[4], &[1, 4, 16, 64], &all) {
        for (name, log) in ramp::LOGS {
            let params = [("log", name.into()), ("size", size.into())];
            let base = ramp::job(size, READS);
            points.extend(ramp::ways(params, ClusterJob { log, ..base }));
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y, log: &str| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "size",
            y,
            series: &["system"],
            doubling: true,
        },
        only: vec![("log", vec![log.into()])],
        paper: Vec::new(),
    };
    vec![
        plot(
            "Throughput by size, in memory",
            "Figure 5 of the paper, whose curves are not available as numbers: throughput falls as \
             transactions grow.",
            "throughput",
            "memory",
        ),
        plot(
            "Throughput by size, on disk",
            "The same with logs: a write is answered when all of its parts are durable.",
            "throughput",
            "disk",
        ),
        plot(
            "Processor time of the servers by size, in memory",
            "Of all four servers, for each transaction.",
            "server-cpu",
            "memory",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let share = |what, log, size: usize| ramp::beside_s2pl(what, log, [("size", size.into())], 1.5);
    let four = Said {
        more: [("size", 4usize.into())],
        rows: [
            ("GET+/PUT+ by GET/PUT, 4 keys, in memory", "2.07", None),
            ("GET*/PUT+ by GET/PUT, 4 keys, in memory", "2.78", None),
            ("GET*/PUT+ by GET+/PUT+, 4 keys, in memory", "1.39", None),
        ],
    };
    let mut rows = four.compare().to_vec();
    rows.extend([
        ramp::direct_beside_s2pl(
            "GET/PUT by s2pl, 4 keys, in memory",
            [("size", 4usize.into())],
        ),
        share("ramp-f by s2pl, 4 keys, in memory", "memory", 4),
        share("ramp-f by s2pl, 16 keys, in memory", "memory", 16),
        share("ramp-f by s2pl, 64 keys, in memory", "memory", 64),
        share("ramp-f by s2pl, 4 keys, on disk", "disk", 4),
        share("ramp-f by s2pl, 16 keys, on disk", "disk", 16),
        share("ramp-f by s2pl, 64 keys, on disk", "disk", 64),
        Compare {
            what: "GET/PUT in memory: 64 keys, by 4 keys",
            paper: Some("falls"),
            ours: Measure::Ratio {
                metric: "throughput",
                of: ramp::at(ramp::GET, "memory", [("size", 64usize.into())]),
                to: ramp::at(ramp::GET, "memory", [("size", 4usize.into())]),
            },
            aim: None,
        },
    ]);
    rows
}
