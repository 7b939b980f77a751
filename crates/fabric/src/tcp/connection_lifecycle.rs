//! The beginning and the end of connections.

use std::cmp::Reverse;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use base::NodeId;
use reactor::Network;

use super::connection::{Connection, Phase};
use super::connection_balancer::{AssignedConnection, BalancerSlot, ConnectionCount};
use super::link_error::LinkError;
use super::negotiation::{Negotiated, Negotiation};
use super::{LinkNotice, PLACE_BITS, Tcp, connection_terms, note, place};
use crate::handshake::HandshakeRefusal;
use crate::link::{Link, Peer};

impl<N: Network> Tcp<N> {
    pub(super) fn next_link(&mut self) -> Link {
        self.count += 1;
        Link(self.count << PLACE_BITS | self.connections.vacant_key() as u64)
    }

    fn connection(
        &self,
        link: Link,
        stream: Option<N::Stream>,
        address: SocketAddr,
        phase: Phase,
    ) -> Connection<N> {
        let bounds = (self.limits.queue, &self.budget);
        Connection::new(link, stream, address, phase, bounds)
    }

    /// Begins a link to a node. [`Tcp::start_connections`] has the system connect it.
    pub(super) fn start(&mut self, to: NodeId, link: Link) -> Result<(), LinkError> {
        if self.identity.me == Peer::Node(to) {
            return Err(LinkError::OwnNode(to));
        }
        let address = *self.peers.get(&to).ok_or(LinkError::UnknownNode(to))?;
        let cannot = |error: io::Error| LinkError::cannot_connect(&error);
        let terms = connection_terms(self.encryption, address).map_err(cannot)?;
        let mut hello = Vec::new();
        let negotiation = Negotiation::initiate(&self.identity, Some(to), terms, &mut hello);
        let phase = Phase::Connecting(Box::new(negotiation));
        let mut connection = self.connection(link, None, address, phase);
        connection.to = Some(to);
        connection.send_frames(&hello);
        // It takes output when it is connected.
        connection.full = true;
        let place = self.vacant_place().map_err(cannot)?;
        self.connections.insert(connection);
        self.set_deadline(place, link, self.limits.handshake);
        self.unstarted.push(link);
        Ok(())
    }

    /// Has the system connect the links that were begun since the last call.
    pub(super) fn start_connections(&mut self, network: &mut N) {
        for link in std::mem::take(&mut self.unstarted) {
            let place = place(link);
            let connection = self.connections.get_mut(place);
            let Some(connection) = connection.filter(|found| found.link == link) else {
                continue;
            };
            match network.connect(connection.address, self.first + 1 + place) {
                Ok(stream) => connection.stream = Some(stream),
                Err(error) => self.down(network, place, &LinkError::cannot_connect(&error)),
            }
        }
    }

