//! The kernel's sockets through io_uring: everything that a turn of the thread sends leaves in the one
//! system call that waits for the next events, and input is received without a read request for each
//! piece.
//!
//! Received bytes stay in buffers of the ring until they are read, or until the next wait, which copies
//! the rest and gives the buffers back. Written bytes are copied, and sent with the next wait; large
//! pieces are not copied but written at once, as with [`Sockets`](crate::Sockets).
//!
//! Invariants:
//! 1. A connection that is not read from holds at most [`MOST`] bytes plus the input of one wait, which
//!    the ring's buffers bound. Then nothing more is received for it, and its peer has to wait.
//! 2. A connection holds at most [`MOST`] bytes that were written and not sent. Beyond it there is no
//!    room, and its owner gets an event when there is room again.
//! 3. No buffer is held while the kernel receives, which it does within a wait: no connection keeps the
//!    others from receiving.
//! 4. Bytes that were written before a connection was closed are sent, as the kernel does it, unless
//!    the peer takes nothing for [`LINGER`].

mod connection;
mod turn;

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::keep_alive::{CLIENT_KEEP_ALIVE, keep_client_alive, set_dead_after};
use crate::ring::{IoRing, SocketCompletion, SocketId, Waker};
use bytes::{Buf, BytesMut};
use mio::{Events, Poll};
use slab::Slab;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::buffered::{LINGER, LOOK, MOST};
use crate::network::{Network, SPARED, SocketEvent, Wake, uninterrupted};
use connection::{WatchedConnection, mark};

/// From this length on (in bytes) written pieces are not copied.
const LARGE: usize = 16 * 1024;
/// Pieces that the kernel takes at a time (`IOV_MAX`): it refuses a longer list.
const PIECES: usize = 1024;
/// Events of other descriptors taken at a time.
const EVENTS: usize = 1024;
/// The key of the descriptors that are watched by a poll of their own.
const DESCRIPTORS: usize = 1 << 48;
/// Listeners' keys begin here; connections' keys are below.
const LISTENERS: usize = 1 << 40;

/// See the module documentation.
pub struct Uring {
    ring: IoRing,
    connections: Slab<WatchedConnection>,
    listeners: Vec<usize>,
    /// Connections with bytes to be sent by the next wait.
    dirty: Vec<usize>,
    /// Connections whose bytes this wait sends.
    sending: Vec<usize>,
    /// Connections with buffers of the ring.
    holding: Vec<usize>,
    /// Connections that may receive again.
    resuming: Vec<usize>,
    /// Connections that are closed and not sent yet.
    lingering: Vec<usize>,
    /// Events that the next wait reports.
    events: Vec<SocketEvent>,
    done: Vec<SocketCompletion>,
    /// The poll of descriptors that are no streams, which the ring watches in turn.
    descriptors: Option<(Poll, Events)>,
    keep_alive: Duration,
    /// The last wait did not ask the kernel.
    spared: bool,
    /// When the kernel was asked last.
    asked: Instant,
}

/// A connection.
pub struct UringStream(State);

enum State {
    /// Accepted, and not watched yet.
    Accepted(TcpStream),
    /// The place of its connection.
    Watched(usize),
    /// It could not be watched.
    Gone,
}

/// A socket that accepts connections.
pub struct UringListener {
    socket: std::net::TcpListener,
}

impl Drop for UringListener {
    fn drop(&mut self) {
        // The ring holds on to the socket as well; after this no client can connect to it.
        if let Err(error) = SockRef::from(&self.socket).shutdown(Shutdown::Both) {
            tracing::debug!(%error, "ending a listener");
        }
    }
}

impl Wake for Waker {
    fn wake(&self) {
        if let Err(error) = Waker::wake(self) {
            tracing::error!(%error, "a thread cannot be woken");
        }
    }
}

impl Uring {
    /// Watches a socket, which may not be connected yet. Returns the place of its connection.
    fn begin(&mut self, socket: OwnedFd, token: usize, connecting: bool) -> io::Result<usize> {
        let place = self.connections.vacant_key();
        let socket = self.ring.add(socket, place);
        self.connections
            .insert(WatchedConnection::new(token, socket, connecting));
        let asked = if connecting {
            self.ring.await_room(socket)
        } else {
            self.receive(place)
        };
        match asked {
            Ok(()) => Ok(place),
            Err(error) => {
                self.remove(place);
                Err(error)
            }
        }
    }
}

impl Uring {
    /// Has the ring report what arrives at a listener or a poll; removes it from the ring if that fails.
    fn watch_connections(&mut self, watched: SocketId) -> io::Result<()> {
        let asked = self.ring.await_connections(watched);
        asked.inspect_err(|_| self.ring.remove(watched))
    }

