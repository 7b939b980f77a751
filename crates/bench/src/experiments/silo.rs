//! Shared by the experiments on the store's log.

use crate::driver::LoadSchedule;
use crate::parameters::Scale;
use crate::target::{LogSettings, StoreJob, TargetJob};
use crate::workload::{WorkloadSettings, YcsbSettings};

/// Returns the paper's workload, at full speed.
pub(super) fn job(
    scale: &Scale,
    read_percent: u32,
    workers: usize,
    log: Option<LogSettings>,
) -> TargetJob {
    TargetJob::Store(StoreJob {
        workload: WorkloadSettings::Ycsb(YcsbSettings::reads_and_updates(
            read_percent,
            scale.records,
        )),
        pace: LoadSchedule::Saturated,
        workers,
        log,
    })
}

/// Returns numbers of threads for a sweep: powers of two up to the processors, and twice as many.
pub(super) fn threads(scale: &Scale) -> Vec<usize> {
    let most = scale.cores.max(1) * 2;
    let powers = std::iter::successors(Some(1), |n| Some(n * 2));
    let mut all: Vec<usize> = powers.take_while(|&n| n <= most).collect();
    if !all.contains(&scale.cores) {
        all.push(scale.cores);
        all.sort_unstable();
    }
    let all: Vec<usize> = all;
    let few = [1, scale.cores.clamp(1, 4)];
    let mut chosen = scale.pick(&few[..1], &few, &all).to_vec();
    chosen.dedup();
    chosen
}
