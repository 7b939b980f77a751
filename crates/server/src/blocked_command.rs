//! The command of a client that waits for keys, from when it begins to wait until it is answered.

use std::sync::Arc;
use std::time::Duration;

use base::Epoch;

use crate::blocked_clients::{AwaitedKind, WaitingClient};
use crate::clients::{BlockedState, ConnectedClient};
use crate::command_call::CommandCall;
use crate::server_state::ServerState;

/// See the module's description. The client leaves the queues of the keys when this is dropped.
pub(crate) struct BlockedCommand {
    shared: Arc<ServerState>,
    client: Arc<ConnectedClient>,
    pub(crate) call: Arc<CommandCall>,
    /// The number of the wait.
    pub(crate) ticket: u64,
    /// The keys, as they are stored.
    pub(crate) keys: Vec<Box<[u8]>>,
    /// The keys of which the client has the turn, and at which its command has not looked yet.
    pub(crate) turns: Vec<Box<[u8]>>,
    /// `false` while commits may be on their way that do not report changes: turns are asked for again and again.
    pub(crate) is_reported: bool,
    /// The keys of other nodes, of which no news come: the command looks at them again and again.
    pub(crate) remote: Vec<Box<[u8]>>,
    /// When that happens next, since the server's start.
    pub(crate) looks_at: Option<Duration>,
    /// When its time is over, since the server's start; `None`: never.
    pub(crate) until: Option<Duration>,
    /// The newest epoch of what it has looked at.
    pub(crate) observed: Epoch,
}

impl BlockedCommand {
    /// Adds a client to the queues of these keys.
    pub(crate) fn begin(
        shared: &Arc<ServerState>,
        client: &Arc<ConnectedClient>,
        (call, awaits): (CommandCall, AwaitedKind),
        keys: Vec<Box<[u8]>>,
    ) -> BlockedCommand {
        client.set_blocked(BlockedState::Waits);
        let waiting = WaitingClient {
            runtime: client.runtime,
            connection: client.connection(),
            kind: awaits,
        };
        let ticket = shared.blocked.begin(waiting, &keys, &shared.signals);
        if shared.blocked.begin_listening() {
            shared.update_listening();
        }
        BlockedCommand {
            shared: Arc::clone(shared),
            client: Arc::clone(client),
            call: Arc::new(call),
            ticket,
            keys,
            turns: Vec::new(),
            is_reported: false,
            remote: Vec::new(),
            looks_at: None,
            until: None,
            observed: Epoch::ZERO,
        }
    }

    /// Returns the next time at which it needs work without a turn.
    pub(crate) fn due(&self) -> Option<Duration> {
        [self.looks_at, self.until].into_iter().flatten().min()
    }

    /// Returns `true` if it needs work now.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        !self.turns.is_empty()
            || self.due().is_some_and(|due| due <= now)
            || self.client.blocked() != BlockedState::Waits
    }

    /// Removes the keys at which its command is to look now.
    pub(crate) fn take_turns(&mut self, now: Duration) -> Vec<Box<[u8]>> {
        let mut keys = std::mem::take(&mut self.turns);
        if self.looks_at.is_some_and(|at| at <= now) {
            keys.extend(self.remote.iter().cloned());
        }
        keys
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        CommandCall::size_of(self.call.args())
            + self.keys.iter().map(|key| key.len()).sum::<usize>()
    }
}

impl Drop for BlockedCommand {
    fn drop(&mut self) {
        self.client.set_blocked(BlockedState::No);
        let shared = &self.shared;
        let now = shared.started.elapsed();
        shared
            .blocked
            .end(self.ticket, &self.keys, (&shared.signals, now));
    }
}
