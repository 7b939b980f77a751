//! `ramp-mget`: the cost of a read-atomic `MGET` of keys of four servers.

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::Scale;
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::target::{MgetGuarantee, MgetJob, TargetJob};

use super::ramp;

/// The number of clients of the aims.
const CLIENTS: usize = 16;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-mget",
    title: "MGET of eight keys over four servers, by Redis clients",
    paper: None,
    about: &[
        "Redis clients read eight keys of 1 KB, two of each of four server processes. Each client has a \
         connection to every server, and one read under way. 'split' sends each server one MGET of \
         its two keys, all at once: nothing is promised of the eight together. 'ramp' sends one MGET of \
         eight read-atomic keys to one server, a different one each time, which asks the others. \
         'serializable' does the same with ordinary keys: what was read is validated in a second \
         round. No client writes meanwhile.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "clients",
        "system",
        "throughput",
        "latency-p50",
        "latency-p99",
        "server-cpu",
        "cpu",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let all = [1usize, 4, CLIENTS, 64];
    let of = |&clients: &usize| {
        let point = |guarantee: MgetGuarantee| {
            let job = MgetJob {
                guarantee,
                nodes: ramp::NODES,
                clients,
                width: 2,
                value: 1024,
            };
            let params = [
                ("system", guarantee.name().into()),
                ("clients", clients.into()),
            ];
            SweepPoint::new(params, TargetJob::Mget(job))
        };
        let [split, others @ ..] = MgetGuarantee::ALL;
        let split = point(split);
        let mut points: Vec<SweepPoint> = others
            .map(|guarantee| point(guarantee).against(&split))
            .into();
        points.insert(0, split);
        points
    };
    let counts = scale.pick(&[CLIENTS], &[1, CLIENTS], &all);
    counts.iter().flat_map(of).collect()
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "clients",
            y,
            series: &["system"],
            doubling: true,
        },
        only: Vec::new(),
        paper: Vec::new(),
    };
    vec![
        plot(
            "Throughput by clients",
            "Reads of eight keys a second.",
            "throughput",
        ),
        plot(
            "Median latency by clients",
            "From the request, or the four of them, to the last answer.",
            "latency-p50",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let at = |guarantee: MgetGuarantee, clients: usize| {
        vec![
            ("system", guarantee.name().into()),
            ("clients", clients.into()),
        ]
    };
    let share = |what, clients: usize| Compare {
        what,
        paper: None,
        ours: Measure::Share {
            metric: "throughput",
            at: at(MgetGuarantee::Ramp, clients),
        },
        aim: Some(Aim::AtLeast(0.8)),
    };
    vec![
        share("one client: ramp, by split", 1),
        share("16 clients: ramp, by split", CLIENTS),
        Compare {
            what: "16 clients: ramp, by serializable",
            paper: None,
            ours: Measure::Ratio {
                metric: "throughput",
                of: at(MgetGuarantee::Ramp, CLIENTS),
                to: at(MgetGuarantee::Serializable, CLIENTS),
            },
            aim: Some(Aim::AtLeast(1.0)),
        },
    ]
}