    fn socket<'a>(&'a self, stream: &'a UringStream) -> io::Result<BorrowedFd<'a>> {
        match &stream.0 {
            State::Accepted(stream) => Ok(stream.as_fd()),
            State::Watched(place) => Ok(self.ring.socket(self.connections[*place].socket)),
            State::Gone => Err(ErrorKind::NotConnected.into()),
        }
    }
}

impl Network for Uring {
    type Stream = UringStream;
    type Listener = UringListener;
    type Waker = Waker;

    fn open() -> io::Result<Uring> {
        Ok(Uring {
            ring: IoRing::new()?,
            connections: Slab::new(),
            listeners: Vec::new(),
            dirty: Vec::new(),
            sending: Vec::new(),
            holding: Vec::new(),
            resuming: Vec::new(),
            lingering: Vec::new(),
            events: Vec::new(),
            done: Vec::new(),
            descriptors: None,
            keep_alive: CLIENT_KEEP_ALIVE,
            spared: false,
            asked: Instant::now(),
        })
    }

    fn waker(&mut self) -> io::Result<Waker> {
        Ok(self.ring.waker())
    }

    fn listen(&mut self, socket: std::net::TcpListener, token: usize) -> io::Result<UringListener> {
        socket.set_nonblocking(true)?;
        let key = LISTENERS + self.listeners.len();
        let watched = self.ring.add(socket.try_clone()?.into(), key);
        self.watch_connections(watched)?;
        self.listeners.push(token);
        Ok(UringListener { socket })
    }

    fn accept(&mut self, listener: &UringListener) -> io::Result<(UringStream, SocketAddr)> {
        let (stream, address) = listener.socket.accept()?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        keep_client_alive(&SockRef::from(&stream), self.keep_alive)?;
        Ok((UringStream(State::Accepted(stream)), address))
    }

    fn set_keep_alive(&mut self, after: Duration) {
        self.keep_alive = after;
    }

    fn watch(&mut self, stream: &mut UringStream, token: usize) -> io::Result<()> {
        if let State::Accepted(accepted) = std::mem::replace(&mut stream.0, State::Gone) {
            stream.0 = State::Watched(self.begin(accepted.into(), token, false)?);
        }
        Ok(())
    }

