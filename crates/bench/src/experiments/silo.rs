//! Shared by the experiments on the store's log.

use std::time::Duration;

use crate::driver::LoadSchedule;
use crate::parameters::{Effort, Param, Scale};
use crate::plot::{Aim, Compare, Measure, PaperCurve, PaperMark, Plot, PlotKind};
use crate::published::{self, SiloLoggingPoint};
use crate::run_context::StorageMedium;
use crate::target::{LogSettings, LoggingJob, StoreJob, TargetJob};
use crate::workload::{WorkloadSettings, YcsbSettings};

/// Returns the paper's workload, at full speed.
pub(super) fn job(
    scale: &Scale,
    read_percent: u32,
    workers: usize,
    log: Option<LogSettings>,
) -> TargetJob {
    TargetJob::Store(store_job(scale, read_percent, workers, log))
}

fn store_job(
    scale: &Scale,
    read_percent: u32,
    workers: usize,
    log: Option<LogSettings>,
) -> StoreJob {
    StoreJob {
        workload: WorkloadSettings::Ycsb(YcsbSettings::reads_and_updates(
            read_percent,
            scale.records,
        )),
        pace: LoadSchedule::Saturated,
        workers,
        log,
    }
}

/// What the threads of a point are: the values of the parameter `threads`.
pub(super) const REAL: &str = "real";
pub(super) const SIMULATED: &str = "simulated";
/// Simulated ones, more than [`FAR`] times as many as were validated.
pub(super) const EXTRAPOLATED: &str = "extrapolated";
/// Real ones on some of the processors, beside the same simulated.
pub(super) const VALIDATION: &str = "validation";
const FAR: usize = 4;

/// Compares the simulation with real threads.
pub(super) fn simulation_is_near() -> Compare {
    Compare {
        what: "the simulation: the greatest difference of its throughput from real threads",
        paper: None,
        ours: Measure::Value {
            metric: "off",
            at: vec![("threads", VALIDATION.into())],
        },
        aim: Some(Aim::AtMost(0.25)),
    }
}

/// Returns the points of the figures: all but those that validate the simulation.
pub(super) fn figure_threads() -> (&'static str, Vec<Param>) {
    let values = [REAL, SIMULATED, EXTRAPOLATED].map(Param::from);
    ("threads", values.to_vec())
}

/// Returns the plot of the simulation beside real threads.
pub(super) fn validation_plot(series: &'static [&'static str]) -> Plot {
    Plot {
        title: "The simulation beside real threads: its throughput, of real",
        caption: "As many workers as processors, on which the real threads and the simulated ones run.",
        shape: PlotKind::Lines {
            x: "workers",
            y: "of-real",
            series,
            doubling: true,
        },
        only: vec![("threads", vec![VALIDATION.into()])],
        paper: Vec::new(),
    }
}

/// Returns the name of so many simulated workers.
pub(super) fn simulated_name(scale: &Scale, workers: usize) -> &'static str {
    match workers > FAR * validated(scale).last().copied().unwrap_or(1) {
        true => EXTRAPOLATED,
        false => SIMULATED,
    }
}

/// Returns the numbers of processors, and workers, with which the simulation is compared with real
/// threads.
pub(super) fn validated(scale: &Scale) -> Vec<usize> {
    let most = match scale.effort {
        Effort::Tiny => 1,
        Effort::Quick => scale.cores.min(2),
        Effort::Full => scale.cores.min(16),
    };
    let powers = std::iter::successors(Some(1), |n| Some(n * 2));
    powers.take_while(|&n| n <= most).collect()
}

/// Returns the measurement of a point without real threads, or on so many processors beside real ones.
pub(super) fn logging_job(
    scale: &Scale,
    read_percent: u32,
    workers: usize,
    log: Option<LogSettings>,
    cores: Option<usize>,
) -> TargetJob {
    let (epochs, least) = match scale.effort {
        Effort::Tiny => (8, Duration::from_millis(20)),
        Effort::Quick | Effort::Full => (50, Duration::from_millis(200)),
    };
    let epoch = log.and_then(|log| log.epoch_time).unwrap_or_default();
    TargetJob::Logging(LoggingJob {
        store: store_job(scale, read_percent, workers, log),
        cores,
        time: (epoch * epochs).max(least),
    })
}

/// Returns the numbers of loggers and workers that one of the paper's figures has points of, with four
/// buffers: all of them, or for quick runs some of those with `loggers`.
pub(super) fn published_sizes(scale: &Scale, figure: &str, loggers: usize) -> Vec<(usize, usize)> {
    let published = published::silo_logging();
    let is_in = |point: &&SiloLoggingPoint| is_of(point, figure, "memory") && point.buffers == 4;
    let sizes = published.iter().filter(is_in);
    let sizes: Vec<(usize, usize)> = sizes.map(|point| (point.loggers, point.workers)).collect();
    let few: Vec<(usize, usize)> = sizes
        .iter()
        .copied()
        .filter(|size| size.0 == loggers)
        .collect();
    match scale.effort {
        Effort::Tiny => few[..1].to_vec(),
        Effort::Quick => vec![few[0], few[few.len() / 2], few[few.len() - 1]],
        Effort::Full => sizes,
    }
}

