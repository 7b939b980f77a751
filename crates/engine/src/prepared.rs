//! The state of a prepared transaction in memory.

use crate::listening::NotedEvent;
use crate::log::RecordWrite;
use crate::record::{RecordRef, VersionRef};

/// The state that a prepared transaction keeps in memory until it is decided.
pub(crate) struct PreparedTransaction {
    /// The writes that it will publish: versions that no other thread knows, of records that it
    /// holds exclusively.
    pub(crate) effects: Vec<RecordWrite>,
    /// The records that it holds in addition: as a reader, the generation's among them unless it
    /// flushes; in a driven engine also those that it will write.
    pub(crate) held: Vec<RecordRef>,
    /// What it has done to keys, for the listener.
    pub(crate) events: Vec<NotedEvent>,
    pub(crate) ranged: bool,
    /// `true` if it holds only until its staged entry is applied.
    pub(crate) is_staged: bool,
    /// The records of which it has a staged version; each is held by it until the entry is applied.
    pub(crate) passed: Vec<RecordRef>,
}

impl PreparedTransaction {
    /// Returns the state of a transaction that has noted no events, and is not staged.
    pub(crate) fn new(effects: Vec<RecordWrite>, held: Vec<RecordRef>, ranged: bool) -> Self {
        PreparedTransaction {
            effects,
            held,
            events: Vec::new(),
            ranged,
            is_staged: false,
            passed: Vec::new(),
        }
    }

    /// Frees the versions that it will not publish, while it still holds their records.
    pub(crate) fn free_effects(&mut self) {
        let versions = self.effects.drain(..).map(|write| write.version);
        versions.for_each(VersionRef::free_unpublished);
    }
}

impl Drop for PreparedTransaction {
    fn drop(&mut self) {
        self.free_effects();
    }
}
