//! Sends snapshots, as the leader, in pieces to members that are too far behind. The answer to each
//! piece asks for the next one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::Disk;
use hashbrown::HashMap;
use raft::SnapshotStatus;
use raft::eraftpb::Message;

use super::context::{MemberContext, RaftNode};
use crate::messages::{MemberMessage, SNAPSHOT_REFUSED};
use crate::snapshot::{SnapshotError, SnapshotSource, newest};
use crate::status::node_of;

/// A piece that was not answered is sent again after this many election time-outs, up to this many
/// times.
const PATIENCE: u32 = 2;
const TRIES: u32 = 10;
/// A member that did not take a snapshot gets the next one after a pause. The pause begins with a
/// tenth of an election time-out, doubles each time, and is at most this many election time-outs.
const LONGEST_PAUSE: u32 = 60;

/// A snapshot that is being sent.
struct SnapshotTransfer {
    source: SnapshotSource,
    announces: Message,
    /// The offset of the piece that was sent last.
    offset: u64,
    sent_at: Duration,
    tries: u32,
}

impl SnapshotTransfer {
    fn index(&self) -> u64 {
        self.announces.get_snapshot().get_metadata().index
    }
}

/// The pause before a member that did not take a snapshot gets the next one.
#[derive(Clone, Copy, Debug)]
struct SnapshotPause {
    until: Duration,
    length: Duration,
    /// Raft waits for the outcome, and has no snapshot sent before it knows the outcome.
    is_reported: bool,
}

/// The reason why a snapshot cannot be sent.
#[derive(Debug, thiserror::Error)]
enum SnapshotSourceError {
    #[error("there are none in memory")]
    InMemory,
    #[error("it is there no more")]
    Missing,
    #[error(transparent)]
    Unreadable(#[from] SnapshotError),
}

/// See the module's description.
#[derive(Default)]
pub(super) struct SnapshotSender {
    /// The snapshots that are being sent, by the Raft ids of their receivers.
    transfers: HashMap<u64, SnapshotTransfer>,
    pauses: HashMap<u64, SnapshotPause>,
}

impl SnapshotSender {
    /// Returns the bytes of a snapshot that a member has received, and their total.
    pub(super) fn progress(&self, to: u64) -> Option<(u64, u64)> {
        let transfer = self.transfers.get(&to)?;
        Some((transfer.offset, transfer.source.bytes()))
    }

    /// Returns the oldest entry of which a snapshot is being sent: its receiver needs the entries
    /// behind that one, or a second snapshot.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.transfers.values().map(SnapshotTransfer::index).min()
    }

    /// Ends all transfers, because the leadership has ended.
    pub(super) fn clear(&mut self) {
        self.transfers.clear();
        self.pauses.clear();
    }

    /// Begins to send a snapshot to a member that is too far behind.
    pub(super) fn begin(
        &mut self,
        context: &mut MemberContext,
        raft: &mut RaftNode,
        announces: Message,
    ) {
        let to = announces.to;
        if self.transfers.contains_key(&to) {
            return;
        }
        let now = context.now.since;
        if let Some(pause) = self.pauses.get_mut(&to)
            && now < pause.until
        {
            pause.is_reported = false;
            return;
        }
        let index = announces.get_snapshot().get_metadata().index;
        match open_source(&context.storage.disk, context.dir(), index) {
            Ok(source) => {
                let (node, bytes) = (node_of(to).0, source.bytes());
                tracing::info!(node, index, bytes, "sends a snapshot");
                let transfer = SnapshotTransfer {
                    source,
                    announces,
                    offset: 0,
                    sent_at: now,
                    tries: 0,
                };
                self.transfers.insert(to, transfer);
                self.send_piece(context, raft, to);
            }
            Err(error) => {
                tracing::warn!(%error, "a snapshot cannot be sent");
                self.end(context, raft, to, SnapshotStatus::Failure);
            }
        }
    }

