//! Links over TCP, inside a caller's event loop.
//!
//! A turn consists of these steps: [`Tcp::wait`] for events of the network, at most as long as [`Tcp::timeout`] says →
//! [`Tcp::on_event`] for each event that [`Tcp::owns`] → [`Tcp::tick`] → [`Tcp::receive`],
//! once → the work that the messages cause → [`Tcp::flush`].
//!
//! | part | concept |
//! |---|---|
//! | `options` | identity, addresses, limits |
//! | `socket` `connection_balancer` | listeners, and the setup of connections; one listener for several threads |
//! | `connection` `output` | one connection; its output |
//! | `message_assembler` | messages from the bytes that arrive |
//! | `negotiation` | the beginning of a connection: the handshake, and the way of messages |
//! | `connection_lifecycle` `transfer` | the beginning and the end of connections; their reads and writes |
//! | `refusals` | reasons for refused links, and the limit on lines of the log about them |
//! | `link_memory` | memory for messages besides the connection |
//! | `memory_link` `polled_connections` `ring_polling` `spin_policy` | connections through memory, by rings or by Send and Receive: when threads look, and when they sleep |
//! | `caller` | a connection that blocks, for clients |
//! | this | all connections of a thread |
//!
//! Invariants:
//! 1. A message costs no system call of its own: one read takes all messages that have come, one write
//!    sends all that wait. [`Tcp::send_now`] is an exception: it writes a long message before which
//!    nothing waits, so that it is not copied.
//! 2. No connection waits for another: each has one read in turn, and writes a bounded amount.
//! 3. A link number is never used twice: its lower bits are a place among the connections, its
//!    upper ones are a count.
//! 4. Work is done in `receive`, `flush` and `send_now`, which get the thread's network; events and
//!    connections to be made are only noted.
//! 5. Messages of a link may travel through memory that both processes have mapped, see
//!    [`Transport`]. The connection stays: it shows the end of the peer, and wakes a side that
//!    sleeps.
//! 6. A link through memory is *looked at* in each turn, and turns follow each other without sleep
//!    as long as there is such a link; or it *sleeps*, and costs nothing until a bell on its
//!    connection.

mod caller;
mod connection;
mod connection_balancer;
mod connection_lifecycle;
pub(crate) mod link_error;
mod link_memory;
mod memory_link;
pub(crate) mod message_assembler;
mod negotiation;
mod options;
mod output;
mod polled_connections;
mod refusals;
mod ring_polling;
mod socket;
mod spin_policy;
mod transfer;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use reactor::accept::AcceptSchedule;
use reactor::budget::Budget;
use reactor::newcomers::Newcomers;
use reactor::{Network, SocketEvent};
use slab::Slab;

pub use caller::{CallError, Caller, CallerOptions};
pub use connection_balancer::{BalancerSlot, ConnectionBalancer};
pub use options::{Encryption, TcpOptions, Transport, TransportLimits};
pub use socket::listen;

use crate::cipher::Scratch;
use crate::frame::NONCE;
use crate::handshake::{ConnectionTerms, HandshakeRefusal, Identity};
use crate::inbox::Inbox;
use crate::link::{Link, Peer, SendError};
use crate::messages::Messages;
use connection::{Connection, Phase};
use link_error::LinkError;
use negotiation::LocalTransports;
use polled_connections::PolledConnections;
use refusals::Refusals;

/// The number of bits of a link's number that are its place.
const PLACE_BITS: u32 = 24;
/// The approximate number of bytes of messages after which `receive` stops.
const TURN_BYTES: usize = 1 << 20;
/// The approximate number of events after which `receive` stops.
const TURN_EVENTS: usize = 1 << 14;
/// The number of chunks kept for the next messages.
const POOL: usize = 64;

