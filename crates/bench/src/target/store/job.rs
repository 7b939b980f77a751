//! Which transactions on a store are measured, and how its log is set up.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use base::affinity::Affinity;
use serde::{Deserialize, Serialize};
use store::{CheckpointOptions, EpochTime, Options};

use crate::disk_access::{DeviceAccess, SlowDevice};
use crate::driver::LoadSchedule;
use crate::error::RunError;
use crate::run_context::{RunContext, StorageMedium};
use crate::workload::WorkloadSettings;

/// Workers beyond those that are driven: for loading and checking.
const SPARE: usize = 2;

/// Transactions on a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreJob {
    /// The work of the transactions.
    pub workload: WorkloadSettings,
    /// When they begin.
    pub pace: LoadSchedule,
    /// Threads, each with a worker of the store.
    pub workers: usize,
    /// The store's log; `None`: nothing is logged.
    pub log: Option<LogSettings>,
}

/// How the log is set up: the fields of [`store::Options`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // They are named as in the store's options.
pub struct LogSettings {
    pub place: StorageMedium,
    pub device: DeviceAccess,
    pub loggers: usize,
    pub log_buffers: usize,
    pub log_buffer_size: usize,
    /// `None`: adaptive.
    pub epoch_time: Option<Duration>,
    pub durability_target: Duration,
    pub max_epoch_diff: Option<NonZeroU64>,
    pub log_warm_up: bool,
    pub measure_latency: bool,
    /// One log lies on a slower device than the others.
    pub slow: Option<SlowDevice>,
}

impl LogSettings {
    /// Returns the store's defaults, in a place.
    #[must_use]
    pub fn new(place: StorageMedium) -> LogSettings {
        let options = Options::default();
        LogSettings {
            place,
            device: DeviceAccess::File,
            loggers: options.loggers,
            log_buffers: options.log_buffers,
            log_buffer_size: options.log_buffer_size,
            epoch_time: None,
            durability_target: options.durability_target,
            max_epoch_diff: None,
            log_warm_up: false,
            measure_latency: false,
            slow: None,
        }
    }
}

impl StoreJob {
    /// Checks that there is a processor for each worker and logger, and none too many.
    pub(super) fn fits(&self, affinity: &Affinity) -> Result<(), RunError> {
        let (workers, loggers) = (affinity.workers().count(), affinity.loggers.len());
        let same = self.log.is_none_or(|log| log.loggers == loggers);
        if workers == self.workers && same {
            return Ok(());
        }
        let what = format!("the placement is one of {workers} workers and {loggers} loggers");
        Err(RunError::Skipped(what))
    }

    /// Returns the options of the store; its log lies in `dir`, if it has one.
    pub(super) fn options(
        &self,
        dir: Option<&Path>,
        context: &RunContext<'_>,
    ) -> Result<Options, RunError> {
        let checkpoint = CheckpointOptions {
            log_size: 0,
            ..CheckpointOptions::default()
        };
        let options = Options {
            dir: dir.map(Path::to_owned),
            workers: self.workers + SPARE,
            checkpoint,
            ..Options::default()
        };
        let (Some(log), Some(dir)) = (&self.log, dir) else {
            return Ok(options);
        };
        let slow = log
            .slow
            .map(|slow| (slow, dir.join(format!("log{}", slow.log))));
        let disk = log.device.open(slow)?;
        Ok(Options {
            loggers: log.loggers,
            log_buffers: log.log_buffers,
            log_buffer_size: log.log_buffer_size,
            epoch_time: log.epoch_time.map_or(EpochTime::Adaptive, EpochTime::Fixed),
            durability_target: log.durability_target,
            max_epoch_diff: log.max_epoch_diff,
            log_warm_up: log.log_warm_up,
            measure_latency: log.measure_latency,
            affinity: context.affinity.cloned(),
            disk,
            ..options
        })
    }
}
