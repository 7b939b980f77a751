//! The leader's notices of the commit index to followers.
//!
//! Followers learn the commit index from the next group or, if none comes soon, from a heartbeat.
//! Messages for each commit would cost as much as the groups themselves. The paper's baseline sends
//! a message for each commit.

use std::time::Duration;

use super::context::RaftNode;

/// The delay after which followers learn of a commit if no other message tells them.
const DELAY: Duration = Duration::from_millis(2);

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct CommitNotice {
    /// The last commit index that was sent to followers.
    sent: u64,
    /// The time at which a later one is to be sent.
    due: Option<Duration>,
}

impl CommitNotice {
    /// Returns the time at which a heartbeat is to be sent, if one is.
    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Notes that messages with entries tell followers of this commit index.
    pub(super) fn note_sent(&mut self, committed: u64) {
        self.sent = committed;
        self.due = None;
    }

    /// Sends a heartbeat if it is due. `is_needed` is `false` if this member does not lead, or if
    /// each commit has a message.
    pub(super) fn send_if_due(&mut self, raft: &mut RaftNode, is_needed: bool, now: Duration) {
        let committed = raft.raft.raft_log.committed;
        if !is_needed || committed == self.sent {
            self.due = None;
            return;
        }
        let at = *self.due.get_or_insert(now + DELAY);
        if now >= at {
            raft.ping();
            self.note_sent(committed);
        }
    }
}
