//! Clients that have not given the password yet: they have few places and little time, so that they
//! take neither from authenticated clients.

use reactor::Network;

use super::Runtime;

impl<N: Network> Runtime<N> {
    /// Gives a place to a client that has connected and must give the password first.
    pub(super) fn admit_newcomer(&mut self, key: usize) {
        let now = self.executor.context.now;
        let (place, evicted) = self.newcomers.admit(key, now);
        self.connections[key].newcomer = Some(place);
        if let Some(oldest) = evicted {
            self.close_newcomer(oldest, "newer ones have taken its place");
        }
    }

    /// Closes clients that have not given the password in time.
    pub(super) fn close_late_newcomers(&mut self) {
        while let Some(key) = self.newcomers.late(self.executor.context.now) {
            self.close_newcomer(key, "it took too long");
        }
    }

    fn close_newcomer(&mut self, key: usize, why: &str) {
        let connection = &mut self.connections[key];
        connection.newcomer = None;
        connection.state.dead = true;
        // It is closed at the end of the turn; its place among all clients is free for the next one now.
        let clients = &self.executor.context.shared.clients;
        clients.remove(connection.session.client.id);
        tracing::debug!(client = %connection.session.client.address, why, "closed before it has given the password");
        self.lists.touched(key, connection);
    }
}
