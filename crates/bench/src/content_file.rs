//! Files of known content, each written once for a run of an experiment and read by all its points.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::content;
use crate::error::RunError;
use crate::run_context::{RunContext, StorageMedium};

/// The files by their places and lengths. Dropping this removes them.
#[derive(Default)]
pub struct ContentFiles(Mutex<HashMap<(StorageMedium, u64), Arc<ContentFile>>>);

/// A file whose content follows from its offsets, see [`crate::content`].
pub struct ContentFile {
    dir: tempfile::TempDir,
    len: u64,
}

impl ContentFile {
    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("content")
    }

    /// Returns its directory, which contains nothing else.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns `true` if its length is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl ContentFiles {
    /// Returns a file of so many bytes in a place.
    pub(crate) fn get(
        &self,
        context: &RunContext<'_>,
        place: StorageMedium,
        len: u64,
    ) -> Result<Arc<ContentFile>, RunError> {
        let mut files = self.0.lock();
        if let Some(file) = files.get(&(place, len)) {
            return Ok(Arc::clone(file));
        }
        let dir = context.directory(place)?;
        let file = Arc::new(ContentFile { dir, len });
        let written = content::write(&file.path(), len, context.plant);
        written.map_err(|error| RunError::failed("making a file to be read")(&error))?;
        files.insert((place, len), Arc::clone(&file));
        Ok(file)
    }
}
