//! Messages of publish/subscribe, from the publisher's reply to the output of subscribers.
//!
//! Invariants:
//! 1. A message leaves when the reply of its publisher could: not before what its block, and the
//!    commands before it on the connection, have done is durable. A message of a block that does not
//!    take effect is dropped.
//! 2. Messages of one connection to one channel keep their order: they become due in it, and queues
//!    between runtimes keep it.
//! 3. A message is encoded once for each version of the protocol and name that it is sent under.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::size::Size;
use channels::{ChannelMessage, EncodedMessage};
use reactor::Network;

use super::Runtime;
use crate::held_messages::{HeldMessage, NoRoom};
use crate::runtime_signal::RuntimeNews;

impl<N: Network> Runtime<N> {
    /// Sends the messages that a connection has published since the last call, or holds them until their
    /// time comes. If there is no room for them, the connection is closed.
    pub(super) fn take_published(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let context = &mut self.executor.context;
        let mut due = Vec::new();
        for published in std::mem::take(&mut connection.session.published) {
            let (epoch, own) = connection.session.output.epochs_at(published.position);
            let message = published.message;
            let Some(epoch) = epoch.filter(|&epoch| epoch > context.durable) else {
                due.push(message);
                continue;
            };
            let held = HeldMessage {
                message,
                epoch,
                lost_with: own.filter(|_| published.in_block),
            };
            if let Err(NoRoom { bytes }) = self.held_messages.hold(held) {
                let bytes = Size(bytes as u64);
                let text = format!(
                    "closed: {bytes} of published messages would wait (--max-client-memory)"
                );
                context.warn(connection.session.client.address, "held messages", text);
                connection.state.dead = true;
            }
        }
        due.iter().for_each(|message| self.publish(message));
    }

    /// Sends the held messages whose time has come.
    pub(super) fn release_messages(&mut self) {
        if self.held_messages.is_empty() {
            return;
        }
        let context = &self.executor.context;
        let partition = &context.shared.partition;
        let outcome = |epoch| match () {
            () if context.can_lose && partition.is_lost(epoch) => Some(false),
            () => (epoch <= context.durable).then_some(true),
        };
        let due = self.held_messages.release(outcome);
        if context.failed.is_some() {
            self.held_messages.clear();
        }
        due.iter().for_each(|message| self.publish(message));
    }

    /// Sends a message to all subscribers, on other nodes as well.
    fn publish(&mut self, message: &Arc<ChannelMessage>) {
        if let Some(cluster) = &mut self.executor.cluster {
            cluster.publish(message);
            self.has_published = true;
        }
        self.dispatch(message);
    }

    /// Sends nodes what was published since their messages were last sent.
    pub(super) fn send_published(&mut self) {
        if !std::mem::take(&mut self.has_published) {
            return;
        }
        if let (Some(cluster), Some(links)) = (&mut self.executor.cluster, &mut self.links) {
            cluster.send(links, &mut self.network);
        }
    }

    /// Gives a message to the runtimes that have subscribers for it.
    pub(super) fn dispatch(&mut self, message: &Arc<ChannelMessage>) {
        let shared = Arc::clone(&self.executor.context.shared);
        for runtime in shared.channels.runtimes_of(message) {
            match runtime == self.index {
                true => self.deliver(message),
                false => shared.signals[runtime].send(RuntimeNews::Message(Arc::clone(message))),
            }
        }
    }

    /// Adds a message to the output of this runtime's subscribers.
    pub(super) fn deliver(&mut self, message: &ChannelMessage) {
        let context = &self.executor.context;
        let named = (None, context.subscribers.of_channel(message));
        let patterns = context.subscribers.of_patterns(message);
        let patterns = patterns.map(|(pattern, keys)| (Some(pattern), keys));
        let most = context.shared.config.limits.subscriber_output;
        let mut sent = 0;
        for (pattern, keys) in std::iter::once(named).chain(patterns) {
            let mut encoded = EncodedMessage::default();
            for &key in keys {
                let Some(connection) = self.connections.get_mut(key) else {
                    continue;
                };
                let session = &mut connection.session;
                // One that has more than the limit is closed at the end of the turn.
                if session.closing || session.output.pending() > most {
                    continue;
                }
                session.output.borrow_buffer(&mut self.pool);
                let bytes = encoded.of(session.protocol, pattern, message);
                session.output.buffer().extend_from_slice(bytes);
                self.lists.touched(key, connection);
                sent += 1;
            }
        }
        let counters = &context.shared.counters;
        counters.messages.fetch_add(sent, Ordering::Relaxed);
    }
}
