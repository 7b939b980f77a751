//! A connection to a node: queries wait here, leave in batches, and get their replies.
//!
//! Invariants:
//! 1. Queries leave in the order in which they came, if the wire has room. Queries that wait are
//!    written as soon as the socket takes them, unless the node has enough batches already
//!    ([`LinkLimits::packs`]). No query to an idle node is held back in the hope of more.
//! 2. A query that has not been put into a batch has not been sent: it may be given to another
//!    connection. A query that has been put into one may have been executed.
//! 3. If a node does not answer within the limit, its connection is closed and everything that is under
//!    way is given up. Time in which this thread did not run, because the host or the process was
//!    stopped, is not counted.
//! 4. The same holds for a silent node as soon as other nodes have replaced it.
//! 5. A shared connection that is lost is made again even if nothing waits for it: so the proxy notices
//!    that a node is back, and no request has to find out.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;

use super::arena::ReadArena;
use super::batch_window::BatchWindow;
use super::out_batch::OutBatch;
use super::query::{
    BackendAnswer, BackendQuery, BackendReply, ConnectionKey, NodeError, NodeIndex, QueryFailure,
};
use super::wire::{Wire, WireError};
use reactor::{Network, SocketEvent};

/// The first pause before a connection is tried again; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The first pause before a connection is tried again for which nothing waits.
const REVIVAL: Duration = Duration::from_secs(1);
const LONGEST_REVIVAL: Duration = Duration::from_secs(30);
/// A node that owes an answer is silent when nothing has come from it for this time, or for half of the
/// limit if that is shorter. Then the proxy asks other nodes which node has its slots.
const SILENCE: Duration = Duration::from_millis(500);
/// Reads of one turn, so that one node does not keep the others waiting.
const READS: usize = 8;

/// Limits on what a connection does at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkLimits {
    /// Queries in one packet.
    pub(crate) pack_count: usize,
    /// Bytes in one packet.
    pub(crate) pack_bytes: usize,
    /// Queries that may be without a reply.
    pub(crate) window: usize,
    /// Packets that may be without any reply.
    pub(crate) packs: usize,
    /// How long connecting may take, and how long a reply may take.
    pub(crate) timeout: Duration,
    /// A connection that has been idle for this time is sent a request that shows if the node lives.
    pub(crate) health: Duration,
}

/// Figures of one connection since they were last collected.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LinkFigures {
    pub(crate) queries: u64,
    pub(crate) packets: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) reads: u64,
    pub(crate) connects: u64,
    pub(crate) failures: u64,
}

enum State<S> {
    /// Not connected; not tried again before this time.
    Down {
        until: Duration,
    },
    Connecting {
        stream: S,
        since: Duration,
    },
    Up {
        stream: S,
    },
}

/// See the module documentation.
pub(crate) struct NodeLink<N: Network, W: Wire> {
    pub(crate) node: NodeIndex,
    pub(crate) connection_key: ConnectionKey,
    address: SocketAddr,
    token: usize,
    state: State<N::Stream>,
    wire: Option<W>,
    waiting: VecDeque<BackendQuery>,
    pack: OutBatch,
    batch_window: BatchWindow,
    input: BytesMut,
    /// The socket takes no more for now.
    full: bool,
    /// It is on the list of links that have something to do.
    pub(crate) listed: bool,
    /// The socket has more to read.
    pub(crate) readable: bool,
    /// The node will send nothing more. This is reported once, and read after the rest of the input.
    ended: bool,
    /// How many connections have been made.
    made: u64,
    /// The node has answered on this connection, and accepts the proxy.
    proven: bool,
    pause: Duration,
    /// How often in a row it was lost before the node had accepted the proxy, plus one if it was lost
    /// after that.
    failures: u32,
    /// The time at which it is made again although nothing waits.
    revival: Duration,
    /// The node's count of hints at the last check.
    hints: u64,
    /// The time at which it was last needed.
    needed: Duration,
    /// The time since which its client has no use for it.
    released: Option<Duration>,
    /// The time at which something last came from the node.
    heard: Duration,
    pub(crate) figures: LinkFigures,
}

/// Parts of the thread that a link uses.
pub(crate) struct LinkContext<'a, N: Network, W: Wire> {
    pub(crate) network: &'a mut N,
    pub(crate) arena: &'a mut ReadArena,
    pub(crate) options: &'a W::Options,
    pub(crate) limits: &'a LinkLimits,
    /// Time since the proxy's start.
    pub(crate) now: Duration,
    pub(crate) replies: &'a mut Vec<BackendReply>,
}

