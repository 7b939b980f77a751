//! The beginning and the end of connections.

use std::cmp::Reverse;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use base::NodeId;
use mio::net::TcpStream;
use mio::{Interest, Token};
use socket2::SockRef;

use super::connection::{Connection, Phase};
use super::connection_balancer::{AssignedConnection, BalancerSlot, ConnectionCount};
use super::link_error::LinkError;
use super::negotiation::{Negotiated, Negotiation};
use super::{
    ACCEPT_PAUSE, ACCEPTS, LinkNotice, PLACE_BITS, Tcp, connection_terms, note, place, socket,
};
use crate::handshake::{ConnectionTerms, HandshakeRefusal};
use crate::link::{Link, Peer};

impl Tcp {
    pub(super) fn next_link(&mut self) -> Link {
        self.count += 1;
        Link(self.count << PLACE_BITS | self.connections.vacant_key() as u64)
    }

    fn connection(
        &self,
        link: Link,
        stream: TcpStream,
        address: SocketAddr,
        phase: Phase,
    ) -> Connection {
        let bounds = (self.limits.queue, &self.budget);
        Connection::new(link, stream, address, phase, bounds)
    }

    pub(super) fn start(&mut self, to: NodeId, link: Link) -> Result<(), LinkError> {
        if self.identity.me == Peer::Node(to) {
            return Err(LinkError::OwnNode(to));
        }
        let address = *self.peers.get(&to).ok_or(LinkError::UnknownNode(to))?;
        let start = || -> io::Result<(TcpStream, ConnectionTerms)> {
            let terms = connection_terms(self.encryption, address)?;
            Ok((TcpStream::connect(address)?, terms))
        };
        let (stream, terms) = start().map_err(|error| LinkError::cannot_connect(&error))?;
        let mut hello = Vec::new();
        let negotiation = Negotiation::initiate(&self.identity, Some(to), terms, &mut hello);
        let phase = Phase::Connecting(Box::new(negotiation));
        let mut connection = self.connection(link, stream, address, phase);
        connection.to = Some(to);
        connection.send_frames(&hello);
        // It takes output when it is connected.
        connection.full = true;
        self.admit(connection)
            .map_err(|error| LinkError::cannot_connect(&error))?;
        self.set_deadline(place(link), link, self.limits.handshake);
        Ok(())
    }

