//! Calls that concern checkpoints.

use crate::checkpoint_report::{
    CheckpointError, CheckpointRefused, CheckpointReport, CheckpointStatus,
};
use crate::db::Db;

impl Db {
    /// Begins a checkpoint in the background.
    ///
    /// # Errors
    /// Returns a [`CheckpointRefused`] that says why none begins.
    pub fn request_checkpoint(&self) -> Result<(), CheckpointRefused> {
        let db = self.state();
        let Some(journal) = &db.journal else {
            return Err(CheckpointRefused::Ephemeral);
        };
        if let Some(failed) = journal.failed() {
            return Err(CheckpointRefused::Failed(failed.to_string()));
        }
        db.checkpoints.request()
    }

    /// Makes a checkpoint that begins after this call, and waits for it.
    ///
    /// # Errors
    /// Returns a [`CheckpointError`] that says why there is none.
    pub fn checkpoint(&self) -> Result<CheckpointReport, CheckpointError> {
        let db = self.state();
        if db.journal.is_none() {
            return Err(CheckpointError::Ephemeral);
        }
        db.checkpoints.make()
    }

    /// Returns the status of checkpoints.
    #[must_use]
    pub fn checkpoint_status(&self) -> CheckpointStatus {
        let db = self.state();
        db.checkpoints.status(db.log_bytes())
    }
}