/// See the module's description.
pub struct Tcp<N: Network> {
    identity: Identity,
    transports: LocalTransports,
    encryption: Encryption,
    /// Memory for the encryption of one connection at a time.
    scratch: Scratch,
    /// The number of links whose messages travel through memory.
    through_memory: usize,
    /// The number of those whose messages travel by Send and Receive.
    send_receive: usize,
    /// The number of connections that are encrypted.
    encrypted: usize,
    peers: HashMap<NodeId, SocketAddr>,
    budget: Arc<Budget>,
    limits: TransportLimits,
    first: usize,
    address: Option<SocketAddr>,
    listener: Option<N::Listener>,
    balancer_slot: Option<BalancerSlot<N>>,
    connections: Slab<Connection<N>>,
    /// Connections that the system has not begun to make.
    unstarted: Vec<Link>,
    /// The number of links that were made so far.
    count: u64,
    /// Accepted connections that have not authenticated.
    newcomers: Newcomers<Link>,
    refusals: Refusals,
    ready: VecDeque<usize>,
    dirty: Vec<usize>,
    /// Connections whose rings are looked at, and how long that goes on.
    polled: PolledConnections,
    /// A list for the current work, kept for its memory.
    spare: Vec<usize>,
    /// Events that the user has not received.
    notices: Vec<(Link, LinkNotice)>,
    /// Times by which an action must have happened; it may have happened already.
    deadlines: BinaryHeap<Reverse<(Duration, Link)>>,
    /// Empty buffers.
    pool: Vec<Vec<u8>>,
    accepting: AcceptSchedule,
    now: Duration,
}

#[derive(Debug)]
enum LinkNotice {
    Up(Peer),
    Drained,
    Down(String),
}

impl<N: Network> Tcp<N> {
    /// The number of tokens that a value uses.
    pub const TOKENS: usize = 1 + (1 << PLACE_BITS);

    /// Makes links that are served by the thread that waits for the events of `network`, with the
    /// [`Tcp::TOKENS`] tokens from `first` on.
    ///
    /// # Errors
    /// Returns an error if the listener cannot be registered, or if the options contradict each
    /// other; the text says how.
    pub fn new(options: TcpOptions, network: &mut N, first: usize) -> io::Result<Tcp<N>> {
        check(&options)?;
        let bound = options.listener;
        let address = bound.as_ref().and_then(|bound| bound.local_addr().ok());
        let listener = bound
            .map(|bound| network.listen(bound, first))
            .transpose()?;
        if options.transport != Transport::Tcp
            && let Err(error) = options.shm.sweep()
        {
            tracing::debug!(%error, "looking for what dead processes have left in shared memory");
        }
        let mut identity = options.identity;
        let (shm, verbs) = (&options.shm, options.verbs.as_ref());
        let transports = LocalTransports::new(options.transport, shm, verbs, &options.limits);
        identity.ways = transports.ways();
        Ok(Tcp {
            identity,
            through_memory: 0,
            send_receive: 0,
            encrypted: 0,
            transports,
            encryption: options.encryption,
            scratch: Scratch::default(),
            peers: options.peers,
            newcomers: Newcomers::new(options.limits.unauthenticated, options.limits.handshake),
            refusals: Refusals::default(),
            budget: options.budget,
            limits: options.limits,
            first,
            address,
            listener,
            balancer_slot: None,
            connections: Slab::new(),
            unstarted: Vec::new(),
            count: 0,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            polled: PolledConnections::default(),
            spare: Vec::new(),
            notices: Vec::new(),
            deadlines: BinaryHeap::new(),
            pool: Vec::new(),
            accepting: AcceptSchedule::default(),
            now: Duration::ZERO,
        })
    }

    /// Returns the address to which others connect.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Makes this a member of a group of threads: connections come from the thread with the listener, and go to all.
    pub fn join(&mut self, group: BalancerSlot<N>) {
        self.balancer_slot = Some(group);
    }

    /// Sets the address of a node from now on.
    pub fn set_peer(&mut self, node: NodeId, address: SocketAddr) {
        self.peers.insert(node, address);
    }

    /// Returns `true` if events with this token are for [`Tcp::on_event`].
    #[inline]
    #[must_use]
    pub fn owns(&self, token: usize) -> bool {
        (self.first..self.first + Self::TOKENS).contains(&token)
    }

    /// Notes an event.
    pub fn on_event(&mut self, event: SocketEvent) {
        let place = match event.token - self.first {
            0 => {
                self.accepting.note_listener();
                return;
            }
            token => token - 1,
        };
        // An event may be about a connection that had the place before; this does no harm.
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.end_seen |= event.ended;
        if let Some(through) = &mut connection.rings {
            through.called = true;
        }
        if event.writable && (connection.full || !connection.is_written()) {
            connection.full = false;
            note(&mut self.dirty, place, &mut connection.in_dirty);
        }
        let connecting = matches!(connection.phase, Phase::Connecting(_));
        if (event.readable || connection.end_seen || connecting)
            && !std::mem::replace(&mut connection.in_ready, true)
        {
            self.ready.push_back(place);
        }
    }

