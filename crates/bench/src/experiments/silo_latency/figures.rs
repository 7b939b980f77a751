//! The figures of `silo-latency`, and the comparisons with the paper's values.

use crate::experiments::silo;
use crate::parameters::Param;
use crate::plot::{Aim, Compare, Measure, PaperMark, Plot, PlotKind};

pub(super) fn plots() -> Vec<Plot> {
    let only = |load: &str| ("load", vec![load.into()]);
    let fixed = || ("mode", vec!["fixed".into()]);
    let slow = |y| PlotKind::Bars {
        x: "load",
        y,
        series: "diff",
        relative: false,
    };
    let bar = |value, series| PaperMark::Bar { value, series };
    let mut plots = by_workers();
    plots.extend(figure_18());
    plots.push(silo::validation_plot(&["diff"]));
    plots.extend([
        Plot {
            title: "One slow log, epochs of 1 ms: mean latency",
            caption: "The paper's cause: one logger is behind, and all wait for it. Here its device takes 20 MB/s, less than its worker writes. Pale: the paper's 9.1 ms without max-epoch-diff and 3.3 ms with 3 (section 6.3).",
            shape: slow("latency"),
            only: vec![only("slow log"), fixed()],
            paper: vec![bar(9.1, "off"), bar(3.3, "3")],
        },
        Plot {
            title: "One slow log, epochs of 1 ms: throughput",
            caption: "What max-epoch-diff costs here. In the paper 3 costs 17 %, 2 costs 75 %.",
            shape: slow("throughput"),
            only: vec![only("slow log"), fixed()],
            paper: Vec::new(),
        },
        Plot {
            title: "Latency against throughput",
            caption: "Down and right is better. Adaptive points are labelled by their target, fixed ones by epoch time and max-epoch-diff.",
            shape: PlotKind::Scatter {
                x: "throughput",
                y: "latency",
                series: "mode",
                label: &["epoch", "diff"],
            },
            only: vec![
                only("saturated"),
                ("mode", vec!["fixed".into(), "adaptive".into()]),
            ],
            paper: Vec::new(),
        },
        Plot {
            title: "Where the time goes, one slow log",
            caption: "Figure 5's parts, in the mean: in the worker's buffer, in the logger's queue, written and synced, waiting for the other logs.",
            shape: PlotKind::Stack {
                x: &["epoch", "diff"],
                parts: &["in-buffer", "in-queue", "in-write", "in-notification"],
            },
            only: vec![
                only("slow log"),
                ("mode", vec!["fixed".into(), "adaptive".into()]),
            ],
            paper: Vec::new(),
        },
        Plot {
            title: "Where the time goes, all logs alike",
            caption: "The same without a slow log, with one number of workers, epochs of 1 ms and adaptive.",
            shape: PlotKind::Stack {
                x: &["epoch", "diff"],
                parts: &["in-buffer", "in-queue", "in-write", "in-notification"],
            },
            only: vec![
                only("saturated"),
                ("epoch", vec!["1 ms".into(), "adaptive 3 ms".into()]),
            ],
            paper: Vec::new(),
        },
        Plot {
            title: "One client: mean latency",
            caption: "One transaction after the other on the disk, beside the device's own write and sync of as many bytes.",
            shape: PlotKind::Bars {
                x: "epoch",
                y: "latency",
                series: "mode",
                relative: false,
            },
            only: vec![only("one client")],
            paper: Vec::new(),
        },
    ]);
    plots
}

/// Returns the names of the values of max-epoch-diff.
fn diffs() -> (&'static str, Vec<Param>) {
    ("diff", ["off", "2", "3", "4"].map(Param::from).to_vec())
}

