//! The kernel's sockets, with epoll.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;

use crate::keep_alive::{CLIENT_KEEP_ALIVE, keep_client_alive, keep_node_alive, set_dead_after};
use crate::network::{Network, SocketEvent, Wake, uninterrupted};

/// Events taken at a time.
const EVENTS: usize = 1024;
/// The token of descriptors whose events end a wait and are not reported: wakers, and those that a network around this
/// one looks at itself. Owners of streams and listeners must not use it.
pub const WAKING: Token = Token(usize::MAX);

/// Wakes a thread that waits for the kernel's sockets.
pub type SocketWaker = mio::Waker;

/// The kernel's sockets.
pub struct Sockets {
    poll: Poll,
    events: Events,
    keep_alive: Duration,
    /// When the kernel was asked last.
    asked: Instant,
}

impl Wake for SocketWaker {
    fn wake(&self) {
        if let Err(error) = uninterrupted(|| mio::Waker::wake(self)) {
            tracing::error!(%error, "a thread cannot be woken");
        }
    }
}

impl Network for Sockets {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Waker = SocketWaker;

    fn open() -> io::Result<Sockets> {
        Ok(Sockets {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
            keep_alive: CLIENT_KEEP_ALIVE,
            asked: Instant::now(),
        })
    }

    fn waker(&mut self) -> io::Result<SocketWaker> {
        mio::Waker::new(self.poll.registry(), WAKING)
    }

    fn listen(&mut self, socket: std::net::TcpListener, token: usize) -> io::Result<TcpListener> {
        socket.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(socket);
        let registry = self.poll.registry();
        registry.register(&mut listener, Token(token), Interest::READABLE)?;
        Ok(listener)
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = uninterrupted(|| listener.accept())?;
        stream.set_nodelay(true)?;
        keep_client_alive(&SockRef::from(&stream), self.keep_alive)?;
        Ok((stream, address))
    }

    fn set_keep_alive(&mut self, after: Duration) {
        self.keep_alive = after;
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
        uninterrupted(|| stream.read(into))
    }

    fn write(&mut self, stream: &mut TcpStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        uninterrupted(|| match pieces {
            // A plain write costs the kernel less than a list with one piece.
            [piece] => stream.write(piece),
            _ => stream.write_vectored(pieces),
        })
    }

    fn read_behind(&mut self, stream: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<usize> {
        let read = || rustix::io::read(&*stream, rustix::buffer::spare_capacity(into));
        Ok(rustix::io::retry_on_intr(read)?)
    }

    fn local_address(&self, stream: &TcpStream) -> io::Result<SocketAddr> {
        stream.local_addr()
    }

    fn descriptor(&self, stream: &TcpStream) -> RawFd {
        stream.as_raw_fd()
    }

    fn registry(&mut self) -> io::Result<&mio::Registry> {
        Ok(self.poll.registry())
    }

    fn set_dead_after(&mut self, stream: &TcpStream, dead_after: Duration) -> io::Result<()> {
        set_dead_after(&SockRef::from(stream), dead_after)
    }

    fn end_output(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        stream.shutdown(Shutdown::Write)
    }

    fn close(&mut self, mut stream: TcpStream) {
        if let Err(error) = self.poll.registry().deregister(&mut stream) {
            tracing::debug!(%error, "deregistering a connection");
        }
    }

    fn since_look(&self) -> Duration {
        self.asked.elapsed()
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
        self.asked = Instant::now();
        let events = self.events.iter().filter(|event| event.token() != WAKING);
        happened.extend(events.map(SocketEvent::from));
        Ok(())
    }
}
