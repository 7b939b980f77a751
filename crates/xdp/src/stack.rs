//! TCP connections over packets, by `smoltcp`: frames in, frames and events out, without system calls.
//!
//! `smoltcp` looks for the connection of a packet among all of them, one after another, and looks at all of them for
//! packets to send. So each connection here has a set of sockets of its own, which contains its socket alone, and this
//! module finds the connection of a packet by its addresses, and keeps the times at which connections are due.
//!
//! A connection's socket is made when its SYN comes, so that a listener needs no sockets in store.
//!
//! Invariants:
//! 1. A connection is in `flows` under its addresses as long as it is in `connections`.
//! 2. A connection with a time is in `timers` under that time, which is not later than the connection is due.
//! 3. At most [`HALF_OPEN`] connections of a listener have not finished their handshake, and at most [`BACKLOG`] wait
//!    to be accepted.
//! 4. A connection is reported when it becomes readable or writable, as [`reactor::network`] says.
//! 5. Each connection's first sequence number comes from a seed of the system's own randomness.

mod connection;
mod device;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddrV4;
use std::sync::{Arc, Weak};
use std::time::Duration;

use reactor::SocketEvent;
use slab::Slab;
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress as Medium, IpAddress, IpCidr, IpListenEndpoint};

use crate::headers::{HardwareAddress, TcpPacket};
use connection::{ConnectionRole, Flow, TcpConnection};
use device::PacketDevice;

pub(crate) use connection::PortLease;
pub(crate) use device::{FrameSink, StackOptions};

/// Connections of a listener that may wait to be accepted.
const BACKLOG: usize = 1024;
/// Connections of a listener that may be within their handshake; beyond it the oldest is dropped.
const HALF_OPEN: usize = 512;
/// How long a handshake may take, as the accepting side sees it.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The pause before a connection that is due and could do nothing is looked at again.
const RETRY: Duration = Duration::from_millis(1);

struct Listener {
    token: usize,
    /// Its owner holds the other end: when that is dropped, nothing more is accepted.
    alive: Weak<()>,
    lease: PortLease,
    half_open: VecDeque<usize>,
    accepted: VecDeque<usize>,
}

/// See the module.
pub(crate) struct TcpStack {
    options: StackOptions,
    interface: Interface,
    connections: Slab<TcpConnection>,
    flows: HashMap<Flow, usize>,
    listeners: HashMap<u16, Listener>,
    /// Connections that may have something to send.
    dirty: Vec<usize>,
    timers: BTreeSet<(Instant, usize)>,
    /// Events that have not been taken.
    events: Vec<SocketEvent>,
}

impl TcpStack {
    /// Returns a stack without connections.
    pub(crate) fn new(options: StackOptions) -> io::Result<TcpStack> {
        Ok(TcpStack {
            options,
            interface: interface(&options)?,
            connections: Slab::new(),
            flows: HashMap::new(),
            listeners: HashMap::new(),
            dirty: Vec::new(),
            timers: BTreeSet::new(),
            events: Vec::new(),
        })
    }

    /// Accepts connections to a port from now on, until the returned handle is dropped.
    pub(crate) fn listen(&mut self, port: u16, token: usize, lease: PortLease) -> Arc<()> {
        let handle = Arc::new(());
        let listener = Listener {
            token,
            alive: Arc::downgrade(&handle),
            lease,
            half_open: VecDeque::new(),
            accepted: VecDeque::new(),
        };
        self.listeners.insert(port, listener);
        handle
    }

    /// Breaks the connections of listeners that are gone, as far as they have no owner.
    fn end_listeners(&mut self) {
        let is_gone = |listener: &Listener| listener.alive.strong_count() == 0;
        let gone = self.listeners.extract_if(|_, listener| is_gone(listener));
        for (_, listener) in gone.collect::<Vec<_>>() {
            for place in listener.half_open.into_iter().chain(listener.accepted) {
                let connection = &mut self.connections[place];
                connection.role = ConnectionRole::Closed;
                connection.socket_mut().abort();
                self.mark(place);
            }
        }
    }

    /// Returns the next connection to a port, if there is one, and its peer.
    pub(crate) fn accept(&mut self, port: u16) -> Option<(usize, SocketAddrV4)> {
        let place = self.listeners.get_mut(&port)?.accepted.pop_front()?;
        let connection = &mut self.connections[place];
        connection.role = ConnectionRole::Owned;
        Some((place, connection.flow.peer))
    }