/// Returns figures 12 to 17, and the same with half writes: latency and throughput by workers, at each
/// epoch time. The paper's panels (a) to (d) are the lines of one plot.
fn by_workers() -> Vec<Plot> {
    let mut plots = Vec::new();
    for (load, epoch, latency, throughput, caption) in [
        (
            "all writes",
            "1 ms",
            "Figure 12: mean durability latency by workers, epochs of 1 ms",
            "Figure 13: throughput by workers, epochs of 1 ms",
            "In the paper the latency grows to almost 10 ms without max-epoch-diff; it stays below 2.7 ms with 2, and below 3.3 ms with 3.",
        ),
        (
            "all writes",
            "0.5 ms",
            "Figure 14: mean durability latency by workers, epochs of 0.5 ms",
            "Figure 15: throughput by workers, epochs of 0.5 ms",
            "In the paper the latency stays below 2.7 ms with 2 and 3, at a much lower throughput.",
        ),
        (
            "all writes",
            "2 ms",
            "Figure 16: mean durability latency by workers, epochs of 2 ms",
            "Figure 17: throughput by workers, epochs of 2 ms",
            "In the paper the latency with 3 and 4 is about twice that of epochs of 1 ms, and the throughput is close to that without a log.",
        ),
        (
            "half writes",
            "1 ms",
            "Half writes: mean durability latency by workers, epochs of 1 ms",
            "Half writes: throughput by workers, epochs of 1 ms",
            "Not in the paper.",
        ),
        (
            "half writes",
            "0.5 ms",
            "Half writes: mean durability latency by workers, epochs of 0.5 ms",
            "Half writes: throughput by workers, epochs of 0.5 ms",
            "Not in the paper; in full runs.",
        ),
        (
            "half writes",
            "2 ms",
            "Half writes: mean durability latency by workers, epochs of 2 ms",
            "Half writes: throughput by workers, epochs of 2 ms",
            "Not in the paper; in full runs.",
        ),
    ] {
        let plot = |title, y, only| Plot {
            title,
            caption,
            shape: PlotKind::Lines {
                x: "workers",
                y,
                series: &["diff"],
                doubling: true,
            },
            only,
            paper: Vec::new(),
        };
        // Quick runs have half writes at 1 ms alone: elsewhere the line without a log would stand alone.
        let is_always_there = load == "all writes" || epoch == "1 ms";
        let load = ("load", vec![Param::from(load)]);
        let threads = silo::figure_threads();
        let with_log = vec![
            load.clone(),
            threads.clone(),
            ("epoch", vec![epoch.into()]),
            diffs(),
        ];
        let epochs = match is_always_there {
            true => vec![epoch.into(), "no log".into()],
            false => vec![epoch.into()],
        };
        let or_none = vec![load, threads, ("epoch", epochs)];
        plots.push(plot(latency, "latency", with_log));
        plots.push(plot(throughput, "throughput", or_none));
    }
    plots
}

/// Returns figure 18: throughput and latency at one number of workers.
fn figure_18() -> Vec<Plot> {
    let plot = |title, caption, y, load: &str, workers: usize, paper| Plot {
        title,
        caption,
        shape: PlotKind::Bars {
            x: "epoch",
            y,
            series: "diff",
            relative: y == "throughput",
        },
        only: vec![
            ("load", vec![load.into()]),
            ("workers", vec![workers.into()]),
            silo::figure_threads(),
            diffs(),
        ],
        paper,
    };
    let line = |value, label| PaperMark::Line { value, label };
    let paper = || vec![line(9.1, "paper, off"), line(3.3, "paper, 3")];
    vec![
        plot(
            "Figure 18, throughput: 52 workers and 4 loggers, simulated, as a share of that without a log",
            "In the paper max-epoch-diff 3 costs 17 % at 1 ms, and 2 costs 75 %.",
            "throughput",
            "all writes",
            52,
            Vec::new(),
        ),
        plot(
            "Figure 18, latency: 52 workers and 4 loggers, simulated",
            "In the paper 9.1 ms without max-epoch-diff and 3.3 ms with 3, at 1 ms; drawn where they are near enough.",
            "latency",
            "all writes",
            52,
            paper(),
        ),
        plot(
            "Figure 18, throughput: two workers, as a share of that without a log",
            "Real threads, one logger.",
            "throughput",
            "all writes",
            2,
            Vec::new(),
        ),
        plot(
            "Figure 18, latency: two workers",
            "Real threads, one logger.",
            "latency",
            "all writes",
            2,
            paper(),
        ),
        plot(
            "Half writes, throughput: two workers, as a share of that without a log",
            "After figure 18; not in the paper.",
            "throughput",
            "half writes",
            2,
            Vec::new(),
        ),
        plot(
            "Half writes, latency: two workers",
            "After figure 18; not in the paper.",
            "latency",
            "half writes",
            2,
            Vec::new(),
        ),
    ]
}

