//! The file layer that the command line selects.

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use disk::{DirectDisk, Disk, ForgetfulDisk, MappedDisk, MappedMedium, RealDisk};

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
    /// By stores to memory that the file is mapped to: for persistent memory (a file system with DAX),
    /// without system calls.
    Map,
}

/// Opens the file layer `layer`, which writes in the way of `device`.
pub(crate) fn open(layer: DiskLayer, device: LogDevice) -> Result<Arc<dyn Disk>, String> {
    match device {
        LogDevice::Write => Ok(keep(layer, RealDisk)),
        LogDevice::Direct => {
            let disk = DirectDisk::new().map_err(|error| error.to_string())?;
            Ok(keep(layer, disk))
        }
        LogDevice::Map => Ok(keep(layer, MappedDisk::with_observer(log_medium))),
    }
}

/// Logs what mapped files in `dir` lie in, and what that means for users.
fn log_medium(medium: MappedMedium, dir: &Path) {
    let dir = dir.display();
    match medium {
        MappedMedium::PersistentMemory => tracing::info!("{dir} is in persistent memory"),
        MappedMedium::VolatileMemory => tracing::warn!(
            "{dir} is in memory (tmpfs), and a loss of power or a restart of the machine takes all of it"
        ),
        MappedMedium::PageCache => tracing::warn!(
            "{dir} is not in persistent memory: with --log-device map a sync follows each write, \
             which gains nothing over --log-device write and costs more for large writes"
        ),
        MappedMedium::Unmapped => tracing::warn!(
            "{dir} is on a file system whose files --log-device map does not map: they are written \
             and synced as with --log-device write"
        ),
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
            for (device, alignment) in [
                (LogDevice::Write, 1),
                (LogDevice::Direct, 4096),
                (LogDevice::Map, 1),
            ] {
                assert_eq!(open(layer, device).unwrap().alignment(), alignment);
            }
        }
    }
}
