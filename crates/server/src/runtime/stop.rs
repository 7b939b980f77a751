//! Stopping: nothing more is accepted, received requests are answered once their answers are
//! durable.

use std::time::Instant;

use reactor::Network;

use super::Runtime;
use crate::pending_command::PendingCommand;

/// Turns in which a stopping runtime still reads from one connection.
const READS: u32 = 1024;

impl<N: Network> Runtime<N> {
    /// Stops accepting, and makes every connection read the input that has come.
    pub(super) fn begin_stop(&mut self) {
        self.stopping = Some((Instant::now(), 0));
        self.accepting.stop();
        self.listeners.clear();
        let context = &self.executor.context;
        let until = context.now + context.shared.config.drain / 2;
        for (key, connection) in &mut self.connections {
            connection.state.readable = true;
            if let Some(PendingCommand::LockWait(wait)) = &mut connection.pending {
                // It must be answered before the server's time is over.
                wait.until = wait.until.min(until);
            }
            self.lists.ready(key, connection);
        }
    }

    /// Returns `true` if the runtime has stopped. While it is stopping, connections that have
    /// nothing more to be read are closed, once their replies are taken.
    pub(super) fn is_over(&mut self) -> bool {
        let Some((since, turns)) = &mut self.stopping else {
            return false;
        };
        *turns += 1;
        let stop_reading = *turns >= READS;
        let out_of_time = since.elapsed() >= self.executor.context.shared.config.drain;
        for (key, connection) in &mut self.connections {
            let state = &mut connection.state;
            let idle = match connection.pending {
                None => !state.readable && !state.stalled,
                // What it waits for may never come.
                Some(PendingCommand::Blocked) => true,
                Some(_) => false,
            };
            if idle || stop_reading {
                connection.session.closing = true;
                self.lists.touched(key, connection);
            }
        }
        self.settle();
        if out_of_time && !self.connections.is_empty() {
            let left = self.connections.len();
            tracing::warn!(
                left,
                "stopped without waiting longer for clients to take replies"
            );
        }
        let cluster = &self.executor.cluster;
        let decided = cluster.as_ref().is_none_or(|cluster| cluster.is_idle());
        let given_back = !self.executor.has_closing_writes();
        self.connections.is_empty() && decided && given_back || out_of_time
    }
}
