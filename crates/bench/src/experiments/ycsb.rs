//! `ycsb`: YCSB's workloads at the store's interface, in closed and open loops.

use crate::driver::LoadSchedule;
use crate::experiment::{Experiment, SweepPoint};
use crate::parameters::Scale;
use crate::plot::{Compare, Plot, PlotKind};
use crate::run_context::StorageMedium;
use crate::target::{LogSettings, StoreJob, TargetJob};
use crate::workload::{WorkloadSettings, YcsbSettings};

/// Rates of the open loops, transactions a second: well below what a worker can do, so that the
/// latency is the store's and not that of a queue.
const RATES: [f64; 3] = [1_000.0, 5_000.0, 20_000.0];

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ycsb",
    title: "YCSB A to F, embedded",
    paper: None,
    about: &[
        "The six standard workloads on values of 100 bytes, ten operations in a transaction, keys \
         zipfian (in D the latest). 'saturated' runs transactions back to back and does not wait; \
         'closed' waits until each is durable before it begins the next; 'open' begins transactions \
         on a schedule, and counts the latency from when each was to begin.",
    ],
    points,
    plots,
    compare: Vec::<Compare>::new,
    columns: &[
        "workload",
        "log",
        "pace",
        "throughput",
        "latency",
        "latency-p50",
        "latency-p99",
        "latency-p999",
        "cpu",
    ],
};

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let mut points = Vec::new();
    for letter in "ABCDEF".chars() {
        let ycsb = YcsbSettings::standard(letter, scale.records).expect("it is one of the six");
        let point = |log: &str, pace_name: &str, pace, log_settings| {
            let job = StoreJob {
                workload: WorkloadSettings::Ycsb(ycsb.clone()),
                pace,
                workers: scale.workers(1),
                log: log_settings,
            };
            let params = [
                ("workload", letter.to_string().as_str().into()),
                ("log", log.into()),
                ("pace", pace_name.into()),
            ];
            SweepPoint::new(params, TargetJob::Store(job))
        };
        let disk = Some(LogSettings::new(StorageMedium::Disk));
        let baseline = point("none", "saturated", LoadSchedule::Saturated, None);
        points.push(baseline.clone());
        points.push(point("disk", "saturated", LoadSchedule::Saturated, disk).against(&baseline));
        points.push(point("disk", "closed", LoadSchedule::Closed, disk));
        if letter == 'A' {
            for rate in RATES {
                let name = format!("open {rate}");
                points.push(point("disk", &name, LoadSchedule::Open { rate }, disk));
            }
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let bars = |y| PlotKind::Bars {
        x: "workload",
        y,
        series: "log",
        relative: false,
    };
    vec![
        Plot {
            title: "Throughput, saturated",
            caption: "With and without a log on the disk.",
            shape: bars("throughput"),
            only: vec![("pace", vec!["saturated".into()])],
            paper: Vec::new(),
        },
        Plot {
            title: "Workload A: p99 latency",
            caption: "From the intended beginning of a transaction to its durability.",
            shape: PlotKind::Bars {
                x: "pace",
                y: "latency-p99",
                series: "log",
                relative: false,
            },
            only: vec![("workload", vec!["A".into()]), ("log", vec!["disk".into()])],
            paper: Vec::new(),
        },
    ]
}
