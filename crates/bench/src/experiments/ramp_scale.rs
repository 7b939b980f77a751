//! `ramp-scale`: transactions over up to 128 partitions, simulated with service times that are
//! measured here.

use crate::experiment::{Experiment, SweepPoint};
use crate::keys::Distribution;
use crate::parameters::{Effort, Param, Scale};
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::systems::AtomicityProtocol;
use crate::target::{ScaleJob, TargetJob};

/// The number of partitions of the comparisons.
const MOST: usize = 128;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-scale",
    title: "Transactions over many partitions, simulated",
    paper: None,
    about: &[
        "A simulation of transactions of four keys, 95 % of them reads, over 1 to 128 partitions. Each \
         partition is a server with one thread on a machine of its own, and has 32 closed-loop \
         clients. Service times are fitted, in each round, to the processor time that real clients \
         and servers use here for transactions of known shapes; messages and their bytes are those of \
         our protocol and codec.",
        "Beside it the same simulation, on one machine with as many processors as this one, stands \
         next to one to four real servers, which are measured in the same run: 'simulated, of real' \
         is what the simulation is worth. The columns are those of ramp-reads.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "servers",
        "partitions",
        "draw",
        "system",
        "throughput",
        "per-partition",
        "simulated",
        "of-real",
        "cpu",
        "simulated-cpu",
        "messages",
        "bytes",
        "one-round",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let transactions = match scale.effort {
        Effort::Tiny => 500,
        Effort::Quick => 10_000,
        Effort::Full => 100_000,
    };
    let base = ScaleJob {
        protocol: AtomicityProtocol::S2pl,
        partitions: 1,
        real: true,
        clients: 8,
        keys: 1000,
        draws: Distribution::Uniform,
        width: 4,
        value: 1024,
        reads: 0.95,
        transactions,
    };
    let mut points = Vec::new();
    for &partitions in scale.pick(&[2], &[1, 2, 4], &[1, 2, 3, 4]) {
        let job = ScaleJob { partitions, ..base };
        points.extend(ways("real", "uniform", job));
    }
    let counts = [1usize, 2, 4, 8, 16, 32, 64, MOST];
    for (draw, draws) in [
        ("uniform", Distribution::Uniform),
        ("zipfian", Distribution::YCSB),
    ] {
        for &partitions in scale.pick(&[2], &[1, 4, 16, MOST], &counts) {
            let job = ScaleJob {
                partitions,
                real: false,
                clients: 32,
                keys: 1_000_000,
                draws,
                transactions: transactions.max(transactions / 20 * partitions),
                ..base
            };
            points.extend(ways("simulated", draw, job));
        }
    }
    points
}

fn ways(servers: &str, draw: &str, job: ScaleJob) -> Vec<SweepPoint> {
    let point = |protocol: AtomicityProtocol| {
        let params = [
            ("servers", Param::from(servers)),
            ("system", protocol.name().into()),
            ("draw", draw.into()),
            ("partitions", job.partitions.into()),
        ];
        SweepPoint::new(params, TargetJob::Scale(ScaleJob { protocol, ..job }))
    };
    let baseline = point(AtomicityProtocol::S2pl);
    let others = AtomicityProtocol::ALL
        .into_iter()
        .filter(|protocol| *protocol != AtomicityProtocol::S2pl);
    let others: Vec<SweepPoint> = others
        .map(|protocol| point(protocol).against(&baseline))
        .collect();
    std::iter::once(baseline).chain(others).collect()
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y, only: &[(&'static str, &str)]| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "partitions",
            y,
            series: &["system"],
            doubling: true,
        },
        only: only
            .iter()
            .map(|&(name, value)| (name, vec![value.into()]))
            .collect(),
        paper: Vec::new(),
    };
    let uniform = [("servers", "simulated"), ("draw", "uniform")];
    let zipfian = [("servers", "simulated"), ("draw", "zipfian")];
    vec![
        plot(
            "Throughput of a partition, keys drawn uniformly",
            "A flat line is linear growth of the whole.",
            "per-partition",
            &uniform,
        ),
        plot(
            "Throughput of a partition, some keys hot",
            "Zipfian: the partitions of hot keys have more to do than others, and holds on hot keys \
             are in the way of many.",
            "per-partition",
            &zipfian,
        ),
        plot(
            "Messages of a transaction",
            "Between clients and servers, and between servers; keys drawn uniformly.",
            "messages",
            &uniform,
        ),
        plot(
            "Bytes of a transaction",
            "Of all of its messages, without those of TCP; keys drawn uniformly.",
            "bytes",
            &uniform,
        ),
        plot(
            "The simulation, beside real servers",
            "Its throughput on one machine like this one, by that of as many real servers.",
            "of-real",
            &[("servers", "real")],
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let at = |protocol: AtomicityProtocol, draw: &str, partitions: usize| {
        vec![
            ("servers", Param::from("simulated")),
            ("system", protocol.name().into()),
            ("draw", draw.into()),
            ("partitions", partitions.into()),
        ]
    };
    let by_s2pl = |what, draw| Compare {
        what,
        paper: None,
        ours: Measure::Share {
            metric: "throughput",
            at: at(AtomicityProtocol::RampF, draw, MOST),
        },
        aim: None,
    };
    let grows = |what, protocol, draw| Compare {
        what,
        paper: None,
        ours: Measure::Ratio {
            metric: "throughput",
            of: at(protocol, draw, MOST),
            to: at(protocol, draw, 4),
        },
        aim: None,
    };
    vec![
        Compare {
            what: "the simulation: the greatest difference from real servers",
            paper: None,
            ours: Measure::Value {
                metric: "off",
                at: vec![("servers", "real".into())],
            },
            aim: Some(Aim::AtMost(0.15)),
        },
        by_s2pl("128 partitions, uniform: ramp-f by s2pl", "uniform"),
        by_s2pl("128 partitions, zipfian: ramp-f by s2pl", "zipfian"),
        grows(
            "ramp-f, uniform: 128 partitions by 4",
            AtomicityProtocol::RampF,
            "uniform",
        ),
        grows(
            "s2pl, uniform: 128 partitions by 4",
            AtomicityProtocol::S2pl,
            "uniform",
        ),
        grows(
            "ramp-f, zipfian: 128 partitions by 4",
            AtomicityProtocol::RampF,
            "zipfian",
        ),
        grows(
            "s2pl, zipfian: 128 partitions by 4",
            AtomicityProtocol::S2pl,
            "zipfian",
        ),
    ]
}
