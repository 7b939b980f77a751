//! `silo-threads`: the cost of logging, by workers and loggers (paper 2, figures 9 and 10).

use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::silo;
use crate::parameters::Scale;
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::target::LogSettings;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "silo-threads",
    title: "What logging costs, by workers and loggers",
    paper: Some("paper 2, figures 9 and 10"),
    about: &[
        "Workers run transactions of ten operations on a million records of 8-byte keys and 4-byte \
         values, as fast as they can; half of the operations write, or all of them. Loggers write \
         what the workers changed, and sync it. Every transaction is waited for, by another thread \
         than its worker.",
        "The grey line is the same store without a log: the distance to it is the price of \
         durability. A point's share of it is taken run by run, with runs of both close together.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "reads",
        "log",
        "loggers",
        "workers",
        "throughput",
        "log-rate",
        "latency",
        "latency-p99",
        "cpu",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let threads = silo::threads(scale);
    let shares = scale.pick(&[0], &[50, 0], &[50, 0]);
    let loggers = scale.pick(&[1], &[1, 2], &[1, 2, 4]);
    let mut points = Vec::new();
    for &reads in shares {
        for &workers in &threads {
            let point = |log: &str, loggers: usize, log_settings| {
                let params = [
                    ("reads", (reads as usize).into()),
                    ("log", log.into()),
                    ("loggers", loggers.into()),
                    ("workers", workers.into()),
                ];
                SweepPoint::new(params, silo::job(scale, reads, workers, log_settings))
            };
            let baseline = point("none", 0, None);
            points.push(baseline.clone());
            for place in [StorageMedium::Memory, StorageMedium::Disk] {
                // A logger without a worker has nothing to do.
                let some = loggers.iter().filter(|&&loggers| loggers <= workers);
                for &loggers in some {
                    let log_settings = LogSettings {
                        loggers,
                        ..LogSettings::new(place)
                    };
                    points
                        .push(point(place.name(), loggers, Some(log_settings)).against(&baseline));
                }
            }
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y, reads: usize| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "workers",
            y,
            series: &["log", "loggers"],
            doubling: true,
        },
        only: vec![("reads", vec![reads.into()])],
        paper: Vec::new(),
    };
    vec![
        plot(
            "Half writes: throughput by workers",
            "Figure 9(a): 28 cores, the SSD caps at 4.2 M, persistent memory reaches 9.2 M, about as without a log.",
            "throughput",
            50,
        ),
        plot(
            "All writes: throughput by workers",
            "Figure 10(a): 112 cores, 8 loggers cap at 30 M, 16 reach 37.5 M, 24 reach 36.5 M.",
            "throughput",
            0,
        ),
        plot(
            "All writes: log by workers",
            "Figure 10(b): up to 5.6 GB/s with 16 loggers on eight modules.",
            "log-rate",
            0,
        ),
        plot(
            "Half writes: mean durability latency by workers",
            "Figure 9(c): 45 to 81 ms on persistent memory, 60 ms to 1 s on the SSD, with epochs of 40 ms. Ours are adaptive.",
            "latency",
            50,
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let at = |reads: usize, log: &str| vec![("reads", reads.into()), ("log", log.into())];
    let value = |metric, reads, log| Measure::Value {
        metric,
        at: at(reads, log),
    };
    let share = |reads, log| Measure::Share {
        metric: "throughput",
        at: at(reads, log),
    };
    let row = |what, paper, ours, aim| Compare {
        what,
        paper,
        ours,
        aim,
    };
    vec![
        row(
            "half writes, memory: best share of the throughput without a log",
            Some(
                "0.95 (9.2 M txn/s on persistent memory, 54 workers; text of section 6.1, and the published points)",
            ),
            share(50, "memory"),
            Some(Aim::AtLeast(0.9)),
        ),
        row(
            "all writes, memory: best share of the throughput without a log",
            Some("0.87 (from the published points)"),
            share(0, "memory"),
            Some(Aim::AtLeast(0.85)),
        ),
        row(
            "half writes, disk: best throughput, txn/s",
            Some("4.2 M (SSD, 50 workers and 6 loggers; text of section 6.1)"),
            value("throughput", 50, "disk"),
            None,
        ),
        row(
            "half writes, memory: best throughput, txn/s",
            Some("9.2 M (persistent memory, 54 workers; text of section 6.1)"),
            value("throughput", 50, "memory"),
            None,
        ),
        row(
            "all writes, memory: best throughput, txn/s",
            Some(
                "30 M, 37.5 M, 36.5 M with 8, 16, 24 loggers and 216, 208, 200 workers (text of section 6.2.1)",
            ),
            value("throughput", 0, "memory"),
            None,
        ),
        row(
            "all writes, memory: most bytes logged, MB/s",
            Some("5600 (16 loggers, eight modules; text of section 6.2.1)"),
            value("log-rate", 0, "memory"),
            None,
        ),
    ]
}