    /// Returns the time for which a poll may sleep at most; zero if there is more to do already.
    #[must_use]
    pub fn timeout(&self, now: Duration) -> Option<Duration> {
        let has_work = !self.notices.is_empty()
            || !self.ready.is_empty()
            || !self.dirty.is_empty()
            || !self.unstarted.is_empty();
        if has_work {
            return Some(Duration::ZERO);
        }
        if let Some(pause) = self.polled.pause(now) {
            return Some(pause);
        }
        let due = self.deadlines.peek().map(|Reverse((at, _))| *at);
        let others = self.accepting.due().into_iter().chain(self.newcomers.due());
        let due = due.into_iter().chain(others).min()?;
        Some(due.saturating_sub(now))
    }

    /// Sets the time, since any fixed point: once in each turn, before `receive`. Ends what has
    /// taken too long.
    pub fn tick(&mut self, network: &mut N, now: Duration) {
        self.now = now;
        while let Some(link) = self.newcomers.late(now) {
            let place = place(link);
            self.connections[place].newcomer = None;
            match self.connections[place].phase {
                Phase::Greeting(..) => self.refuse(network, place, &HandshakeRefusal::late()),
                _ => self.down(network, place, &LinkError::OutputStuck),
            }
        }
        while let Some((_, place)) = self.next_deadline().filter(|(at, _)| *at <= now) {
            self.deadlines.pop();
            match self.connections[place].phase {
                Phase::Connecting(_) => self.down(network, place, &LinkError::NoAnswer),
                Phase::Ending(_) => self.down(network, place, &LinkError::OutputStuck),
                Phase::Greeting(..) | Phase::Up => {
                    self.refuse(network, place, &HandshakeRefusal::late())
                }
            }
        }
    }

    /// Returns the next deadline that still counts, and the place of its connection; forgets
    /// others.
    fn next_deadline(&mut self) -> Option<(Duration, usize)> {
        while let Some(&Reverse((at, link))) = self.deadlines.peek() {
            let place = place(link);
            let connection = self.connections.get(place);
            if connection.is_some_and(|found| found.link == link && found.deadline == Some(at)) {
                return Some((at, place));
            }
            self.deadlines.pop();
        }
        None
    }

    /// Closes all links, and the listener: for the end. The messages that were taken are sent as
    /// long as there are turns.
    pub fn close_all(&mut self) {
        self.listener = None;
        self.accepting.stop();
        let links: Vec<Link> = self.connections.iter().map(|(_, c)| c.link).collect();
        for link in links {
            self.close(link);
        }
    }

    /// Returns the number of links whose messages travel through memory.
    #[must_use]
    pub fn links_through_memory(&self) -> usize {
        self.through_memory
    }

    /// Returns the number of links whose messages travel by Send and Receive; they are among those
    /// [through memory](Tcp::links_through_memory).
    #[must_use]
    pub fn links_by_send_receive(&self) -> usize {
        self.send_receive
    }

    /// Returns the number of connections that are encrypted.
    #[must_use]
    pub fn links_encrypted(&self) -> usize {
        self.encrypted
    }

    /// Returns the transport of a link that is up: never [`Transport::Auto`].
    #[must_use]
    pub fn transport_of(&self, link: Link) -> Option<Transport> {
        let connection = self.connections.get(place(link))?;
        let is_up = connection.link == link && matches!(connection.phase, Phase::Up);
        let rings = connection.rings.as_ref();
        is_up.then(|| rings.map_or(Transport::Tcp, |through| through.rings.transport()))
    }

    /// Returns the refusal with which the last link that was made to a node has ended, if it ended
    /// in this way.
    #[must_use]
    pub fn refusal(&self, node: NodeId) -> Option<&HandshakeRefusal> {
        self.refusals.of(node)
    }

    /// Returns the number of connections, including those of strangers.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }
}

fn check(options: &TcpOptions) -> io::Result<()> {
    let wrong = |what| Err(io::Error::new(ErrorKind::InvalidInput, what));
    if options.limits.ring < TransportLimits::RING_MIN {
        return wrong("the rings of links through shared memory are too small");
    }
    if options.limits.message > TransportLimits::MESSAGE_MAX {
        return wrong("the limit on messages is above what their length can say");
    }
    match options.identity.me {
        Peer::Client if options.listener.is_some() => wrong("a client accepts no connections"),
        Peer::Node(_) if options.identity.cluster.is_none() => wrong("a node is of one cluster"),
        _ => Ok(()),
    }
}