    pub(super) fn accept(&mut self) {
        // More may wait than a turn accepts.
        self.accepting = Some(Duration::ZERO);
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else {
                self.accepting = None;
                return;
            };
            match listener.accept() {
                Ok((stream, address)) => match &self.balancer_slot {
                    None => self.welcome(stream, address, None),
                    Some(balancer_slot) => {
                        let own = balancer_slot.assign(stream, address);
                        own.into_iter().for_each(|own| self.welcome_assigned(own));
                    }
                },
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => {
                        self.accepting = None;
                        return;
                    }
                    // These errors concern the connection that was to be accepted.
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

    /// Takes the connections that another thread has assigned to this one.
    pub(super) fn accept_assigned(&mut self) {
        let assigned = self.balancer_slot.as_ref().map(BalancerSlot::take);
        for assigned in assigned.into_iter().flatten() {
            self.welcome_assigned(assigned);
        }
    }

    fn welcome_assigned(&mut self, assigned: AssignedConnection) {
        self.welcome(assigned.stream, assigned.address, Some(assigned.counted));
    }

    fn welcome(
        &mut self,
        stream: TcpStream,
        address: SocketAddr,
        counted: Option<ConnectionCount>,
    ) {
        let terms = match connection_terms(self.encryption, address) {
            Ok(terms) => terms,
            Err(error) => {
                tracing::error!(%error, peer = %address, "no randomness for a handshake");
                return;
            }
        };
        let negotiation = Box::new(Negotiation::accept(terms));
        let link = self.next_link();
        let phase = Phase::Greeting(negotiation, Vec::new());
        let mut connection = self.connection(link, stream, address, phase);
        connection.counted = counted;
        if let Err(error) = self.admit(connection) {
            tracing::warn!(%error, peer = %address, "cannot serve a connection");
            return;
        }
        let (newcomer, evicted) = self.newcomers.admit(link, self.now);
        self.connections[place(link)].newcomer = Some(newcomer);
        if let Some(evicted) = evicted {
            self.evict(place(evicted));
        }
    }

    /// Closes a connection whose place a newer one has taken. Its peer can read the reason if the
    /// system takes that much at once.
    fn evict(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        connection.newcomer = None;
        if matches!(connection.phase, Phase::Greeting(..)) {
            let refused = HandshakeRefusal::busy();
            let mut words = Vec::new();
            refused.frame().encode(&mut words);
            connection.send_frames(&words);
            // It ends in either case.
            drop(connection.write(&mut self.pool, &mut self.scratch));
            self.log_refusal(place, &refused);
        }
        self.remove(place);
    }

    pub(super) fn admit(&mut self, mut connection: Connection) -> io::Result<()> {
        let entry = self.connections.vacant_entry();
        let token = Token(self.first + 1 + entry.key());
        if entry.key() >= 1 << PLACE_BITS {
            return Err(io::Error::other("there are too many connections"));
        }
        socket::tune(SockRef::from(&connection.stream), self.limits.dead_after)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        self.registry
            .register(&mut connection.stream, token, both)?;
        entry.insert(connection);
        Ok(())
    }

    pub(super) fn set_deadline(&mut self, place: usize, link: Link, after: Duration) {
        let at = self.now + after;
        self.connections[place].deadline = Some(at);
        self.deadlines.push(Reverse((at, link)));
    }

    /// Takes the link up: the peer has authenticated, and the way of messages is known.
    pub(super) fn up(&mut self, place: usize, negotiated: Negotiated) {
        let (peer, shm) = (negotiated.proved.peer, negotiated.rings.is_some());
        let encrypted = negotiated.proved.encrypted;
        let connection = &mut self.connections[place];
        if let Some(newcomer) = connection.newcomer.take() {
            self.newcomers.leave(newcomer);
        }
        if let Some(node) = connection.to {
            self.refusals.note(node, None);
        }
        // Messages through memory are not.
        self.encrypted -= usize::from(connection.is_encrypted() && negotiated.rings.is_some());
        if let Err(error) = connection.up(negotiated.rings) {
            return self.fail(place, &error);
        }
        self.through_memory += usize::from(connection.rings.is_some());
        connection.announced = true;
        let (link, address) = (connection.link, connection.address);
        note(&mut self.dirty, place, &mut connection.in_dirty);
        tracing::debug!(?link, ?peer, %address, shm, encrypted, "a link is up");
        // A user that has closed it already hears only of its end.
        if !connection.closing {
            self.notices.push((link, LinkNotice::Up(peer)));
        }
    }

    /// Refuses a connection: the peer gets the reason, and the time to read it.
    pub(super) fn refuse(&mut self, place: usize, refused: &HandshakeRefusal) {
        let connection = &mut self.connections[place];
        let mut words = Vec::new();
        refused.frame().encode(&mut words);
        connection.send_frames(&words);
        self.refused(place, refused);
    }

    /// Ends a connection that was refused, here or by the peer.
    pub(super) fn refused(&mut self, place: usize, refused: &HandshakeRefusal) {
        self.log_refusal(place, refused);
        let connection = &mut self.connections[place];
        if let Some(node) = connection.to {
            self.refusals.note(node, Some(refused));
        }
        if std::mem::replace(&mut connection.announced, false) {
            let why = format!("{}: {refused}", connection.address);
            self.notices.push((connection.link, LinkNotice::Down(why)));
        }
        if refused.here {
            self.end(place, None, self.limits.handshake);
        } else {
            self.remove(place);
        }
    }

    fn log_refusal(&mut self, place: usize, refused: &HandshakeRefusal) {
        let peer = self.connections[place].address;
        match self.refusals.count(peer.ip(), refused.code, self.now) {
            Some(left_out) => tracing::warn!(%peer, "no link: {refused}{left_out}"),
            None => tracing::debug!(%peer, "no link: {refused}"),
        }
    }

    /// Sends the output, then the end.
    pub(super) fn end(&mut self, place: usize, why: Option<LinkError>, within: Duration) {
        let connection = &mut self.connections[place];
        connection.phase = Phase::Ending(why);
        note(&mut self.dirty, place, &mut connection.in_dirty);
        // The bytes that have arrived already must be read, or the end would overtake the output.
        if !std::mem::replace(&mut connection.in_ready, true) {
            self.ready.push_back(place);
        }
        let link = connection.link;
        self.set_deadline(place, link, within);
    }

    /// Removes a connection, and informs its user.
    pub(super) fn down(&mut self, place: usize, why: &LinkError) {
        let connection = self.remove(place);
        let was_refused = matches!(connection.phase, Phase::Ending(None));
        let reason = match connection.phase {
            Phase::Ending(Some(reason)) => reason.to_string(),
            _ => format!("{}: {why}", connection.address),
        };
        if *why == LinkError::Altered {
            tracing::warn!(peer = %connection.address, "a link is closed: {why}");
        }
        // A connection that was refused here is noted as such already.
        if let Some(node) = connection.to
            && !was_refused
        {
            self.refusals.note(node, None);
        }
        if connection.announced {
            tracing::debug!(link = ?connection.link, why = reason, "a link is down");
            self.notices
                .push((connection.link, LinkNotice::Down(reason)));
        } else {
            tracing::debug!(peer = %connection.address, %why, "a connection ended");
        }
    }

    pub(super) fn remove(&mut self, place: usize) -> Connection {
        let mut connection = self.connections.remove(place);
        self.through_memory -= usize::from(connection.rings.is_some());
        self.encrypted -= usize::from(connection.is_encrypted());
        if connection.rings.as_ref().is_some_and(|it| it.awake) {
            self.polled.forget(place);
        }
        if let Some(newcomer) = connection.newcomer {
            self.newcomers.leave(newcomer);
        }
        // A list may still name the place, whose next connection then gets an unnecessary turn.
        if let Err(error) = self.registry.deregister(&mut connection.stream) {
            tracing::debug!(%error, "deregistering a connection");
        }
        connection
    }
}
