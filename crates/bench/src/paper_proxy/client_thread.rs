//! A client thread (paper 3, section 5.2): takes queries from clients, puts each into the query queue
//! of its node, and writes the results to the clients.
//!
//! | request | what happens |
//! |---|---|
//! | `GET key`, `SET key value`, `INCR key` | the node of the key answers |
//! | `LOCK.ACQUIRE name owner PX ms`, `LOCK.RELEASE name owner` | an aggregation thread of the node that the name would have answers from the lock table |
//! | `PING` | the client thread answers |
//! | anything else | an error |

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::{Events, Interest, Poll, Token};
use resp::Args;
use slab::Slab;

use super::client_connection::ClientConnection;
use super::doorbell::{DOORBELL, Doorbell};
use super::lock_table::TableRequest;
use super::message::{ClientConnectionId, ClientMailbox, QueryWork, QueuedQuery, ResultAddress};
use super::proxy_state::ProxyState;
use crate::even_slots;

/// Pause before a full query queue is tried again.
const RETRY: Duration = Duration::from_millis(1);
/// Results taken at a time.
const RESULTS: usize = 1024;
/// Bytes read at a time.
const ROOM: usize = 16 * 1024;

/// See the module's page.
pub(super) struct PaperClientThread {
    state: Arc<ProxyState>,
    mailbox: Arc<ClientMailbox>,
    /// The number of this thread, which chooses among the aggregation threads of a node.
    number: usize,
    /// The thread ends with its connection (paper 3, section 4.3).
    is_of_one_client: bool,
    poll: Poll,
    connections: Slab<ClientConnection>,
    accepted: u64,
    /// Queries for which a query queue had no room, with their nodes.
    late: VecDeque<(usize, QueuedQuery)>,
    /// For each node, `true` if a query was put since its threads were last woken.
    put: Vec<bool>,
    /// Connections that have replies to write, or input to read again.
    changed: Vec<usize>,
    room: Vec<u8>,
}

/// Where a request goes.
enum Destination {
    Node(usize, QueryWork),
    Reply(&'static [u8]),
}

impl PaperClientThread {
    pub(super) fn new(
        state: &Arc<ProxyState>,
        number: usize,
        is_of_one_client: bool,
    ) -> io::Result<PaperClientThread> {
        let poll = Poll::new()?;
        let mailbox = Arc::new(ClientMailbox {
            results: state.queue(),
            arrivals: Default::default(),
            doorbell: Doorbell::new(&poll)?,
        });
        state.register(&mailbox);
        Ok(PaperClientThread {
            state: Arc::clone(state),
            mailbox,
            number,
            is_of_one_client,
            poll,
            connections: Slab::new(),
            accepted: 0,
            late: VecDeque::new(),
            put: vec![false; state.nodes.len()],
            changed: Vec::new(),
            room: vec![0; ROOM],
        })
    }

    pub(super) fn mailbox(&self) -> &Arc<ClientMailbox> {
        &self.mailbox
    }

    /// Runs until the proxy stops, or its only client has gone.
    ///
    /// # Errors
    /// The system refuses to wait for events or to watch a connection.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            self.wait(&mut events)?;
            if self.state.is_stopping() {
                return Ok(());
            }
            for event in &events {
                if event.token() == DOORBELL {
                    continue;
                }
                let place = event.token().0;
                self.changed.push(place);
                if event.is_readable() {
                    self.read(place);
                }
            }
            self.admit()?;
            self.take_results();
            self.put_late();
            self.write_changed();
            self.ring();
            if self.is_of_one_client && self.accepted > 0 && self.connections.is_empty() {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = if self.late.is_empty() {
            let mailbox = &self.mailbox;
            mailbox.doorbell.falls_asleep();
            let works = !mailbox.results.is_empty() || !mailbox.arrivals.lock().is_empty();
            (works || self.state.is_stopping()).then_some(Duration::ZERO)
        } else {
            Some(RETRY)
        };
        let waited = self.poll.poll(events, timeout);
        self.mailbox.doorbell.is_awake();
        match waited {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            other => other,
        }
    }

    /// Begins to watch the connections that were accepted for this thread.
    fn admit(&mut self) -> io::Result<()> {
        let arrivals = std::mem::take(&mut *self.mailbox.arrivals.lock());
        for stream in arrivals {
            let connection = ClientConnection::new(stream, self.accepted);
            self.accepted += 1;
            let place = self.connections.insert(connection);
            let both = Interest::READABLE | Interest::WRITABLE;
            let stream = &mut self.connections[place].stream;
            self.poll.registry().register(stream, Token(place), both)?;
        }
        Ok(())
    }

