//! The file layer that the command line selects.

use std::sync::Arc;

use clap::ValueEnum;
use disk::{DirectDisk, Disk, ForgetfulDisk, RealDisk};

/// The file layer.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum DiskLayer {
    /// The file system.
    Real,
    /// A layer that loses unsynced data when the process is killed.
    Forgetful,
}

/// How files that grow are written.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum LogDevice {
    /// Through the operating system's page cache, then synced.
    Write,
    /// Past the page cache: direct I/O in sectors of 4 KiB, with io_uring.
    Direct,
}

/// Opens the file layer `layer`, which writes in the way of `device`.
pub(crate) fn open(layer: DiskLayer, device: LogDevice) -> Result<Arc<dyn Disk>, String> {
    match device {
        LogDevice::Write => Ok(keep(layer, RealDisk)),
        LogDevice::Direct => {
            let disk = DirectDisk::new().map_err(|error| error.to_string())?;
            Ok(keep(layer, disk))
        }
    }
}

fn keep(layer: DiskLayer, disk: impl Disk + 'static) -> Arc<dyn Disk> {
    match layer {
        DiskLayer::Real => Arc::new(disk),
        DiskLayer::Forgetful => Arc::new(ForgetfulDisk::new(disk)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_its_alignment_on_each_layer() {
        for layer in [DiskLayer::Real, DiskLayer::Forgetful] {
            for (device, alignment) in [(LogDevice::Write, 1), (LogDevice::Direct, 4096)] {
                assert_eq!(open(layer, device).unwrap().alignment(), alignment);
            }
        }
    }
}
