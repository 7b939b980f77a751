//! The space on the disk that is set aside for the next snapshot, so that it can be made when the
//! log has filled the disk.

use std::time::Duration;

use super::context::MemberContext;
use crate::snapshot::reserve;

/// Space is set aside in multiples of this.
const STEP: u64 = 64 << 10;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct SnapshotReserve {
    /// The bytes that are set aside.
    bytes: u64,
    /// After a failure, no space is set aside before this time.
    not_before: Duration,
}

impl SnapshotReserve {
    /// Sets more space aside if the data has grown. Data takes more bytes in memory than in a
    /// snapshot.
    pub(super) fn grow(&mut self, context: &MemberContext) {
        let Some(dir) = context.dir() else {
            return;
        };
        let data = context.shared.engine.memory_bytes();
        let sessions = context.shared.sessions.lock().bytes();
        let needed = data + sessions as u64;
        if needed <= self.bytes || context.now.since < self.not_before {
            return;
        }
        // Some more is set aside, so that this does not happen for each key.
        let bytes = (needed + needed / 8).next_multiple_of(STEP);
        match reserve(&*context.storage.disk, dir, bytes) {
            Ok(()) => self.bytes = bytes,
            Err(error) => {
                tracing::debug!(%error, "no space is set aside for the next snapshot");
                self.not_before = context.now.since + context.options.election;
            }
        }
    }

    /// Returns `true` if there is no space that is set aside.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Notes that a snapshot has used the space.
    pub(super) fn note_used(&mut self) {
        self.bytes = 0;
    }
}