/// Puts a place in a list, unless it is in the list.
#[inline]
fn note(list: &mut Vec<usize>, place: usize, is_in: &mut bool) {
    if !std::mem::replace(is_in, true) {
        list.push(place);
    }
}

fn place(link: Link) -> usize {
    (link.0 & ((1 << PLACE_BITS) - 1)) as usize
}

/// Returns this side's terms for a connection with a peer.
fn connection_terms(encryption: Encryption, peer: SocketAddr) -> io::Result<ConnectionTerms> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    let encrypt = encryption.applies_to(peer);
    Ok(ConnectionTerms { nonce, encrypt })
}

impl<N: Network> Tcp<N> {
    /// Does the same as [`Messages::send_parts`], and writes the message at once if it is long and nothing waits before
    /// it, so that it is not copied.
    ///
    /// # Errors
    /// Returns the errors of [`Messages::send`].
    pub fn send_now(
        &mut self,
        network: &mut N,
        on: Link,
        parts: &[&[u8]],
    ) -> Result<(), SendError> {
        self.take(on, parts, |connection, len, pool| {
            connection.take_now(network, len, parts, pool)
        })
    }

    /// Has a connection take a message.
    #[inline]
    fn take(
        &mut self,
        on: Link,
        parts: &[&[u8]],
        take: impl FnOnce(
            &mut Connection<N>,
            usize,
            &mut Vec<Vec<u8>>,
        ) -> Result<io::Result<()>, SendError>,
    ) -> Result<(), SendError> {
        let len = parts.iter().map(|part| part.len()).sum();
        if len > self.limits.message {
            return Err(SendError::TooLong);
        }
        let place = place(on);
        let connection = self.connections.get_mut(place);
        let connection = connection.filter(|found| found.link == on);
        let connection = connection.ok_or(SendError::Down)?;
        let taken = take(connection, len, &mut self.pool)?;
        let taken = taken.and_then(|()| connection.charge().map_err(io::Error::other));
        note(&mut self.dirty, place, &mut connection.in_dirty);
        if let Err(error) = taken {
            self.fail(place, &error);
        }
        Ok(())
    }

    /// Sends the messages that were taken, as far as the links have room.
    pub fn flush(&mut self, network: &mut N) {
        self.start_connections(network);
        self.write_dirty(network);
    }

    /// Appends the events since the last call. Stops when there are many. Returns `true` if the next call has more.
    pub fn receive(&mut self, network: &mut N, inbox: &mut Inbox) -> bool {
        self.start_connections(network);
        self.deliver_notices(inbox);
        self.accept(network);
        self.accept_assigned(network);
        self.look_at_rings(network);
        for _ in 0..self.ready.len() {
            if inbox.bytes() >= TURN_BYTES || inbox.len() >= TURN_EVENTS {
                break;
            }
            let Some(place) = self.ready.pop_front() else {
                break;
            };
            self.serve(network, place, inbox);
            self.deliver_notices(inbox);
        }
        // This prevents a wake-up for a deadline that no longer counts.
        self.next_deadline();
        !self.ready.is_empty() || self.accepting.due() == Some(Duration::ZERO)
    }
}

impl<N: Network> Messages for Tcp<N> {
    fn connect(&mut self, to: NodeId) -> Link {
        let link = self.next_link();
        if let Err(why) = self.start(to, link) {
            self.notices.push((link, LinkNotice::Down(why.to_string())));
        }
        link
    }

    #[inline]
    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        self.send_parts(on, &[message])
    }

    #[inline]
    fn send_parts(&mut self, on: Link, parts: &[&[u8]]) -> Result<(), SendError> {
        self.take(on, parts, |connection, len, pool| {
            connection.take(len, parts, pool).map(Ok)
        })
    }

    fn close(&mut self, link: Link) {
        let place = place(link);
        let connection = self.connections.get_mut(place);
        let Some(connection) = connection.filter(|found| found.link == link) else {
            return;
        };
        match connection.phase {
            Phase::Connecting(_) | Phase::Greeting(..) => connection.closing = true,
            Phase::Up => self.end_closed(place),
            Phase::Ending(_) => {}
        }
    }
}
