//! Receives a snapshot from the leader, piece by piece.

use std::path::Path;

use raft::eraftpb::SnapshotMetadata;

use super::context::MemberContext;
use super::snapshot_reserve::SnapshotReserve;
use crate::messages::SNAPSHOT_REFUSED;
use crate::snapshot::{SnapshotError, SnapshotReceiver};

/// See the module's description.
#[derive(Default)]
pub(super) struct SnapshotIntake {
    receiver: Option<SnapshotReceiver>,
    /// The reason why the last snapshot from the leader was not received.
    refused: Option<String>,
}

impl SnapshotIntake {
    /// Returns the bytes of the snapshot that have been received, and their total.
    pub(super) fn progress(&self) -> Option<(u64, u64)> {
        self.receiver.as_ref().map(SnapshotReceiver::progress)
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
