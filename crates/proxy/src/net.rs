//! The network as the proxy's threads see it: a small trait, and sockets of the kernel behind it.
//!
//! A stack that bypasses the kernel can stand in their place; the paper's proxy used mTCP on DPDK
//! (paper 3, section 5.1). What a thread needs of it is little: to hear what has happened, to read
//! and write without blocking, and to be woken by other threads. Routing, aggregation and locks
//! know nothing else of it.
//!
//! Invariants:
//! 1. A stream is told of once when it becomes readable or writable (edge-triggered): whoever is
//!    told reads or writes until the stream has no more to give or to take, or remembers that it
//!    did not.
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

/// Something has happened to a stream or a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketEvent {
    /// The number under which it was made known.
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
    /// Has the thread's wait end, this one or the next.
    fn wake(&self);
}

/// See the module's page.
pub trait Network: Send + Sized + 'static {
    /// A connection.
    type Stream: Send;
    /// What accepts connections.
    type Listener: Send;
    /// What other threads keep to wake this one.
    type Waker: Wake;

    /// A network of its own for one thread.
    ///
    /// # Errors
    /// If the system lacks what it takes, for example descriptors.
    fn open() -> io::Result<Self>;

    /// What wakes this thread.
    ///
    /// # Errors
    /// If the system lacks what it takes.
    fn waker(&mut self) -> io::Result<Self::Waker>;

    /// Listens with a socket that is bound already.
    ///
    /// # Errors
    /// If it cannot be watched.
    fn listen(&mut self, socket: std::net::TcpListener, token: usize)
    -> io::Result<Self::Listener>;

    /// The next connection, if there is one ([`io::ErrorKind::WouldBlock`] otherwise). It is not
    /// watched yet.
    ///
    /// # Errors
    /// Those of the system.
    fn accept(&mut self, listener: &Self::Listener) -> io::Result<(Self::Stream, SocketAddr)>;

    /// Watches a connection from now on.
    ///
    /// # Errors
    /// If it cannot be watched.
    fn watch(&mut self, stream: &mut Self::Stream, token: usize) -> io::Result<()>;

    /// Begins to connect, and watches the connection: it is told of as writable when it is made,
    /// and as ended when it could not be.
    ///
    /// # Errors
    /// If not even the attempt can be made.
    fn connect(&mut self, address: SocketAddr, token: usize) -> io::Result<Self::Stream>;

    /// Why a connection could not be made, if it could not.
    ///
    /// # Errors
    /// The reason.
    fn connected(&mut self, stream: &Self::Stream) -> io::Result<()>;

    /// Reads what is there, at most as much as `into` has room for; 0 when the peer has ended.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is nothing.
    fn read(&mut self, stream: &mut Self::Stream, into: &mut [u8]) -> io::Result<usize>;

    /// Writes the pieces one behind the other, and returns how much was taken. It leaves with the
    /// next wait at the latest.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is no room.
    fn write(&mut self, stream: &mut Self::Stream, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Closes a connection. What was written is still sent.
    fn close(&mut self, stream: Self::Stream);

    /// Whether nothing is left to be sent on connections that were closed, as far as the network
    /// itself has to do that: asked before a thread ends.
    fn is_settled(&self) -> bool {
        true
    }

    /// Waits until something happens, the thread is woken, or the time has passed, and appends what
    /// has happened.
    ///
    /// # Errors
    /// Those of the system.
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

/// Has the system find out that a node is gone which nobody asks anything: within about half a minute.
/// One that loses its power says nothing, and connections that wait for ever must learn of it.
fn keep_node_alive(socket: &SockRef<'_>) -> io::Result<()> {
    let ask = TcpKeepalive::new().with_time(Duration::from_secs(15));
    socket.set_tcp_keepalive(&ask.with_interval(Duration::from_secs(5)).with_retries(3))
}

/// The same for a client, of which there are many: within about two minutes. It would have its place
/// among those that may be connected for ever.
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
            // A plain write costs the kernel less than a list of one.
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
