//! Members of a partition, and logs with a model of them.

pub(crate) mod logs;
pub(crate) mod members;

use disk::Crash;

/// The kinds of crashes, which differ in the unsynced data that they keep.
pub(crate) const CRASHES: [Crash; 4] = [
    Crash::DropAll,
    Crash::KeepPrefix,
    Crash::KeepSectors,
    Crash::KillProcess,
];
