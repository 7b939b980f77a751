//! Gives up snapshots that clients have open and do not use any more, so that the memory that they
//! hold is freed when a client forgets one.

use std::time::Duration;

use reactor::Network;

use super::Runtime;
use crate::snapshots::ClientSnapshot;

impl<N: Network> Runtime<N> {
    /// Gives up snapshots whose time is over.
    pub(super) fn look_at_snapshots(&mut self) {
        let now = self.executor.context.now;
        if self.snapshots_due.is_none_or(|due| due > now) {
            return;
        }
        self.snapshots_due = None;
        let idle = self.idle();
        let mut keys = std::mem::take(&mut self.lists.snapshots);
        // A number that is there twice was that of two connections, one after the other.
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            // Another connection may have got the number.
            if !std::mem::replace(&mut connection.state.in_snapshots, false) {
                continue;
            }
            if connection.snapshot_due(idle).is_some_and(|due| due <= now) {
                let client = connection.session.client.address;
                let text = "a snapshot was given up: its client has not asked for more of it";
                self.executor.context.warn(client, text, text);
                connection.snapshot = Some(ClientSnapshot::Expired(idle));
            }
            self.note_snapshot(key);
        }
    }

    /// Schedules a look at the snapshot of a connection, if it has one.
    pub(super) fn note_snapshot(&mut self, key: usize) {
        let idle = self.idle();
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.state.in_snapshots {
            // It is looked at when it would have been due without requests.
            return;
        }
        let Some(due) = connection.snapshot_due(idle) else {
            return;
        };
        connection.state.in_snapshots = true;
        self.lists.snapshots.push(key);
        self.snapshots_due = Some(self.snapshots_due.map_or(due, |other| other.min(due)));
    }

    fn idle(&self) -> Duration {
        self.executor.context.shared.config.snapshot_idle
    }
}
