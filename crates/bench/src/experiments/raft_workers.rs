//! `raft-workers`: workers that execute at the same time before one replicated log (papers 2 and 5).

use crate::experiment::{Experiment, SweepPoint};
use crate::experiments::raft::{self, Transfer};
use crate::parameters::{Effort, Param, Scale};
use crate::plot::{Aim, Compare, Measure, Plot, PlotKind};
use crate::target::{ReplicaWorkersJob, ReplicasJob, TargetJob};

const NODES: usize = 3;
/// Clients of each worker.
const CLIENTS: usize = 64;
/// The most entries of a group: as in paper 5, and more than the clients of all workers of the plots have
/// under way at a time.
const GROUPS: [usize; 2] = [64, 1024];
/// Counters to which a transaction adds: little work for a worker, and much.
const ADDS: [usize; 2] = [2, 32];
/// The most simulated workers.
const MOST: usize = 16;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "raft-workers",
    title: "Workers that execute at the same time before one replicated log, real and simulated",
    paper: None,
    about: &[
        "Paper 5 executes on one thread of the leader, and paper 2 on many threads that share a log. Here both \
         meet: the leader's workers execute under locks at the same time, and a group of the log has \
         what all of them submitted, as an epoch has. Three members hold one partition in memory; each worker \
         has 64 clients with one request under way each. A transaction adds to 2 or to 32 counters.",
        "One and two workers are measured. All members live in one process: each has a thread, and so has each \
         worker. Beside them a simulation of the same threads, on one machine with as many processors as \
         this one, with service times that are measured in each round for 1, 8 and 64 clients: \
         'simulated, of real' shows the quality of the simulation. Up to 16 workers are simulated alone, \
         each thread with a processor of its own and 25 µs between members.",
    ],
    points,
    plots,
    compare,
    columns: &[
        "threads",
        "adds",
        "group",
        "workers",
        "throughput",
        "simulated",
        "of-real",
        "entries-per-group",
        "worker-cpu",
        "leader-cpu",
        "follower-cpu",
        "cpu",
    ],
};

const REAL: &str = "real";
const SIMULATED: &str = "simulated";

fn point(real: bool, adds: usize, group: usize, workers: usize, transactions: usize) -> SweepPoint {
    let replicas = ReplicasJob {
        bulk: adds / 2,
        workers,
        ..raft::job("memory", Transfer::Group(group), NODES, CLIENTS * workers)
    };
    let job = ReplicaWorkersJob {
        replicas,
        real,
        transactions,
    };
    SweepPoint::new(params(real, adds, group, workers), TargetJob::Workers(job))
}

fn params(real: bool, adds: usize, group: usize, workers: usize) -> [(&'static str, Param); 4] {
    [
        ("threads", if real { REAL } else { SIMULATED }.into()),
        ("adds", adds.into()),
        ("group", group.into()),
        ("workers", workers.into()),
    ]
}

fn points(scale: &Scale) -> Vec<SweepPoint> {
    let transactions = match scale.effort {
        Effort::Tiny => 2000,
        Effort::Quick => 50_000,
        Effort::Full => 200_000,
    };
    let adds = scale.pick(&ADDS[..1], &ADDS, &ADDS);
    let groups = scale.pick(&GROUPS[..1], &GROUPS, &GROUPS);
    let simulated = scale.pick(&[1, MOST], &[1, 2, 4, 8, MOST], &[1, 2, 4, 8, MOST]);
    let mut points = Vec::new();
    for &adds in adds {
        for &group in groups {
            for (real, counts) in [(true, &[1, 2][..]), (false, simulated)] {
                let of = |workers| point(real, adds, group, workers, transactions);
                let (first, others) = counts.split_first().expect("there is a first");
                let baseline = of(*first);
                let others = others.iter().map(|&workers| of(workers).against(&baseline));
                let others: Vec<SweepPoint> = others.collect();
                points.push(baseline);
                points.extend(others);
            }
        }
    }
    points
}

fn plots() -> Vec<Plot> {
    let plot = |title, caption, threads: &str, adds: usize| Plot {
        title,
        caption,
        shape: PlotKind::Lines {
            x: "workers",
            y: "throughput",
            series: &["group"],
            doubling: true,
        },
        only: vec![
            ("threads", vec![threads.into()]),
            ("adds", vec![adds.into()]),
        ],
        paper: Vec::new(),
    };
    vec![
        plot(
            "Simulated, 2 counters: throughput by workers",
            "Transactions with little work: the log's thread is soon busy, and larger groups help it.",
            SIMULATED,
            ADDS[0],
        ),
        plot(
            "Simulated, 32 counters: throughput by workers",
            "Transactions with more work.",
            SIMULATED,
            ADDS[1],
        ),
        plot(
            "Real, 2 counters: throughput by workers",
            "All threads on this machine's processors.",
            REAL,
            ADDS[0],
        ),
        plot(
            "Real, 32 counters: throughput by workers",
            "All threads on this machine's processors.",
            REAL,
            ADDS[1],
        ),
    ]
}

fn compare() -> Vec<Compare> {
    let gain = |what, real, adds, group, workers| Compare {
        what,
        paper: None,
        ours: Measure::Share {
            metric: "throughput",
            at: params(real, adds, group, workers).to_vec(),
        },
        aim: None,
    };
    vec![
        Compare {
            what: "the simulation: the greatest difference from real workers",
            paper: None,
            ours: Measure::Value {
                metric: "off",
                at: vec![("threads", REAL.into())],
            },
            aim: Some(Aim::AtMost(0.25)),
        },
        gain(
            "2 counters, groups of 64: two workers by one",
            true,
            2,
            64,
            2,
        ),
        gain(
            "32 counters, groups of 64: two workers by one",
            true,
            32,
            64,
            2,
        ),
        gain(
            "simulated, 2 counters, groups of 64: 16 workers by one",
            false,
            2,
            64,
            MOST,
        ),
        gain(
            "simulated, 2 counters, groups of 1024: 16 workers by one",
            false,
            2,
            1024,
            MOST,
        ),
        gain(
            "simulated, 32 counters, groups of 64: 16 workers by one",
            false,
            32,
            64,
            MOST,
        ),
        gain(
            "simulated, 32 counters, groups of 1024: 16 workers by one",
            false,
            32,
            1024,
            MOST,
        ),
    ]
}