    pub(super) fn accept(&mut self, network: &mut N) {
        if !self.accepting.begin(self.now) {
            return;
        }
        while let Some(listener) = &self.listener {
            match self.accepting.next(self.now, || network.accept(listener)) {
                Ok(Some((stream, address))) => match &self.balancer_slot {
                    None => self.welcome(network, stream, address, None),
                    Some(balancer_slot) => {
                        let own = balancer_slot.assign(stream, address);
                        own.into_iter()
                            .for_each(|own| self.welcome_assigned(network, own));
                    }
                },
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    return;
                }
            }
        }
    }

    /// Takes the connections that another thread has assigned to this one.
    pub(super) fn accept_assigned(&mut self, network: &mut N) {
        let assigned = self.balancer_slot.as_ref().map(BalancerSlot::take);
        for assigned in assigned.into_iter().flatten() {
            self.welcome_assigned(network, assigned);
        }
    }

    fn welcome_assigned(&mut self, network: &mut N, assigned: AssignedConnection<N>) {
        let counted = Some(assigned.counted);
        self.welcome(network, assigned.stream, assigned.address, counted);
    }

    fn welcome(
        &mut self,
        network: &mut N,
        mut stream: N::Stream,
        address: SocketAddr,
        counted: Option<ConnectionCount<N>>,
    ) {
        let terms = match connection_terms(self.encryption, address) {
            Ok(terms) => terms,
            Err(error) => {
                tracing::error!(%error, peer = %address, "no randomness for a handshake");
                return network.close(stream);
            }
        };
        let negotiation = Box::new(Negotiation::accept(terms));
        let link = self.next_link();
        let phase = Phase::Greeting(negotiation, Vec::new());
        let watched = self.vacant_place().and_then(|place| {
            network.set_dead_after(&stream, self.limits.dead_after)?;
            network.watch(&mut stream, self.first + 1 + place)
        });
        if let Err(error) = watched {
            tracing::warn!(%error, peer = %address, "cannot serve a connection");
            return network.close(stream);
        }
        let mut connection = self.connection(link, Some(stream), address, phase);
        connection.counted = counted;
        self.connections.insert(connection);
        let (newcomer, evicted) = self.newcomers.admit(link, self.now);
        self.connections[place(link)].newcomer = Some(newcomer);
        if let Some(evicted) = evicted {
            self.evict(network, place(evicted));
        }
    }

    /// Closes a connection whose place a newer one has taken. Its peer can read the reason if the
    /// system takes that much at once.
    fn evict(&mut self, network: &mut N, place: usize) {
        let connection = &mut self.connections[place];
        connection.newcomer = None;
        if matches!(connection.phase, Phase::Greeting(..)) {
            let refused = HandshakeRefusal::busy();
            let mut words = Vec::new();
            refused.frame().encode(&mut words);
            connection.send_frames(&words);
            // It ends in either case.
            drop(connection.write(network, &mut self.pool, &mut self.scratch));
            self.log_refusal(place, &refused);
        }
        self.remove(network, place);
    }

    /// Returns the place of the next connection.
    fn vacant_place(&self) -> io::Result<usize> {
        match self.connections.vacant_key() {
            place if place < 1 << PLACE_BITS => Ok(place),
            _ => Err(io::Error::other("there are too many connections")),
        }
    }

    pub(super) fn set_deadline(&mut self, place: usize, link: Link, after: Duration) {
        let at = self.now + after;
        self.connections[place].deadline = Some(at);
        self.deadlines.push(Reverse((at, link)));
    }

    /// Takes the link up: the peer has authenticated, and the way of messages is known.
    pub(super) fn up(&mut self, network: &mut N, place: usize, negotiated: Negotiated) {
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
        self.send_receive += usize::from(connection.is_send_receive());
        let token = self.first + 1 + place;
        if let Err(error) = connection.watch_events(network, token) {
            return self.fail(place, &error);
        }
        if let Err(why) = connection.charge() {
            return self.fail(place, &io::Error::other(why));
        }
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
    pub(super) fn refuse(&mut self, network: &mut N, place: usize, refused: &HandshakeRefusal) {
        let connection = &mut self.connections[place];
        let mut words = Vec::new();
        refused.frame().encode(&mut words);
        connection.send_frames(&words);
        self.refused(network, place, refused);
    }

    /// Ends a connection that was refused, here or by the peer.
    pub(super) fn refused(&mut self, network: &mut N, place: usize, refused: &HandshakeRefusal) {
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
            self.remove(network, place);
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
    pub(super) fn down(&mut self, network: &mut N, place: usize, why: &LinkError) {
        let connection = self.remove(network, place);
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

    pub(super) fn remove(&mut self, network: &mut N, place: usize) -> Connection<N> {
        let mut connection = self.connections.remove(place);
        self.through_memory -= usize::from(connection.rings.is_some());
        self.send_receive -= usize::from(connection.is_send_receive());
        self.encrypted -= usize::from(connection.is_encrypted());
        if connection.rings.as_ref().is_some_and(|it| it.awake) {
            self.polled.forget(place);
        }
        if let Some(newcomer) = connection.newcomer {
            self.newcomers.leave(newcomer);
        }
        // A list may still name the place, whose next connection then gets an unnecessary turn.
        if let Some(stream) = connection.stream.take() {
            network.close(stream);
        }
        connection
    }
}
