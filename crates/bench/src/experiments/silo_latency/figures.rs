//! The figures of `silo-latency`, and the comparisons with the paper's values.

use crate::parameters::Param;
use crate::plot::{Aim, Compare, Measure, PaperMark, Plot, PlotKind};

pub(super) fn plots() -> Vec<Plot> {
    let only = |load: &str| ("load", vec![load.into()]);
    let fixed = || ("mode", vec!["fixed".into()]);
    let bars = |y, relative| PlotKind::Bars {
        x: "epoch",
        y,
        series: "diff",
        relative,
    };
    let slow = |y| PlotKind::Bars {
        x: "load",
        y,
        series: "diff",
        relative: false,
    };
    let bar = |value, series| PaperMark::Bar { value, series };
    let line = |value, label| PaperMark::Line { value, label };
    vec![
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
            title: "Latency by epoch time and max-epoch-diff",
            caption: "After figure 18, latency, with one number of workers: all logs alike. The paper's 9.1 ms without max-epoch-diff and 3.3 ms with 3 are at 1 ms, with 52 workers and 4 loggers; they are drawn where they are near enough.",
            shape: bars("latency", false),
            only: vec![
                only("saturated"),
                fixed(),
                ("epoch", vec!["0.5 ms".into(), "1 ms".into(), "2 ms".into()]),
            ],
            paper: vec![line(9.1, "paper, off"), line(3.3, "paper, 3")],
        },
        Plot {
            title: "Throughput as a share of that without a log",
            caption: "After figure 18, throughput, with one number of workers.",
            shape: bars("throughput", true),
            only: vec![only("saturated"), fixed()],
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
            caption: "The same without a slow log, epochs of 1 ms and adaptive.",
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
            "all logs alike, 1 ms: mean latency without max-epoch-diff, ms",
            Some("9.1"),
            latency(one("saturated", "off")),
            None,
        ),
        row(
            "all logs alike, 1 ms: mean latency with 3, ms",
            Some("3.3"),
            latency(one("saturated", "3")),
            None,
        ),
    ];
    rows.extend([
        row(
            "all logs alike, 1 ms: throughput with 3, by without",
            Some("0.83"),
            ratio("throughput", one("saturated", "3"), one("saturated", "off")),
            None,
        ),
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
