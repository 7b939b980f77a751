//! Closes clients that send nothing for a long time, if that is configured (`--timeout`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::Network;

use super::Runtime;
use crate::connection::Connection;

/// The interval at which connections are looked at.
const LOOK: Duration = Duration::from_secs(1);

impl<N: Network> Runtime<N> {
    /// Closes clients that are idle for too long.
    pub(super) fn close_idle(&mut self) {
        let context = &self.executor.context;
        let Some(limit) = context.shared.settings.idle() else {
            self.idle_due = None;
            return;
        };
        let (now, started) = (context.now, context.shared.started);
        if self.connections.is_empty() || self.idle_due.is_some_and(|due| due > now) {
            return;
        }
        self.idle_due = Some(now + limit.min(LOOK));
        for (key, connection) in &mut self.connections {
            let age = (started + now).saturating_duration_since(connection.session.client.since);
            if is_idle(connection, age, limit) {
                connection.state.dead = true;
                tracing::debug!(client = %connection.session.client.address, "closed: it is idle");
                self.lists.touched(key, connection);
            }
        }
    }
}

/// Returns `true` if a connection of this age waits for its client, and has received nothing from
/// it for longer than `limit`. A client that gets messages need not send anything.
fn is_idle(connection: &Connection, age: Duration, limit: Duration) -> bool {
    let heard = Duration::from_millis(connection.session.client.last_ms.load(Ordering::Relaxed));
    let waits_here = connection.pending.is_some()
        || connection.waits_for().is_some()
        || connection.session.gets_messages();
    !waits_here && !connection.state.in_ready && age.saturating_sub(heard) > limit
}
