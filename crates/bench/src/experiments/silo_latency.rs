//! `silo-latency`: durability latency, and the means that bound it (paper 2, figures 5 and 12 to 18).
//!
//! | load | what runs |
//! |---|---|
//! | `all writes` | the paper's figures 12 to 18: write-only, as fast as it goes, by workers; fixed epochs, log in memory |
//! | `half writes` | the same with half of the operations writing |
//! | `saturated` | write-only with one number of workers: adaptive epochs beside fixed ones |
//! | `saturated, disk` | the same, log on the disk |
//! | `slow log` | two logs in memory, one of them on a device that is slower than its worker: the paper's cause of long latencies |
//! | `one client` | one transaction after the other, each waited for, log on the disk; beside the device by itself |

mod figures;

use std::num::NonZeroU64;
use std::time::Duration;

use crate::disk_access::{DeviceAccess, SlowDevice};
use crate::driver::LoadSchedule;
use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::silo;
use crate::parameters::{Effort, Param, Scale};
use crate::run_context::StorageMedium;
use crate::target::{DeviceJob, LogSettings, StoreJob, TargetJob};
use crate::workload::{WorkloadSettings, YcsbSettings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "silo-latency",
    title: "Durability latency, and what bounds it",
    paper: Some("paper 2, figures 5 and 12 to 18"),
    about: &[
        "A transaction is durable when its epoch is complete in all logs. Shorter epochs shorten \
         that, but one slow logger still holds back all the others: their transactions are written \
         and wait. The paper's remedy is max-epoch-diff: a worker whose epoch is so far ahead of its \
         logger's waits until the logger has caught up. At 1 ms epochs it takes the latency from 9.1 \
         to 3.3 ms for 17 % of the throughput.",
        "The paper's figures sweep the workers, at epoch times of 0.5, 1 and 2 ms and with max-epoch-diff \
         2, 3, 4 and without, on one socket of 56 logical processors with two modules of persistent \
         memory. So does this experiment, with one logger, as far as this machine has processors.",
        "The paper's numbers of workers, with four loggers, are simulated: threads that do one piece of work \
         after the other, each with a processor of its own, by the rules of the journal, with service \
         times that one worker and one logger have in the same run. What more workers cost each other in \
         caches, memory bandwidth and locks is not simulated. On one processor and on two the simulation \
         stands beside real threads. More than four times as many workers as were validated are extrapolated, \
         and drawn as crosses.",
        "What it has beyond the paper: the same sweep with half writes; a log on a device that is too \
         slow for its worker, which is the paper's cause and shows on any machine; and the adaptive \
         mode, which has neither knob: an epoch ends when the loggers are idle and someone waits, and \
         workers are held back so that the mean latency keeps a target.",
        "Latency is from the beginning of a transaction to the moment at which its epoch was \
         durable, taken exactly at that moment. Everybody is waited for, as in the paper, where \
         every client is notified.",
    ],
    points,
    plots: figures::plots,
    compare: figures::compare,
    columns: &[
        "load",
        "epoch",
        "diff",
        "loggers",
        "workers",
        "threads",
        "cores",
        "throughput",
        "simulated",
        "of-real",
        "latency",
        "simulated-latency",
        "latency-of-real",
        "latency-p99",
        "cpu",
        "simulated-cpu",
        "in-buffer",
        "in-queue",
        "in-write",
        "in-notification",
    ],
};

/// The slow device: less than one worker of a small machine writes.
const SLOW: SlowDevice = SlowDevice {
    log: 1,
    bytes_per_second: 20_000_000,
    sync: Duration::from_micros(500),
};

/// When epochs end.
#[derive(Clone, Copy)]
enum Mode {
    Fixed(u64, Option<u64>),
    Adaptive(u64),
}

