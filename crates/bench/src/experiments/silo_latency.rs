//! `silo-latency`: durability latency, and the means that bound it (paper 2, section 6.3 and figure
//! 5).
//!
//! Figures 12 to 18 sweep workers, which this experiment does not: it has one number of workers,
//! and shows the other means that bound latency.
//!
//! | load | what runs |
//! |---|---|
//! | `saturated` | write-only, as fast as it goes, log in memory |
//! | `saturated, disk` | the same, log on the disk |
//! | `slow log` | the same with two logs in memory, one of them on a device that is slower than its worker: the paper's cause of long latencies |
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
    paper: Some("paper 2, figure 5 and section 6.3; figures 12 to 18 are not reproduced"),
    about: &[
        "A transaction is durable when its epoch is complete in all logs. Shorter epochs shorten \
         that, but one slow logger still holds back all the others: their transactions are written \
         and wait. The paper's remedy is max-epoch-diff: a worker whose epoch is so far ahead of its \
         logger's waits until the logger has caught up. At 1 ms epochs it takes the latency from 9.1 \
         to 3.3 ms for 17 % of the throughput.",
        "Here: the paper's sweep; the same with a log on a device that is too slow for its worker, \
         which is the paper's cause and shows on any machine; and the adaptive mode, which has \
         neither knob: an epoch ends when the loggers are idle and someone waits, and workers are \
         held back so that the mean latency keeps a target.",
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
        "throughput",
        "latency",
        "latency-p99",
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

/// Returns the sweep.
fn modes(effort: Effort) -> Vec<Mode> {
    let all = [None, Some(2), Some(3), Some(4)];
    let some = [None, Some(3)];
    let (half, one, two, forty, targets): (&[_], &[_], &[_], &[_], &[_]) = match effort {
        Effort::Tiny => (&[], &some, &[], &[], &[3000]),
        Effort::Quick => (&some, &all, &some, &all[..1], &[1000, 3000, 10_000]),
        Effort::Full => (&all, &all, &all, &all, &[1000, 2000, 3000, 5000, 10_000]),
    };
    let fixed = [(500, half), (1000, one), (2000, two), (40_000, forty)];
    let fixed = fixed
        .into_iter()
        .flat_map(|(us, diffs)| diffs.iter().map(move |&diff| Mode::Fixed(us, diff)));
    let adaptive = targets.iter().map(|&us| Mode::Adaptive(us));
    fixed.chain(adaptive).collect()
}

/// Returns a part of the sweep, for loads where all of it would show the same.
fn few_modes(effort: Effort) -> Vec<Mode> {
    let is_one = |mode: &Mode| matches!(mode, Mode::Fixed(1000, _) | Mode::Adaptive(3000));
    modes(effort).into_iter().filter(is_one).collect()
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let mut points = sweep(scale, "saturated", modes(scale.effort), 1, |mode| {
        mode.log_settings(StorageMedium::Memory)
    });
    if scale.effort == Effort::Full {
        let on_disk = |mode: Mode| mode.log_settings(StorageMedium::Disk);
        points.extend(sweep(
            scale,
            "saturated, disk",
            modes(scale.effort),
            1,
            on_disk,
        ));
    }
    let slow = |mode: Mode| LogSettings {
        loggers: 2,
        slow: Some(SLOW),
        ..mode.log_settings(StorageMedium::Memory)
    };
    points.extend(sweep(scale, "slow log", few_modes(scale.effort), 2, slow));
    points.extend(one_client(scale));
    points
}

/// Returns a load in all these modes, and without a log.
fn sweep(
    scale: &Scale,
    load: &str,
    modes: Vec<Mode>,
    loggers: usize,
    log_settings: impl Fn(Mode) -> LogSettings,
) -> Vec<SweepPoint> {
    let workers = scale.workers(loggers).max(loggers);
    let none = [
        ("load", load.into()),
        ("mode", "none".into()),
        ("epoch", "no log".into()),
        ("diff", "–".into()),
    ];
    let baseline = SweepPoint::new(none, silo::job(scale, 0, workers, None));
    let variants = modes.into_iter().map(|mode| {
        let [a, b, c] = mode.params();
        let params = [("load", load.into()), a, b, c];
        SweepPoint::new(
            params,
            silo::job(scale, 0, workers, Some(log_settings(mode))),
        )
        .against(&baseline)
    });
    std::iter::once(baseline.clone()).chain(variants).collect()
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
