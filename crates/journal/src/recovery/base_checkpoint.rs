//! The checkpoint that a recovery begins from, and its description of the logs.

use std::path::PathBuf;

use base::Epoch;

use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::read::PartFile;
use crate::error::RecoverError;

/// A checkpoint whose files are there.
pub(super) struct BaseCheckpoint {
    /// The manifest's file.
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) parts: Vec<PartFile>,
}

impl BaseCheckpoint {
    /// Returns the epoch up to which it holds everything.
    pub(super) fn epoch(&self) -> Epoch {
        self.manifest.view.epoch
    }

    /// Returns the error for a log or segment at `path` that is needed beside it and missing.
    pub(super) fn needs(&self, path: PathBuf) -> RecoverError {
        let why = format!("the checkpoint {} needs it", self.path.display());
        RecoverError::Missing { path, why }
    }
}
