//! The network's thread: carries out the proxy thread's orders, reads input as far as there is room
//! for it, and sends output.

use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use mio::net::{TcpListener, TcpStream};
use reactor::buffered::{Failure, LINGER, LOOK, MOST};
use reactor::{Network, SocketEvent, Sockets};
use slab::Slab;

use super::relay_queues::{AcceptQueue, RelayCommand, RelayQueues, RelayedConnection};

/// Connections that wait to be accepted by the proxy thread.
const ACCEPTED: usize = 256;
/// The number of the first connection among the network's own; listeners are below.
const FIRST: usize = 1024;

/// The network's thread.
pub(super) struct Relay {
    sockets: Sockets,
    shared: Arc<RelayQueues>,
    listeners: Slab<(TcpListener, Arc<AcceptQueue>)>,
    connections: Slab<Connection>,
    /// Events for the proxy thread.
    news: Vec<SocketEvent>,
    stopping: bool,
}

struct Connection {
    stream: TcpStream,
    line: Arc<RelayedConnection>,
    token: usize,
    connecting: bool,
    /// Output taken over from the proxy thread.
    sending: BytesMut,
    /// The peer has ended: its input is read to the end.
    ended: bool,
    /// The proxy thread has closed it; it goes when everything is sent, or at this time.
    closing: Option<Instant>,
}

impl Relay {
    pub(super) fn new(sockets: Sockets, shared: Arc<RelayQueues>) -> Relay {
        Relay {
            sockets,
            shared,
            listeners: Slab::new(),
            connections: Slab::new(),
            news: Vec::new(),
            stopping: false,
        }
    }

    pub(super) fn run(mut self) {
        let mut happened = Vec::new();
        while !self.stopping || !self.connections.is_empty() {
            let lingers = |it: &Connection| it.closing.is_some();
            let looks = self.connections.iter().any(|(_, it)| lingers(it));
            let timeout = looks.then_some(LOOK);
            if let Err(error) = self.sockets.wait(&mut happened, timeout) {
                tracing::error!(%error, "the network cannot wait for events");
                return;
            }
            let orders = mem::take(&mut self.shared.mailbox.lock().orders);
            for order in orders {
                self.carry_out(order);
            }
            for event in happened.drain(..) {
                self.note(event);
            }
            if looks {
                self.give_up();
            }
            self.publish();
        }
    }

    fn publish(&mut self) {
        if self.news.is_empty() {
            return;
        }
        let mut mailbox = self.shared.mailbox.lock();
        for news in self.news.drain(..) {
            let known = mailbox.happened.entry(news.token).or_insert(news);
            known.readable |= news.readable;
            known.writable |= news.writable;
            known.ended |= news.ended;
        }
        drop(mailbox);
        self.shared.arrived.notify_one();
    }

    fn carry_out(&mut self, order: RelayCommand) {
        match order {
            RelayCommand::Listen(socket, queue) => self.listen(socket, queue),
            RelayCommand::Accept(queue) => self.accept(&queue),
            RelayCommand::Unlisten(queue) => {
                if let Some(place) = queue.state.lock().place.take() {
                    self.listeners.remove(place);
                }
            }
            RelayCommand::Watch(line, stream) => self.watch(line, stream),
            RelayCommand::Connect(line, address) => self.connect(line, address),
            RelayCommand::Send(line) => self.at(&line, Relay::send),
            RelayCommand::Receive(line) => self.at(&line, Relay::receive),
            RelayCommand::Close(line) => self.at(&line, |relay, place| {
                relay.connections[place].closing = Some(Instant::now() + LINGER);
                relay.send(place);
            }),
            RelayCommand::Stop => {
                self.stopping = true;
                let by = Instant::now() + LINGER;
                let places: Vec<usize> = self.connections.iter().map(|(at, _)| at).collect();
                for place in places {
                    self.connections[place].closing.get_or_insert(by);
                    self.send(place);
                }
            }
        }
    }

    /// Runs `act` for a connection that still exists.
    fn at(&mut self, line: &RelayedConnection, act: impl FnOnce(&mut Relay, usize)) {
        let place = line.state.lock().place;
        if let Some(place) = place {
            act(self, place);
        }
    }

    fn notify(&mut self, token: usize, readable: bool, writable: bool, ended: bool) {
        self.news.push(SocketEvent {
            token,
            readable,
            writable,
            ended,
        });
    }

    fn listen(&mut self, socket: std::net::TcpListener, queue: Arc<AcceptQueue>) {
        let entry = self.listeners.vacant_entry();
        let place = entry.key();
        match self.sockets.listen(socket, place) {
            Ok(listener) => {
                queue.state.lock().place = Some(place);
                entry.insert((listener, queue));
            }
            Err(error) => tracing::error!(%error, "cannot watch a listener"),
        }
    }

