//! The part of a checkpoint that a running journal does: every log continues in a new segment
//! before it, and closes the checkpoint's epoch after it.

use std::path::Path;
use std::sync::Arc;

use disk::Disk;

use super::draft::{CheckpointDraft, PublishedCheckpoint};
use super::manifest::LogStart;
use super::origin::RunOrigin;
use super::part::CheckpointPart;
use crate::error::CheckpointError;
use crate::threads::JournalShared;

/// Begins a checkpoint of the store in `dir`: every log continues in a new segment.
///
/// # Errors
/// Returns an error if a log cannot continue in a new segment, or if the directory of checkpoints
/// cannot be relied on.
pub(crate) fn begin(
    shared: &JournalShared,
    origin: &RunOrigin,
    disk: &Arc<dyn Disk>,
    dir: &Path,
) -> Result<CheckpointDraft, CheckpointError> {
    if let Some(reason) = origin.broken.get() {
        return Err(CheckpointError::Broken(reason.clone()));
    }
    let context = shared.context();
    let mut logs = Vec::new();
    for logger in &shared.loggers {
        let (segment, sequence) = logger.branch(&context).inspect_err(|error| {
            if let CheckpointError::Failed(failed) = error {
                shared.refuse(failed);
            }
        })?;
        logs.push(LogStart { segment, sequence });
    }
    logs.extend(origin.idle.iter().map(|&segment| LogStart {
        segment,
        sequence: 0,
    }));
    CheckpointDraft::new(disk, dir, origin, logs)
}

/// Publishes a checkpoint whose `parts` are finished, once its epoch is durable.
///
/// # Errors
/// Returns an error if the disk or the journal fails.
pub(crate) fn publish(
    shared: &JournalShared,
    draft: CheckpointDraft,
    parts: Vec<CheckpointPart>,
    finished_ms: u64,
) -> Result<PublishedCheckpoint, CheckpointError> {
    let epoch = draft.view().epoch;
    shared.horizon.wait(epoch, || shared.request(epoch))?;
    let context = shared.context();
    for logger in &shared.loggers {
        logger
            .note(&context, epoch)
            .inspect_err(|failed| shared.refuse(failed))??;
    }
    draft.publish(parts, finished_ms)
}
