//! The file layer under a target.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::{DirectDisk, Disk, RealDisk};
use serde::{Deserialize, Serialize};

use crate::sample::RunError;

/// How files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// `write` and `fdatasync`.
    File,
    /// Direct I/O through io_uring.
    Direct,
}

/// A device that is slower than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// The logger whose device it is.
    pub log: usize,
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// What a sync takes at least.
    pub sync: Duration,
}

impl Device {
    /// Its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Device::File => "file",
            Device::Direct => "direct",
        }
    }

    /// The layer.
    pub(super) fn open(self) -> Result<Arc<dyn Disk>, RunError> {
        match self {
            Device::File => Ok(Arc::new(RealDisk)),
            Device::Direct => match DirectDisk::new() {
                Ok(disk) => Ok(Arc::new(disk)),
                Err(error) => Err(RunError::Skipped(format!("no direct I/O here: {error}"))),
            },
        }
    }
}

impl Slow {
    /// `disk`, with the slow one below `dir`.
    pub(super) fn on(self, disk: Arc<dyn Disk>, dir: &Path) -> Result<Arc<dyn Disk>, RunError> {
        let _ = (disk, dir);
        Err(RunError::Skipped("no throttled device yet".to_owned()))
    }
}
