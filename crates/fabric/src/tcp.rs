//! Links over TCP, inside a caller's poll.
//!
//! The way of a turn: poll, sleeping at most as long as [`Tcp::timeout`] says → [`Tcp::on_event`]
//! for each event that is [`Tcp::owns`]ed → [`Tcp::tick`] → [`Messages::receive`], once → what the
//! messages lead to → [`Messages::flush`].
//!
//! | part | concept |
//! |---|---|
//! | `options` | identity, addresses, limits |
//! | `socket` | listeners, and how connections are set up |
//! | `connection` | one connection, and what is to be sent on it |
//! | `arrival` | what arrives, made into messages |
//! | `caller` | a connection that blocks, for clients |
//! | this | all connections of a thread |
//!
//! Invariants:
//! 1. A connection is registered once, for both directions, edge-triggered. A message costs no
//!    system call of its own: one read takes all that have come, one write sends all that wait.
//! 2. No connection waits for another: each has one read in turn, and writes a bounded amount.
//! 3. A link number is never used twice: its lower bits are a place among the connections, its
//!    upper ones count.
//! 4. Work is done in `receive` and `flush`; events are only noted.

pub(crate) mod arrival;
mod caller;
mod connection;
mod options;
mod socket;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use base::NodeId;
use mio::event::Event as Readiness;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use slab::Slab;
use socket2::SockRef;

pub use caller::{CallError, Caller, CallerOptions};
pub use options::{Limits, TcpOptions};
pub use socket::listen;

use crate::frame::PROOF;
use crate::handshake::{Handshake, Identity, Refused};
use crate::inbox::Inbox;
use crate::messages::{Event, Link, Messages, Peer, SendError};
use arrival::Progress;
use connection::{Connection, Phase};

/// Bits of a link's number that are its place.
const PLACE_BITS: u32 = 24;
/// Bytes of messages after which `receive` stops, about.
const TURN_BYTES: usize = 1 << 20;
/// Events after which `receive` stops, about.
const TURN_EVENTS: usize = 1 << 14;
/// Connections accepted in one turn.
const ACCEPTS: usize = 64;
/// When the system has no descriptor left, accepting is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Buffers kept for the next messages.
const POOL: usize = 64;

/// See the module's description.
#[derive(Debug)]
pub struct Tcp {
    identity: Identity,
    peers: HashMap<NodeId, SocketAddr>,
    limits: Limits,
    registry: Registry,
    first: usize,
    listener: Option<TcpListener>,
    connections: Slab<Connection>,
    /// Links that were made so far.
    count: u64,
    /// Accepted connections that have not proved who they are.
    strangers: usize,
    ready: VecDeque<usize>,
    dirty: Vec<usize>,
    /// A list to be worked off, kept for its memory.
    spare: Vec<usize>,
    /// What the user is to be told.
    news: Vec<(Link, News)>,
    /// When something must have happened; some of it may have.
    deadlines: BinaryHeap<Reverse<(Duration, Link)>>,
    /// Empty buffers.
    pool: Vec<Vec<u8>>,
    /// The listener may have connections; not before this time.
    accepting: Option<Duration>,
    now: Duration,
}

#[derive(Debug)]
enum News {
    Up(Peer),
    Drained,
    Down(String),
}

impl Tcp {
    /// How many tokens it uses.
    pub const TOKENS: usize = 1 + (1 << PLACE_BITS);

    /// Links that are served by whoever polls `registry`, with the [`Tcp::TOKENS`] tokens from
    /// `first` on.
    ///
    /// # Errors
    /// The listener cannot be registered, or the options contradict each other; the text says how.
    pub fn new(options: TcpOptions, registry: &Registry, first: Token) -> io::Result<Tcp> {
        check(&options)?;
        let registry = registry.try_clone()?;
        let mut listener = None;
        if let Some(bound) = options.listener {
            bound.set_nonblocking(true)?;
            let mut bound = TcpListener::from_std(bound);
            registry.register(&mut bound, first, Interest::READABLE)?;
            listener = Some(bound);
        }
        Ok(Tcp {
            identity: options.identity,
            peers: options.peers,
            limits: options.limits,
            registry,
            first: first.0,
            listener,
            connections: Slab::new(),
            count: 0,
            strangers: 0,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            spare: Vec::new(),
            news: Vec::new(),
            deadlines: BinaryHeap::new(),
            pool: Vec::new(),
            accepting: None,
            now: Duration::ZERO,
        })
    }

