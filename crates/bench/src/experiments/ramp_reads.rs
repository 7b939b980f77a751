//! `ramp-reads`: transactions of eight keys over four servers, by the share of reads (paper 1,
//! section 5.4).

use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::Scale;
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::systems::AtomicityProtocol;
use crate::target::ClusterJob;

use super::ramp::{self, Said};

const WIDTH: usize = 8;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ramp-reads",
    title: "Transactions over four servers, by the share of reads",
    paper: Some("paper 1, figure 6"),
    about: &[
        "Four server processes hold a thousand keys of 1 KB. One client process with eight threads \
         runs transactions of eight random keys. Each is as a whole a read or a write; the share of \
         reads grows from 0 to 100 %.",
        ramp::ABOUT,
    ],
    points,
    plots,
    compare,
    columns: &[
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
    let all = [0usize, 25, 50, 75, 95, 100];
    let mut points = Vec::new();
    for &reads in scale.pick(&[50], &[0, 50, 95, 100], &all) {
        for (name, log) in ramp::LOGS {
            let params = [("log", name.into()), ("reads", reads.into())];
            let base = ramp::job(WIDTH, reads);
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
            x: "reads",
            y,
            series: &["system"],
            doubling: false,
        },
        only: vec![("log", vec![log.into()])],
        paper: Vec::new(),
    };
    vec![
        plot(
            "Throughput by the share of reads, in memory",
            "Figure 6 of the paper, whose curves are not available as numbers. Transactions of eight \
             keys a second.",
            "throughput",
            "memory",
        ),
        plot(
            "Throughput by the share of reads, on disk",
            "The same with logs: a write is answered when all of its parts are durable.",
            "throughput",
            "disk",
        ),
        plot(
            "Latency by the share of reads, in memory",
            "From the client's request to its answer, reads and writes together.",
            "latency",
            "memory",
        ),
        plot(
            "Processor time of the servers by the share of reads, in memory",
            "Of all four servers, for each transaction. The client's own comes on top of it.",
            "server-cpu",
            "memory",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let share =
        |what, log, reads: usize, aim| ramp::beside_s2pl(what, log, [("reads", reads.into())], aim);
    let value = |what, metric, protocol: AtomicityProtocol, reads: usize| Compare {
        what,
        paper: None,
        ours: Measure::Value {
            metric,
            at: ramp::at(protocol.name(), "memory", [("reads", reads.into())]),
        },
        aim: None,
    };
    let ratio = |what, metric, [of, to]: [(&str, usize); 2]| Compare {
        what,
        paper: Some("only drawn"),
        ours: Measure::Ratio {
            metric,
            of: ramp::at(of.0, "memory", [("reads", of.1.into())]),
            to: ramp::at(to.0, "memory", [("reads", to.1.into())]),
        },
        aim: None,
    };
    let (get, plus, star) = (ramp::GET, ramp::GET_PLUS, ramp::GET_STAR);
    let reads_alone = Said {
        more: [("reads", 100usize.into())],
        rows: [
            ("GET+/PUT+ by GET/PUT, 100 % reads", "1.94", Some(1.94)),
            ("GET*/PUT+ by GET/PUT, 100 % reads", "2.69", Some(2.69)),
            ("GET*/PUT+ by GET+/PUT+, 100 % reads", "1.38", Some(1.38)),
        ],
    };
    let mut rows = reads_alone.compare().to_vec();
    rows.extend([
        Compare {
            paper: None,
            aim: Some(Aim::AtMost(0.05)),
            ..ratio(
                "GET*/PUT+ by GET+/PUT+, 100 % reads: processor time of the servers",
                "server-cpu",
                [(star, 100), (plus, 100)],
            )
        },
        Compare {
            paper: Some("the same"),
            ..ratio(
                "GET*/PUT+ by GET+/PUT+, 0 % reads; ramp-idle says how sure",
                "throughput",
                [(star, 0), (plus, 0)],
            )
        },
        ramp::direct_beside_s2pl(
            "GET/PUT by s2pl, 95 % reads, in memory",
            [("reads", 95usize.into())],
        ),
        share("ramp-f by s2pl, 50 % reads, in memory", "memory", 50, 1.0),
        share("ramp-f by s2pl, 95 % reads, in memory", "memory", 95, 1.5),
        share("ramp-f by s2pl, 100 % reads, in memory", "memory", 100, 1.0),
        share("ramp-f by s2pl, 50 % reads, on disk", "disk", 50, 1.0),
        share("ramp-f by s2pl, 95 % reads, on disk", "disk", 95, 1.5),
        share("ramp-f by s2pl, 100 % reads, on disk", "disk", 100, 1.0),
        ratio(
            "GET/PUT: reads alone, by writes alone",
            "throughput",
            [(get, 100), (get, 0)],
        ),
        value(
            "ramp-f, 95 % reads: reads of one round",
            "one-round",
            AtomicityProtocol::RampF,
            95,
        ),
        value(
            "ramp-h, 95 % reads: reads of one round",
            "one-round",
            AtomicityProtocol::RampH,
            95,
        ),
    ]);
    rows
}
