//! The paper's older design: a thread of its own does the network of each proxy thread (paper 3,
//! section 4.3, figure 4), to be measured beside the newer one.
//!
//! The proxy thread has the interface of sockets, and never calls the kernel for a connection. What
//! comes is read by the network's thread, waits in a queue, and is copied out of it; what leaves is
//! copied into a queue, and written by the network's thread. Every access to a queue takes a mutex,
//! and both threads wake each other.
//!
//! Invariants:
//! 1. A connection holds at most [`MOST`] bytes in each direction, and as many more as one write
//!    of the network's thread has taken over. Beyond it the network's thread stops reading, and the
//!    proxy thread is told that there is no room.
//! 2. Each thread locks one mutex at a time, so that neither can wait for the other forever.
//! 3. For each connection there is at most one order to send, one to read on, one to watch and one
//!    to close, and one event: queues are bounded by the number of connections.
//! 4. What was written before a connection was closed is sent, as the kernel does it, unless the
//!    peer takes nothing for [`LINGER`].

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use mio::net::{TcpListener, TcpStream};
use parking_lot::{Condvar, Mutex};
use slab::Slab;

use super::{Happened, Network, Sockets, Wake};

/// Bytes that a connection holds in one direction.
const MOST: usize = 64 * 1024;
/// Connections that wait to be accepted by the proxy thread.
const ACCEPTED: usize = 256;
/// How long what was written is sent after a connection was closed.
const LINGER: Duration = Duration::from_secs(5);
/// How often is looked at connections that are closed and not sent yet.
const LOOK: Duration = Duration::from_millis(50);
/// The number of the first connection among the network's own; listeners are below.
const FIRST: usize = 1024;

/// See the module's page.
pub struct Relayed {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What both threads share.
struct Shared {
    mail: Mutex<Mail>,
    arrived: Condvar,
    /// Wakes the network's thread.
    waker: mio::Waker,
}

#[derive(Default)]
struct Mail {
    /// To the network's thread.
    orders: Vec<Order>,
    /// To the proxy thread, by its numbers.
    happened: HashMap<usize, Happened, foldhash::fast::RandomState>,
    /// The proxy thread is to be woken for another reason.
    woken: bool,
}

enum Order {
    Listen(std::net::TcpListener, Arc<Queue>),
    Accept(Arc<Queue>),
    Unlisten(Arc<Queue>),
    Watch(Arc<Line>, TcpStream),
    Connect(Arc<Line>, SocketAddr),
    Send(Arc<Line>),
    Receive(Arc<Line>),
    Close(Arc<Line>),
    Stop,
}

/// A connection as both threads know it.
struct Line {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The proxy thread's number for it.
    token: usize,
    /// The place among the network's connections.
    place: Option<usize>,
    made: bool,
    failed: Option<Failure>,
    /// Read, and not taken by the proxy thread.
    incoming: VecDeque<Bytes>,
    incoming_len: usize,
    /// The network's thread has stopped reading, because there is no room.
    held: bool,
    /// The peer has ended.
    ended: bool,
    /// Written by the proxy thread, and not taken by the network's.
    outgoing: BytesMut,
    /// All that was written and not sent.
    unsent: usize,
    /// An order to send is under way.
    asked: bool,
    /// The proxy thread waits for room.
    wanted: bool,
}

/// An error that can be told twice.
#[derive(Clone)]
struct Failure(ErrorKind, String);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure(error.kind(), error.to_string())
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        io::Error::new(failure.0, failure.1)
    }
}

/// Connections that were accepted, or why not.
struct Queue {
    token: usize,
    state: Mutex<Accepted>,
}

#[derive(Default)]
struct Accepted {
    place: Option<usize>,
    waiting: VecDeque<io::Result<(TcpStream, SocketAddr)>>,
    /// The network's thread has stopped accepting.
    held: bool,
}

/// A connection.
pub struct RelayedStream {
    line: Arc<Line>,
    /// Until it is watched.
    accepted: Option<TcpStream>,
}

/// What accepts connections.
pub struct RelayedListener {
    queue: Arc<Queue>,
    shared: Arc<Shared>,
}

impl Drop for RelayedListener {
    fn drop(&mut self) {
        self.shared.order(Order::Unlisten(Arc::clone(&self.queue)));
    }
}

/// What wakes the proxy thread.
pub struct RelayedWaker(Arc<Shared>);

impl Wake for RelayedWaker {
    fn wake(&self) {
        self.0.mail.lock().woken = true;
        self.0.arrived.notify_one();
    }
}

impl Shared {
    fn order(&self, order: Order) {
        let mut mail = self.mail.lock();
        let first = mail.orders.is_empty();
        mail.orders.push(order);
        drop(mail);
        if first {
            // Later ones are taken with the first.
            Wake::wake(&self.waker);
        }
    }
}

impl Network for Relayed {
    type Stream = RelayedStream;
    type Listener = RelayedListener;
    type Waker = RelayedWaker;

