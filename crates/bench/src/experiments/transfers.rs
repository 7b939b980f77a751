//! `transfers`: transfers between accounts, whose sum is constant.

use crate::driver::LoadSchedule;
use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::Scale;
use crate::plot::{Compare, Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::target::{LogSettings, StoreJob, TargetJob};
use crate::workload::{TransferSettings, WorkloadSettings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "transfers",
    title: "Transfers between accounts",
    paper: None,
    about: &[
        "Transactions move amounts between two random accounts; now and then one reads all of \
         them, and their sum must be what it was in the beginning. The fewer accounts, the more \
         transactions get in each other's way.",
    ],
    points,
    plots,
    compare: Vec::<Compare>::new,
    columns: &[
        "accounts",
        "log",
        "workers",
        "throughput",
        "latency",
        "latency-p99",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    for &accounts in scale.pick(&[10], &[10, 1000], &[10, 100, 1000]) {
        let point = |log: &str, log_settings| {
            let workers = scale.workers(1).max(2);
            let audit_every = 100;
            let job = StoreJob {
                workload: WorkloadSettings::Transfers(TransferSettings {
                    accounts,
                    audit_every,
                }),
                pace: LoadSchedule::Saturated,
                workers,
                log: log_settings,
            };
            let params = [
                ("accounts", accounts.into()),
                ("log", log.into()),
                ("workers", workers.into()),
            ];
            SweepPoint::new(params, TargetJob::Store(job))
        };
        let baseline = point("none", None);
        let logged = point("disk", Some(LogSettings::new(StorageMedium::Disk))).against(&baseline);
        points.extend([baseline, logged]);
    }
    points
}

fn plots() -> Vec<Plot> {
    vec![Plot {
        title: "Throughput by accounts",
        caption: "With and without a log on the disk.",
        shape: PlotKind::Bars {
            x: "accounts",
            y: "throughput",
            series: "log",
            relative: false,
        },
        only: Vec::new(),
        paper: Vec::new(),
    }]
}
