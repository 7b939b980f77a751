//! What a data directory contains, by which it is known what kind of partition it has.

/// The directory of a replica's log and snapshots.
pub(crate) const REPLICA: &str = "replica";
/// A log of a partition that is on one node.
pub(crate) const LOCAL_DATA: &str = "log0";