    fn accept(&mut self, queue: &AcceptQueue) {
        let mut state = queue.state.lock();
        let Some((listener, _)) = state.place.and_then(|place| self.listeners.get(place)) else {
            return;
        };
        loop {
            if state.waiting.len() >= ACCEPTED {
                state.held = true;
                break;
            }
            match self.sockets.accept(listener) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    state.waiting.push_back(Err(error));
                    // There may be more connections behind it, and no further event will announce
                    // them.
                    state.held = true;
                    break;
                }
                accepted => state.waiting.push_back(accepted),
            }
        }
        drop(state);
        self.notify(queue.token, true, false, false);
    }

    fn watch(&mut self, line: Arc<RelayedConnection>, mut stream: TcpStream) {
        let place = self.connections.vacant_key();
        let watched = self.sockets.watch(&mut stream, FIRST + place);
        self.admit(line, watched.map(|()| stream), false);
    }

    fn connect(&mut self, line: Arc<RelayedConnection>, address: SocketAddr) {
        let place = self.connections.vacant_key();
        let stream = self.sockets.connect(address, FIRST + place);
        self.admit(line, stream, true);
    }

    fn admit(
        &mut self,
        line: Arc<RelayedConnection>,
        stream: io::Result<TcpStream>,
        connecting: bool,
    ) {
        let mut state = line.state.lock();
        let token = state.token;
        match stream {
            Ok(stream) => {
                let place = self.connections.insert(Connection {
                    stream,
                    line: Arc::clone(&line),
                    token,
                    connecting,
                    sending: BytesMut::new(),
                    ended: false,
                    closing: None,
                });
                state.place = Some(place);
            }
            Err(error) => {
                state.failed = Some(Failure::new(&error));
                drop(state);
                self.notify(token, true, true, true);
            }
        }
    }

    fn note(&mut self, event: SocketEvent) {
        let Some(place) = event.token.checked_sub(FIRST) else {
            let queue = self.listeners.get(event.token);
            if let Some(queue) = queue.map(|(_, queue)| Arc::clone(queue)) {
                self.accept(&queue);
            }
            return;
        };
        if self.connections.get(place).is_some_and(|it| it.connecting) {
            self.finish_connecting(place);
        }
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        if connection.connecting {
            return;
        }
        connection.ended |= event.ended;
        if event.readable && connection.closing.is_none() {
            self.receive(place);
        }
        if event.writable {
            self.send(place);
        }
    }

    fn finish_connecting(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        let token = connection.token;
        match self.sockets.connected(&connection.stream) {
            Ok(()) => {
                connection.connecting = false;
                connection.line.state.lock().made = true;
                self.notify(token, false, true, false);
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => {}
            Err(error) => self.fail(place, error),
        }
    }

    /// Reads the available input, as far as there is room.
    fn receive(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        let token = connection.token;
        let mut brought = false;
        loop {
            let mut state = connection.line.state.lock();
            let room = MOST.saturating_sub(state.incoming_len);
            state.held = room == 0;
            drop(state);
            if room == 0 {
                break;
            }
            let mut bytes = BytesMut::zeroed(room.min(MOST / 4));
            match self.sockets.read(&mut connection.stream, &mut bytes) {
                Ok(0) => {
                    connection.line.state.lock().ended = true;
                    return self.notify(token, true, false, true);
                }
                Ok(count) => {
                    brought = true;
                    let more = count == bytes.len() || connection.ended;
                    bytes.truncate(count);
                    let mut state = connection.line.state.lock();
                    state.incoming.push_back(bytes.freeze());
                    state.incoming_len += count;
                    if !more {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.fail(place, error),
            }
        }
        if brought {
            self.notify(token, true, false, false);
        }
    }

    /// Sends output, as far as the socket takes it.
    fn send(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        let mut has_room = false;
        loop {
            if connection.sending.is_empty() {
                let mut state = connection.line.state.lock();
                connection.sending = state.outgoing.split();
                if connection.sending.is_empty() {
                    state.asked = false;
                    break;
                }
            }
            let pieces = [IoSlice::new(&connection.sending)];
            match self.sockets.write(&mut connection.stream, &pieces) {
                Ok(count) => {
                    connection.sending.advance(count);
                    let mut state = connection.line.state.lock();
                    state.unsent -= count;
                    has_room |= mem::take(&mut state.wanted);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.fail(place, error),
            }
        }
        let token = connection.token;
        if connection.closing.is_some() && connection.sending.is_empty() {
            self.remove(place);
        } else if has_room {
            self.notify(token, false, true, false);
        }
    }

    fn fail(&mut self, place: usize, error: io::Error) {
        let connection = &self.connections[place];
        let token = connection.token;
        let closed = connection.closing.is_some();
        connection.line.state.lock().failed = Some(Failure::new(&error));
        self.remove(place);
        if !closed {
            self.notify(token, true, true, true);
        }
    }

    fn remove(&mut self, place: usize) {
        let connection = self.connections.remove(place);
        connection.line.state.lock().place = None;
        self.sockets.close(connection.stream);
    }

    /// Closes connections that have lingered for too long.
    fn give_up(&mut self) {
        let now = Instant::now();
        let late = |it: &Connection| it.closing.is_some_and(|by| by <= now);
        let all = self.connections.iter();
        let places: Vec<usize> = all.filter(|(_, it)| late(it)).map(|(at, _)| at).collect();
        for place in places {
            self.remove(place);
        }
    }
}
