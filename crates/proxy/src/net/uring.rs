//! The kernel's sockets through io_uring: everything that a turn of the thread sends leaves in the one
//! system call that waits for the next events, and input is received without a read request for each
//! piece.
//!
//! Received bytes stay in buffers of the ring until they are read, or until the next wait, which copies
//! the rest and gives the buffers back. Written bytes are copied, and sent with the next wait; large
//! pieces are not copied but written at once, as with [`Sockets`](super::Sockets).
//!
//! Invariants:
//! 1. A connection that is not read from holds at most [`MOST`] bytes plus the input of one wait, which
//!    the ring's buffers bound. Then nothing more is received for it, and its peer has to wait.
//! 2. A connection holds at most [`MOST`] bytes that were written and not sent. Beyond it there is no
//!    room, and its owner gets an event when there is room again.
//! 3. Between waits no buffer is held: no connection keeps the others from receiving.
//! 4. Bytes that were written before a connection was closed are sent, as the kernel does it, unless
//!    the peer takes nothing for [`LINGER`].

mod turn;
mod watched_connection;

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use slab::Slab;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use uring::{Ring, SocketCompletion, Waker};

use super::buffered::{LINGER, LOOK, MOST};
use super::{Network, SocketEvent, Wake};
use watched_connection::{WatchedConnection, mark};

/// From this length on (in bytes) written pieces are not copied.
const LARGE: usize = 16 * 1024;
/// Listeners' keys begin here; connections' keys are below.
const LISTENERS: usize = 1 << 40;

/// See the module documentation.
pub struct Uring {
    ring: Ring,
    lines: Slab<WatchedConnection>,
    listeners: Vec<usize>,
    /// Lines with bytes to be sent by the next wait.
    dirty: Vec<usize>,
    /// Lines whose bytes this wait sends.
    sending: Vec<usize>,
    /// Lines with buffers of the ring.
    holding: Vec<usize>,
    /// Lines that may receive again.
    resuming: Vec<usize>,
    /// Lines that are closed and not sent yet.
    lingering: Vec<usize>,
    /// Events that the next wait reports.
    told: Vec<SocketEvent>,
    done: Vec<SocketCompletion>,
    /// The last wait did not ask the kernel.
    spared: bool,
}

/// A connection.
pub struct UringStream(State);

