//! A thread's clients. It reads their requests, hands queries to the threads that have the nodes, and
//! writes the replies.
//!
//! Invariants:
//! 1. A reply is given to the connection that its query came from, or it is dropped: identifiers of
//!    connections are never used twice.
//! 2. A connection whose next request has no room with its node is not read from; the others are. What
//!    the proxy holds for a node is bounded by the node's room.
//! 3. A connection whose client takes no replies is not read from beyond the soft limit of its output,
//!    and is closed beyond the hard limit.
//! 4. A connection is closed if its client does not finish its handshake (authentication included) in
//!    time, or stops in the middle of a request; a client that is between requests may stay idle for
//!    ever. There are few places for clients that have not authenticated; when all are taken, the
//!    oldest of these clients is closed for the next one.

mod admission;
mod connection;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use base::log_limit::LogLimit;
use base::size::Size;
use bytes::BytesMut;
use reactor::accept::AcceptSchedule;
use reactor::budget::Budget;
use reactor::newcomers::Newcomers;
use slab::Slab;

use super::arena::ReadArena;
use super::deadlines::Deadlines;
use super::outbox::Outbox;
use super::protocol::{ClientProtocol, DeferredReply, EndReason, InputProgress};
use super::query::BackendReply;
use super::wait_queue::WaitQueue;
use crate::config::Limits;
use crate::figures::FrontendFigures;
use connection::{Connection, due, list};
use reactor::{Network, SocketEvent};

/// A piece of a request of at most this many bytes is copied, so that it does not keep its block in
/// memory.
const SMALL: usize = 4096;
/// Replies taken from one queue in a turn, so that requests get their turn as well.
const TAKEN: usize = 1024;

/// Each thread writes at most one log line of each kind that clients cause in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// See the module documentation.
pub(crate) struct Frontend<N: Network, F: ClientProtocol> {
    thread: u16,
    protocol: F,
    limits: Limits,
    /// Memory that connections of all threads hold for requests and replies.
    budget: Arc<Budget>,
    listener: Option<N::Listener>,
    accepting: AcceptSchedule,
    connections: Slab<Connection<N::Stream, F::Client>>,
    accepted: u32,
    outbox: Outbox,
    ready: Vec<usize>,
    touched: Vec<usize>,
    wait_queue: WaitQueue,
    deferred_replies: Vec<DeferredReply<F::Outcome>>,
    /// Clients that have not authenticated, where they must.
    newcomers: Newcomers<usize>,
    /// Deadlines of clients that have not authenticated, or have not gone on with a request.
    deadlines: Deadlines,
    stopping: bool,
    /// Limits log lines that clients cause, by their text.
    log_limit: LogLimit<&'static str>,
    figures: Arc<FrontendFigures>,
}

impl<N: Network, F: ClientProtocol> Frontend<N, F> {
    pub(crate) fn new(
        thread: u16,
        protocol: F,
        limits: Limits,
        budget: Arc<Budget>,
        listener: N::Listener,
        outbox: Outbox,
        figures: Arc<FrontendFigures>,
    ) -> Frontend<N, F> {
        Frontend {
            thread,
            protocol,
            limits,
            budget,
            listener: Some(listener),
            accepting: AcceptSchedule::default(),
            connections: Slab::new(),
            accepted: 0,
            outbox,
            ready: Vec::new(),
            touched: Vec::new(),
            wait_queue: WaitQueue::default(),
            deferred_replies: Vec::new(),
            newcomers: Newcomers::new(limits.newcomers, limits.greeting),
            deadlines: Deadlines::default(),
            stopping: false,
            log_limit: LogLimit::new(LOG_INTERVAL),
            figures,
        }
    }

    /// Records that the listener has connections.
    pub(crate) fn note_listener(&mut self) {
        self.accepting.note_listener();
    }