/// Returns numbers of threads for a sweep: powers of two up to twice the processors, and the processors.
pub(super) fn threads(scale: &Scale) -> Vec<usize> {
    let most = match scale.effort {
        Effort::Tiny => 1,
        Effort::Quick => scale.cores.clamp(2, 4),
        Effort::Full => scale.cores.max(1) * 2,
    };
    let powers = std::iter::successors(Some(1), |n| Some(n * 2));
    let mut chosen: Vec<usize> = powers.take_while(|&n| n <= most).collect();
    if scale.cores < most && !chosen.contains(&scale.cores) {
        chosen.push(scale.cores);
        chosen.sort_unstable();
    }
    chosen
}

/// The paper's epoch time, of all figures but those on latency.
pub(super) const EPOCH: Duration = Duration::from_millis(40);
/// Its name among the parameters.
pub(super) const EPOCH_NAME: &str = "40 ms";

/// The name of the store's default among the parameters.
pub(super) const ADAPTIVE_NAME: &str = "adaptive 3 ms";

/// Returns the settings of a log with the paper's epochs.
pub(super) fn paper_log(place: StorageMedium, loggers: usize) -> LogSettings {
    LogSettings {
        loggers,
        epoch_time: Some(EPOCH),
        ..LogSettings::new(place)
    }
}

/// Returns the paper's name of the device that stands for a place.
fn device(place: &str) -> &'static str {
    match place {
        "memory" => "pmem",
        "disk" => "ssd",
        _ => "no log",
    }
}

/// Returns the lines of a metric over the workers in one of figures 9 to 11: those of the points that
/// `is_in` the figure, one for each value of `name`, which is the name of our line.
pub(super) fn curves(
    metric: &str,
    is_in: impl Fn(&SiloLoggingPoint) -> bool,
    name: impl Fn(&SiloLoggingPoint) -> String,
) -> Vec<PaperMark> {
    let mut curves: Vec<PaperCurve> = Vec::new();
    for point in published::silo_logging()
        .iter()
        .filter(|point| is_in(point))
    {
        let value = match metric {
            "throughput" => Some(point.throughput),
            "latency" => point.latency,
            "log-rate" => point.log_rate,
            _ => None,
        };
        let Some(value) = value else {
            continue;
        };
        let like = name(point);
        let at = (point.workers as f64, value);
        match curves.iter_mut().find(|curve| curve.like == like) {
            Some(curve) => curve.points.push(at),
            None => curves.push(PaperCurve {
                name: format!("paper: {}", in_the_papers_words(&like)),
                like,
                points: vec![at],
            }),
        }
    }
    curves.into_iter().map(PaperMark::Curve).collect()
}

/// Returns the name of a line of ours with the paper's names of devices.
fn in_the_papers_words(name: &str) -> String {
    name.replace("memory", "persistent memory")
        .replace("disk", "SSD")
}

/// Returns `true` if a point is one of a figure's with a log in this place, or without a log.
pub(super) fn is_of(point: &SiloLoggingPoint, figure: &str, place: &str) -> bool {
    let figures: Vec<&str> = point.figure.split('-').collect();
    figures.contains(&figure) && [device(place), device("none")].contains(&point.device)
}

/// Returns the name of our line with as many loggers as a point has.
pub(super) fn name_by_loggers(point: &SiloLoggingPoint, place: &str) -> String {
    match point.loggers {
        0 => "no log".to_owned(),
        loggers => format!("{place}, loggers {loggers}"),
    }
}

/// Returns the name of our line with as many log buffers as a point has.
pub(super) fn name_by_buffers(point: &SiloLoggingPoint) -> String {
    format!("buffers {}", point.buffers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(marks: &[PaperMark]) -> Vec<&PaperCurve> {
        fn curve(mark: &PaperMark) -> Option<&PaperCurve> {
            match mark {
                PaperMark::Curve(curve) => Some(curve),
                PaperMark::Line { .. } | PaperMark::Bar { .. } => None,
            }
        }
        let curves: Vec<&PaperCurve> = marks.iter().filter_map(curve).collect();
        assert_eq!(curves.len(), marks.len(), "all are curves");
        curves
    }

    #[test]
    fn published_points_become_a_line_for_each_number_of_loggers_and_buffers() {
        let by_loggers = curves(
            "throughput",
            |point| is_of(point, "9", "disk"),
            |point| name_by_loggers(point, "disk"),
        );
        let by_loggers = of(&by_loggers);
        let likes: Vec<&str> = by_loggers.iter().map(|curve| &*curve.like).collect();
        let wanted = [
            "no log",
            "disk, loggers 2",
            "disk, loggers 4",
            "disk, loggers 6",
        ];
        assert_eq!(likes, wanted);
        assert_eq!(by_loggers[0].points[0], (2.0, 0.6088e6));
        assert_eq!(by_loggers[3].name, "paper: SSD, loggers 6");
        let by_buffers = curves(
            "latency",
            |point| is_of(point, "11", "memory") && point.loggers == 16,
            name_by_buffers,
        );
        let by_buffers = of(&by_buffers);
        assert_eq!(by_buffers.len(), 5);
        assert_eq!(by_buffers[4].name, "paper: buffers 32");
        assert_eq!(by_buffers[4].points.last(), Some(&(208.0, 8605.0)));
    }
}
