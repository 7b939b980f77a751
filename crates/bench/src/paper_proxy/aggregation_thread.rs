//! An aggregation thread (paper 3, section 5.2): takes many queries at once from the query queues of
//! its nodes, sends them in one packet, and puts each reply into the result queue of its client's
//! thread. It also executes requests for locks (section 5.3).

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use super::doorbell::{DOORBELL, Doorbell};
use super::message::{ClientMailbox, QueuedReply};
use super::node_connection::{AddressedReply, AggregatedConnection};
use super::proxy_state::ProxyState;

/// Pause before a full result queue is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// The parts of an aggregation thread that exist before its proxy's state.
pub(super) struct AggregationSeat {
    poll: Poll,
    pub(super) doorbell: Arc<Doorbell>,
}

impl AggregationSeat {
    pub(super) fn new() -> io::Result<AggregationSeat> {
        let poll = Poll::new()?;
        let doorbell = Arc::new(Doorbell::new(&poll)?);
        Ok(AggregationSeat { poll, doorbell })
    }
}

/// See the module's page.
pub(super) struct AggregationThread {
    state: Arc<ProxyState>,
    seat: AggregationSeat,
    connections: Vec<AggregatedConnection>,
    replies: Vec<AddressedReply>,
    /// Replies for which a result queue had no room.
    late: VecDeque<AddressedReply>,
    /// Client threads that have new results.
    answered: Vec<Arc<ClientMailbox>>,
}

impl AggregationThread {
    pub(super) fn new(
        state: &Arc<ProxyState>,
        seat: AggregationSeat,
        mut connections: Vec<AggregatedConnection>,
    ) -> io::Result<AggregationThread> {
        for (place, connection) in connections.iter_mut().enumerate() {
            let both = Interest::READABLE | Interest::WRITABLE;
            let registry = seat.poll.registry();
            registry.register(&mut connection.stream, Token(place), both)?;
        }
        Ok(AggregationThread {
            state: Arc::clone(state),
            seat,
            connections,
            replies: Vec::new(),
            late: VecDeque::new(),
            answered: Vec::new(),
        })
    }

    /// Runs until the proxy stops.
    ///
    /// # Errors
    /// A connection to a node is lost; the text names the node.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            self.wait(&mut events)?;
            if self.state.is_stopping() {
                return Ok(());
            }
            for event in &events {
                if event.token() != DOORBELL && event.is_readable() {
                    let connection = &mut self.connections[event.token().0];
                    let received = connection.receive(&mut self.replies);
                    received.map_err(|error| self.state.at_node(connection.node, &error))?;
                }
            }
            for connection in &mut self.connections {
                let node = connection.node;
                let queries = &*self.state.nodes[node].queries;
                let sent = connection.aggregate(queries, &self.state.locks, &mut self.replies);
                sent.map_err(|error| self.state.at_node(node, &error))?;
            }
            self.give_results();
        }
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let timeout = if self
            .connections
            .iter()
            .any(AggregatedConnection::is_gathering)
        {
            // Polling does not wait for less than a millisecond.
            std::thread::yield_now();
            Some(Duration::ZERO)
        } else if self.late.is_empty() {
            self.seat.doorbell.falls_asleep();
            let works = |one: &AggregatedConnection| {
                let queries = &self.state.nodes[one.node].queries;
                one.has_room() && (one.holds_query() || !queries.is_empty())
            };
            let works = self.connections.iter().any(works) || self.state.is_stopping();
            works.then_some(Duration::ZERO)
        } else {
            Some(RETRY)
        };
        let waited = self.seat.poll.poll(events, timeout);
        self.seat.doorbell.is_awake();
        match waited {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            other => other,
        }
    }

    /// Puts the replies into the result queues, and wakes the threads that wait for them.
    fn give_results(&mut self) {
        self.late.extend(self.replies.drain(..));
        while let Some((reply_to, bytes)) = self.late.pop_front() {
            let reply = QueuedReply {
                connection: reply_to.connection,
                sequence: reply_to.sequence,
                bytes,
            };
            let client = &reply_to.client;
            if !self.answered.iter().any(|known| Arc::ptr_eq(known, client)) {
                self.answered.push(Arc::clone(client));
            }
            if let Err(reply) = client.results.put(reply) {
                self.late.push_front((reply_to, reply.bytes));
                break;
            }
        }
        for client in self.answered.drain(..) {
            client.doorbell.ring();
        }
    }
}