impl Mode {
    /// Returns its place in the sweep: mode, epoch time, max-epoch-diff.
    fn params(self) -> [(&'static str, Param); 3] {
        let (mode, epoch, diff) = match self {
            Mode::Fixed(us, diff) => {
                let diff = diff.map_or_else(|| "off".to_owned(), |diff| diff.to_string());
                ("fixed", format!("{} ms", us as f64 / 1e3), diff)
            }
            Mode::Adaptive(us) => {
                let epoch = format!("adaptive {} ms", us as f64 / 1e3);
                ("adaptive", epoch, "–".to_owned())
            }
        };
        [
            ("mode", mode.into()),
            ("epoch", epoch.as_str().into()),
            ("diff", diff.as_str().into()),
        ]
    }

    fn log_settings(self, place: StorageMedium) -> LogSettings {
        let log_settings = LogSettings {
            measure_latency: true,
            ..LogSettings::new(place)
        };
        match self {
            Mode::Fixed(us, diff) => LogSettings {
                epoch_time: Some(Duration::from_micros(us)),
                max_epoch_diff: diff.and_then(NonZeroU64::new),
                ..log_settings
            },
            Mode::Adaptive(us) => LogSettings {
                durability_target: Duration::from_micros(us),
                ..log_settings
            },
        }
    }
}

/// All values of max-epoch-diff that the paper has.
const DIFFS: [Option<u64>; 4] = [None, Some(2), Some(3), Some(4)];
/// The paper's epoch times, in microseconds.
const EPOCHS: [u64; 3] = [500, 1000, 2000];

/// Returns the fixed epochs of the paper's figures.
fn paper_modes(effort: Effort, half_writes: bool) -> Vec<Mode> {
    let is_wanted = |us: u64, diff: Option<u64>| match effort {
        Effort::Tiny => us == 1000 && [None, Some(3)].contains(&diff),
        Effort::Quick if half_writes => us == 1000 && [None, Some(3)].contains(&diff),
        Effort::Quick => us == 1000 || [None, Some(3)].contains(&diff),
        Effort::Full => true,
    };
    let all = EPOCHS
        .into_iter()
        .flat_map(|us| DIFFS.map(|diff| (us, diff)));
    let wanted = all.filter(|&(us, diff)| is_wanted(us, diff));
    wanted.map(|(us, diff)| Mode::Fixed(us, diff)).collect()
}

/// Returns the modes that are compared at one number of workers.
fn modes(effort: Effort) -> Vec<Mode> {
    let (diffs, targets): (&[_], &[_]) = match effort {
        Effort::Tiny => (&DIFFS[..1], &[3000]),
        Effort::Quick => (&DIFFS[..1], &[1000, 3000, 10_000]),
        Effort::Full => (&DIFFS, &[1000, 2000, 3000, 5000, 10_000]),
    };
    let one = diffs.iter().map(|&diff| Mode::Fixed(1000, diff));
    let forty = Mode::Fixed(40_000, None);
    let adaptive = targets.iter().map(|&us| Mode::Adaptive(us));
    one.chain([forty]).chain(adaptive).collect()
}

/// Returns the modes of the load with a slow log.
fn slow_modes(effort: Effort) -> Vec<Mode> {
    let diffs: &[_] = match effort {
        Effort::Tiny => &[None, Some(3)],
        Effort::Quick | Effort::Full => &DIFFS,
    };
    let fixed = diffs.iter().map(|&diff| Mode::Fixed(1000, diff));
    fixed.chain([Mode::Adaptive(3000)]).collect()
}

/// A load of the store: which operations it has, and how many threads.
#[derive(Clone, Copy)]
struct StoreLoad {
    name: &'static str,
    read_percent: u32,
    loggers: usize,
    workers: usize,
    place: StorageMedium,
    slow: Option<SlowDevice>,
    threads: &'static str,
    /// The processors on which real threads stand beside simulated ones.
    cores: Option<usize>,
}

/// The loggers of the paper's figure 18, and the most workers.
const PAPER_LOGGERS: usize = 4;
const PAPER_WORKERS: usize = 52;

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    let with_one_logger = |name, read_percent, workers| StoreLoad {
        name,
        read_percent,
        loggers: 1,
        workers,
        place: StorageMedium::Memory,
        slow: None,
        threads: silo::REAL,
        cores: None,
    };
    for (name, reads) in [("all writes", 0), ("half writes", 50)] {
        for workers in silo::threads(scale) {
            let load = with_one_logger(name, reads, workers);
            points.extend(load.sweep(scale, paper_modes(scale.effort, reads > 0)));
        }
        if reads == 0 || scale.effort == Effort::Full {
            points.extend(simulated(scale, with_one_logger(name, reads, 1)));
        }
    }
    points.extend(validation(scale, with_one_logger("all writes", 0, 1)));
    let saturated = with_one_logger("saturated", 0, scale.workers(1));
    points.extend(saturated.sweep(scale, modes(scale.effort)));
    if scale.effort == Effort::Full {
        let on_disk = StoreLoad {
            name: "saturated, disk",
            place: StorageMedium::Disk,
            ..saturated
        };
        points.extend(on_disk.sweep(scale, modes(scale.effort)));
    }
    let slow = StoreLoad {
        name: "slow log",
        loggers: 2,
        workers: scale.workers(2).max(2),
        slow: Some(SLOW),
        ..saturated
    };
    points.extend(slow.sweep(scale, slow_modes(scale.effort)));
    points.extend(one_client(scale));
    points
}

