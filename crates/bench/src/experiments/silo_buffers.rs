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
         Real runs have one logger here, and as many workers as the machine has room for. The paper's \
         numbers are simulated, with the service times of one worker and one logger of the same run: \
         what workers cost each other in caches and memory bandwidth is left out, so that the paper's \
         loss with 16 and 32 buffers, which its authors ascribe to memory, cannot appear. More than four times \
         as many workers as were validated are extrapolated, and drawn as crosses.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "log",
        "loggers",
        "workers",
        "buffers",
        "threads",
        "cores",
        "throughput",
        "simulated",
        "of-real",
        "latency",
        "simulated-latency",
        "latency-of-real",
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
                ("threads", silo::REAL.into()),
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
    points.extend(simulated(scale, buffers));
    points
}

/// Returns simulated points of the paper's sizes, and real threads beside simulated ones.
fn simulated(scale: &Scale, buffers: &[usize]) -> Vec<SweepPoint> {
    let point = |loggers: usize, workers: usize, log_buffers: usize, threads: &str, cores| {
        let params = [
            ("log", StorageMedium::Memory.name().into()),
            ("loggers", loggers.into()),
            ("workers", workers.into()),
            ("buffers", log_buffers.into()),
            ("threads", threads.into()),
        ];
        let log_settings = LogSettings {
            log_buffers,
            ..silo::paper_log(StorageMedium::Memory, loggers)
        };
        let job = silo::logging_job(scale, 0, workers, Some(log_settings), cores);
        SweepPoint::new(params, job)
    };
    let mut points = Vec::new();
    let sizes = silo::published_sizes(scale, "11", PAPER_LOGGERS);
    for &(loggers, workers) in sizes.iter().filter(|size| size.0 == PAPER_LOGGERS) {
        let name = silo::simulated_name(scale, workers);
        let of = |&buffers: &usize| point(loggers, workers, buffers, name, None);
        points.extend(buffers.iter().map(of));
    }
    for cores in silo::validated(scale) {
        let real = point(1, cores, 4, silo::VALIDATION, Some(cores));
        points.push(real.with("cores", cores));
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
        only: vec![("log", vec![place.into()]), silo::figure_threads()],
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
        silo::validation_plot(&["log"]),
    ]
}

fn compare() -> Vec<Compare> {
    let ratio = |metric, log: &str, of: usize| Measure::Ratio {
        metric,
        of: vec![
            ("log", log.into()),
            ("workers", 1usize.into()),
            ("buffers", of.into()),
            ("threads", silo::REAL.into()),
        ],
        to: vec![
            ("log", log.into()),
            ("workers", 1usize.into()),
            ("buffers", 4usize.into()),
            ("threads", silo::REAL.into()),
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