    /// Begins to connect from an own port, whose lease the connection keeps. The first packet leaves when
    /// [`TcpStack::set_next_hop`] has been called.
    pub(crate) fn connect(
        &mut self,
        peer: SocketAddrV4,
        port: u16,
        lease: PortLease,
        token: usize,
    ) -> io::Result<usize> {
        let flow = Flow { peer, port };
        if self.flows.contains_key(&flow) {
            return Err(ErrorKind::AddrInUse.into());
        }
        self.interface = interface(&self.options)?;
        let mut connection = TcpConnection::new(flow, lease, ConnectionRole::Owned);
        connection.token = Some(token);
        connection.is_connecting = true;
        let local = IpListenEndpoint {
            addr: Some(IpAddress::Ipv4(self.options.address)),
            port,
        };
        let peer = (IpAddress::Ipv4(*peer.ip()), peer.port());
        let connected = connection
            .socket_mut()
            .connect(self.interface.context(), peer, local);
        connected.map_err(|error| io::Error::new(ErrorKind::InvalidInput, error.to_string()))?;
        let place = self.connections.insert(connection);
        self.flows.insert(flow, place);
        Ok(place)
    }

    /// Says which neighbour gets the packets of a connection.
    pub(crate) fn set_next_hop(&mut self, place: usize, hardware: HardwareAddress) {
        if let Some(connection) = self.connections.get_mut(place) {
            connection.next_hop = Some(hardware);
            self.mark(place);
        }
    }

    /// Breaks a connection that is being made.
    pub(crate) fn fail(&mut self, place: usize, why: ErrorKind) {
        if let Some(connection) = self.connections.get_mut(place) {
            connection.fail(why);
            self.review(place);
        }
    }

    /// Returns `true` if this connection is still being made.
    pub(crate) fn is_connecting(&self, place: usize, peer: SocketAddrV4) -> bool {
        let connection = self.connections.get(place);
        connection.is_some_and(|connection| {
            connection.is_connecting
                && connection.flow.peer == peer
                && connection.role == ConnectionRole::Owned
        })
    }

    /// Reports a connection from now on under this token.
    pub(crate) fn watch(&mut self, place: usize, token: usize) {
        let connection = &mut self.connections[place];
        connection.token = Some(token);
        let (readable, ended) = (connection.is_readable(), connection.has_ended());
        self.events.push(SocketEvent {
            token,
            readable: readable || ended,
            writable: true,
            ended,
        });
    }

    /// Returns a connection, to be read from and written to by its owner.
    pub(crate) fn connection(&mut self, place: usize) -> &mut TcpConnection {
        &mut self.connections[place]
    }

    /// Reads; see [`reactor::Network::read`].
    pub(crate) fn read(&mut self, place: usize, into: &mut [u8]) -> io::Result<usize> {
        let result = self.connections[place].read(into);
        if matches!(result, Ok(1..)) {
            // The window may have to be announced.
            self.mark(place);
        }
        result
    }

    /// Writes; see [`reactor::Network::write`].
    pub(crate) fn write(&mut self, place: usize, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let result = self.connections[place].write(pieces);
        if matches!(result, Ok(1..)) {
            self.mark(place);
        }
        result
    }

    /// Ends the output of a connection.
    pub(crate) fn end_output(&mut self, place: usize) {
        self.connections[place].socket_mut().close();
        self.mark(place);
    }

    /// Closes a connection: what was written is still sent, and nothing of it is reported any more.
    pub(crate) fn close(&mut self, place: usize, now: Instant) {
        let connection = &mut self.connections[place];
        // The next owner of the number must not get events of this connection.
        if let Some(token) = connection.token.take() {
            self.events.retain(|event| event.token != token);
        }
        connection.close(now);
        self.mark(place);
    }