pub(super) fn compare() -> Vec<Compare> {
    let at = |load: &str, epoch: &str, diff: &str| -> Vec<(&'static str, Param)> {
        vec![
            ("load", load.into()),
            ("epoch", epoch.into()),
            ("diff", diff.into()),
        ]
    };
    let one = |load: &str, diff: &str| at(load, "1 ms", diff);
    let with_workers = |workers: usize, diff: &str| {
        let mut at = at("all writes", "1 ms", diff);
        at.extend([("workers", workers.into())]);
        at
    };
    let two = |diff: &str| {
        let mut at = with_workers(2, diff);
        at.push(("threads", silo::REAL.into()));
        at
    };
    let many = |diff: &str| with_workers(52, diff);
    let ratio = |metric, of, to| Measure::Ratio { metric, of, to };
    let latency = |at| Measure::Value {
        metric: "latency",
        at,
    };
    let row = |what, paper, ours, aim| Compare {
        what,
        paper,
        ours,
        aim,
    };
    let mut rows = vec![
        row(
            "one slow log, 1 ms: mean latency without max-epoch-diff, ms",
            Some("9.1 (52 workers, 4 loggers; text of section 6.3)"),
            latency(one("slow log", "off")),
            None,
        ),
        row(
            "one slow log, 1 ms: mean latency with max-epoch-diff 3, ms",
            Some("3.3"),
            latency(one("slow log", "3")),
            None,
        ),
        row(
            "… shortened by a factor of",
            Some("2.8"),
            ratio("latency", one("slow log", "off"), one("slow log", "3")),
            Some(Aim::AtLeast(2.8)),
        ),
        row(
            "… throughput with 3, by without",
            Some("0.83 (−17 %)"),
            ratio("throughput", one("slow log", "3"), one("slow log", "off")),
            Some(Aim::AtLeast(0.83)),
        ),
        row(
            "… throughput with 2, by without",
            Some("0.25 (−75 %)"),
            ratio("throughput", one("slow log", "2"), one("slow log", "off")),
            None,
        ),
        row(
            "two workers, 1 ms: mean latency without max-epoch-diff, ms",
            Some("9.1 (52 workers, 4 loggers; text of section 6.3)"),
            latency(two("off")),
            None,
        ),
        row(
            "two workers, 1 ms: mean latency with 2, ms",
            Some("below 2.7, with any number of workers"),
            latency(two("2")),
            None,
        ),
        row(
            "two workers, 1 ms: mean latency with 3, ms",
            Some("3.3 (52 workers, 4 loggers), and at most that"),
            latency(two("3")),
            None,
        ),
    ];
    rows.extend([
        row(
            "two workers, 1 ms: throughput with 3, by without",
            Some("0.83"),
            ratio("throughput", two("3"), two("off")),
            None,
        ),
        row(
            "two workers, 1 ms: throughput with 2, by without",
            Some("0.25"),
            ratio("throughput", two("2"), two("off")),
            None,
        ),
        row(
            "simulated, 52 workers, 4 loggers, 1 ms: mean latency without max-epoch-diff, ms",
            Some("9.1"),
            latency(many("off")),
            None,
        ),
        row(
            "simulated, 52 workers, 4 loggers, 1 ms: mean latency with 3, ms",
            Some("3.3"),
            latency(many("3")),
            None,
        ),
        row(
            "simulated, 52 workers, 4 loggers, 1 ms: throughput with 3, by without",
            Some("0.83"),
            ratio("throughput", many("3"), many("off")),
            None,
        ),
        row(
            "simulated, 52 workers, 4 loggers, 1 ms: throughput with 2, by without",
            Some("0.25"),
            ratio("throughput", many("2"), many("off")),
            None,
        ),
        silo::simulation_is_near(),
        row(
            "one client, adaptive: mean latency, by the device's own",
            None,
            ratio(
                "latency",
                at("one client", "adaptive 3 ms", "–"),
                at("one client", "write and sync", "–"),
            ),
            Some(Aim::AtMost(1.5)),
        ),
        row(
            "saturated: the best fixed setting beats the adaptive ones on both axes by a factor of",
            None,
            Measure::Beaten {
                ours: vec![("load", "saturated".into()), ("mode", "adaptive".into())],
                others: vec![("load", "saturated".into()), ("mode", "fixed".into())],
            },
            Some(Aim::AtMost(1.1)),
        ),
    ]);
    rows
}
