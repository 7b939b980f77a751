//! A member's own snapshots: it makes them, receives them, and replaces its state by one.

use raft::eraftpb::{Message, SnapshotMetadata};

use super::context::{MemberContext, RaftNode};
use super::snapshot_intake::SnapshotIntake;
use super::snapshot_maker::{SnapshotMaker, remove_old_snapshots};
use super::state_machine::StateMachine;
use crate::failure::MemberFailure;
use crate::messages::{MemberMessage, SNAPSHOT_REFUSED};
use crate::snapshot::newest;
use crate::status::node_of;

/// A piece of a snapshot, as a message contains it.
pub(super) struct SnapshotPiece<'p> {
    /// The Raft id of the receiver.
    pub(super) to: u64,
    /// The message of Raft that is stepped when the snapshot is complete.
    pub(super) announces: Message,
    /// The length of the snapshot.
    pub(super) total: u64,
    pub(super) offset: u64,
    pub(super) piece: &'p [u8],
}

/// See the module's description.
#[derive(Default)]
pub(super) struct MemberSnapshots {
    pub(super) maker: SnapshotMaker,
    pub(super) intake: SnapshotIntake,
}

impl MemberSnapshots {
    /// Takes a piece of a snapshot from the leader, and answers it. Returns the message that
    /// announces the snapshot to Raft when the last piece has come.
    pub(super) fn receive(
        &mut self,
        context: &mut MemberContext,
        raft: &RaftNode,
        state: &StateMachine,
        piece: SnapshotPiece<'_>,
    ) -> Option<Message> {
        let SnapshotPiece {
            to,
            announces,
            total,
            offset,
            piece,
        } = piece;
        let raft = &raft.raft;
        // A leader of the past sends nothing useful.
        if raft.id != to || announces.term < raft.term {
            return None;
        }
        let from = node_of(announces.from);
        let meta = announces.get_snapshot().get_metadata().clone();
        let members = meta.get_conf_state();
        let offset = if !members.voters.contains(&to) && !members.learners.contains(&to) {
            // Raft would not take it: this member came later.
            self.intake.note_taken();
            SNAPSHOT_REFUSED
        } else if meta.index <= state.applied() {
            self.intake.note_taken();
            total
        } else {
            let reserve = self.maker.unused_reserve();
            self.intake
                .take(context, &meta, (total, offset), piece, reserve)
        };
        context.changed = true;
        let index = meta.index;
        let taken = MemberMessage::SnapshotProgress {
            from: to,
            index,
            offset,
        };
        context.send(from, &taken);
        (offset == total).then_some(announces)
    }
}

/// Replaces the state and the log by a snapshot that has been received, which Raft has accepted.
///
/// # Errors
/// Returns an error if the snapshot is not there, or cannot be read.
pub(super) fn install_snapshot(
    context: &mut MemberContext,
    raft: &mut RaftNode,
    state: &mut StateMachine,
    meta: &SnapshotMetadata,
) -> Result<(), MemberFailure> {
    let disk = &context.storage.disk;
    let file = match context.dir() {
        Some(dir) => newest(disk, dir)?,
        None => None,
    };
    let Some(file) = file.filter(|file| file.head.meta.index == meta.index) else {
        return Err(MemberFailure::Raft(format!(
            "the snapshot of entry {} is not there",
            meta.index
        )));
    };
    state.load(disk, &file.path)?;
    raft.mut_store().install(meta)?;
    context.changed = true;
    remove_old_snapshots(context);
    Ok(())
}

/// Notes a received snapshot as the newest one even if Raft did not need it, because the log has
/// all of its entries.
pub(super) fn note_unneeded_snapshot(
    raft: &mut RaftNode,
    state: &StateMachine,
    meta: &SnapshotMetadata,
) {
    let log = raft.store();
    let newest = log.snapshot_meta().map_or(0, |newest| newest.index);
    let has = log
        .entry(meta.index)
        .is_some_and(|entry| entry.term == meta.term);
    let is_newer = meta.index > newest && meta.index <= state.applied();
    if raft.raft.snap().is_none() && has && is_newer {
        raft.mut_store().set_snapshot(meta);
    }
}
