//! The directory of a database.

use std::path::PathBuf;
use std::sync::Arc;

use disk::Disk;

use crate::options::Options;

/// The directory, and the layer on which it lies.
pub(crate) struct DataDirectory {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
}

impl DataDirectory {
    /// Returns the directory that the options name, if they name one.
    pub(crate) fn of(options: &Options) -> Option<DataDirectory> {
        let dir = options.dir.clone()?;
        let disk = Arc::clone(&options.disk);
        Some(DataDirectory { disk, dir })
    }
}
