//! The end of a turn: writes the replies that may leave, and makes the others durable.
//!
//! To let as many requests as possible share a sync, a sync starts when no more requests come. The
//! thread then syncs by itself, if the device is quick: that saves two thread switches. Otherwise
//! log threads do, and the thread serves meanwhile. In the same way as many as possible share an append and
//! a round of messages of a replicated partition.

use std::io::{ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use base::Epoch;
use base::size::Size;
use reactor::Network;

use super::Runtime;
use crate::connection::Connection;
use crate::limits::{POOLED_BUFFERS, POOLED_CAPACITY};
use crate::pending_command::{PendingCommand, Readiness};
use crate::refusal;

/// The time for which a sync is put off while requests keep coming.
const DEFERRAL: Duration = Duration::from_micros(500);
/// After a sync that took too long for a serving thread, log threads sync for this time.
const SYNC_PAUSE: Duration = Duration::from_secs(1);

impl<N: Network> Runtime<N> {
    /// Ends the turn: writes the replies that may leave, requests durability for the others, and
    /// ensures that it will be noticed.
    pub(super) fn settle(&mut self) {
        self.turn_node();
        self.settle_touched();
        while let Some(wanted) = self.wanted() {
            self.signal().announce_waiting_replies(false);
            if !self.sync_here(wanted) {
                self.signal().announce_waiting_replies(true);
                let context = &mut self.executor.context;
                let before = (context.durable, context.changes);
                context.refresh_all();
                if (context.durable, context.changes) == before && context.failed.is_none() {
                    return self.request(wanted);
                }
            }
            self.touch_waiting();
            self.turn_node();
            self.settle_touched();
        }
        self.signal().announce_waiting_replies(false);
        self.announce();
    }

    /// Has a replicated partition take what was submitted, when no more requests can be expected to join.
    fn announce(&mut self) {
        if self.executor.worker.has_unannounced() && self.has_gathered() {
            self.deferred_until = None;
            self.executor.worker.announce();
        }
    }

    /// Returns `true` if no more requests can be expected to join those that wait for a sync.
    /// Otherwise a short time begins in which the runtime looks for more; see [`Runtime::timeout`].
    fn has_gathered(&mut self) -> bool {
        let now = self.executor.context.now;
        let all_wait = self.lists.waiting.len() == self.connections.len();
        all_wait || now >= *self.deferred_until.get_or_insert(now + DEFERRAL)
    }

    /// Asks the log threads to make `epoch` durable.
    pub(super) fn request(&mut self, epoch: Epoch) {
        if self.executor.context.can_lose {
            return self.announce();
        }
        if epoch > self.requested && self.requested > self.executor.context.durable {
            // Its turn comes when the running sync has ended; until then more can join.
            return;
        }
        if epoch > self.requested && !self.has_gathered() {
            return;
        }
        self.deferred_until = None;
        self.requested = epoch;
        self.executor
            .context
            .shared
            .partition
            .request_durable(epoch);
    }

    /// Makes `epoch` durable on this thread when there is nothing better to do. Returns `true` if
    /// it did.
    pub(super) fn sync_here(&mut self, epoch: Epoch) -> bool {
        let context = &mut self.executor.context;
        if std::mem::take(&mut context.has_large_commit) {
            // That is more than a serving thread should write.
            self.sync_here_from = context.now + SYNC_PAUSE;
        }
        let longest = context.shared.config.inline_sync;
        if context.can_lose
            || longest.is_zero()
            || context.now < self.sync_here_from
            || self.requested > context.durable
            || !self.lists.ready.is_empty()
            || !self.has_gathered()
        {
            return false;
        }
        self.deferred_until = None;
        let context = &mut self.executor.context;
        let start = Instant::now();
        let done = context.shared.partition.sync_inline(epoch);
        if start.elapsed() > longest {
            // The device is slow; it may be faster some time.
            self.sync_here_from = context.now + SYNC_PAUSE;
        }
        if done {
            context.refresh_all();
        }
        done
    }

    pub(super) fn touch_waiting(&mut self) {
        for at in 0..self.lists.waiting.len() {
            let key = self.lists.waiting[at];
            if let Some(connection) = self.connections.get_mut(key) {
                self.lists.touched(key, connection);
            }
        }
    }

    /// Returns the newest epoch that a reply, or an answer to another node, waits for. Connections
    /// that do not wait any more leave the list.
    pub(super) fn wanted(&mut self) -> Option<Epoch> {
        let failed = self.executor.context.failed.is_some();
        let messages = self.held_messages.waits_for().filter(|_| !failed);
        let mut wanted = self.node_wants().max(messages);
        wanted = wanted.max(self.events_wait_for());
        let connections = &mut self.connections;
        self.lists.waiting.retain(|&key| {
            let Some(connection) = connections.get_mut(key) else {
                return false;
            };
            let epoch = connection.waits_for();
            connection.state.in_waiting = epoch.is_some();
            wanted = wanted.max(epoch);
            epoch.is_some()
        });
        wanted
    }

    pub(super) fn settle_touched(&mut self) {
        self.release_messages();
        self.release_key_events();
        // Messages that a connection has published touch their subscribers.
        while !self.lists.touched.is_empty() {
            let mut touched = std::mem::replace(
                &mut self.lists.touched,
                std::mem::take(&mut self.lists.spare),
            );
            for &key in &touched {
                self.settle_one(key);
            }
            touched.clear();
            self.lists.spare = touched;
        }
        self.send_published();
    }

    /// Writes the part of one connection's output that may leave, and decides how it continues.
    pub(super) fn settle_one(&mut self, key: usize) {
        let published = |connection: &Connection| !connection.session.published.is_empty();
        if self.connections.get(key).is_some_and(published) {
            self.take_published(key);
        }
        self.write_notices(key);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.state.in_touched = false;
        if connection.session.authenticated
            && let Some(place) = connection.newcomer.take()
        {
            self.newcomers.leave(place);
        }
        let context = &mut self.executor.context;
        if context.can_lose {
            let is_lost = |epoch| context.shared.partition.is_lost(epoch);
            let (durable, instead) = (context.durable, refusal::LEADERSHIP_LOST);
            let lost = connection
                .session
                .output
                .release_or_lose(durable, is_lost, instead);
            for _ in 0..lost {
                context.note_error(refusal::LEADERSHIP_LOST);
            }
        } else {
            connection.session.output.release(context.durable);
        }
        if context.failed.is_some() {
            let unknown = connection.session.output.give_up();
            for _ in 0..unknown {
                connection.writer().error(refusal::OUTCOME_UNKNOWN);
                context.note_error(b"-MISCONF");
            }
            if unknown > 0 && connection.session.gets_messages() {
                // Messages were among them, and a client could not tell errors for these.
                connection.session.closing = true;
            }
            if unknown > 0 {
                // A piece of it may be among the replies that were dropped.
                connection.snapshot = None;
            }
        }
        if !matches!(&connection.pending, Some(PendingCommand::ReplyHandover(own)) if own.strong_count() > 0)
        {
            let stream = &mut self.streams[key];
            context.bytes_out += write(&mut self.network, stream, connection) as u64;
        }
        if connection.state.full {
            connection.session.output.set_aside();
        }
        let limits = &context.shared.config.limits;
        let (output, text) = match connection.session.gets_messages() {
            true => (
                limits.subscriber_output,
                "closed: it subscribes to channels, or monitors, and is slow to take messages (--max-subscriber-output)",
            ),
            false => (limits.output, "closed: it takes no replies"),
        };
        let held = connection.held_bytes();
        let output_bytes = connection.session.output.pending();
        connection
            .session
            .client
            .note_memory([connection.input.len(), output_bytes, held]);
        if output_bytes > output {
            context.warn(connection.session.client.address, text, text);
            connection.state.dead = true;
        } else if connection.share.set(held).is_err() {
            let budget = &context.shared.in_flight;
            let (used, limit) = (Size(budget.used()), Size(budget.limit()));
            let text = format!(
                "closed: with {} of requests and of replies that it has not taken, all clients together would hold \
                 more than {limit} (now {used}; --max-client-memory)",
                Size(held as u64)
            );
            context.warn(connection.session.client.address, "client memory", text);
            connection.state.dead = true;
        }
        if connection.state.dead
            || connection.session.closing && connection.session.output.is_empty()
        {
            return self.close(key);
        }
        if connection.waits_for().is_some() {
            self.lists.waiting(key, connection);
        }
        if let Some(buffer) = connection.session.output.take_buffer()
            && self.pool.len() < POOLED_BUFFERS
            && buffer.capacity() <= POOLED_CAPACITY
        {
            self.pool.push(buffer);
        }
        let state = &connection.state;
        let pending = connection.pending.as_ref();
        let readiness = pending.map(|pending| pending.readiness(context));
        let more = match readiness {
            Some(Readiness::Now) => true,
            Some(Readiness::WhenWoken(due)) => {
                self.tasks_due = [self.tasks_due, due].into_iter().flatten().min();
                self.lists.task(key, connection);
                false
            }
            Some(Readiness::AtOutcome) => false,
            Some(Readiness::AtTurn) => {
                let blocked = connection.blocked.as_ref();
                blocked.is_some_and(|blocked| blocked.is_due(context.now))
            }
            None => state.stalled || state.readable,
        };
        if more && !connection.session.closing {
            self.lists.ready(key, connection);
        }
        let waits = connection.blocked.is_some() || connection.state.blocked_until.is_some();
        if connection.snapshot.is_some() {
            self.note_snapshot(key);
        }
        if waits {
            self.note_wait(key);
        }
    }
}

/// Writes the output that may leave. Returns the number of bytes that the socket took.
fn write<N: Network>(
    network: &mut N,
    stream: &mut N::Stream,
    connection: &mut Connection,
) -> usize {
    let mut taken = 0;
    while !connection.state.full && !connection.state.dead {
        let bytes = connection.session.output.sendable();
        if bytes.is_empty() {
            break;
        }
        match network.write(stream, &[IoSlice::new(bytes)]) {
            Ok(count) => {
                connection.session.output.sent(count);
                taken += count;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => connection.state.full = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => connection.state.dead = true,
        }
    }
    taken
}