    fn open() -> io::Result<Relayed> {
        let mut sockets = Sockets::open()?;
        let shared = Arc::new(Shared {
            mail: Mutex::default(),
            arrived: Condvar::new(),
            waker: sockets.waker()?,
        });
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("proxy-network".to_owned());
        let thread = builder.spawn(move || Relay::new(sockets, theirs).run())?;
        Ok(Relayed {
            shared,
            thread: Some(thread),
        })
    }

    fn waker(&mut self) -> io::Result<RelayedWaker> {
        Ok(RelayedWaker(Arc::clone(&self.shared)))
    }

    fn listen(
        &mut self,
        socket: std::net::TcpListener,
        token: usize,
    ) -> io::Result<RelayedListener> {
        let queue = Arc::new(Queue {
            token,
            state: Mutex::default(),
        });
        self.shared.order(Order::Listen(socket, Arc::clone(&queue)));
        Ok(RelayedListener {
            queue,
            shared: Arc::clone(&self.shared),
        })
    }

    fn accept(&mut self, listener: &RelayedListener) -> io::Result<(RelayedStream, SocketAddr)> {
        let queue = &listener.queue;
        let mut state = queue.state.lock();
        let next = state.waiting.pop_front();
        let held = next.is_none() && mem::take(&mut state.held);
        drop(state);
        if held {
            self.shared.order(Order::Accept(Arc::clone(queue)));
        }
        let (stream, address) = next.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))?;
        let line = Line {
            state: Mutex::new(State {
                made: true,
                ..State::default()
            }),
        };
        let stream = RelayedStream {
            line: Arc::new(line),
            accepted: Some(stream),
        };
        Ok((stream, address))
    }

    fn watch(&mut self, stream: &mut RelayedStream, token: usize) -> io::Result<()> {
        stream.line.state.lock().token = token;
        if let Some(accepted) = stream.accepted.take() {
            let line = Arc::clone(&stream.line);
            self.shared.order(Order::Watch(line, accepted));
        }
        Ok(())
    }

    fn connect(&mut self, address: SocketAddr, token: usize) -> io::Result<RelayedStream> {
        let line = Arc::new(Line {
            state: Mutex::new(State {
                token,
                ..State::default()
            }),
        });
        self.shared
            .order(Order::Connect(Arc::clone(&line), address));
        Ok(RelayedStream {
            line,
            accepted: None,
        })
    }

    fn connected(&mut self, stream: &RelayedStream) -> io::Result<()> {
        let state = stream.line.state.lock();
        match &state.failed {
            Some(failure) => Err(failure.clone().into()),
            None if state.made => Ok(()),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    fn read(&mut self, stream: &mut RelayedStream, into: &mut [u8]) -> io::Result<usize> {
        let mut state = stream.line.state.lock();
        let mut count = 0;
        while count < into.len()
            && let Some(first) = state.incoming.front_mut()
        {
            let some = first.len().min(into.len() - count);
            first.copy_to_slice(&mut into[count..count + some]);
            if first.is_empty() {
                state.incoming.pop_front();
            }
            count += some;
        }
        state.incoming_len -= count;
        if count == 0 {
            return match &state.failed {
                Some(failure) => Err(failure.clone().into()),
                None if state.ended => Ok(0),
                None => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let goes_on = mem::take(&mut state.held);
        drop(state);
        if goes_on {
            self.shared.order(Order::Receive(Arc::clone(&stream.line)));
        }
        Ok(count)
    }

    fn write(&mut self, stream: &mut RelayedStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(accepted) = &mut stream.accepted {
            // Nobody watches it, so that it is written to directly.
            return io::Write::write_vectored(accepted, pieces);
        }
        let mut state = stream.line.state.lock();
        if let Some(failure) = &state.failed {
            return Err(failure.clone().into());
        }
        let mut count = 0;
        for piece in pieces {
            let some = piece.len().min(MOST.saturating_sub(state.unsent));
            state.outgoing.extend_from_slice(&piece[..some]);
            state.unsent += some;
            count += some;
        }
        if count == 0 && pieces.iter().any(|piece| !piece.is_empty()) {
            state.wanted = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let asks = !mem::replace(&mut state.asked, true);
        drop(state);
        if asks {
            self.shared.order(Order::Send(Arc::clone(&stream.line)));
        }
        Ok(count)
    }

    fn close(&mut self, stream: RelayedStream) {
        if stream.accepted.is_some() {
            return;
        }
        let token = stream.line.state.lock().token;
        // Whoever gets the number next is not to hear of this one.
        self.shared.mail.lock().happened.remove(&token);
        self.shared.order(Order::Close(stream.line));
    }

    fn wait(&mut self, happened: &mut Vec<Happened>, timeout: Option<Duration>) -> io::Result<()> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut mail = self.shared.mail.lock();
        while mail.happened.is_empty() && !mail.woken {
            match until {
                None => self.shared.arrived.wait(&mut mail),
                Some(until) if until <= Instant::now() => break,
                Some(until) => {
                    self.shared.arrived.wait_until(&mut mail, until);
                }
            }
        }
        mail.woken = false;
        happened.extend(mail.happened.drain().map(|(_, happened)| happened));
        Ok(())
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.shared.order(Order::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of the network has panicked");
        }
    }
}

/// The network's thread.
struct Relay {
    sockets: Sockets,
    shared: Arc<Shared>,
    listeners: Slab<(TcpListener, Arc<Queue>)>,
    connections: Slab<Connection>,
    /// To be told to the proxy thread.
    news: Vec<Happened>,
    stopping: bool,
}

struct Connection {
    stream: TcpStream,
    line: Arc<Line>,
    token: usize,
    connecting: bool,
    /// Taken over from the proxy thread.
    sending: BytesMut,
    /// The peer has ended: what it sent is read to its end.
    ended: bool,
    /// The proxy thread has closed it; it goes when everything is sent, or at this time.
    closing: Option<Instant>,
}

impl Relay {
    fn new(sockets: Sockets, shared: Arc<Shared>) -> Relay {
        Relay {
            sockets,
            shared,
            listeners: Slab::new(),
            connections: Slab::new(),
            news: Vec::new(),
            stopping: false,
        }
    }

    fn run(mut self) {
        let mut happened = Vec::new();
        while !self.stopping || !self.connections.is_empty() {
            let lingers = |it: &Connection| it.closing.is_some();
            let looks = self.connections.iter().any(|(_, it)| lingers(it));
            let timeout = looks.then_some(LOOK);
            if let Err(error) = self.sockets.wait(&mut happened, timeout) {
                tracing::error!(%error, "the network cannot wait for events");
                return;
            }
            let orders = mem::take(&mut self.shared.mail.lock().orders);
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
        let mut mail = self.shared.mail.lock();
        for news in self.news.drain(..) {
            let known = mail.happened.entry(news.token).or_insert(news);
            known.readable |= news.readable;
            known.writable |= news.writable;
            known.ended |= news.ended;
        }
        drop(mail);
        self.shared.arrived.notify_one();
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Listen(socket, queue) => self.listen(socket, queue),
            Order::Accept(queue) => self.accept(&queue),
            Order::Unlisten(queue) => {
                if let Some(place) = queue.state.lock().place.take() {
                    self.listeners.remove(place);
                }
            }
            Order::Watch(line, stream) => self.watch(line, stream),
            Order::Connect(line, address) => self.connect(line, address),
            Order::Send(line) => self.at(&line, Relay::send),
            Order::Receive(line) => self.at(&line, Relay::receive),
            Order::Close(line) => self.at(&line, |relay, place| {
                relay.connections[place].closing = Some(Instant::now() + LINGER);
                relay.send(place);
            }),
            Order::Stop => {
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

    /// Does something for a connection that is still there.
    fn at(&mut self, line: &Line, act: impl FnOnce(&mut Relay, usize)) {
        let place = line.state.lock().place;
        if let Some(place) = place {
            act(self, place);
        }
    }

    fn tell(&mut self, token: usize, readable: bool, writable: bool, ended: bool) {
        self.news.push(Happened {
            token,
            readable,
            writable,
            ended,
        });
    }

    fn listen(&mut self, socket: std::net::TcpListener, queue: Arc<Queue>) {
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

    fn accept(&mut self, queue: &Queue) {
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
                    // There may be more behind it, and nothing tells of them again.
                    state.held = true;
                    break;
                }
                accepted => state.waiting.push_back(accepted),
            }
        }
        drop(state);
        self.tell(queue.token, true, false, false);
    }

    fn watch(&mut self, line: Arc<Line>, mut stream: TcpStream) {
        let place = self.connections.vacant_key();
        let watched = self.sockets.watch(&mut stream, FIRST + place);
        self.admit(line, watched.map(|()| stream), false);
    }

    fn connect(&mut self, line: Arc<Line>, address: SocketAddr) {
        let place = self.connections.vacant_key();
        let stream = self.sockets.connect(address, FIRST + place);
        self.admit(line, stream, true);
    }

    fn admit(&mut self, line: Arc<Line>, stream: io::Result<TcpStream>, connecting: bool) {
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
                state.failed = Some(error.into());
                drop(state);
                self.tell(token, true, true, true);
            }
        }
    }

    fn note(&mut self, event: Happened) {
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
                self.tell(token, false, true, false);
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => {}
            Err(error) => self.fail(place, error),
        }
    }

    /// Reads what is there, as far as there is room.
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
                    return self.tell(token, true, false, true);
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
            self.tell(token, true, false, false);
        }
    }

    /// Sends what was written, as far as the socket takes it.
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
            self.tell(token, false, true, false);
        }
    }

    fn fail(&mut self, place: usize, error: io::Error) {
        let connection = &self.connections[place];
        let token = connection.token;
        let closed = connection.closing.is_some();
        connection.line.state.lock().failed = Some(error.into());
        self.remove(place);
        if !closed {
            self.tell(token, true, true, true);
        }
    }

    fn remove(&mut self, place: usize) {
        let connection = self.connections.remove(place);
        connection.line.state.lock().place = None;
        self.sockets.close(connection.stream);
    }

    /// Closes what has lingered for too long.
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