    /// Reads the available input of a connection, and puts its queries into the queues.
    fn read(&mut self, place: usize) {
        loop {
            let Some(connection) = self.connections.get_mut(place) else {
                return;
            };
            connection.paused = connection.is_full() || !self.late.is_empty();
            if connection.paused {
                return;
            }
            match connection.stream.read(&mut self.room) {
                Ok(0) => return self.close(place),
                Ok(count) => {
                    connection.input.extend_from_slice(&self.room[..count]);
                    self.requests(place);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(place),
            }
        }
    }

    /// Executes the whole requests in the input of a connection.
    fn requests(&mut self, place: usize) {
        let limits = resp::Limits::default();
        loop {
            let Some(connection) = self.connections.get_mut(place) else {
                return;
            };
            let parsed = connection.parser.parse(&mut connection.input, &limits);
            let end = match parsed {
                Ok(Some(end)) => end,
                Ok(None) => return,
                // A client that does not speak RESP is closed.
                Err(_) => return self.close(place),
            };
            let request = connection.input.split_to(end).freeze();
            let args = Args::new(&request, connection.parser.spans());
            let destination = destination(args, &request, self.state.nodes.len());
            let sequence = connection.begin();
            let number = connection.number;
            match destination {
                Destination::Reply(reply) => {
                    connection.complete(sequence, Bytes::from_static(reply));
                }
                Destination::Node(node, work) => {
                    let connection = ClientConnectionId { place, number };
                    let reply_to = ResultAddress {
                        client: Arc::clone(&self.mailbox),
                        connection,
                        sequence,
                    };
                    self.put(node, QueuedQuery { reply_to, work });
                }
            }
        }
    }

    fn put(&mut self, node: usize, query: QueuedQuery) {
        self.put[node] = true;
        if !self.late.is_empty() {
            self.late.push_back((node, query));
        } else if let Err(query) = self.state.nodes[node].queries.put(query) {
            self.late.push_back((node, query));
        }
    }

    /// Puts the queries for which there was no room.
    fn put_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        while let Some((node, query)) = self.late.pop_front() {
            self.put[node] = true;
            if let Err(query) = self.state.nodes[node].queries.put(query) {
                self.late.push_front((node, query));
                return;
            }
        }
        // All connections were paused.
        self.changed
            .extend(self.connections.iter().map(|(place, _)| place));
    }

    fn take_results(&mut self) {
        for _ in 0..RESULTS {
            let Some(reply) = self.mailbox.results.take() else {
                return;
            };
            let ClientConnectionId { place, number } = reply.connection;
            let connection = self.connections.get_mut(place);
            // The client may have gone, and another one may have its place.
            if let Some(connection) = connection.filter(|it| it.number == number) {
                connection.complete(reply.sequence, reply.bytes);
                self.changed.push(place);
            }
        }
    }

    fn write_changed(&mut self) {
        while let Some(place) = self.changed.pop() {
            let Some(connection) = self.connections.get_mut(place) else {
                continue;
            };
            if connection.flush().is_err() {
                self.close(place);
            } else if connection.paused && !connection.is_full() && self.late.is_empty() {
                self.read(place);
                self.changed.push(place);
            }
        }
    }

    /// Wakes the aggregation threads of the nodes for which there are new queries.
    fn ring(&mut self) {
        for (put, node) in self.put.iter_mut().zip(&self.state.nodes) {
            if std::mem::take(put) {
                node.doorbells[self.number % node.doorbells.len()].ring();
            }
        }
    }

    fn close(&mut self, place: usize) {
        if let Some(mut connection) = self.connections.try_remove(place)
            && let Err(error) = self.poll.registry().deregister(&mut connection.stream)
        {
            tracing::debug!(%error, "a closed connection cannot be forgotten");
        }
    }
}

impl Drop for PaperClientThread {
    fn drop(&mut self) {
        self.state.forget(&self.mailbox);
    }
}

fn destination(args: Args<'_>, request: &Bytes, nodes: usize) -> Destination {
    const COMMANDS: [(&[u8], usize); 3] = [(b"GET", 2), (b"SET", 3), (b"INCR", 2)];
    let name = args.get(0).unwrap_or_default();
    let node = |key: &[u8]| even_slots::node_of(key, nodes);
    if let Some(lock) = TableRequest::parse(args, request) {
        return Destination::Node(node(args.at(1)), QueryWork::Lock(lock));
    }
    let is = |&(command, count): &(&[u8], usize)| {
        name.eq_ignore_ascii_case(command) && args.len() == count
    };
    if COMMANDS.iter().any(is) {
        return Destination::Node(node(args.at(1)), QueryWork::Forward(request.clone()));
    }
    match name.eq_ignore_ascii_case(b"PING") {
        true => Destination::Reply(b"+PONG\r\n"),
        false => Destination::Reply(
            b"-ERR this proxy serves GET, SET and INCR of a key, LOCK.ACQUIRE, LOCK.RELEASE and PING alone\r\n",
        ),
    }
}
