//! The network as the proxy's threads see it: a small trait, and its implementation with the kernel's
//! sockets.
//!
//! A stack that bypasses the kernel can replace the sockets; the paper's proxy used mTCP on DPDK (paper
//! 3, section 5.1). A thread needs little of it: events, reads and writes that do not block, and a way
//! for other threads to wake it. Routing, aggregation and locks use nothing else of it.
//!
//! Invariants:
//! 1. A stream is reported once when it becomes readable or writable (edge-triggered): the caller reads
//!    or writes until the stream has no more to give or to take, or remembers that it did not.
//! 2. A network belongs to one thread; only its [`Network::Waker`] is given to others.

pub mod buffered;
mod uring;

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{SockRef, TcpKeepalive};

pub use uring::{Uring, UringListener, UringStream};

/// An event of a stream or a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketEvent {
    /// The number under which the stream or listener was registered.
    pub token: usize,
    /// There is something to read or to accept, or the peer has ended.
    pub readable: bool,
    /// There is room to write again, or a connection is made (or has failed).
    pub writable: bool,
    /// The peer will send nothing more, or the connection is broken.
    pub ended: bool,
}

/// Wakes a thread that waits in [`Network::wait`].
pub trait Wake: Send + Sync + 'static {
    /// Ends the thread's wait, the current one or the next.
    fn wake(&self);
}

/// See the module documentation.
pub trait Network: Send + Sized + 'static {
    /// A connection.
    type Stream: Send;
    /// A socket that accepts connections.
    type Listener: Send;
    /// A handle with which other threads wake this one.
    type Waker: Wake;

    /// Creates a network for one thread.
    ///
    /// # Errors
    /// Returns an error if the system lacks a resource, for example descriptors.
    fn open() -> io::Result<Self>;

    /// Returns a handle that wakes this thread.
    ///
    /// # Errors
    /// Returns an error if the system lacks a resource.
    fn waker(&mut self) -> io::Result<Self::Waker>;

    /// Listens with a socket that is bound already.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be watched.
    fn listen(&mut self, socket: std::net::TcpListener, token: usize)
    -> io::Result<Self::Listener>;

    /// Returns the next connection, if there is one ([`io::ErrorKind::WouldBlock`] otherwise). It is
    /// not watched yet.
    ///
    /// # Errors
    /// Returns the system's errors.
    fn accept(&mut self, listener: &Self::Listener) -> io::Result<(Self::Stream, SocketAddr)>;

    /// Watches a connection from now on.
    ///
    /// # Errors
    /// Returns an error if the connection cannot be watched.
    fn watch(&mut self, stream: &mut Self::Stream, token: usize) -> io::Result<()>;

    /// Begins to connect, and watches the connection: it is reported as writable when it is made, and
    /// as ended when the attempt failed.
    ///
    /// # Errors
    /// Returns an error if not even the attempt can be made.
    fn connect(&mut self, address: SocketAddr, token: usize) -> io::Result<Self::Stream>;

    /// Checks a connection that was being made.
    ///
    /// # Errors
    /// Returns the reason if the connection could not be made.
    fn connected(&mut self, stream: &Self::Stream) -> io::Result<()>;

    /// Reads at most as many bytes as `into` has room for; returns 0 when the peer has ended.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] when there is nothing to read.
    fn read(&mut self, stream: &mut Self::Stream, into: &mut [u8]) -> io::Result<usize>;

    /// Writes the pieces one after another, and returns how many bytes were taken. They leave with the
    /// next wait at the latest.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] when there is no room.
    fn write(&mut self, stream: &mut Self::Stream, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Closes a connection. What was written is still sent.
    fn close(&mut self, stream: Self::Stream);

    /// Returns `true` if closed connections have nothing left to be sent, as far as the network itself
    /// has to send it. Called before a thread ends.
    fn is_settled(&self) -> bool {
        true
    }

    /// Waits until an event, until the thread is woken, or until the time has passed, and appends the
    /// events.
    ///
    /// # Errors
    /// Returns the system's errors.
    fn wait(
        &mut self,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> io::Result<()>;
}

/// Events taken at a time.
const EVENTS: usize = 1024;
const WAKER: Token = Token(usize::MAX);

/// The kernel's sockets.
pub struct Sockets {
    poll: Poll,
    events: Events,
}

impl Wake for mio::Waker {
    fn wake(&self) {
        if let Err(error) = mio::Waker::wake(self) {
            tracing::error!(%error, "a thread cannot be woken");
        }
    }
}

/// Lets the system notice within about half a minute that a node is gone to which nothing is sent. A
/// node that loses its power says nothing, and connections that wait for ever must learn of it.
fn keep_node_alive(socket: &SockRef<'_>) -> io::Result<()> {
    let ask = TcpKeepalive::new().with_time(Duration::from_secs(15));
    socket.set_tcp_keepalive(&ask.with_interval(Duration::from_secs(5)).with_retries(3))
}

/// Lets the system notice within about two minutes that a client is gone. There are many clients, and a
/// client that is gone would keep its place among the connections for ever.
fn keep_client_alive(socket: &SockRef<'_>) -> io::Result<()> {
    let ask = TcpKeepalive::new().with_time(Duration::from_secs(60));
    socket.set_tcp_keepalive(&ask.with_interval(Duration::from_secs(15)).with_retries(4))
}

impl Network for Sockets {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Waker = mio::Waker;

    fn open() -> io::Result<Sockets> {
        Ok(Sockets {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
        })
    }

    fn waker(&mut self) -> io::Result<mio::Waker> {
        mio::Waker::new(self.poll.registry(), WAKER)
    }

    fn listen(&mut self, socket: std::net::TcpListener, token: usize) -> io::Result<TcpListener> {
        socket.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(socket);
        let registry = self.poll.registry();
        registry.register(&mut listener, Token(token), Interest::READABLE)?;
        Ok(listener)
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = listener.accept()?;
        stream.set_nodelay(true)?;
        keep_client_alive(&SockRef::from(&stream))?;
        Ok((stream, address))
    }

    fn watch(&mut self, stream: &mut TcpStream, token: usize) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(stream, Token(token), both)
    }

    fn connect(&mut self, address: SocketAddr, token: usize) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        self.watch(&mut stream, token)?;
        Ok(stream)
    }

    fn connected(&mut self, stream: &TcpStream) -> io::Result<()> {
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        stream.peer_addr()?;
        keep_node_alive(&SockRef::from(stream))?;
        stream.set_nodelay(true)
    }

    fn read(&mut self, stream: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
        stream.read(into)
    }

    fn write(&mut self, stream: &mut TcpStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match pieces {
            // A plain write costs the kernel less than a list with one piece.
            [piece] => stream.write(piece),
            _ => stream.write_vectored(pieces),
        }
    }

    fn close(&mut self, mut stream: TcpStream) {
        if let Err(error) = self.poll.registry().deregister(&mut stream) {
            tracing::debug!(%error, "deregistering a connection");
        }
    }

    fn wait(
        &mut self,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let events = self.events.iter().filter(|event| event.token() != WAKER);
        happened.extend(events.map(|event| {
            let ended = event.is_read_closed() || event.is_error();
            SocketEvent {
                token: event.token().0,
                readable: event.is_readable() || ended,
                writable: event.is_writable() || event.is_error(),
                ended,
            }
        }));
        Ok(())
    }
}
