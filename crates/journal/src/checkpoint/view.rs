//! The moment that a checkpoint holds.

use base::{Epoch, Tid};

/// The moment that a checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointView {
    /// Everything up to this epoch, and nothing later.
    pub epoch: Epoch,
    /// The epoch's time, milliseconds since the Unix epoch.
    pub stamp_ms: u64,
    /// The generation that is visible, and to which all entries of database 0 belong that are no system
    /// records.
    pub generation: u16,
    /// The transaction that began it; zero when nothing was ever flushed.
    pub generation_tid: Tid,
}