    fn connect(&mut self, address: SocketAddr, token: usize) -> io::Result<UringStream> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error)
                if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
            {
                return Err(error);
            }
            _ => {}
        }
        let place = self.begin(socket.into(), token, true)?;
        Ok(UringStream(State::Watched(place)))
    }

    fn connected(&mut self, stream: &UringStream) -> io::Result<()> {
        let State::Watched(place) = stream.0 else {
            return Err(ErrorKind::NotConnected.into());
        };
        let connection = &self.connections[place];
        match &connection.failed {
            Some(failure) => Err(failure.error()),
            None if connection.connecting => Err(ErrorKind::NotConnected.into()),
            None => Ok(()),
        }
    }

    fn read(&mut self, stream: &mut UringStream, into: &mut [u8]) -> io::Result<usize> {
        let place = match &mut stream.0 {
            State::Watched(place) => *place,
            State::Accepted(stream) => return uninterrupted(|| stream.read(into)),
            State::Gone => return Err(ErrorKind::NotConnected.into()),
        };
        let connection = &mut self.connections[place];
        let mut count = connection.kept.len().min(into.len());
        into[..count].copy_from_slice(&connection.kept[..count]);
        connection.kept.advance(count);
        while count < into.len()
            && let Some((buffer, read)) = connection.arrived.front_mut()
        {
            let bytes = &self.ring.bytes(*buffer)[*read..];
            let some = bytes.len().min(into.len() - count);
            into[count..count + some].copy_from_slice(&bytes[..some]);
            count += some;
            *read += some;
            if some == bytes.len() {
                self.ring.give_back(*buffer);
                connection.arrived.pop_front();
            }
        }
        if connection.kept.is_empty() && connection.kept.capacity() > 0 {
            connection.kept = BytesMut::new();
        }
        if connection.may_resume() {
            self.resuming.push(place);
        }
        match (count, &connection.failed) {
            (1.., _) => Ok(count),
            (0, Some(failure)) => Err(failure.error()),
            (0, None) if connection.ended || into.is_empty() => Ok(0),
            (0, None) => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn write(&mut self, stream: &mut UringStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let place = match &mut stream.0 {
            State::Watched(place) => *place,
            State::Accepted(stream) => return uninterrupted(|| stream.write_vectored(pieces)),
            State::Gone => return Err(ErrorKind::NotConnected.into()),
        };
        let connection = &mut self.connections[place];
        if let Some(failure) = &connection.failed {
            return Err(failure.error());
        }
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if connection.full || connection.out.len() >= MOST {
            connection.wanted = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        if len >= LARGE && connection.out.is_empty() {
            let socket = self.ring.socket(connection.socket);
            let pieces = &pieces[..pieces.len().min(PIECES)];
            let result = uninterrupted(|| SockRef::from(&socket).send_vectored(pieces));
            if let Err(error) = &result
                && error.kind() == ErrorKind::WouldBlock
            {
                (connection.full, connection.wanted) = (true, true);
                self.ring.await_room(connection.socket)?;
            }
            return result;
        }
        if connection.out.capacity() == 0 {
            connection.out = self.ring.memory();
        }
        let mut count = 0;
        for piece in pieces {
            let some = piece.len().min(MOST - connection.out.len());
            connection.out.extend_from_slice(&piece[..some]);
            count += some;
        }
        mark(&mut self.dirty, connection, place);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.dirty.is_empty() {
            true => Ok(()),
            false => self.turn(Some(Duration::ZERO)),
        }
    }

    fn local_address(&self, stream: &UringStream) -> io::Result<SocketAddr> {
        SockRef::from(&self.socket(stream)?)
            .local_addr()?
            .as_socket()
            .ok_or_else(|| ErrorKind::Unsupported.into())
    }

    fn descriptor(&self, stream: &UringStream) -> RawFd {
        self.socket(stream).map_or(-1, |socket| socket.as_raw_fd())
    }

    fn registry(&mut self) -> io::Result<&mio::Registry> {
        if self.descriptors.is_none() {
            let poll = Poll::new()?;
            let watched = self.ring.add_poll(&poll, DESCRIPTORS)?;
            self.watch_connections(watched)?;
            self.descriptors = Some((poll, Events::with_capacity(EVENTS)));
        }
        let (poll, _) = self.descriptors.as_ref().expect("set above");
        Ok(poll.registry())
    }

    fn set_dead_after(&mut self, stream: &UringStream, dead_after: Duration) -> io::Result<()> {
        set_dead_after(&SockRef::from(&self.socket(stream)?), dead_after)
    }

    fn end_output(&mut self, stream: &mut UringStream) -> io::Result<()> {
        if let State::Watched(place) = stream.0
            && !self.connections[place].out.is_empty()
        {
            self.connections[place].ends_output = true;
            return Ok(());
        }
        SockRef::from(&self.socket(stream)?).shutdown(Shutdown::Write)
    }

    fn close(&mut self, stream: UringStream) {
        let State::Watched(place) = stream.0 else {
            return;
        };
        let connection = &mut self.connections[place];
        // The next owner of the number must not get events of this connection.
        let token = connection.token;
        self.events.retain(|event| event.token != token);
        if !connection.full && !connection.out.is_empty() && connection.failed.is_none() {
            let socket = self.ring.socket(connection.socket);
            match uninterrupted(|| SockRef::from(&socket).send(&connection.out)) {
                Ok(sent) => drop(connection.out.drain(..sent)),
                Err(error) if is_passing(&error) => {}
                Err(_) => connection.out.clear(),
            }
        }
        if connection.out.is_empty() || connection.failed.is_some() {
            return self.remove(place);
        }
        connection.closing = Some(Instant::now() + LINGER);
        self.lingering.push(place);
        mark(&mut self.dirty, connection, place);
    }

    fn is_settled(&self) -> bool {
        self.lingering.iter().all(|&place| {
            let connection = self.connections.get(place);
            connection.is_none_or(|connection| connection.closing.is_none())
        })
    }

    fn since_look(&self) -> Duration {
        self.asked.elapsed()
    }

    fn has_looked(&self) -> bool {
        !self.spared
    }

    fn wait(
        &mut self,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        // A caller that does not want to wait has work to do: every other time that work goes first,
        // and its output leaves together with what is written already. Work that takes long keeps no
        // others waiting.
        let spares = timeout == Some(Duration::ZERO) && self.asked.elapsed() < SPARED;
        if spares && !std::mem::replace(&mut self.spared, true) {
            happened.append(&mut self.events);
            return Ok(());
        }
        self.spared = false;
        let turned = self.turn(timeout);
        happened.append(&mut self.events);
        turned
    }
}

impl Uring {
    /// Sends what was written, waits, and notes the events.
    fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.clear_buffers()?;
        debug_assert!(!self.ring.holds_buffers(), "invariant 3");
        let urgent = self.send_all()? || !self.events.is_empty();
        let look = (!self.lingering.is_empty()).then_some(LOOK);
        let timeout = match urgent {
            true => Some(Duration::ZERO),
            false => [timeout, look].into_iter().flatten().min(),
        };
        let mut done = std::mem::take(&mut self.done);
        let waited = self.ring.wait(&mut done, timeout);
        self.asked = Instant::now();
        let mut noted = Ok(());
        for done in done.drain(..) {
            noted = self.note(done).and(noted);
        }
        self.done = done;
        self.sent_all();
        if !self.lingering.is_empty() {
            self.look_at_lingering();
        }
        waited.and(noted)
    }
}

/// Returns `true` if the operation can be tried again after this error.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
