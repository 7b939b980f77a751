//! Receives a snapshot from the leader, piece by piece.

use std::path::Path;
use std::time::Duration;

use raft::eraftpb::SnapshotMetadata;

use super::context::MemberContext;
use super::snapshot_reserve::SnapshotReserve;
use crate::messages::SNAPSHOT_REFUSED;
use crate::snapshot::{SnapshotError, SnapshotReceiver};

/// A snapshot of which no piece has come for this many election time-outs is not being received any more: its
/// leader sends a piece again sooner.
const SILENCE: u32 = 10;

/// See the module's description.
#[derive(Default)]
pub(super) struct SnapshotIntake {
    receiver: Option<SnapshotReceiver>,
    /// The time at which the last piece came.
    last_piece: Duration,
    /// The reason why the last snapshot from the leader was not received.
    refused: Option<String>,
}

impl SnapshotIntake {
    /// Returns the bytes of the snapshot that is being received that have come, and their total.
    pub(super) fn progress(&self, now: Duration, election: Duration) -> Option<(u64, u64)> {
        let is_current = now.saturating_sub(self.last_piece) < election * SILENCE;
        let receiver = self.receiver.as_ref().filter(|_| is_current);
        receiver.map(SnapshotReceiver::progress)
    }

    /// Returns the reason why the last snapshot was not received.
    pub(super) fn refused(&self) -> Option<&String> {
        self.refused.as_ref()
    }

    /// Takes a piece, and returns the offset of the next one, or [`SNAPSHOT_REFUSED`]. If the disk is full,
    /// the snapshot is received in `reserve`.
    pub(super) fn take(
        &mut self,
        context: &MemberContext,
        meta: &SnapshotMetadata,
        (total, offset): (u64, u64),
        piece: &[u8],
        reserve: Option<&mut SnapshotReserve>,
    ) -> u64 {
        self.last_piece = context.now.since;
        match self.take_piece(context, meta, (total, offset), piece, reserve) {
            Ok(offset) => {
                self.note_taken();
                offset
            }
            Err(error) => {
                self.receiver = None;
                self.note_refused(&error, total);
                SNAPSHOT_REFUSED
            }
        }
    }

    /// Notes that the last snapshot was taken, or is not needed.
    pub(super) fn note_taken(&mut self) {
        self.refused = None;
    }

    /// Notes that a snapshot cannot be received: in the status until one can be, and in the log
    /// once.
    fn note_refused(&mut self, error: &SnapshotError, total: u64) {
        let mib = total as f64 / 1_048_576.0;
        let note = format!("a snapshot of {mib:.1} MiB cannot be received: {error}");
        if self.refused.as_ref() != Some(&note) {
            tracing::warn!("{note}");
            self.refused = Some(note);
        }
    }

    fn take_piece(
        &mut self,
        context: &MemberContext,
        meta: &SnapshotMetadata,
        (total, offset): (u64, u64),
        piece: &[u8],
        reserve: Option<&mut SnapshotReserve>,
    ) -> Result<u64, SnapshotError> {
        let Some(dir) = context.dir() else {
            return Ok(SNAPSHOT_REFUSED);
        };
        let of = (meta.term, meta.index);
        // A receiver of another snapshot is dropped before the next one begins, because both have one file.
        let begun = self.receiver.take().filter(|begun| begun.of() == of);
        let receiver = match begun {
            Some(receiver) => receiver,
            None => begin(context, dir, of, total, reserve)?,
        };
        let receiver = self.receiver.insert(receiver);
        let next = receiver.chunk(offset, piece)?;
        if let Some(receiver) = self.receiver.take_if(|receiver| receiver.is_complete()) {
            receiver.finish()?;
        }
        Ok(next)
    }
}

/// Begins to receive a snapshot. If the disk is full, it uses the space that is set aside for the
/// next snapshot that is made here.
fn begin(
    context: &MemberContext,
    dir: &Path,
    of: (u64, u64),
    total: u64,
    reserve: Option<&mut SnapshotReserve>,
) -> Result<SnapshotReceiver, SnapshotError> {
    let disk = &context.storage.disk;
    match (SnapshotReceiver::begin(disk, dir, of, total), reserve) {
        (Err(error), Some(reserve)) if error.is_full() => {
            let begun = SnapshotReceiver::begin_in_reserve(disk, dir, of, total)?;
            tracing::debug!(%error, "the snapshot is received in the space that is set aside");
            reserve.note_used();
            Ok(begun)
        }
        (begun, _) => begun,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use disk::{Disk, RealDisk};

    use super::*;

    #[test]
    fn a_snapshot_whose_pieces_stay_away_is_not_being_received() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let seconds = Duration::from_secs;
        let intake = SnapshotIntake {
            receiver: Some(SnapshotReceiver::begin(&disk, dir.path(), (1, 5), 80).unwrap()),
            last_piece: seconds(100),
            refused: None,
        };
        assert_eq!(intake.progress(seconds(100), seconds(2)), Some((0, 80)));
        assert_eq!(intake.progress(seconds(119), seconds(2)), Some((0, 80)));
        assert_eq!(intake.progress(seconds(120), seconds(2)), None);
    }
}
