//! What a consumer group has.

use smallvec::SmallVec;

use super::id::EntryId;

/// The name of a group or of a consumer.
pub(crate) type GroupName = SmallVec<[u8; 32]>;

/// A consumer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GroupConsumer {
    pub(crate) name: GroupName,
    /// When it was seen last, in milliseconds since the Unix epoch.
    pub(crate) seen_ms: u64,
    /// When it got entries last.
    pub(crate) active_ms: Option<u64>,
}

/// An entry that was delivered and is not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingEntry {
    pub(crate) id: EntryId,
    /// The key of its consumer.
    pub(crate) consumer: usize,
    /// When it was delivered last, in milliseconds since the Unix epoch.
    pub(crate) delivered_ms: u64,
    pub(crate) deliveries: u64,
}

impl PendingEntry {
    /// Returns the milliseconds since its last delivery.
    pub(crate) fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.delivered_ms)
    }
}