impl<N: Network, W: Wire> NodeLink<N, W> {
    pub(crate) fn new(
        node: NodeIndex,
        connection_key: ConnectionKey,
        address: SocketAddr,
        token: usize,
    ) -> Self {
        NodeLink {
            node,
            connection_key,
            address,
            token,
            state: State::Down {
                until: Duration::ZERO,
            },
            wire: None,
            waiting: VecDeque::new(),
            pack: OutBatch::default(),
            batch_window: BatchWindow::default(),
            input: BytesMut::new(),
            full: false,
            listed: false,
            readable: false,
            ended: false,
            made: 0,
            proven: false,
            pause: PAUSE,
            failures: 0,
            revival: Duration::ZERO,
            hints: 0,
            needed: Duration::ZERO,
            released: None,
            heard: Duration::ZERO,
            figures: LinkFigures::default(),
        }
    }

    /// Adds a query for this node. [`NodeLink::go_on`] writes it.
    pub(crate) fn push(&mut self, query: BackendQuery) {
        self.released = None;
        self.waiting.push_back(query);
    }

    /// Returns how many queries wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns how many queries have been sent and not been answered.
    pub(crate) fn under_way(&self) -> usize {
        self.wire.as_ref().map_or(0, Wire::under_way)
    }

    /// Returns `true` if the node has accepted the proxy.
    pub(crate) fn is_up(&self) -> bool {
        let is_welcome = self.wire.as_ref().is_some_and(Wire::is_welcome);
        is_welcome && matches!(self.state, State::Up { .. })
    }

    /// Returns `true` if the connection is lost and will be made again without a query for it.
    pub(crate) fn is_awaited(&self) -> bool {
        W::SHARED && self.failures > 0 && !self.is_up()
    }

    /// Reports that the node came or went; `hints` counts these reports up to now.
    pub(crate) fn hint(&mut self, hints: u64, around: &mut LinkContext<'_, N, W>) {
        if std::mem::replace(&mut self.hints, hints) == hints {
            return;
        }
        match self.state {
            State::Down { .. } if self.is_awaited() => self.connect(around),
            State::Up { .. } => self.probe(around),
            _ => {}
        }
    }

    fn probe(&mut self, around: &mut LinkContext<'_, N, W>) {
        if let Some(wire) = &mut self.wire
            && wire.may_ask()
        {
            wire.probe(&mut self.pack, around.now);
            self.go_on(around);
        }
    }

    /// Handles an event of the socket.
    pub(crate) fn note(&mut self, happened: SocketEvent, around: &mut LinkContext<'_, N, W>) {
        if matches!(self.state, State::Connecting { .. }) {
            self.finish_connecting(around);
        }
        self.readable |= happened.readable;
        self.ended |= happened.ended;
        self.full &= !happened.writable;
    }

    fn finish_connecting(&mut self, around: &mut LinkContext<'_, N, W>) {
        let down = State::Down {
            until: Duration::ZERO,
        };
        let State::Connecting { stream, since } = std::mem::replace(&mut self.state, down) else {
            return;
        };
        match around.network.connected(&stream) {
            Ok(()) => {
                self.figures.connects += 1;
                self.made += 1;
                self.heard = around.now;
                self.full = false;
                self.wire = Some(W::open(
                    around.options,
                    self.connection_key,
                    &mut self.pack,
                    around.now,
                ));
                self.state = State::Up { stream };
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                self.state = State::Connecting { stream, since };
            }
            Err(error) => {
                around.network.close(stream);
                self.fail(NodeError::Unreachable(error.to_string()), around);
            }
        }
    }

