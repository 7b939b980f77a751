//! Fixtures that are made once for a run of an experiment, and used by all its points.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::content;
use crate::replay::Trace;
use crate::sample::RunError;
use crate::target::{Context, Place};

/// See the [module](self). Dropping this removes what was made.
#[derive(Default)]
pub struct Fixtures {
    files: Mutex<HashMap<(Place, u64), Arc<ContentFile>>>,
    trace: Mutex<Option<Arc<Trace>>>,
}

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

impl Fixtures {
    /// Returns a file of so many bytes in a place.
    pub(crate) fn file(
        &self,
        context: &Context<'_>,
        place: Place,
        len: u64,
    ) -> Result<Arc<ContentFile>, RunError> {
        let mut files = self.files.lock();
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

    /// Returns the trace of a query, which is executed on the first call.
    pub(crate) fn trace(&self, context: &Context<'_>) -> Result<Arc<Trace>, RunError> {
        let mut known = self.trace.lock();
        if let Some(trace) = &*known {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(crate::replay::record(context)?);
        *known = Some(Arc::clone(&trace));
        Ok(trace)
    }
}