    /// Where others connect to.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener
            .as_ref()
            .and_then(|listener| listener.local_addr().ok())
    }

    /// Says where a node is from now on.
    pub fn set_peer(&mut self, node: NodeId, address: SocketAddr) {
        self.peers.insert(node, address);
    }

    /// Whether events with this token are for [`Tcp::on_event`].
    #[inline]
    #[must_use]
    pub fn owns(&self, token: Token) -> bool {
        (self.first..self.first + Self::TOKENS).contains(&token.0)
    }

    /// Notes an event.
    pub fn on_event(&mut self, event: &Readiness) {
        let place = match event.token().0 - self.first {
            0 => {
                self.accepting = Some(Duration::ZERO);
                return;
            }
            token => token - 1,
        };
        // An event may be about a connection that had the place before: it does no harm.
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.end_seen |= event.is_read_closed() || event.is_error();
        if event.is_writable() && connection.full {
            connection.full = false;
            note(&mut self.dirty, place, &mut connection.in_dirty);
        }
        let connecting = matches!(connection.phase, Phase::Connecting(_));
        if (event.is_readable() || connection.end_seen || connecting)
            && !std::mem::replace(&mut connection.in_ready, true)
        {
            self.ready.push_back(place);
        }
    }

    /// How long a poll may sleep as far as this goes; zero if there is more to do already.
    #[must_use]
    pub fn timeout(&self, now: Duration) -> Option<Duration> {
        if !self.news.is_empty() || !self.ready.is_empty() || !self.dirty.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = self.deadlines.peek().map(|Reverse((at, _))| *at);
        let due = due.into_iter().chain(self.accepting).min()?;
        Some(due.saturating_sub(now))
    }

    /// Says what time it is, since any fixed point: once in each turn, before `receive`. Ends what
    /// has taken too long.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        while let Some((_, place)) = self.next_deadline().filter(|(at, _)| *at <= now) {
            self.deadlines.pop();
            match self.connections[place].phase {
                Phase::Connecting(_) => self.down(place, "nobody answers at this address"),
                Phase::Ending(_) => self.down(place, "the peer took no more"),
                Phase::Greeting(..) | Phase::Up => self.refuse(place, &Refused::late()),
            }
        }
    }

    /// The next deadline that still counts, and the place of its connection; forgets others.
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

    /// Closes all links, and the listener: for the end. Goes on with what was taken to be sent as
    /// long as there are turns.
    pub fn close_all(&mut self) {
        if let Some(mut listener) = self.listener.take() {
            // It ends with the listener at the latest.
            drop(self.registry.deregister(&mut listener));
        }
        let links: Vec<Link> = self.connections.iter().map(|(_, c)| c.link).collect();
        for link in links {
            self.close(link);
        }
    }

    /// How many connections there are, of strangers too.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }
}

fn check(options: &TcpOptions) -> io::Result<()> {
    let wrong = |what| Err(io::Error::new(ErrorKind::InvalidInput, what));
    if options.limits.message > Limits::MESSAGE_MAX {
        return wrong("the limit on messages is above what their length can say");
    }
    match options.identity.me {
        Peer::Client if options.listener.is_some() => wrong("nobody connects to a client"),
        Peer::Node(_) if options.identity.cluster.is_none() => wrong("a node is of one cluster"),
        _ => Ok(()),
    }
}

/// Puts a place in a list that it is not in.
#[inline]
fn note(list: &mut Vec<usize>, place: usize, is_in: &mut bool) {
    if !std::mem::replace(is_in, true) {
        list.push(place);
    }
}

fn place(link: Link) -> usize {
    (link.0 & ((1 << PLACE_BITS) - 1)) as usize
}