enum State {
    /// Accepted, and not watched yet.
    Accepted(TcpStream),
    /// The place of its line.
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
        if let Err(error) = SockRef::from(&self.socket).shutdown(std::net::Shutdown::Both) {
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
    /// Watches a socket, which may not be connected yet. Returns the place of its line.
    fn begin(&mut self, socket: OwnedFd, token: usize, connecting: bool) -> io::Result<usize> {
        let place = self.lines.vacant_key();
        let socket = self.ring.add(socket, place);
        self.lines
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

impl Network for Uring {
    type Stream = UringStream;
    type Listener = UringListener;
    type Waker = Waker;

    fn open() -> io::Result<Uring> {
        Ok(Uring {
            ring: Ring::new()?,
            lines: Slab::new(),
            listeners: Vec::new(),
            dirty: Vec::new(),
            sending: Vec::new(),
            holding: Vec::new(),
            resuming: Vec::new(),
            lingering: Vec::new(),
            told: Vec::new(),
            done: Vec::new(),
            spared: false,
        })
    }

    fn waker(&mut self) -> io::Result<Waker> {
        Ok(self.ring.waker())
    }

    fn listen(&mut self, socket: std::net::TcpListener, token: usize) -> io::Result<UringListener> {
        socket.set_nonblocking(true)?;
        let key = LISTENERS + self.listeners.len();
        self.listeners.push(token);
        let watched = self.ring.add(socket.try_clone()?.into(), key);
        self.ring.await_connections(watched)?;
        Ok(UringListener { socket })
    }

    fn accept(&mut self, listener: &UringListener) -> io::Result<(UringStream, SocketAddr)> {
        let (stream, address) = listener.socket.accept()?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        super::keep_client_alive(&SockRef::from(&stream))?;
        Ok((UringStream(State::Accepted(stream)), address))
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
        let line = &self.lines[place];
        match &line.failed {
            Some(failure) => Err(failure.error()),
            None if line.connecting => Err(ErrorKind::NotConnected.into()),
            None => Ok(()),
        }
    }

    fn read(&mut self, stream: &mut UringStream, into: &mut [u8]) -> io::Result<usize> {
        let place = match &mut stream.0 {
            State::Watched(place) => *place,
            State::Accepted(stream) => return stream.read(into),
            State::Gone => return Err(ErrorKind::NotConnected.into()),
        };
        let line = &mut self.lines[place];
        let mut count = line.kept.len().min(into.len());
        into[..count].copy_from_slice(&line.kept[..count]);
        line.kept.advance(count);
        while count < into.len()
            && let Some((buffer, read)) = line.arrived.front_mut()
        {
            let bytes = &self.ring.bytes(*buffer)[*read..];
            let some = bytes.len().min(into.len() - count);
            into[count..count + some].copy_from_slice(&bytes[..some]);
            count += some;
            *read += some;
            if some == bytes.len() {
                self.ring.give_back(*buffer);
                line.arrived.pop_front();
            }
        }
        if line.kept.is_empty() && line.kept.capacity() > 0 {
            line.kept = BytesMut::new();
        }
        if line.may_resume() {
            self.resuming.push(place);
        }
        match (count, &line.failed) {
            (1.., _) => Ok(count),
            (0, Some(failure)) => Err(failure.error()),
            (0, None) if line.ended || into.is_empty() => Ok(0),
            (0, None) => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn write(&mut self, stream: &mut UringStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let place = match &mut stream.0 {
            State::Watched(place) => *place,
            State::Accepted(stream) => return stream.write_vectored(pieces),
            State::Gone => return Err(ErrorKind::NotConnected.into()),
        };
        let line = &mut self.lines[place];
        if let Some(failure) = &line.failed {
            return Err(failure.error());
        }
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if line.full || line.out.len() >= MOST {
            line.wanted = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        if len >= LARGE && line.out.is_empty() {
            let socket = self.ring.socket(line.socket);
            let result = SockRef::from(&socket).send_vectored(pieces);
            if let Err(error) = &result
                && error.kind() == ErrorKind::WouldBlock
            {
                (line.full, line.wanted) = (true, true);
                self.ring.await_room(line.socket)?;
            }
            return result;
        }
        if line.out.capacity() == 0 {
            line.out = self.ring.memory();
        }
        let mut count = 0;
        for piece in pieces {
            let some = piece.len().min(MOST - line.out.len());
            line.out.extend_from_slice(&piece[..some]);
            count += some;
        }
        mark(&mut self.dirty, line, place);
        Ok(count)
    }

    fn close(&mut self, stream: UringStream) {
        let State::Watched(place) = stream.0 else {
            return;
        };
        let line = &mut self.lines[place];
        // The next owner of the number must not get events of this connection.
        let token = line.token;
        self.told.retain(|told| told.token != token);
        if !line.full && !line.out.is_empty() && line.failed.is_none() {
            let socket = self.ring.socket(line.socket);
            match SockRef::from(&socket).send(&line.out) {
                Ok(sent) => drop(line.out.drain(..sent)),
                Err(error) if is_passing(&error) => {}
                Err(_) => line.out.clear(),
            }
        }
        if line.out.is_empty() || line.failed.is_some() {
            return self.remove(place);
        }
        line.closing = Some(Instant::now() + LINGER);
        self.lingering.push(place);
        mark(&mut self.dirty, line, place);
    }

    fn is_settled(&self) -> bool {
        self.lingering.iter().all(|&place| {
            let line = self.lines.get(place);
            line.is_none_or(|line| line.closing.is_none())
        })
    }

    fn wait(
        &mut self,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        // A caller that does not want to wait has work to do: every other time that work goes first,
        // and its output leaves together with what is written already.
        if timeout == Some(Duration::ZERO) && !std::mem::replace(&mut self.spared, true) {
            happened.append(&mut self.told);
            return Ok(());
        }
        self.spared = false;
        self.clear_buffers()?;
        let urgent = self.send_all()? || !self.told.is_empty();
        let look = (!self.lingering.is_empty()).then_some(LOOK);
        let timeout = match urgent {
            true => Some(Duration::ZERO),
            false => [timeout, look].into_iter().flatten().min(),
        };
        let mut done = std::mem::take(&mut self.done);
        let waited = self.ring.wait(&mut done, timeout);
        let noted = done.drain(..).try_for_each(|done| self.note(done));
        self.done = done;
        self.sent_all();
        if !self.lingering.is_empty() {
            self.look_at_lingering();
        }
        happened.append(&mut self.told);
        waited.and(noted)
    }
}

/// Returns `true` if the operation can be tried again after this error.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
