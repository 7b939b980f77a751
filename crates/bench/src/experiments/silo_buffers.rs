//! `silo-buffers`: how many log buffers a worker needs, by workers (paper 2, figure 11).

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
        "The paper has 16 loggers before eight modules of persistent memory, and 16 to 208 workers. \
         Real runs have one logger here, and as many workers as the machine has room for.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "log",
        "loggers",
        "workers",
        "buffers",
        "throughput",
        "latency",
        "latency-p99",
        "log-rate",
    ],
};

/// The loggers of the paper's figure.
const PAPER_LOGGERS: usize = 16;

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let buffers = scale.pick(&[2, 4], &[2, 4, 16], &[2, 4, 8, 16, 32]);
    let mut points = Vec::new();
    for workers in silo::threads(scale) {
        let point = |log: &str, buffers: usize, log_settings: Option<LogSettings>| {
            let loggers = log_settings.map_or(0, |settings| settings.loggers);
            let params = [
                ("log", log.into()),
                ("loggers", loggers.into()),
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
                    ..silo::paper_log(place, 1)
                };
                points
                    .push(point(place.name(), log_buffers, Some(log_settings)).against(&baseline));
            }
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, y, place: &str| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "workers",
            y,
            series: &["buffers"],
            doubling: true,
        },
        only: vec![("log", vec![place.into()])],
        paper: match place {
            "memory" => silo::curves(
                y,
                |point| silo::is_of(point, "11", place) && point.loggers == PAPER_LOGGERS,
                silo::name_by_buffers,
            ),
            _ => Vec::new(),
        },
    };
    vec![
        plot(
            "Figure 11(a): throughput by workers",
            "Log in memory. In the paper two buffers are slower than four, and 16 and 32 are slower at many workers.",
            "throughput",
            "memory",
        ),
        plot(
            "Figure 11(b): mean durability latency by workers",
            "Log in memory. In the paper the latency grows with the buffers from 144 workers on.",
            "latency",
            "memory",
        ),
        plot(
            "Throughput by workers, log on the disk",
            "Not in the paper.",
            "throughput",
            "disk",
        ),
        plot(
            "Mean durability latency by workers, log on the disk",
            "Not in the paper. A worker that logs more than its share of the device fills all of its buffers.",
            "latency",
            "disk",
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