/// What makes a handshake another one than all before.
fn nonce() -> io::Result<[u8; PROOF]> {
    let mut nonce = [0; PROOF];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

// Connections as they come and go.
impl Tcp {
    fn next_link(&mut self) -> Link {
        self.count += 1;
        Link(self.count << PLACE_BITS | self.connections.vacant_key() as u64)
    }

    fn start(&mut self, to: NodeId, link: Link) -> Result<(), String> {
        if self.identity.me == Peer::Node(to) {
            return Err(format!("node {to} is this one"));
        }
        let address = *self.peers.get(&to).ok_or(format!("no node {to} is known"))?;
        let start = || -> io::Result<(TcpStream, [u8; PROOF])> {
            Ok((TcpStream::connect(address)?, nonce()?))
        };
        let (stream, nonce) = start().map_err(|error| format!("cannot connect: {error}"))?;
        let mut hello = Vec::new();
        let handshake = Handshake::initiate(&self.identity, Some(to), nonce, &mut hello);
        let phase = Phase::Connecting(Box::new(handshake));
        let mut connection = Connection::new(link, stream, address, phase, self.limits.queue);
        *connection.output() = hello;
        // It takes something when it is connected.
        connection.full = true;
        self.admit(connection)
            .map_err(|error| format!("cannot connect: {error}"))
    }

    fn accept(&mut self) {
        // More may wait than a turn accepts.
        self.accepting = Some(Duration::ZERO);
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else {
                self.accepting = None;
                return;
            };
            match listener.accept() {
                Ok((stream, address)) => self.welcome(stream, address),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.accepting = None;
                        return;
                    }
                    // These are about the connection that was to be accepted.
                    ErrorKind::ConnectionAborted
                    | ErrorKind::ConnectionReset
                    | ErrorKind::Interrupted => {}
                    _ => {
                        tracing::warn!(%error, "cannot accept a connection; trying again");
                        self.accepting = Some(self.now + ACCEPT_PAUSE);
                        return;
                    }
                },
            }
        }
    }

    fn welcome(&mut self, stream: TcpStream, address: SocketAddr) {
        let limit = self.limits.unauthenticated;
        if self.strangers >= 2 * limit {
            // So many that refusing politely would cost too much.
            return;
        }
        let nonce = match nonce() {
            Ok(nonce) => nonce,
            Err(error) => {
                tracing::error!(%error, peer = %address, "no randomness for a handshake");
                return;
            }
        };
        let handshake = Box::new(Handshake::accept(nonce));
        let link = self.next_link();
        let phase = Phase::Greeting(handshake, Vec::new());
        let connection = Connection::new(link, stream, address, phase, self.limits.queue);
        self.strangers += 1;
        let busy = self.strangers > limit;
        if let Err(error) = self.admit(connection) {
            self.strangers -= 1;
            tracing::warn!(%error, peer = %address, "cannot serve a connection");
        } else if busy {
            self.refuse(place(link), &Refused::busy());
        }
    }

    fn admit(&mut self, mut connection: Connection) -> io::Result<()> {
        let entry = self.connections.vacant_entry();
        let token = Token(self.first + 1 + entry.key());
        if entry.key() >= 1 << PLACE_BITS {
            return Err(io::Error::other("there are too many connections"));
        }
        tune(&connection, self.limits.dead_after)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        self.registry
            .register(&mut connection.stream, token, both)?;
        let (place, link) = (entry.key(), connection.link);
        entry.insert(connection);
        self.set_deadline(place, link, self.limits.handshake);
        Ok(())
    }

    fn set_deadline(&mut self, place: usize, link: Link, after: Duration) {
        let at = self.now + after;
        self.connections[place].deadline = Some(at);
        self.deadlines.push(Reverse((at, link)));
    }

    /// The peer has proved who it is.
    fn up(&mut self, place: usize, peer: Peer) {
        let connection = &mut self.connections[place];
        if std::mem::replace(&mut connection.stranger, false) {
            self.strangers -= 1;
        }
        connection.up();
        connection.announced = true;
        let (link, address) = (connection.link, connection.address);
        note(&mut self.dirty, place, &mut connection.in_dirty);
        tracing::debug!(?link, ?peer, %address, "a link is up");
        // Who has closed it already hears of its end alone.
        if !connection.closing {
            self.news.push((link, News::Up(peer)));
        }
    }

    /// Refuses a connection, politely: the peer is told why, and is given time to read it.
    fn refuse(&mut self, place: usize, refused: &Refused) {
        let connection = &mut self.connections[place];
        refused.frame().encode(connection.output());
        self.refused(place, refused);
    }

    /// Ends a connection that was refused, here or there.
    fn refused(&mut self, place: usize, refused: &Refused) {
        let connection = &mut self.connections[place];
        tracing::warn!(peer = %connection.address, "no link: {refused}");
        if std::mem::replace(&mut connection.announced, false) {
            let why = format!("{}: {refused}", connection.address);
            self.news.push((connection.link, News::Down(why)));
        }
        if refused.here {
            self.end(place, None, self.limits.handshake);
        } else {
            self.remove(place);
        }
    }

    /// Sends what waits, then the end.
    fn end(&mut self, place: usize, why: Option<String>, within: Duration) {
        let connection = &mut self.connections[place];
        connection.phase = Phase::Ending(why);
        note(&mut self.dirty, place, &mut connection.in_dirty);
        // What has arrived already must be read, or the end would overtake what waits.
        if !std::mem::replace(&mut connection.in_ready, true) {
            self.ready.push_back(place);
        }
        let link = connection.link;
        self.set_deadline(place, link, within);
    }

    /// Removes a connection, and tells its user.
    fn down(&mut self, place: usize, why: &str) {
        let connection = self.remove(place);
        let told = match connection.phase {
            Phase::Ending(Some(told)) => told,
            _ => format!("{}: {why}", connection.address),
        };
        if connection.announced {
            tracing::debug!(link = ?connection.link, why = told, "a link is down");
            self.news.push((connection.link, News::Down(told)));
        } else {
            tracing::debug!(peer = %connection.address, why, "a connection ended");
        }
    }

    fn remove(&mut self, place: usize) -> Connection {
        let mut connection = self.connections.remove(place);
        if connection.stranger {
            self.strangers -= 1;
        }
        // A list may name the place still, and its next connection then gets a turn for nothing.
        if let Err(error) = self.registry.deregister(&mut connection.stream) {
            tracing::debug!(%error, "deregistering a connection");
        }
        connection
    }
}

