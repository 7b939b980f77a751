//! The checkpoint that a recovery begins from, and its description of the logs.

use std::path::PathBuf;

use base::Epoch;

use super::layout::Log;
use crate::checkpoint::manifest::{LogStart, Manifest};
use crate::checkpoint::read::PartFile;
use crate::error::RecoverError;
use crate::format::segment_name;

/// A checkpoint whose files are there.
pub(super) struct Base {
    /// The manifest's file.
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) parts: Vec<PartFile>,
}

impl Base {
    /// Returns the epoch up to which it holds everything.
    pub(super) fn epoch(&self) -> Epoch {
        self.manifest.view.epoch
    }

    /// Returns the error for a log or segment at `path` that is needed beside it and missing.
    pub(super) fn needs(&self, path: PathBuf) -> RecoverError {
        let why = format!("the checkpoint {} needs it", self.path.display());
        RecoverError::Missing { path, why }
    }

    /// Checks that the log begins where the manifest says.
    pub(super) fn check_start(&self, log: &Log, start: LogStart) -> Result<(), RecoverError> {
        let Some(first) = log.segments.first() else {
            // The header was durable before the checkpoint was begun.
            let path = log.dir.join(segment_name(start.segment));
            let what = "the segment's header is not valid";
            return Err(RecoverError::corrupt(&path, 0, what));
        };
        let header = &first.header;
        if (header.run, header.sequence) == (self.manifest.run, start.sequence) {
            return Ok(());
        }
        let what = format!(
            "it begins with block {} of run {}, but the checkpoint {} needs it to begin with block \
             {} of run {}",
            header.sequence,
            header.run,
            self.path.display(),
            start.sequence,
            self.manifest.run
        );
        Err(RecoverError::corrupt(&first.path, 0, what))
    }
}
