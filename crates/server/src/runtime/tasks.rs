//! Connections whose task waits: for a checkpoint, or for keys that a transaction over several
//! nodes holds.

use std::time::Duration;

use reactor::Network;

use super::Runtime;

/// The interval at which it is looked whether an epoch has ended whose events are to be sent.
const EVENT_PAUSE: Duration = Duration::from_millis(1);

impl<N: Network> Runtime<N> {
    /// Resumes the tasks that waited for an event that has happened.
    pub(super) fn look_at_tasks(&mut self, woken: bool) {
        if self.lists.tasks.is_empty() && self.executor.cluster.is_none() {
            return;
        }
        let context = &self.executor.context;
        let releases = context.shared.partition.releases();
        let due = self.tasks_due.is_some_and(|due| due <= context.now);
        if woken || due || releases != self.releases {
            self.releases = releases;
            self.tasks_due = None;
            // In their order: the connection that has waited longest tries first.
            for key in std::mem::take(&mut self.lists.tasks) {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.state.in_tasks = false;
                    self.lists.touched(key, connection);
                }
            }
        }
    }

    /// Announces the transactions that wait for keys, before the runtime sleeps. Returns `true` if
    /// keys were given back in the meantime.
    pub(super) fn misses_a_release(&self) -> bool {
        let cluster = self.executor.cluster.as_ref();
        let held = !self.lists.tasks.is_empty() || cluster.is_some_and(|node| node.wants().holds);
        self.signal().announce_lock_waits(held);
        held && self.executor.context.shared.partition.releases() != self.releases
    }

    /// Returns the time until a task, a snapshot, fields of hashes, a client that waits to be accepted, is idle or
    /// is without the password, or the node must be looked at.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let cluster = self.executor.cluster.as_ref();
        let idle = self.idle_due.filter(|_| !self.connections.is_empty());
        let events = self.has_events_to_send();
        let events = events.then(|| self.executor.context.now + EVENT_PAUSE);
        let waits = self.blocked_until.first().map(|(due, _)| *due);
        let due = [
            self.tasks_due,
            waits,
            self.snapshots_due,
            self.fields_due(),
            self.eviction_due(),
            self.newcomers.due(),
            self.failures_due,
            self.accepting.due(),
            idle,
            events,
        ];
        let due = due.into_iter().flatten().min();
        if cluster.is_none() && due.is_none() {
            return None;
        }
        let now = self.executor.context.shared.started.elapsed();
        let due = due.map(|due| due.saturating_sub(now));
        let wakes = cluster.and_then(|node| node.wants().wake_at);
        let node = wakes.map(|at| at.saturating_sub(now));
        let links = self.links.as_ref().and_then(|links| links.due_in(now));
        due.into_iter().chain(node).chain(links).min()
    }
}