fn tune(connection: &Connection, dead_after: Duration) -> io::Result<()> {
    socket::tune(SockRef::from(&connection.stream), dead_after)
}

// Reading and writing.
impl Tcp {
    /// Gives a connection one read.
    fn serve(&mut self, place: usize, inbox: &mut Inbox) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.in_ready = false;
        let progress = match connection.phase {
            Phase::Connecting(_) => return self.connected(place),
            Phase::Greeting(..) => return self.greet(place, inbox),
            Phase::Up => connection.read(inbox, self.limits.message),
            Phase::Ending(_) => connection.discard(inbox),
        };
        let progress = match (progress, connection.failed()) {
            (Progress::Dry, Some(why)) => Progress::End(why),
            (progress, _) => progress,
        };
        self.go_on(place, progress);
    }

    fn go_on(&mut self, place: usize, progress: Progress) {
        let connection = &mut self.connections[place];
        match progress {
            Progress::More => {
                connection.in_ready = true;
                self.ready.push_back(place);
            }
            Progress::Dry => {}
            Progress::End(why) => self.down(place, &why),
        }
    }

    /// The system has something to say about a connection that is being made.
    fn connected(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        match connection.stream.take_error() {
            Ok(None) if connection.stream.peer_addr().is_ok() => {}
            // It was about an earlier connection.
            Ok(None) => return,
            Ok(Some(error)) | Err(error) => {
                return self.down(place, &format!("cannot connect: {error}"));
            }
        }
        let phase = std::mem::replace(&mut connection.phase, Phase::Up);
        if let Phase::Connecting(handshake) = phase {
            connection.phase = Phase::Greeting(handshake, Vec::new());
        }
        connection.full = false;
        note(&mut self.dirty, place, &mut connection.in_dirty);
        self.go_on(place, Progress::More);
    }

    /// Goes on with a handshake.
    fn greet(&mut self, place: usize, inbox: &mut Inbox) {
        let connection = &mut self.connections[place];
        let phase = std::mem::replace(&mut connection.phase, Phase::Up);
        let Phase::Greeting(mut handshake, mut arrived) = phase else {
            unreachable!("it was greeting");
        };
        let progress = connection.read_greeting(&mut arrived);
        let output = connection.output();
        match handshake.advance(&self.identity, &arrived, output) {
            Err(refused) => self.refused(place, &refused),
            Ok((used, None)) => {
                arrived.drain(..used);
                connection.phase = Phase::Greeting(handshake, arrived);
                note(&mut self.dirty, place, &mut connection.in_dirty);
                self.go_on(place, progress);
            }
            Ok((used, Some(proved))) => {
                self.up(place, proved.peer);
                self.tell(inbox);
                let connection = &mut self.connections[place];
                if std::mem::take(&mut connection.closing) {
                    return self.end_closed(place);
                }
                match connection.read_rest(&arrived[used..], inbox, self.limits.message) {
                    Ok(()) => self.go_on(place, Progress::More),
                    Err(why) => self.down(place, &why),
                }
            }
        }
    }

    fn end_closed(&mut self, place: usize) {
        let why = "it was closed here".to_owned();
        self.end(place, Some(why), self.limits.dead_after);
    }

    /// Writes what waits on a connection.
    fn write(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        connection.in_dirty = false;
        if matches!(connection.phase, Phase::Connecting(_)) {
            return;
        }
        match connection.write(&mut self.pool) {
            Ok(more) => {
                if more {
                    note(&mut self.dirty, place, &mut connection.in_dirty);
                }
                if connection.drained() {
                    self.news.push((connection.link, News::Drained));
                }
                if matches!(connection.phase, Phase::Ending(_)) && connection.waiting() == 0 {
                    // The peer may have gone; then reading finds out.
                    drop(connection.stream.shutdown(std::net::Shutdown::Write));
                }
            }
            Err(error) => {
                // What arrived before is read first.
                connection.fail(&error);
                if !std::mem::replace(&mut connection.in_ready, true) {
                    self.ready.push_back(place);
                }
            }
        }
    }

    fn write_dirty(&mut self) {
        // Who has more to write is put in the list again, for the next turn.
        let mut dirty = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare));
        for place in dirty.drain(..) {
            self.write(place);
        }
        self.spare = dirty;
        self.pool.truncate(POOL);
    }

    /// Tells the user what has happened.
    fn tell(&mut self, inbox: &mut Inbox) {
        for (link, news) in self.news.drain(..) {
            let event = match &news {
                News::Up(peer) => Event::Up(*peer),
                News::Drained => Event::Drained,
                News::Down(why) => Event::Down(why),
            };
            inbox.push(link, event);
        }
    }
}