/// Returns a load with the paper's loggers and workers, simulated.
fn simulated(scale: &Scale, load: StoreLoad) -> Vec<SweepPoint> {
    let all: Vec<usize> = (PAPER_LOGGERS..=PAPER_WORKERS).step_by(8).collect();
    let some = [PAPER_LOGGERS, 20, PAPER_WORKERS];
    let workers = scale.pick(&some[..1], &some, &all);
    let of = |&workers: &usize| {
        let load = StoreLoad {
            loggers: PAPER_LOGGERS,
            workers,
            threads: silo::simulated_name(scale, workers),
            ..load
        };
        load.sweep(scale, paper_modes(scale.effort, load.read_percent > 0))
    };
    workers.iter().flat_map(of).collect()
}

/// Returns a load with as many real workers as processors, beside simulated ones.
fn validation(scale: &Scale, load: StoreLoad) -> Vec<SweepPoint> {
    let of = |cores| {
        let load = StoreLoad {
            workers: cores,
            threads: silo::VALIDATION,
            cores: Some(cores),
            ..load
        };
        let modes = [Mode::Fixed(1000, None), Mode::Fixed(1000, Some(3))];
        modes.map(|mode| load.with_log(scale, mode))
    };
    silo::validated(scale).into_iter().flat_map(of).collect()
}

impl StoreLoad {
    /// Returns the load in all these modes, and without a log.
    fn sweep(&self, scale: &Scale, modes: Vec<Mode>) -> Vec<SweepPoint> {
        let none = [
            ("mode", "none".into()),
            ("epoch", "no log".into()),
            ("diff", "–".into()),
        ];
        let baseline = self.point(scale, none, None);
        let variants = modes.into_iter();
        let variants = variants.map(|mode| self.with_log(scale, mode).against(&baseline));
        std::iter::once(baseline.clone()).chain(variants).collect()
    }

    fn with_log(&self, scale: &Scale, mode: Mode) -> SweepPoint {
        let log_settings = LogSettings {
            loggers: self.loggers,
            slow: self.slow,
            ..mode.log_settings(self.place)
        };
        self.point(scale, mode.params(), Some(log_settings))
    }

    fn point(
        &self,
        scale: &Scale,
        [mode, epoch, diff]: [(&'static str, Param); 3],
        log_settings: Option<LogSettings>,
    ) -> SweepPoint {
        let log = log_settings.map_or("none", |settings| settings.place.name());
        let params = [
            ("load", self.name.into()),
            ("log", log.into()),
            mode,
            epoch,
            diff,
            ("loggers", self.loggers.into()),
            ("workers", self.workers.into()),
            ("threads", self.threads.into()),
        ];
        let (reads, workers) = (self.read_percent, self.workers);
        let job = match self.threads {
            silo::REAL => silo::job(scale, reads, workers, log_settings),
            _ => silo::logging_job(scale, reads, workers, log_settings, self.cores),
        };
        let point = SweepPoint::new(params, job);
        match self.cores {
            Some(cores) => point.with("cores", cores),
            None => point,
        }
    }
}

fn one_client(scale: &Scale) -> Vec<SweepPoint> {
    // As many bytes as the block of one transaction.
    let device = DeviceJob {
        place: StorageMedium::Disk,
        device: DeviceAccess::File,
        piece: 512,
        sync_size: 512,
        threads: 1,
        warm_up: true,
    };
    let name = |mode: &str, epoch: &str| {
        [
            ("load", "one client".into()),
            ("mode", mode.into()),
            ("epoch", epoch.into()),
            ("diff", "–".into()),
        ]
    };
    let baseline = SweepPoint::new(name("device", "write and sync"), TargetJob::Device(device));
    let store = |mode: Mode| {
        TargetJob::Store(StoreJob {
            workload: WorkloadSettings::Ycsb(YcsbSettings::reads_and_updates(0, scale.records)),
            pace: LoadSchedule::Closed,
            workers: 1,
            log: Some(mode.log_settings(StorageMedium::Disk)),
        })
    };
    let point = |mode: &str, epoch: &str, how| {
        SweepPoint::new(name(mode, epoch), store(how)).against(&baseline)
    };
    let adaptive = point("adaptive", "adaptive 3 ms", Mode::Adaptive(3000));
    let fixed = point("fixed", "1 ms", Mode::Fixed(1000, None));
    vec![baseline, adaptive, fixed]
}
