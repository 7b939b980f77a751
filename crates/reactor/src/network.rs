//! The network as an event loop sees it: a small trait.
//!
//! A stack that bypasses the kernel can implement it as well; the proxy of paper 3 used mTCP on DPDK
//! (section 5.1). A thread needs little of the network: events, reads and writes that do not block, and a
//! way for other threads to wake it.
//!
//! Invariants:
//! 1. A stream is reported once when it becomes readable or writable (edge-triggered): the caller reads
//!    or writes until the stream has no more to give or to take, or remembers that it did not.
//! 2. A network belongs to one thread; only its [`Network::Waker`] is given to others.
//! 3. No operation returns [`io::ErrorKind::Interrupted`]: the network itself repeats a system call that a
//!    signal interrupted.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

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

impl From<&mio::event::Event> for SocketEvent {
    fn from(event: &mio::event::Event) -> SocketEvent {
        let ended = event.is_read_closed() || event.is_error();
        SocketEvent {
            token: event.token().0,
            readable: event.is_readable() || ended,
            writable: event.is_writable() || event.is_error(),
            ended,
        }
    }
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

    /// Returns a handle that wakes this thread. It is called once.
    ///
    /// # Errors
    /// Returns an error if the system lacks a resource. The network cannot be used any more then.
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

    /// Sets how long an accepted connection is idle before the system asks if its peer is still there. It holds
    /// for connections that are accepted afterwards; 60 s unless it is called. A network that cannot ask ignores it.
    fn set_keep_alive(&mut self, _after: Duration) {}

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
    /// next wait at the latest. A write that takes only a part is no event by itself: the caller writes
    /// again, until there is no room.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::WouldBlock`] when there is no room.
    fn write(&mut self, stream: &mut Self::Stream, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Sends what was written: for a thread that does something else that takes long before it waits.
    ///
    /// # Errors
    /// Returns the system's errors.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Reads behind the content of `into`, at most as many bytes as its capacity leaves; returns 0 when the
    /// peer has ended.
    ///
    /// # Errors
    /// As [`Network::read`].
    fn read_behind(&mut self, stream: &mut Self::Stream, into: &mut Vec<u8>) -> io::Result<usize> {
        read_spare(into, |spare| self.read(stream, spare))
    }

    /// Returns the address of this side of an accepted connection.
    ///
    /// # Errors
    /// Returns the system's error, or [`io::ErrorKind::Unsupported`] if this network does not know it.
    fn local_address(&self, _stream: &Self::Stream) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the descriptor of an accepted connection, as the system numbers it; -1 if it has none.
    fn descriptor(&self, _stream: &Self::Stream) -> RawFd {
        -1
    }

    /// Returns a registry whose descriptors this thread waits for, too: their events are reported as those of
    /// streams are, with the tokens under which they were registered.
    ///
    /// # Errors
    /// Returns an error if the system lacks a resource, or [`io::ErrorKind::Unsupported`] if this network waits
    /// for nothing else.
    fn registry(&mut self) -> io::Result<&mio::Registry> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Has the system break a connection whose peer has not answered for `dead_after`, at least a second: with data in
    /// transit or without.
    ///
    /// # Errors
    /// Returns the system's errors, or [`io::ErrorKind::Unsupported`] if this network knows no such limit.
    fn set_dead_after(&mut self, _stream: &Self::Stream, _dead_after: Duration) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends the output of a connection: its peer sees the end behind the bytes that were written. The input goes
    /// on.
    ///
    /// # Errors
    /// Returns the system's errors, or [`io::ErrorKind::Unsupported`] if this network ends both sides at once.
    fn end_output(&mut self, _stream: &mut Self::Stream) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Closes a connection. What was written is still sent.
    fn close(&mut self, stream: Self::Stream);

    /// Returns `true` if closed connections have nothing left to be sent, as far as the network itself
    /// has to send it. Called before a thread ends.
    fn is_settled(&self) -> bool {
        true
    }

    /// Returns `true` if the last wait has asked for events: one without a timeout may leave that out.
    fn has_looked(&self) -> bool {
        true
    }

    /// Takes events without sleeping, for a thread whose peers write to memory that it looks at as well: `look` returns
    /// `true` if there is something in the memory. While there is, the kernel is asked only now and then.
    ///
    /// # Errors
    /// Returns the system's errors.
    fn look(
        &mut self,
        happened: &mut Vec<SocketEvent>,
        look: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        if look() && self.since_look() < SPARED {
            return Ok(());
        }
        self.wait(happened, Some(Duration::ZERO))
    }

    /// Returns the time since the kernel was asked for events.
    fn since_look(&self) -> Duration {
        Duration::MAX
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

/// A thread that has other work may leave the question for events out, if the last one was at most so long ago.
pub(crate) const SPARED: Duration = Duration::from_micros(200);

/// Repeats `call` as long as a signal interrupts it.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Has `read` fill the spare capacity of `into`, and keeps the bytes that were read.
pub(crate) fn read_spare(
    into: &mut Vec<u8>,
    read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let before = into.len();
    into.resize(into.capacity(), 0);
    let count = read(&mut into[before..]);
    into.truncate(before + count.as_ref().copied().unwrap_or(0));
    count
}