impl Messages for Tcp {
    fn connect(&mut self, to: NodeId) -> Link {
        let link = self.next_link();
        if let Err(why) = self.start(to, link) {
            self.news.push((link, News::Down(why)));
        }
        link
    }

    #[inline]
    fn send(&mut self, on: Link, message: &[u8]) -> Result<(), SendError> {
        if message.len() > self.limits.message {
            return Err(SendError::TooLong);
        }
        let place = place(on);
        let connection = self.connections.get_mut(place);
        let connection = connection.filter(|found| found.link == on);
        let connection = connection.ok_or(SendError::Down)?;
        connection.take(message, &mut self.pool)?;
        note(&mut self.dirty, place, &mut connection.in_dirty);
        Ok(())
    }

    fn flush(&mut self) {
        self.write_dirty();
    }

    fn receive(&mut self, inbox: &mut Inbox) -> bool {
        self.tell(inbox);
        if self.accepting.is_some_and(|from| from <= self.now) {
            self.accept();
        }
        for _ in 0..self.ready.len() {
            if inbox.bytes() >= TURN_BYTES || inbox.len() >= TURN_EVENTS {
                break;
            }
            let Some(place) = self.ready.pop_front() else {
                break;
            };
            self.serve(place, inbox);
            self.tell(inbox);
        }
        // So that nobody wakes for a deadline that no longer counts.
        self.next_deadline();
        !self.ready.is_empty() || self.accepting == Some(Duration::ZERO)
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
