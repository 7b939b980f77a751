//! The part of the logs in checkpoints.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use disk::Disk;

use super::manifest::LogStart;
use super::{Draft, Part, Published};
use crate::error::CheckpointError;
use crate::journal::Journal;
use crate::options::Options;
use crate::recovery::Recovered;

/// The state at the start of a journal's run that checkpoints need.
pub(crate) struct Origin {
    pub(super) run: u32,
    pub(super) salt: u64,
    /// The segments of the logs that this run does not write: those with greater numbers than its
    /// loggers.
    idle: Vec<u32>,
    /// The reason why the directory of checkpoints cannot be relied on any more.
    pub(super) broken: Arc<OnceLock<String>>,
}

impl Origin {
    /// Returns the origin of the run that begins with these.
    pub(crate) fn new(options: &Options, recovered: &Recovered) -> Origin {
        let idle = recovered.next_segments.iter().skip(options.loggers);
        Origin {
            run: recovered.run + 1,
            salt: options.salt,
            idle: idle.copied().collect(),
            broken: Arc::default(),
        }
    }
}

impl Journal {
    /// Begins a checkpoint of the store in `dir`, the journal's directory on `disk`: every log
    /// continues in a new segment. The caller then draws the epoch that the checkpoint holds, so
    /// that it is not below any epoch that was logged before this call, and writes the parts.
    ///
    /// # Errors
    /// Returns an error if a log cannot continue in a new segment: it continues in its present one,
    /// unless the journal has failed.
    pub fn begin_checkpoint(
        &self,
        disk: &Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<Draft, CheckpointError> {
        if let Some(reason) = self.origin.broken.get() {
            return Err(CheckpointError::Broken(reason.clone()));
        }
        let context = self.shared.context();
        let mut logs = Vec::new();
        for logger in &self.shared.loggers {
            let (segment, sequence) = logger.branch(&context).inspect_err(|error| {
                if let CheckpointError::Failed(failed) = error {
                    self.shared.refuse(failed);
                }
            })?;
            logs.push(LogStart { segment, sequence });
        }
        let idle = self.origin.idle.iter();
        logs.extend(idle.map(|&segment| LogStart {
            segment,
            sequence: 0,
        }));
        Draft::new(disk, dir, &self.origin, logs)
    }

    /// Publishes a checkpoint whose `parts` are finished: all that were begun, in their order.
    /// Waits until its epoch is durable. Log segments and checkpoints that are not needed any more
    /// are removed.
    ///
    /// # Errors
    /// Returns an error if the disk or the journal fails. The files of the checkpoint are removed
    /// then.
    pub fn publish_checkpoint(
        &self,
        draft: Draft,
        parts: Vec<Part>,
        finished_ms: u64,
    ) -> Result<Published, CheckpointError> {
        let epoch = draft.view().epoch;
        self.wait(epoch)?;
        let context = self.shared.context();
        for logger in &self.shared.loggers {
            logger
                .note(&context, epoch)
                .inspect_err(|failed| self.shared.refuse(failed))??;
        }
        draft.publish(parts, finished_ms)
    }
}