    /// Records an event of a client's connection.
    pub(crate) fn note(&mut self, place: usize, happened: SocketEvent, now: Duration) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.ended |= happened.ended;
        if happened.ended {
            self.give_up_waiting(place, EndReason::Client, now);
        }
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        if connection.ended && self.protocol.may_wait_for_ever(&connection.client) {
            // The client is gone, and the reply that it waits for may never come.
            connection.dead = true;
            list(&mut self.touched, &mut connection.in_touched, place);
        }
        if happened.readable {
            connection.readable = true;
            list(&mut self.ready, &mut connection.in_ready, place);
        }
        if happened.writable && connection.full {
            connection.full = false;
            list(&mut self.touched, &mut connection.in_touched, place);
        }
    }

    /// Takes replies, reads requests, hands on queries, and writes. Returns `true` if there is more to
    /// do at once.
    pub(crate) fn turn(&mut self, network: &mut N, arena: &mut ReadArena, now: Duration) -> bool {
        let notices = self.protocol.has_notices();
        self.protocol.refresh(now);
        if notices {
            self.deliver_notices(now);
        }
        self.accept(network, now);
        self.turn_out(now);
        let more = self.take_replies(now);
        self.take_deferred_replies(now);
        let connections = &self.connections;
        self.outbox.send_delayed(now, |client| {
            let connection = connections.get(client.place as usize);
            connection.is_some_and(|connection| connection.id == client)
        });
        let mut ready = std::mem::take(&mut self.ready);
        for place in ready.drain(..) {
            self.serve(place, network, arena, now);
        }
        self.ready.append(&mut ready);
        self.wait_queue.settle(&mut self.outbox.inflight);
        self.outbox.flush_queries();
        self.write(network, now);
        // A closed client may have left connections of its own.
        self.outbox.flush_queries();
        self.figures.set_clients(self.connections.len());
        // Writing may have made room for the replies to what comes next.
        more || !self.ready.is_empty() || self.wait_queue.has_freed()
    }

    /// Tells all clients the news that the protocol has for them.
    fn deliver_notices(&mut self, now: Duration) {
        for (place, connection) in &mut self.connections {
            let (client, _, mut context) = connection.with_context(&mut self.outbox, now);
            self.protocol.deliver_notices(client, &mut context);
            list(&mut self.touched, &mut connection.in_touched, place);
        }
    }

    fn take_replies(&mut self, now: Duration) -> bool {
        let mut more = false;
        for back in 0..self.outbox.backends() {
            let mut taken = 0;
            while taken < TAKEN
                && let Some(reply) = self.outbox.reply(back)
            {
                taken += 1;
                self.deliver_reply(reply, now);
            }
            more |= taken == TAKEN;
        }
        let (connections, ready) = (&mut self.connections, &mut self.ready);
        self.wait_queue.wake(&mut self.outbox.inflight, |place| {
            if let Some(connection) = connections.get_mut(place) {
                list(ready, &mut connection.in_ready, place);
            }
        });
        more
    }

    /// Gives a reply to the client that waits for it.
    fn deliver_reply(&mut self, reply: BackendReply, now: Duration) {
        self.outbox.inflight.give_back(&reply.query);
        self.wait_queue.freed(reply.query.node);
        let id = reply.query.client;
        let place = id.place as usize;
        let Some(connection) = self.connections.get_mut(place).filter(|it| it.id == id) else {
            return;
        };
        connection.under_way -= 1;
        self.figures
            .answered(now.saturating_sub(reply.query.since), reply.result.is_ok());
        let (client, _, mut context) = connection.with_context(&mut self.outbox, now);
        self.protocol.reply(client, reply, &mut context);
        list(&mut self.touched, &mut connection.in_touched, place);
        if connection.progress == InputProgress::AwaitsReply {
            list(&mut self.ready, &mut connection.in_ready, place);
        }
    }

    /// Gives clients the deferred replies.
    fn take_deferred_replies(&mut self, now: Duration) {
        let mut deferred_replies = std::mem::take(&mut self.deferred_replies);
        self.protocol.collect(now, &mut deferred_replies);
        for deferred_reply in deferred_replies.drain(..) {
            let id = deferred_reply.client;
            let place = id.place as usize;
            let Some(connection) = self.connections.get_mut(place).filter(|it| it.id == id) else {
                continue;
            };
            let (client, _, mut context) = connection.with_context(&mut self.outbox, now);
            if deferred_reply.is_awaited {
                context.forget_deferred_reply();
            }
            self.protocol.deliver(client, deferred_reply, &mut context);
            list(&mut self.touched, &mut connection.in_touched, place);
            if connection.progress == InputProgress::AwaitsReply {
                list(&mut self.ready, &mut connection.in_ready, place);
            }
        }
        self.deferred_replies = deferred_replies;
    }

    /// Lets the protocol give up the requests of the client that may wait without end.
    fn give_up_waiting(&mut self, place: usize, why: EndReason, now: Duration) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        let (client, _, mut context) = connection.with_context(&mut self.outbox, now);
        self.protocol.ended(client, why, &mut context);
        list(&mut self.touched, &mut connection.in_touched, place);
        if connection.progress == InputProgress::AwaitsReply {
            list(&mut self.ready, &mut connection.in_ready, place);
        }
    }

    /// Serves a connection: reads once, and works off the requests that are whole.
    fn serve(&mut self, place: usize, network: &mut N, arena: &mut ReadArena, now: Duration) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.in_ready = false;
        let takes_no_more = connection.dead
            || connection.progress == InputProgress::Close
            || self.protocol.is_over(&connection.client);
        if takes_no_more || self.stopping {
            return list(&mut self.touched, &mut connection.in_touched, place);
        }
        if connection.out.len() > self.protocol.unread() {
            // It goes on when its client has taken some replies.
            return;
        }
        let mut has_come = false;
        if connection.progress == InputProgress::Done && connection.readable {
            let network = &mut *network;
            let stream = &mut connection.stream;
            match arena.receive(|room| network.read(stream, room)) {
                Ok(received) if received.bytes.is_empty() => {
                    connection.readable = false;
                    connection.finished = true;
                }
                Ok(received) => {
                    has_come = true;
                    connection.readable = received.filled || connection.ended;
                    self.figures.received(received.bytes.len());
                    if connection.input.is_empty() {
                        connection.input = received.bytes;
                    } else {
                        connection.input.extend_from_slice(&received.bytes);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    connection.readable = false;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    // The client is gone; there is no one to answer.
                    connection.dead = true;
                    return list(&mut self.touched, &mut connection.in_touched, place);
                }
            }
        }
        let ended = connection.ended;
        self.wait_queue.begin(place, &mut self.outbox.inflight);
        let (client, input, mut context) = connection.with_context(&mut self.outbox, now);
        let before = context.orders.len();
        let progress = self.protocol.read(client, input, &mut context);
        // Requests that it sent before it ended are executed, but do not wait.
        let given_up = ended && self.protocol.ended(client, EndReason::Client, &mut context);
        self.figures.asked(context.orders.len() - before);
        connection.progress = progress;
        if let Some(newcomer) = connection.newcomer
            && self.protocol.has_begun(&connection.client)
        {
            self.newcomers.leave(newcomer);
            connection.newcomer = None;
        }
        if given_up && progress == InputProgress::AwaitsReply {
            // The reply that the connection waits for may have been this one.
            list(&mut self.ready, &mut connection.in_ready, place);
        }
        if connection.input.is_empty() {
            // Frees the memory that it shares with others.
            connection.input = BytesMut::new();
        } else if connection.input.len() <= SMALL && connection.input.capacity() > SMALL {
            // A piece of a request may stay for long; it does not keep a whole block in memory.
            connection.input = BytesMut::from(&connection.input[..]);
        } else if connection.input.len() > self.limits.query_buffer {
            let text = "a client is closed: its input exceeds the limit";
            if let Some(left_out) = self.log_limit.count(text, now) {
                tracing::warn!("{text}{left_out}");
            }
            connection.dead = true;
        }
        let waits = connection.progress == InputProgress::AwaitsRoom;
        self.wait_queue.end(place, waits, &mut self.outbox.inflight);
        let is_midway = connection.progress == InputProgress::Done
            && self
                .protocol
                .is_midway(&connection.client, &connection.input);
        let before = connection.midway.filter(|_| !has_come);
        connection.midway = is_midway.then(|| before.unwrap_or(now));
        if let Some(due) = due(&self.protocol, &self.limits, connection) {
            self.deadlines.set(place, due);
        }
        if connection.progress == InputProgress::Done && connection.readable {
            list(&mut self.ready, &mut connection.in_ready, place);
        }
        list(&mut self.touched, &mut connection.in_touched, place);
    }

    /// Writes replies, and closes the connections that are to be closed.
    fn write(&mut self, network: &mut N, now: Duration) {
        let mut touched = std::mem::take(&mut self.touched);
        for place in touched.drain(..) {
            let Some(connection) = self.connections.get_mut(place) else {
                continue;
            };
            connection.in_touched = false;
            self.protocol
                .seal(&mut connection.client, &mut connection.out);
            let before = connection.out.len();
            if !connection.dead && !connection.full && before > 0 {
                match connection.out.write(network, &mut connection.stream) {
                    Ok(everything) => connection.full = !everything,
                    Err(_) => connection.dead = true,
                }
                self.figures.sent(before - connection.out.len());
            }
            let len = connection.out.len();
            let (most, text) = match self.protocol.gets_messages(&connection.client) {
                true => (
                    self.limits.subscriber_output,
                    "a client is closed: it subscribes to channels, and is slow to take messages \
                     (--max-subscriber-output)",
                ),
                false => (
                    self.limits.output,
                    "a client is closed: it takes no replies",
                ),
            };
            if len > most && !connection.dead {
                if let Some(left_out) = self.log_limit.count(text, now) {
                    tracing::warn!("{text}{left_out}");
                }
                connection.dead = true;
            }
            let unread = self.protocol.unread();
            if before > unread && len <= unread {
                list(&mut self.ready, &mut connection.in_ready, place);
            }
            let held = len + connection.input.len() + self.protocol.held_bytes(&connection.client);
            if connection.share.set(held).is_err() {
                let limit = Size(self.budget.limit());
                if let Some(left_out) = self.log_limit.count("client memory", now) {
                    tracing::warn!(
                        "a client is closed: with {} of requests, subscriptions, and replies that it has not taken, all \
                         clients together would hold more than {limit} (--max-client-memory){left_out}",
                        Size(held as u64)
                    );
                }
                connection.dead = true;
            }
            let idle = connection.under_way == 0 && len == 0;
            let ends = match connection.progress {
                InputProgress::Close => idle,
                InputProgress::Done => idle && (connection.finished || self.stopping),
                InputProgress::AwaitsReply | InputProgress::AwaitsRoom => idle && self.stopping,
            };
            let is_over = len == 0 && self.protocol.is_over(&connection.client);
            if connection.dead || ends || is_over {
                self.close(place, network, now);
            }
        }
        self.touched = touched;
    }

    /// Returns `true` if there is something to take. Called before the thread sleeps.
    pub(crate) fn has_work(&self) -> bool {
        self.protocol.has_deferred_replies()
            || self.protocol.has_notices()
            || self.outbox.has_replies()
    }

    /// Returns how long the thread may sleep; `None`: until an event.
    pub(crate) fn timeout(&self, now: Duration) -> Option<Duration> {
        let due = [
            self.outbox.due(now),
            self.accepting.due(),
            self.deadlines.next(),
            self.protocol.next_deferred_reply(),
        ];
        let due = due.into_iter().flatten().min()?;
        Some(due.saturating_sub(now))
    }

    /// Stops accepting, answers the requests that were read, and closes.
    pub(crate) fn begin_stop(&mut self, now: Duration) {
        self.listener = None;
        self.accepting.stop();
        if !std::mem::replace(&mut self.stopping, true) {
            let places: Vec<usize> = self.connections.iter().map(|(place, _)| place).collect();
            for place in places {
                self.give_up_waiting(place, EndReason::Proxy, now);
            }
        }
        for (place, connection) in &mut self.connections {
            list(&mut self.touched, &mut connection.in_touched, place);
        }
    }

    /// Returns `true` if all connections are closed.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Closes all connections.
    pub(crate) fn stop(&mut self, network: &mut N, now: Duration) {
        let places: Vec<usize> = self.connections.iter().map(|(place, _)| place).collect();
        for place in places {
            self.close(place, network, now);
        }
    }

    fn close(&mut self, place: usize, network: &mut N, now: Duration) {
        let mut connection = self.connections.remove(place);
        let (client, _, mut context) = connection.with_context(&mut self.outbox, now);
        self.protocol.gone(client, &mut context);
        self.wait_queue.gone(place, &mut self.outbox.inflight);
        self.deadlines.remove(place);
        if let Some(newcomer) = connection.newcomer {
            self.newcomers.leave(newcomer);
        }
        self.figures.dismiss();
        network.close(connection.stream);
    }
}
