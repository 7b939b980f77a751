//! The file layer under a target.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use disk::{DirectDisk, Disk, MappedDisk, RealDisk, Throttle, ThrottledDisk};
use serde::{Deserialize, Serialize};

use crate::error::RunError;

/// How files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceAccess {
    /// `write` and `fdatasync`.
    File,
    /// Direct I/O through io_uring.
    Direct,
    /// Stores to mapped memory, as libpmem does it.
    Map,
}

/// A device that is slower than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowDevice {
    /// The logger whose device it is.
    pub log: usize,
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// The additional time of a sync.
    pub sync: Duration,
}

impl DeviceAccess {
    /// Returns its name among the parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DeviceAccess::File => "file",
            DeviceAccess::Direct => "direct",
            DeviceAccess::Map => "map",
        }
    }

    /// Returns the layer; slow for the files below a directory, if requested.
    pub(super) fn open(
        self,
        slow: Option<(SlowDevice, PathBuf)>,
    ) -> Result<Arc<dyn Disk>, RunError> {
        match self {
            DeviceAccess::File => Ok(wrap(RealDisk, slow)),
            DeviceAccess::Direct => match DirectDisk::new() {
                Ok(disk) => Ok(wrap(disk, slow)),
                Err(error) => Err(RunError::Skipped(format!("no direct I/O here: {error}"))),
            },
            DeviceAccess::Map => Ok(wrap(MappedDisk::default(), slow)),
        }
    }
}

fn wrap(disk: impl Disk + 'static, slow: Option<(SlowDevice, PathBuf)>) -> Arc<dyn Disk> {
    let Some((slow, dir)) = slow else {
        return Arc::new(disk);
    };
    let throttle = Throttle {
        bytes_per_second: slow.bytes_per_second,
        sync_delay: slow.sync,
    };
    Arc::new(ThrottledDisk::new(disk, dir, throttle))
}
