//! Clients that wait for keys: their turns, and the end of their time.

use reactor::Network;

use super::Runtime;
use crate::clients::ConnectedClient;
use crate::pending_command::PendingCommand;
use crate::runtime_signal::ClientTurn;

impl<N: Network> Runtime<N> {
    /// Gives a client the turn of a key. One that has ended its wait has passed the turn on.
    pub(super) fn take_turn(&mut self, turn: ClientTurn) {
        if let Some(connection) = self.connections.get_mut(turn.connection)
            && let Some(blocked) = &mut connection.blocked
            && blocked.ticket == turn.ticket
        {
            blocked.turns.push(turn.key);
            if let Some(PendingCommand::Blocked) = connection.pending {
                self.lists.ready(turn.connection, connection);
            }
        }
    }

    /// Ends the wait of a client, which has been marked.
    pub(super) fn unblock(&mut self, client: &ConnectedClient) {
        let key = client.connection();
        if let Some(connection) = self.connections.get_mut(key)
            && connection.session.client.id == client.id
        {
            self.lists.ready(key, connection);
        }
    }

    /// Looks at the clients whose time is over.
    pub(super) fn end_waits(&mut self) {
        let now = self.executor.context.now;
        while let Some(&(due, key)) = self.blocked_until.first()
            && due <= now
        {
            self.blocked_until.remove(&(due, key));
            if let Some(connection) = self.connections.get_mut(key) {
                connection.state.blocked_until = None;
                self.lists.ready(key, connection);
            }
        }
        let shared = &self.executor.context.shared;
        if shared.blocked.ends_listening(now) {
            shared.update_listening();
        }
    }

    /// Notes when a client must be looked at that waits for keys.
    pub(super) fn note_wait(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        // While its command executes, that waits for other events.
        let waits = matches!(connection.pending, Some(PendingCommand::Blocked));
        let blocked = connection.blocked.as_ref().filter(|_| waits);
        let due = blocked.and_then(|blocked| blocked.due());
        let before = std::mem::replace(&mut connection.state.blocked_until, due);
        if before != due {
            self.blocked_until.extend(due.map(|due| (due, key)));
            if let Some(before) = before {
                self.blocked_until.remove(&(before, key));
            }
        }
    }
}