    fn send_piece(&mut self, context: &mut MemberContext, raft: &mut RaftNode, to: u64) {
        let Some(transfer) = self.transfers.get_mut(&to) else {
            return;
        };
        transfer.sent_at = context.now.since;
        let chunk = context.options.chunk;
        match transfer.source.read_chunk(transfer.offset, chunk) {
            Ok(piece) => {
                let envelope = MemberMessage::SnapshotPiece {
                    to,
                    announces: transfer.announces.clone(),
                    total: transfer.source.bytes(),
                    offset: transfer.offset,
                    piece: &piece,
                };
                context.outbox.push((node_of(to), envelope.encode()));
            }
            Err(error) => {
                tracing::warn!(%error, "a snapshot cannot be sent");
                self.end(context, raft, to, SnapshotStatus::Failure);
            }
        }
    }

    /// Reports to Raft that a snapshot was not taken, once the next one may be sent.
    fn report_ended_pauses(&mut self, raft: &mut RaftNode, now: Duration) {
        let pauses = self.pauses.iter_mut();
        for (to, pause) in pauses.filter(|(_, one)| !one.is_reported && now >= one.until) {
            pause.is_reported = true;
            raft.report_snapshot(*to, SnapshotStatus::Failure);
        }
    }

    /// Sends lost pieces again.
    pub(super) fn resend(
        &mut self,
        context: &mut MemberContext,
        raft: &mut RaftNode,
        is_leader: bool,
    ) {
        let now = context.now.since;
        self.report_ended_pauses(raft, now);
        if self.transfers.is_empty() {
            return;
        }
        let patience = context.options.election * PATIENCE;
        let late = self.transfers.iter();
        let late = late.filter(|(_, transfer)| now >= transfer.sent_at + patience);
        for to in late.map(|(to, _)| *to).collect::<Vec<u64>>() {
            let transfer = self.transfers.get_mut(&to).expect("it was there");
            transfer.tries += 1;
            if transfer.tries > TRIES || !is_leader {
                self.end(context, raft, to, SnapshotStatus::Failure);
            } else {
                self.send_piece(context, raft, to);
            }
        }
    }

    /// Takes the answer of the member `from` to a piece of the snapshot of the entry `index`.
    pub(super) fn on_taken(
        &mut self,
        context: &mut MemberContext,
        raft: &mut RaftNode,
        from: u64,
        (index, offset): (u64, u64),
    ) {
        let transfer = self.transfers.get_mut(&from);
        let Some(transfer) = transfer.filter(|transfer| transfer.index() == index) else {
            return;
        };
        if offset == SNAPSHOT_REFUSED {
            self.end(context, raft, from, SnapshotStatus::Failure);
        } else if offset >= transfer.source.bytes() {
            self.end(context, raft, from, SnapshotStatus::Finish);
        } else if offset > transfer.offset || offset < transfer.offset && transfer.tries > 0 {
            // A receiver that has begun anew asks for an earlier piece, and gets it after the last one was sent again.
            transfer.offset = offset;
            transfer.tries = 0;
            self.send_piece(context, raft, from);
        }
        // Another answer came twice, or late: a piece was sent for it before, and each further one would
        // have further answers.
        context.changed = true;
    }

    fn end(
        &mut self,
        context: &MemberContext,
        raft: &mut RaftNode,
        to: u64,
        status: SnapshotStatus,
    ) {
        self.transfers.remove(&to);
        if status == SnapshotStatus::Finish {
            self.pauses.remove(&to);
            raft.report_snapshot(to, status);
            return;
        }
        let longest = context.options.election * LONGEST_PAUSE;
        let earlier = self.pauses.get(&to);
        let length = earlier.map_or(context.options.tick(), |earlier| {
            (earlier.length * 2).min(longest)
        });
        let pause = SnapshotPause {
            until: context.now.since + length,
            length,
            is_reported: false,
        };
        self.pauses.insert(to, pause);
    }
}

/// Opens the snapshot of the entry `index`.
fn open_source(
    disk: &Arc<dyn Disk>,
    dir: Option<&Path>,
    index: u64,
) -> Result<SnapshotSource, SnapshotSourceError> {
    let dir = dir.ok_or(SnapshotSourceError::InMemory)?;
    let file = newest(disk, dir)?.filter(|file| file.head.meta.index == index);
    let path = file.ok_or(SnapshotSourceError::Missing)?.path;
    Ok(SnapshotSource::open(&**disk, &path)?)
}
