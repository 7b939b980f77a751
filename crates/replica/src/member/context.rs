//! What all parts of a member use: its options, the state that it shares, its disk, the time, and
//! the messages that it is about to send.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::NodeId;
use disk::Disk;
use raft::RawNode;

use super::notes::MemberNotes;
use crate::log::{LogOptions, RaftLog};
use crate::messages::MemberMessage;
use crate::options::MemberOptions;
use crate::shared::MemberShared;
use crate::time::Now;

/// The Raft library's state, over the member's log.
pub(super) type RaftNode = RawNode<RaftLog>;

/// Runs background work of the member: on a thread of its own, or at once.
pub(crate) type SpawnWork = Box<dyn FnMut(Box<dyn FnOnce() + Send>) + Send>;

/// Messages that are to be sent, with their receivers.
pub(crate) type Outbox = Vec<(NodeId, Vec<u8>)>;

/// The disk and the directory of a member's data.
pub(crate) struct MemberStorage {
    /// The disk.
    pub(crate) disk: Arc<dyn Disk>,
    /// The directory, which exists. If it is `None`, the log is in memory, and there are no
    /// snapshots.
    pub(crate) dir: Option<PathBuf>,
    /// The options of the log.
    pub(crate) log: LogOptions,
}

/// See the module's description.
pub(super) struct MemberContext {
    pub(super) options: MemberOptions,
    pub(super) shared: Arc<MemberShared>,
    pub(super) storage: MemberStorage,
    pub(super) spawn: SpawnWork,
    /// The time at which the current turn, or the receipt of the current message, began.
    pub(super) now: Now,
    pub(super) outbox: Outbox,
    /// The status has changed: the end of the turn reports it.
    pub(super) changed: bool,
    pub(super) notes: MemberNotes,
}

impl MemberContext {
    /// Adds a message to the outbox, unless it is for this node.
    pub(super) fn send(&mut self, to: NodeId, envelope: &MemberMessage<'_>) {
        if to != self.options.me {
            self.outbox.push((to, envelope.encode()));
        }
    }

    /// Returns the directory of the member's files, if it has one.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.storage.dir.as_deref()
    }
}