    /// Reads replies and passes them on. Returns `true` if there may be more to read.
    pub(crate) fn read(&mut self, around: &mut LinkContext<'_, N, W>) -> bool {
        for _ in 0..READS {
            let State::Up { stream } = &mut self.state else {
                self.readable = false;
                return false;
            };
            let network = &mut *around.network;
            match around.arena.receive(|room| network.read(stream, room)) {
                Ok(received) if received.bytes.is_empty() => {
                    self.readable = false;
                    self.fail(
                        NodeError::Closed("end of the connection".to_owned()),
                        around,
                    );
                    return false;
                }
                Ok(received) => {
                    self.heard = around.now;
                    self.figures.reads += 1;
                    self.figures.bytes_in += received.bytes.len() as u64;
                    self.readable = received.filled || self.ended;
                    if self.input.is_empty() {
                        self.input = received.bytes;
                    } else {
                        self.input.extend_from_slice(&received.bytes);
                    }
                    if let Err(broken) = self.split(around.replies) {
                        let why = match broken {
                            WireError::Nonsense(what) => NodeError::Nonsense(what),
                            WireError::Refused(what) => NodeError::Refused(what),
                            WireError::Unready(what) => NodeError::Unready(what),
                            WireError::Lacks(what) => NodeError::Lacks(what),
                            WireError::Spoilt(what) => NodeError::Spoilt(what),
                        };
                        self.fail(why, around);
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.fail(NodeError::Closed(error.to_string()), around);
                    return false;
                }
            }
            if !self.readable {
                return false;
            }
        }
        true
    }

    fn split(&mut self, replies: &mut Vec<BackendReply>) -> Result<(), WireError> {
        let connection = self.made;
        let batch_window = &mut self.batch_window;
        let wire = self.wire.as_mut().expect("it is connected");
        let result = wire.receive(&mut self.input, &mut |query, answer: BackendAnswer| {
            batch_window.answered();
            replies.push(BackendReply {
                query,
                connection,
                result: Ok(answer),
            });
        });
        self.proven |= result.is_ok() && wire.has_room();
        if self.input.is_empty() {
            // Frees the memory that it shares with others.
            self.input = BytesMut::new();
        }
        result
    }

    /// Connects if that is due, and writes the queries that wait.
    pub(crate) fn go_on(&mut self, around: &mut LinkContext<'_, N, W>) {
        if !self.waiting.is_empty() {
            self.needed = around.now;
        }
        if let State::Down { until } = self.state
            && !self.waiting.is_empty()
            && until <= around.now
        {
            self.connect(around);
        }
        loop {
            let State::Up { stream } = &mut self.state else {
                return;
            };
            if self.full {
                return;
            }
            let wire = self.wire.as_mut().expect("it is connected");
            let mut count = 0;
            let may_leave = self.batch_window.unanswered() < around.limits.packs;
            while may_leave
                && count < around.limits.pack_count
                && self.pack.len() < around.limits.pack_bytes
                && wire.under_way() < around.limits.window
                && wire.has_room()
                && let Some(query) = self.waiting.pop_front()
            {
                if query.connection.is_some_and(|number| number != self.made) {
                    let why = NodeError::Closed("the connection that it was for".to_owned());
                    around
                        .replies
                        .push(failed(query, QueryFailure::Unsent(why)));
                    continue;
                }
                wire.put(query, &mut self.pack, around.now);
                count += 1;
            }
            wire.seal(&mut self.pack);
            if self.pack.is_empty() {
                return;
            }
            self.batch_window.leaves(count);
            self.figures.queries += count as u64;
            self.figures.packets += 1;
            let before = self.pack.len();
            let result = self.pack.write(around.network, stream);
            self.figures.bytes_out += (before - self.pack.len()) as u64;
            match result {
                Ok(true) => {}
                Ok(false) => self.full = true,
                Err(error) => return self.fail(NodeError::Closed(error.to_string()), around),
            }
        }
    }

    /// Begins to connect, even if nothing waits.
    pub(crate) fn connect(&mut self, around: &mut LinkContext<'_, N, W>) {
        if !matches!(self.state, State::Down { .. }) {
            return;
        }
        match around.network.connect(self.address, self.token) {
            Ok(stream) => {
                let since = around.now;
                self.state = State::Connecting { stream, since };
            }
            Err(error) => self.fail(NodeError::Unreachable(error.to_string()), around),
        }
    }

    /// Returns `true` if nothing comes from the node although it owes an answer. The thread has
    /// run without interruption since `running_since`.
    pub(crate) fn is_silent(
        &self,
        now: Duration,
        running_since: Duration,
        limits: &LinkLimits,
    ) -> bool {
        let oldest = match &self.state {
            State::Up { .. } => self.wire.as_ref().and_then(Wire::oldest),
            _ => None,
        };
        let silence = SILENCE.min(limits.timeout / 2);
        oldest.is_some_and(|oldest| now >= oldest.max(self.heard).max(running_since) + silence)
    }

    /// Checks how long everything takes. Called regularly. `replaced` is the time at which other nodes
    /// replaced this one, if they did. The thread has run without interruption since `running_since`:
    /// the time that a node takes for a reply is counted from then at the earliest.
    pub(crate) fn tick(
        &mut self,
        replaced: Option<Duration>,
        running_since: Duration,
        around: &mut LinkContext<'_, N, W>,
    ) {
        let timeout = around.limits.timeout;
        match &self.state {
            State::Down { .. } => {
                if self.is_awaited() && around.now >= self.revival {
                    self.connect(around);
                }
            }
            State::Connecting { since, .. } => {
                if around.now >= running_since.max(*since) + timeout {
                    self.fail(NodeError::Unreachable("no answer".to_owned()), around);
                }
            }
            State::Up { .. } => {
                let wire = self.wire.as_mut().expect("it is connected");
                let (replies, batch_window) = (&mut *around.replies, &mut self.batch_window);
                if around.now >= running_since + timeout {
                    wire.give_up_late(around.now, timeout, &mut |query, why| {
                        batch_window.answered();
                        replies.push(failed(query, QueryFailure::Lost(why)));
                    });
                }
                let oldest = wire.oldest();
                let heard = self.heard.max(running_since);
                let silent = |oldest: Duration| around.now >= oldest.max(heard) + timeout;
                // A query that was put a little later was on its way when the node was replaced.
                let is_replaced = |oldest: Duration| {
                    replaced.is_some_and(|replaced| oldest.max(self.heard) < replaced + SILENCE)
                };
                if oldest.is_some_and(silent) {
                    self.fail(NodeError::Silent(timeout), around);
                } else if let Some(oldest) = oldest
                    && is_replaced(oldest)
                    && self.is_silent(around.now, running_since, around.limits)
                {
                    let silence = around.now.saturating_sub(oldest.max(self.heard));
                    self.fail(NodeError::Silent(silence), around);
                } else if around.now >= self.heard + around.limits.health {
                    self.probe(around);
                }
            }
        }
        // Queries that wait for a node that takes nothing time out as well.
        while let Some(query) = self.waiting.front()
            && around.now >= query.since.max(running_since) + timeout
        {
            let query = self.waiting.pop_front().expect("just seen");
            around.replies.push(failed(
                query,
                QueryFailure::Unsent(NodeError::Silent(timeout)),
            ));
        }
    }

    /// Closes the connection and fails the queries that are under way or wait.
    pub(crate) fn fail(&mut self, why: NodeError, around: &mut LinkContext<'_, N, W>) {
        tracing::debug!(node = %self.address, %why, "a connection to a node has ended");
        self.figures.failures += 1;
        let until = around.now + self.pause;
        match std::mem::replace(&mut self.state, State::Down { until }) {
            State::Down { .. } => {}
            State::Connecting { stream, .. } | State::Up { stream } => {
                around.network.close(stream);
            }
        }
        let node_serves = matches!(why, NodeError::Refused(_) | NodeError::Lacks(_));
        // A node that accepts connections and then refuses the proxy is tried again after the same
        // pauses as one that cannot be reached.
        (self.pause, self.failures) = match std::mem::take(&mut self.proven) {
            true => (PAUSE, 1),
            false => (
                (self.pause * 2).min(LONGEST_PAUSE),
                self.failures.saturating_add(1),
            ),
        };
        let doubled = REVIVAL * 2_u32.pow((self.failures - 1).min(5));
        self.revival = around.now + doubled.min(LONGEST_REVIVAL);
        if node_serves {
            // The node serves other connections; this one need not find out when it is back.
            self.failures = 0;
        }
        self.pack.clear();
        self.batch_window = BatchWindow::default();
        self.input = BytesMut::new();
        (self.readable, self.ended) = (false, false);
        let replies = &mut *around.replies;
        if let Some(mut wire) = self.wire.take() {
            wire.abandon(&mut |query| {
                replies.push(failed(query, QueryFailure::Lost(why.clone())));
            });
        }
        for query in self.waiting.drain(..) {
            replies.push(failed(query, QueryFailure::Unsent(why.clone())));
        }
    }

    /// Returns `true` if no client has needed the connection for `time`.
    pub(crate) fn is_unneeded(&self, time: Duration, now: Duration) -> bool {
        W::SHARED && self.is_idle() && now >= self.needed + time
    }

    /// Records that the client that owns the connection has no use for it for now.
    pub(crate) fn release(&mut self, now: Duration) {
        self.released = Some(now);
    }

    /// Returns `true` if the connection has been released for `time`.
    pub(crate) fn is_released(&self, time: Duration, now: Duration) -> bool {
        self.is_idle() && self.released.is_some_and(|since| now >= since + time)
    }

    /// Returns `true` if no query waits and none is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way() == 0
    }
}

fn failed(query: BackendQuery, failure: QueryFailure) -> BackendReply {
    BackendReply {
        query,
        connection: 0,
        result: Err(failure),
    }
}
