//! The reasons for which a member stops.

use base::NodeId;

use crate::log::LogError;
use crate::snapshot::SnapshotError;

/// The reason why a member cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum MemberFailure {
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A snapshot cannot be read or written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The members have agreed upon an entry that this release cannot understand.
    #[error(
        "entry {index} cannot be applied: {what}. All members have it; start the release that wrote \
         it, or a newer one"
    )]
    Entry {
        /// The index of the entry.
        index: u64,
        /// The problem with the entry.
        what: String,
    },
    /// An entry is not what was proposed.
    #[error(
        "entry {index} is not what was proposed: it has changed in this member's memory, on its disk or on the \
         way. Check the machine; then delete the node's data directory, start the node again, and run \"kumiki \
         cluster add\""
    )]
    Changed {
        /// The index of the entry.
        index: u64,
    },
    /// The log lacks entries that this member has acknowledged.
    #[error(
        "the data directory is older than what this member has acknowledged: its log ends at entry {last}, and \
         the leader knows it to have entry {acknowledged}. Stop this node, delete its data directory, start it \
         again, and run \"kumiki cluster add --node {node}\""
    )]
    Outdated {
        /// The last entry of the log.
        last: u64,
        /// An entry that the member has acknowledged.
        acknowledged: u64,
        /// This node.
        node: NodeId,
    },
    /// The Raft library returns an error that should be impossible.
    #[error("the Raft group cannot go on: {0}")]
    Raft(String),
}

impl MemberFailure {
    /// Returns `true` if the operation may succeed later: nothing was lost.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self, MemberFailure::Log(error) if error.may_retry())
    }

    /// Returns `true` if the disk has no space.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            MemberFailure::Log(error) => error.is_full(),
            MemberFailure::Snapshot(error) => error.is_full(),
            _ => false,
        }
    }

    /// Returns the failure for the entry `index`, or the snapshot of that entry, which cannot be
    /// understood for this reason.
    pub(crate) fn unreadable(index: u64, reason: impl ToString) -> MemberFailure {
        MemberFailure::Entry {
            index,
            what: reason.to_string(),
        }
    }
}

impl From<raft::Error> for MemberFailure {
    fn from(error: raft::Error) -> MemberFailure {
        MemberFailure::Raft(error.to_string())
    }
}
