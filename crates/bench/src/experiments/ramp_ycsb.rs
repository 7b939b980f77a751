//! `ramp-ycsb`: YCSB's reads and updates as transactions over four servers (paper 1, section 5.5).

use crate::experiment::{Experiment, SweepPoint};
use crate::keys::Distribution;
use crate::parameters::{Param, Scale};
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::systems::AtomicityProtocol;
use crate::target::ClusterJob;

use super::ramp::{self, Said};

/// Keys in a transaction. The paper gives no number here; its other experiments have so many.
const WIDTH: usize = 8;
/// The share of reads in the comparisons of sizes and distributions.
const READS: usize = 95;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-ycsb",
    title: "YCSB as transactions over four servers",
    paper: Some("paper 1, figure 7"),
    about: &[
        "YCSB whose operations are transactions of eight keys: reads of all or updates of all. Values \
         have 1 KB. The paper's part of the sweep has a thousand keys, drawn uniformly, and shares of \
         reads from 0 to 100 %. The other part, at 95 % reads, has many keys as well (a million; \
         --records changes it), and YCSB's zipfian distribution.",
        ramp::ABOUT,
    ],
    points,
    plots,
    compare,
    columns: &[
        "keys",
        "draw",
        "reads",
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
    let uniform = ("uniform", Distribution::Uniform);
    let zipfian = ("zipfian", Distribution::YCSB);
    let few = ("1000", ramp::KEYS);
    let many = ("many", scale.records);
    let mut points = Vec::new();
    for &reads in scale.pick(&[100], &[0, 100], &[0, 25, 50, 75, 100]) {
        for log in ramp::LOGS {
            points.extend(at(few, uniform, log, reads));
        }
    }
    for keys in [few, many] {
        for draw in [uniform, zipfian] {
            points.extend(at(keys, draw, ramp::LOGS[0], READS));
        }
    }
    points
}

/// Returns a place of the sweep, in all ways.
fn at(
    keys: (&str, u64),
    draw: (&str, Distribution),
    log: (&str, Option<StorageMedium>),
    reads: usize,
) -> Vec<SweepPoint> {
    let params = [
        ("keys", Param::from(keys.0)),
        ("draw", draw.0.into()),
        ("log", log.0.into()),
        ("reads", reads.into()),
    ];
    let job = ClusterJob {
        keys: keys.1,
        draws: draw.1,
        log: log.1,
        ..ramp::job(WIDTH, reads)
    };
    ramp::ways(params, job)
}

fn plots() -> Vec<Plot> {
    let lines = |title, caption, y, log: &str| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "reads",
            y,
            series: &["system"],
            doubling: false,
        },
        only: vec![
            ("log", vec![log.into()]),
            ("keys", vec!["1000".into()]),
            ("draw", vec!["uniform".into()]),
        ],
        paper: Vec::new(),
    };
    let bars = |title, caption, draw: &str| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "keys",
            y: "throughput",
            series: "system",
            relative: false,
        },
        only: vec![
            ("log", vec!["memory".into()]),
            ("draw", vec![draw.into()]),
            ("reads", vec![READS.into()]),
        ],
        paper: Vec::new(),
    };
    vec![
        lines(
            "Throughput by the share of reads, in memory",
            "Figure 7 of the paper, whose curves are not available as numbers: a thousand keys, drawn \
             uniformly.",
            "throughput",
            "memory",
        ),
        lines(
            "Throughput by the share of reads, on disk",
            "The same with logs.",
            "throughput",
            "disk",
        ),
        bars(
            "Few and many keys, drawn uniformly",
            "95 % reads, in memory.",
            "uniform",
        ),
        bars(
            "Few and many keys, some of them hot",
            "95 % reads, in memory, zipfian: a transaction that holds a hot key blocks many others.",
            "zipfian",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let place = |keys: &str, draw: &str| {
        [
            ("keys", Param::from(keys)),
            ("draw", draw.into()),
            ("reads", READS.into()),
        ]
    };
    let share = |what, keys, draw| ramp::beside_s2pl(what, "memory", place(keys, draw), 1.5);
    let one_round = |what, keys, draw, aim| Compare {
        what,
        paper: None,
        ours: Measure::Value {
            metric: "one-round",
            at: ramp::at(AtomicityProtocol::RampF.name(), "memory", place(keys, draw)),
        },
        aim,
    };
    let reads_alone = Said {
        more: [
            ("keys", "1000".into()),
            ("draw", "uniform".into()),
            ("reads", 100usize.into()),
        ],
        rows: [
            ("GET+/PUT+ by GET/PUT, 100 % reads", "2.06", Some(2.06)),
            ("GET*/PUT+ by GET/PUT, 100 % reads", "2.67", Some(2.67)),
            ("GET*/PUT+ by GET+/PUT+, 100 % reads", "1.29", None),
        ],
    };
    let mut rows = reads_alone.compare().to_vec();
    rows.extend([
        ramp::direct_beside_s2pl(
            "GET/PUT by s2pl, 1000 keys, uniform",
            place("1000", "uniform"),
        ),
        share("ramp-f by s2pl, 1000 keys, uniform", "1000", "uniform"),
        share("ramp-f by s2pl, 1000 keys, zipfian", "1000", "zipfian"),
        share("ramp-f by s2pl, many keys, uniform", "many", "uniform"),
        share("ramp-f by s2pl, many keys, zipfian", "many", "zipfian"),
        one_round(
            "ramp-f, many keys, uniform: reads of one round",
            "many",
            "uniform",
            Some(Aim::AtLeast(0.99)),
        ),
        one_round(
            "ramp-f, 1000 keys, zipfian: reads of one round",
            "1000",
            "zipfian",
            None,
        ),
    ]);
    rows
}
