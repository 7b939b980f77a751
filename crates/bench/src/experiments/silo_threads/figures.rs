//! The figures of `silo-threads`, and the comparisons with the paper's values.

use crate::experiments::silo;
use crate::parameters::Param;
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};

/// The metrics of the panels (a), (b) and (c) of both figures.
const PANELS: [&str; 3] = ["throughput", "log-rate", "latency"];

pub(super) fn plots() -> Vec<Plot> {
    let half_in_memory = [
        "Figure 9(a), log in memory: throughput by workers",
        "Figure 9(b), log in memory: bytes logged by workers",
        "Figure 9(c), log in memory: mean durability latency by workers",
    ];
    let half_on_disk = [
        "Figure 9(a), log on the disk: throughput by workers",
        "Figure 9(b), log on the disk: bytes logged by workers",
        "Figure 9(c), log on the disk: mean durability latency by workers",
    ];
    let all_in_memory = [
        "Figure 10(a): throughput by workers",
        "Figure 10(b): bytes logged by workers",
        "Figure 10(c): mean durability latency by workers",
    ];
    let all_on_disk = [
        "All writes, log on the disk: throughput by workers",
        "All writes, log on the disk: bytes logged by workers",
        "All writes, log on the disk: mean durability latency by workers",
    ];
    let mut plots = Vec::new();
    for (reads, place, titles, figure, caption) in [
        (
            50,
            "memory",
            half_in_memory,
            Some("9"),
            "Half writes, epochs of 40 ms. In the paper the log is in two modules of persistent memory, and 54 workers reach 9.2 M, about as without a log, with a latency of 81 ms.",
        ),
        (
            50,
            "disk",
            half_on_disk,
            Some("9"),
            "Half writes, epochs of 40 ms. In the paper the SSD's 300 MB/s bound the throughput at 4.2 M, and the latency rises to about a second.",
        ),
        (
            0,
            "memory",
            all_in_memory,
            Some("10"),
            "All writes, epochs of 40 ms. In the paper the log is in eight modules; 8 loggers reach 30 M, 16 reach 37.5 M and 5.6 GB/s, 24 reach 36.5 M.",
        ),
        (0, "disk", all_on_disk, None, "Not in the paper."),
    ] {
        for (y, title) in PANELS.into_iter().zip(titles) {
            plots.push(panel(
                title,
                caption,
                y,
                reads,
                place,
                silo::EPOCH_NAME,
                figure,
            ));
        }
    }
    for (reads, title) in [
        (50, "Adaptive epochs, half writes: throughput by workers"),
        (0, "Adaptive epochs, all writes: throughput by workers"),
    ] {
        let caption = "Not in the paper: the store's default, log in memory.";
        plots.push(panel(
            title,
            caption,
            "throughput",
            reads,
            "memory",
            silo::ADAPTIVE_NAME,
            None,
        ));
    }
    plots.push(silo::validation_plot(&["log", "reads"]));
    plots
}

fn panel(
    title: &'static str,
    caption: &'static str,
    y: &'static str,
    reads: usize,
    place: &str,
    epoch: &str,
    figure: Option<&str>,
) -> Plot {
    let paper = figure.map(|figure| {
        silo::curves(
            y,
            |point| silo::is_of(point, figure, place) && [0, 4].contains(&point.buffers),
            |point| silo::name_by_loggers(point, place),
        )
    });
    // Without a log there are no bytes of it, and nothing to wait for.
    let logs: Vec<Param> = match y {
        "throughput" => vec!["none".into(), place.into()],
        _ => vec![place.into()],
    };
    Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "workers",
            y,
            series: &["log", "loggers"],
            doubling: true,
        },
        only: vec![
            ("reads", vec![reads.into()]),
            ("log", logs),
            ("epoch", vec!["no log".into(), epoch.into()]),
            silo::figure_threads(),
        ],
        paper: paper.unwrap_or_default(),
    }
}

pub(super) fn compare() -> Vec<Compare> {
    let at = |reads: usize, log: &str, epoch: &str| -> Vec<(&'static str, Param)> {
        vec![
            ("reads", reads.into()),
            ("log", log.into()),
            ("epoch", epoch.into()),
            ("threads", silo::REAL.into()),
        ]
    };
    let simulated = |reads: usize, loggers: usize, workers: usize| Measure::Share {
        metric: "throughput",
        at: vec![
            ("reads", reads.into()),
            ("log", "memory".into()),
            ("loggers", loggers.into()),
            ("workers", workers.into()),
        ],
    };
    let value = |metric, reads, log| Measure::Value {
        metric,
        at: at(reads, log, silo::EPOCH_NAME),
    };
    let share = |reads, log, epoch| Measure::Share {
        metric: "throughput",
        at: at(reads, log, epoch),
    };
    let row = |what, paper, ours, aim| Compare {
        what,
        paper,
        ours,
        aim,
    };
    vec![
        row(
            "half writes, memory, epochs of 40 ms: best share of the throughput without a log",
            Some(
                "0.95 (9.2 M txn/s on persistent memory, 54 workers; text of section 6.1, and the published points)",
            ),
            share(50, "memory", silo::EPOCH_NAME),
            Some(Aim::AtLeast(0.9)),
        ),
        row(
            "all writes, memory, epochs of 40 ms: best share of the throughput without a log",
            Some("0.87 (from the published points)"),
            share(0, "memory", silo::EPOCH_NAME),
            Some(Aim::AtLeast(0.85)),
        ),
        row(
            "half writes, memory, adaptive: best share of the throughput without a log",
            None,
            share(50, "memory", silo::ADAPTIVE_NAME),
            Some(Aim::AtLeast(0.9)),
        ),
        row(
            "all writes, memory, adaptive: best share of the throughput without a log",
            None,
            share(0, "memory", silo::ADAPTIVE_NAME),
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
        row(
            "simulated, half writes, memory, 54 workers, 2 loggers: share of the throughput without a log",
            Some(
                "0.97 (from the published points: 9.2 M, and 9.5 M between 48 and 56 workers without a log)",
            ),
            simulated(50, 2, 54),
            None,
        ),
        row(
            "simulated, all writes, memory, 208 workers, 16 loggers: share of the throughput without a log",
            Some(
                "0.91 (from the published points: 37.5 M, and 41 M between 192 and 224 workers without a log)",
            ),
            simulated(0, 16, 208),
            None,
        ),
        silo::simulation_is_near(),
    ]
}
