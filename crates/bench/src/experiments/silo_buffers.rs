//! `silo-buffers`: how many log buffers a worker needs (paper 2, figure 11).

use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::silo;
use crate::parameters::Scale;
use crate::plot::{Compare, Measure, Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::target::LogSettings;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "silo-buffers",
    title: "How many log buffers a worker needs",
    paper: Some("paper 2, figure 11"),
    about: &[
        "A worker fills a buffer while its logger writes others. With too few buffers it waits for \
         the logger; with many, more lies in the logger's queue, and everything in it becomes \
         durable later. Write-only, as fast as it goes, epochs of 40 ms as in the paper.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "log",
        "workers",
        "buffers",
        "throughput",
        "latency",
        "latency-p99",
        "log-rate",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let buffers = scale.pick(&[2, 4], &[2, 4, 16], &[2, 4, 8, 16, 32]);
    let mut points = Vec::new();
    for workers in silo::threads(scale) {
        let point = |log: &str, buffers: usize, log_settings| {
            let params = [
                ("log", log.into()),
                ("workers", workers.into()),
                ("buffers", buffers.into()),
            ];
            SweepPoint::new(params, silo::job(scale, 0, workers, log_settings))
        };
        let baseline = point("none", 0, None);
        points.push(baseline.clone());
        for place in [StorageMedium::Memory, StorageMedium::Disk] {
            for &log_buffers in buffers {
                let log_settings = LogSettings {
                    log_buffers,
                    epoch_time: Some(std::time::Duration::from_millis(40)),
                    ..LogSettings::new(place)
                };
                points
                    .push(point(place.name(), log_buffers, Some(log_settings)).against(&baseline));
            }
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "buffers",
            y,
            series: &["log", "workers"],
            doubling: true,
        },
        only: vec![("log", vec!["memory".into(), "disk".into()])],
        paper: Vec::new(),
    };
    vec![
        plot(
            "Throughput by buffers of a worker",
            "Figure 11(a): two are slower than four; 16 and 32 are slower at many workers.",
            "throughput",
        ),
        plot(
            "Mean durability latency by buffers of a worker",
            "Figure 11(b): from 144 workers on, the latency grows with the buffers.",
            "latency",
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let ratio = |metric, log: &str, of: usize| Measure::Ratio {
        metric,
        of: vec![
            ("log", log.into()),
            ("workers", 1usize.into()),
            ("buffers", of.into()),
        ],
        to: vec![
            ("log", log.into()),
            ("workers", 1usize.into()),
            ("buffers", 4usize.into()),
        ],
    };
    let row = |what, paper, ours| Compare {
        what,
        paper: Some(paper),
        ours,
        aim: None,
    };
    vec![
        row(
            "memory, one worker: throughput with 2 buffers, by 4",
            "somewhat lower (text of section 6.2.2)",
            ratio("throughput", "memory", 2),
        ),
        row(
            "memory, one worker: latency with 16 buffers, by 4",
            "higher, from 144 workers on (text of section 6.2.2)",
            ratio("latency", "memory", 16),
        ),
        row(
            "disk, one worker: latency with 16 buffers, by 4",
            "not measured",
            ratio("latency", "disk", 16),
        ),
    ]
}
