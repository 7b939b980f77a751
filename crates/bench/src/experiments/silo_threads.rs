//! `silo-threads`: the cost of logging, by workers and loggers (paper 2, figures 9 and 10).
//!
//! | epochs | what runs |
//! |---|---|
//! | `40 ms` | the paper's: half of the operations write, or all of them; log in memory or on the disk |
//! | `adaptive 3 ms` | the same with the store's default, log in memory |

mod figures;

use std::collections::BTreeSet;

use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::silo;
use crate::parameters::Scale;
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
         than its worker. Epochs have 40 ms, as in the paper; beside them stands the store's \
         default, epochs that adapt.",
        "The grey line is the same store without a log: the distance to it is the price of \
         durability. A point's share of it is taken run by run, with runs of both close together.",
        "The paper has 56 and 224 logical processors, persistent memory of two and eight modules (here: \
         /dev/shm), and an SSD (here: the disk). Its numbers of loggers are 2, 4 and 6 on one socket, \
         and 8, 16 and 24 on four.",
        "Points with the paper's numbers of workers and loggers are simulated: threads that do one piece \
         of work after the other, each with a processor of its own, by the rules of the journal, with \
         service times that one worker and one logger have in the same run. What more workers cost \
         each other in caches, memory bandwidth and locks is not simulated, so that the line without a \
         log is straight. On one processor and on two the simulation stands beside real threads: 'simulated, \
         of real' is what it is worth. More than four times as many workers as were validated are \
         extrapolated, and drawn as crosses.",
    ],
    points,
    plots: figures::plots,
    compare: figures::compare,
    columns: &[
        "reads",
        "log",
        "epoch",
        "loggers",
        "workers",
        "threads",
        "cores",
        "throughput",
        "simulated",
        "of-real",
        "log-rate",
        "latency",
        "simulated-latency",
        "latency-of-real",
        "latency-p99",
        "cpu",
        "simulated-cpu",
        "logger-cpu",
    ],
};

/// A point's place in the sweep.
#[derive(Clone, Copy)]
struct Place {
    reads: u32,
    epoch: &'static str,
    workers: usize,
    log: Option<LogSettings>,
}

impl Place {
    fn point(&self, scale: &Scale, threads: &str, cores: Option<usize>) -> SweepPoint {
        let (reads, workers, log) = (self.reads, self.workers, self.log);
        let epoch = if log.is_some() { self.epoch } else { "no log" };
        let params = [
            ("reads", (reads as usize).into()),
            ("log", log.map_or("none", |log| log.place.name()).into()),
            ("epoch", epoch.into()),
            ("loggers", log.map_or(0, |log| log.loggers).into()),
            ("workers", workers.into()),
            ("threads", threads.into()),
        ];
        let job = match threads {
            silo::REAL => silo::job(scale, reads, workers, log),
            _ => silo::logging_job(scale, reads, workers, log, cores),
        };
        let point = SweepPoint::new(params, job);
        match cores {
            Some(cores) => point.with("cores", cores),
            None => point,
        }
    }
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    for &reads in scale.pick(&[0], &[50, 0], &[50, 0]) {
        points.extend(real(scale, reads));
        points.extend(simulated(scale, reads));
    }
    points.extend(validation(scale));
    points
}

/// Returns the points that this machine measures.
fn real(scale: &Scale, reads: u32) -> Vec<SweepPoint> {
    let loggers = scale.pick(&[1], &[1, 2], &[1, 2, 4]);
    let mut points = Vec::new();
    for workers in silo::threads(scale) {
        let point = |epoch, log| {
            let place = Place {
                reads,
                epoch,
                workers,
                log,
            };
            place.point(scale, silo::REAL, None)
        };
        let baseline = point("", None);
        points.push(baseline.clone());
        // A logger without a worker has nothing to do.
        for &loggers in loggers.iter().filter(|&&loggers| loggers <= workers) {
            for place in [StorageMedium::Memory, StorageMedium::Disk] {
                let paper = silo::paper_log(place, loggers);
                points.push(point(silo::EPOCH_NAME, Some(paper)).against(&baseline));
            }
            let adaptive = LogSettings {
                loggers,
                ..LogSettings::new(StorageMedium::Memory)
            };
            points.push(point(silo::ADAPTIVE_NAME, Some(adaptive)).against(&baseline));
        }
    }
    points
}

/// Returns simulated points of the paper's sizes: of figure 9 with half writes, of figure 10 with all.
fn simulated(scale: &Scale, reads: u32) -> Vec<SweepPoint> {
    let (figure, loggers, places) = match reads {
        0 => ("10", 16, &[StorageMedium::Memory][..]),
        _ => ("9", 2, &[StorageMedium::Memory, StorageMedium::Disk][..]),
    };
    let sizes = silo::published_sizes(scale, figure, loggers);
    let all: BTreeSet<usize> = sizes.iter().map(|size| size.1).collect();
    let mut points = Vec::new();
    for workers in all {
        let point = |log| {
            let place = Place {
                reads,
                epoch: silo::EPOCH_NAME,
                workers,
                log,
            };
            place.point(scale, silo::simulated_name(scale, workers), None)
        };
        let baseline = point(None);
        points.push(baseline.clone());
        for &(loggers, _) in sizes.iter().filter(|size| size.1 == workers) {
            for &place in places {
                let log = silo::paper_log(place, loggers);
                points.push(point(Some(log)).against(&baseline));
            }
        }
    }
    points
}

/// Returns real threads beside simulated ones.
fn validation(scale: &Scale) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    for cores in silo::validated(scale) {
        for &reads in scale.pick(&[0], &[0], &[50, 0]) {
            for place in [StorageMedium::Memory, StorageMedium::Disk] {
                let place = Place {
                    reads,
                    epoch: silo::EPOCH_NAME,
                    workers: cores,
                    log: Some(silo::paper_log(place, 1)),
                };
                points.push(place.point(scale, silo::VALIDATION, Some(cores)));
            }
        }
    }
    points
}
