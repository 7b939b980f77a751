//! Members of a partition, and logs with a model of them.

pub(crate) mod logs;
pub(crate) mod members;

use disk::Crash;

/// How much unsynced data a crash may keep.
pub(crate) const CRASHES: [Crash; 4] = [
    Crash::DropAll,
    Crash::KeepPrefix,
    Crash::KeepSectors,
    Crash::KillProcess,
];
