//! `silo-threads`: the cost of logging, by workers and loggers (paper 2, figures 9 and 10).
//!
//! | epochs | what runs |
//! |---|---|
//! | `40 ms` | the paper's: half of the operations write, or all of them; log in memory or on the disk |
//! | `adaptive 3 ms` | the same with the store's default, log in memory |

mod figures;

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
        "throughput",
        "log-rate",
        "latency",
        "latency-p99",
        "cpu",
    ],
};

/// The store's default.
const ADAPTIVE: &str = "adaptive 3 ms";

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let threads = silo::threads(scale);
    let shares = scale.pick(&[0], &[50, 0], &[50, 0]);
    let loggers = scale.pick(&[1], &[1, 2], &[1, 2, 4]);
    let mut points = Vec::new();
    for &reads in shares {
        for &workers in &threads {
            let point = |log: &str, epoch: &str, log_settings: Option<LogSettings>| {
                let loggers = log_settings.map_or(0, |settings| settings.loggers);
                let params = [
                    ("reads", (reads as usize).into()),
                    ("log", log.into()),
                    ("epoch", epoch.into()),
                    ("loggers", loggers.into()),
                    ("workers", workers.into()),
                ];
                SweepPoint::new(params, silo::job(scale, reads, workers, log_settings))
            };
            let baseline = point("none", "no log", None);
            points.push(baseline.clone());
            let with_log = |epoch: &str, log_settings: LogSettings| {
                let place = log_settings.place.name();
                point(place, epoch, Some(log_settings)).against(&baseline)
            };
            // A logger without a worker has nothing to do.
            for &loggers in loggers.iter().filter(|&&loggers| loggers <= workers) {
                for place in [StorageMedium::Memory, StorageMedium::Disk] {
                    let paper = silo::paper_log(place, loggers);
                    points.push(with_log(silo::EPOCH_NAME, paper));
                }
                let adaptive = LogSettings {
                    loggers,
                    ..LogSettings::new(StorageMedium::Memory)
                };
                points.push(with_log(ADAPTIVE, adaptive));
            }
        }
    }
    points
}