    /// Returns `true` if no closed connection has bytes that its peer has not acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        let unsettled = |connection: &TcpConnection| connection.is_lingering();
        !self.connections.iter().any(|(_, one)| unsettled(one))
    }

    /// Returns the own port of a connection.
    pub(crate) fn local_port(&self, place: usize) -> u16 {
        self.connections[place].flow.port
    }

    /// Takes the events that have happened.
    pub(crate) fn take_events(&mut self, happened: &mut Vec<SocketEvent>) {
        happened.append(&mut self.events);
    }

    /// Returns `true` if there are events.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the number of connections, closed ones included that are not over.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the time until a connection is due, or `None` if none is.
    pub(crate) fn next_timer(&self, now: Instant) -> Option<Duration> {
        if !self.dirty.is_empty() {
            return Some(RETRY);
        }
        let (due, _) = self.timers.first()?;
        let micros = (due.total_micros() - now.total_micros()).max(0);
        Some(Duration::from_micros(micros as u64))
    }

    /// Takes a received frame. What is to be sent because of it leaves with [`TcpStack::transmit`], but for resets.
    pub(crate) fn receive(&mut self, frame: &[u8], now: Instant, sink: &mut impl FrameSink) {
        let Some(packet) = TcpPacket::parse(frame) else {
            return;
        };
        if *packet.destination.ip() != self.options.address {
            return;
        }
        let flow = Flow {
            peer: packet.source,
            port: packet.destination.port(),
        };
        let begins = packet.is_syn && !packet.is_ack && !packet.is_reset;
        let mut place = self.flows.get(&flow).copied();
        if begins
            && let Some(old) = place
            && self.connections[old].is_replaceable()
        {
            self.remove(old);
            place = None;
        }
        match place {
            Some(place) => self.ingest(place, &packet, now, sink),
            None if begins => self.begin(flow, &packet, now, sink),
            None => self.reset(&packet, now, sink),
        }
    }

    /// Makes a connection of a SYN, or refuses it if nothing listens.
    fn begin(
        &mut self,
        flow: Flow,
        packet: &TcpPacket<'_>,
        now: Instant,
        sink: &mut impl FrameSink,
    ) {
        self.end_listeners();
        let Some(listener) = self.listeners.get_mut(&flow.port) else {
            return self.reset(packet, now, sink);
        };
        let lease = Arc::clone(&listener.lease);
        if listener.accepted.len() >= BACKLOG {
            // As the kernel does it: the peer tries again.
            return;
        }
        let oldest = (listener.half_open.len() >= HALF_OPEN).then(|| listener.half_open[0]);
        let mut connection = TcpConnection::new(flow, lease, ConnectionRole::HalfOpen);
        connection.next_hop = Some(packet.source_hardware);
        let local = IpListenEndpoint {
            addr: Some(IpAddress::Ipv4(self.options.address)),
            port: flow.port,
        };
        let socket = connection.socket_mut();
        socket.set_timeout(Some(HANDSHAKE.into()));
        if let Err(error) = socket.listen(local) {
            tracing::debug!(%error, "a connection is not taken");
            return;
        }
        match interface(&self.options) {
            Ok(interface) => self.interface = interface,
            Err(error) => {
                tracing::warn!(%error, "a connection is not taken: the system has no randomness");
                return;
            }
        }
        let place = self.connections.insert(connection);
        listener.half_open.push_back(place);
        self.flows.insert(flow, place);
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
        self.ingest(place, packet, now, sink);
    }

    /// Hands a packet to its connection.
    fn ingest(
        &mut self,
        place: usize,
        packet: &TcpPacket<'_>,
        now: Instant,
        sink: &mut impl FrameSink,
    ) {
        let connection = &mut self.connections[place];
        connection.was_reset |= packet.is_reset;
        let before = connection.progress();
        let mut device = PacketDevice {
            packet: Some(packet.ip),
            sink,
            to: packet.source_hardware,
            options: &self.options,
        };
        self.interface
            .poll_ingress_single(now, &mut device, &mut connection.sockets);
        if connection.progress() != before {
            connection.next_hop = Some(packet.source_hardware);
        }
        self.mark(place);
        self.review(place);
    }

    /// Answers a packet that belongs to no connection.
    fn reset(&mut self, packet: &TcpPacket<'_>, now: Instant, sink: &mut impl FrameSink) {
        let mut device = PacketDevice {
            packet: Some(packet.ip),
            sink,
            to: packet.source_hardware,
            options: &self.options,
        };
        let mut none = SocketSet::new(Vec::new());
        self.interface
            .poll_ingress_single(now, &mut device, &mut none);
    }

    /// Sends what connections have to send, and does what is due.
    pub(crate) fn transmit(&mut self, now: Instant, sink: &mut impl FrameSink) {
        self.end_listeners();
        while let Some(&(due, place)) = self.timers.first()
            && due <= now
        {
            self.timers.pop_first();
            self.connections[place].due = None;
            self.mark(place);
        }
        for place in std::mem::take(&mut self.dirty) {
            // Closed connections end, and their numbers may be used again.
            if let Some(connection) = self.connections.get_mut(place)
                && std::mem::take(&mut connection.is_dirty)
            {
                self.transmit_one(place, now, sink);
            }
        }
    }

    fn transmit_one(&mut self, place: usize, now: Instant, sink: &mut impl FrameSink) {
        let connection = &mut self.connections[place];
        connection.expire(now);
        let Some(to) = connection.next_hop else {
            return self.review(place);
        };
        let mut has_room = true;
        loop {
            if !sink.has_room() {
                has_room = false;
                break;
            }
            let mut device = PacketDevice {
                packet: None,
                sink,
                to,
                options: &self.options,
            };
            let polled = self
                .interface
                .poll_egress(now, &mut device, &mut connection.sockets);
            if matches!(polled, PollResult::None) {
                break;
            }
        }
        let due = self.interface.poll_at(now, &connection.sockets);
        let due = [due, connection.deadline].into_iter().flatten().min();
        if let Some(due) = due {
            // What could not be done now is tried again a little later.
            let due = due.max(now + RETRY.into());
            schedule(&mut self.timers, connection, place, due);
        }
        if !has_room {
            self.mark(place);
        }
        self.review(place);
        if self
            .connections
            .get(place)
            .is_some_and(|one| has_room && one.is_over())
        {
            self.remove(place);
        }
    }

    /// Reports what has changed of a connection.
    fn review(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        match connection.role {
            ConnectionRole::HalfOpen => match connection.state() {
                tcp::State::SynReceived => {}
                tcp::State::Listen | tcp::State::Closed => self.remove(place),
                _ => self.establish(place),
            },
            ConnectionRole::Owned => self.events.extend(connection.take_event()),
            ConnectionRole::Waiting | ConnectionRole::Closed => {}
        }
    }

    /// Puts a connection whose handshake is over into the queue of its listener.
    fn establish(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        connection.role = ConnectionRole::Waiting;
        connection.socket_mut().set_timeout(None);
        let Some(listener) = self.listeners.get_mut(&connection.flow.port) else {
            return;
        };
        listener.half_open.retain(|one| *one != place);
        listener.accepted.push_back(place);
        self.events.push(SocketEvent {
            token: listener.token,
            readable: true,
            writable: false,
            ended: false,
        });
    }

    fn mark(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if !std::mem::replace(&mut connection.is_dirty, true) {
            self.dirty.push(place);
        }
    }

    fn remove(&mut self, place: usize) {
        let connection = self.connections.remove(place);
        if let Some(due) = connection.due {
            self.timers.remove(&(due, place));
        }
        if self.flows.get(&connection.flow) == Some(&place) {
            self.flows.remove(&connection.flow);
        }
        if let Some(listener) = self.listeners.get_mut(&connection.flow.port) {
            match connection.role {
                ConnectionRole::HalfOpen => listener.half_open.retain(|one| *one != place),
                ConnectionRole::Waiting => listener.accepted.retain(|one| *one != place),
                ConnectionRole::Owned | ConnectionRole::Closed => {}
            }
        }
    }
}

/// Has a connection looked at at this time, or before.
fn schedule(
    timers: &mut BTreeSet<(Instant, usize)>,
    connection: &mut TcpConnection,
    place: usize,
    due: Instant,
) {
    match connection.due {
        Some(before) if before <= due => return,
        Some(before) => drop(timers.remove(&(before, place))),
        None => {}
    }
    connection.due = Some(due);
    timers.insert((due, place));
}

/// Returns an interface of `smoltcp`. It has no state but a generator of numbers, which `smoltcp` seeds with 64 bits
/// and whose next number can be found from earlier ones. With a new one for each connection there are no earlier ones.
fn interface(options: &StackOptions) -> io::Result<Interface> {
    let seed = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
    let mut config = Config::new(Medium::Ip);
    config.random_seed = seed;
    let mut device = PacketDevice {
        packet: None,
        sink: &mut device::NoFrames,
        to: [0; 6],
        options,
    };
    let mut interface = Interface::new(config, &mut device, Instant::ZERO);
    interface.update_ip_addrs(|addresses| {
        let own = IpCidr::new(IpAddress::Ipv4(options.address), 32);
        let added = addresses.push(own);
        debug_assert!(added.is_ok(), "one address has room");
    });
    Ok(interface)
}
