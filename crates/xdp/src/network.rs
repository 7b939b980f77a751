//! The stack and the kernel's sockets behind the trait of event loops.
//!
//! A listener accepts from both: clients that come over the interface are the stack's, those that come over another
//! one, or from this machine, the kernel's. A connection that is made is the stack's if the way to its peer leads over
//! the interface, else the kernel's. The socket of AF_XDP is one more descriptor of the epoll in which the kernel's
//! sockets and the wakers are, and ends a wait as a waker does.
//!
//! A turn of the thread: packets are taken from the receive ring, connections answer, and everything that is to be sent
//! leaves in one call for some 32 packets. Before a thread sleeps it looks at the ring for 20 µs, if packets have come
//! lately.
//!
//! Invariants:
//! 1. What was written leaves with the next wait, flush or close.
//! 2. While there are packets, the kernel is asked for events of its sockets at least every 200 µs.
//! 3. With several queues the stack makes no connections: their answers might come on another queue, whose thread does
//!    not know them.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Interest;
use mio::unix::SourceFd;
use reactor::{Network, SocketEvent, SocketWaker, Sockets, WAKING};
use socket2::{Domain, Protocol, Socket, Type};

use crate::interface::{XdpError, XdpInterface};
use crate::packet_socket::{PacketReceiver, Transmitter};
use crate::routes::KernelRoutes;
use crate::stack::{FrameSink, PortLease, StackOptions, TcpStack};

/// Packets taken in one turn.
const PACKETS: usize = 256;
/// How long a thread looks at the ring before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// The longest time for which the kernel is not asked for events while there are packets.
const ASKED: Duration = Duration::from_micros(200);
/// Bytes of the longest IP packet that fits into a frame.
const LONGEST: usize = 4000;
/// How long a client is idle before it is asked for a sign of life, unless set otherwise.
const CLIENT_KEEP_ALIVE: Duration = Duration::from_secs(60);
/// How long a node may be silent.
const NODE_DEAD_AFTER: Duration = Duration::from_secs(30);
/// How long the kernel may look for a neighbour, and how often it is asked.
const NEIGHBOUR: Duration = Duration::from_secs(3);
const NEIGHBOUR_INTERVAL: Duration = Duration::from_millis(2);

impl FrameSink for Transmitter {
    fn has_room(&mut self) -> bool {
        if Transmitter::has_room(self) {
            return true;
        }
        // The kernel may not have been told of the packets that fill the ring.
        if let Err(error) = self.flush() {
            tracing::debug!(%error, "packets are not sent");
        }
        Transmitter::has_room(self)
    }

    fn push<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        Transmitter::push(self, len, write)
    }
}

/// A connection that waits until the neighbour is known that gets its packets.
struct Unresolved {
    place: usize,
    peer: SocketAddrV4,
    next_hop: Ipv4Addr,
    until: Instant,
}

/// See the module.
pub struct Xdp {
    kernel: Sockets,
    interface: XdpInterface,
    transmitter: Transmitter,
    receiver: PacketReceiver,
    stack: TcpStack,
    routes: KernelRoutes,
    unresolved: Vec<Unresolved>,
    started: Instant,
    keep_alive: Duration,
    /// When a packet came last.
    packet_at: Instant,
    /// The last wait did not ask the kernel.
    spared: bool,
}

/// A connection.
pub struct XdpStream(Owner);

enum Owner {
    Kernel(mio::net::TcpStream),
    /// The place of its connection in the stack.
    Stack(usize),
}

/// A socket that accepts connections.
pub struct XdpListener {
    kernel: mio::net::TcpListener,
    port: u16,
    /// The stack accepts as long as it lives.
    _handle: Arc<()>,
}

impl Xdp {
    /// Opens the network of a thread, which has a receive queue of the interface for itself.
    ///
    /// # Errors
    /// The [`XdpError`] says what to change.
    pub fn open(interface: &XdpInterface, queue: u32) -> Result<Xdp, XdpError> {
        let socket = interface.open_queue(queue)?;
        let system = |what| move |error| XdpError::Kernel { what, error };
        let cannot_wait = system("wait for packets");
        let kernel = reactor_network(&socket).map_err(cannot_wait)?;
        let options = StackOptions {
            address: interface.address(),
            hardware: interface.hardware(),
            mtu: interface.mtu().min(LONGEST),
        };
        Ok(Xdp {
            kernel,
            interface: interface.clone(),
            stack: TcpStack::new(options).map_err(system("give random numbers"))?,
            transmitter: socket.transmitter,
            receiver: socket.receiver,
            routes: KernelRoutes::open().map_err(system("answer questions about routes"))?,
            unresolved: Vec::new(),
            started: Instant::now(),
            keep_alive: CLIENT_KEEP_ALIVE,
            packet_at: Instant::now(),
            spared: false,
        })
    }

    fn now(&self) -> smoltcp::time::Instant {
        smoltcp::time::Instant::from_micros(self.started.elapsed().as_micros() as i64)
    }

    /// Takes packets, and sends what is to be sent.
    fn turn(&mut self) -> io::Result<()> {
        if !self.unresolved.is_empty() {
            self.resolve()?;
        }
        let now = self.now();
        let (stack, transmitter) = (&mut self.stack, &mut self.transmitter);
        let count = self.receiver.receive(PACKETS, |packet| {
            stack.receive(packet, now, transmitter);
        });
        if count > 0 {
            self.packet_at = Instant::now();
        }
        stack.transmit(now, transmitter);
        transmitter.flush()
    }

    /// Looks for the neighbours of connections that are being made.
    fn resolve(&mut self) -> io::Result<()> {
        for one in std::mem::take(&mut self.unresolved) {
            if !self.stack.is_connecting(one.place, one.peer) {
                continue;
            }
            match self
                .routes
                .neighbour(self.interface.index(), one.next_hop)?
            {
                Some(hardware) => self.stack.set_next_hop(one.place, hardware),
                None if one.until <= Instant::now() => {
                    self.stack.fail(one.place, ErrorKind::HostUnreachable);
                }
                None => self.unresolved.push(one),
            }
        }
        Ok(())
    }

    /// Returns the neighbour over which a peer is reached, if the stack is to make the connection.
    fn next_hop(&self, to: SocketAddr) -> Option<(SocketAddrV4, Ipv4Addr)> {
        let SocketAddr::V4(to) = to else {
            return None;
        };
        if self.interface.queues() > 1 {
            return None;
        }
        let route = self.routes.route(*to.ip()).unwrap_or_else(|error| {
            tracing::debug!(%error, %to, "the kernel does not say how a peer is reached");
            None
        });
        let route = route.filter(|route| route.interface == self.interface.index())?;
        Some((to, route.next_hop))
    }

    /// Reserves a port of the interface's address, and has its packets steered to the stack.
    fn own_port(&self) -> io::Result<(u16, PortLease)> {
        let reserved = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        reserved.bind(&SocketAddr::from((self.interface.address(), 0)).into())?;
        let address = reserved.local_addr()?.as_socket();
        let port = address.map_or(0, |address| address.port());
        let steered = self.interface.steer(port)?;
        Ok((port, Arc::new((steered, reserved))))
    }

    fn connect_by_stack(
        &mut self,
        to: SocketAddrV4,
        next_hop: Ipv4Addr,
        token: usize,
    ) -> io::Result<XdpStream> {
        let (port, lease) = self.own_port()?;
        let place = self.stack.connect(to, port, lease, token)?;
        self.stack.connection(place).set_dead_after(NODE_DEAD_AFTER);
        let index = self.interface.index();
        let is_loopback = self.interface.hardware() == [0; 6];
        let known = match is_loopback {
            true => Some([0; 6]),
            false => self.routes.neighbour(index, next_hop)?,
        };
        match known {
            Some(hardware) => self.stack.set_next_hop(place, hardware),
            None => {
                self.routes.look_for_neighbour(index, next_hop)?;
                self.unresolved.push(Unresolved {
                    place,
                    peer: to,
                    next_hop,
                    until: Instant::now() + NEIGHBOUR,
                });
            }
        }
        Ok(XdpStream(Owner::Stack(place)))
    }

    /// Looks at the ring for a moment. Returns `true` if there is a packet.
    fn spin(&mut self) -> bool {
        let begin = Instant::now();
        if begin.duration_since(self.packet_at) > SPIN {
            return self.receiver.has_packet();
        }
        loop {
            if self.receiver.has_packet() {
                return true;
            }
            if begin.elapsed() > SPIN {
                return false;
            }
            std::hint::spin_loop();
        }
    }

    /// Returns how long the thread may sleep.
    fn sleep(&self, timeout: Option<Duration>) -> Option<Duration> {
        let unsent = self
            .transmitter
            .is_dirty()
            .then_some(Duration::from_millis(1));
        let unresolved = (!self.unresolved.is_empty()).then_some(NEIGHBOUR_INTERVAL);
        let timer = self.stack.next_timer(self.now());
        [timeout, unsent, unresolved, timer]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Returns the network of the kernel's sockets, which waits for packets, too.
fn reactor_network(socket: &impl AsFd) -> io::Result<Sockets> {
    let mut kernel = <Sockets as Network>::open()?;
    let descriptor = socket.as_fd().as_raw_fd();
    let registry = kernel.registry()?;
    registry.register(&mut SourceFd(&descriptor), WAKING, Interest::READABLE)?;
    Ok(kernel)
}

impl Network for Xdp {
    type Stream = XdpStream;
    type Listener = XdpListener;
    type Waker = SocketWaker;

    /// An interface must be named: see [`Xdp::open`].
    fn open() -> io::Result<Xdp> {
        Err(ErrorKind::Unsupported.into())
    }

    fn waker(&mut self) -> io::Result<SocketWaker> {
        self.kernel.waker()
    }

    fn listen(&mut self, socket: std::net::TcpListener, token: usize) -> io::Result<XdpListener> {
        let port = socket.local_addr()?.port();
        let lease: PortLease = Arc::new(self.interface.steer(port)?);
        let kernel = self.kernel.listen(socket, token)?;
        let handle = self.stack.listen(port, token, lease);
        Ok(XdpListener {
            kernel,
            port,
            _handle: handle,
        })
    }

    fn accept(&mut self, listener: &XdpListener) -> io::Result<(XdpStream, SocketAddr)> {
        if let Some((place, peer)) = self.stack.accept(listener.port) {
            let connection = self.stack.connection(place);
            connection.set_dead_after(2 * self.keep_alive);
            return Ok((XdpStream(Owner::Stack(place)), peer.into()));
        }
        let (stream, peer) = self.kernel.accept(&listener.kernel)?;
        Ok((XdpStream(Owner::Kernel(stream)), peer))
    }

    fn set_keep_alive(&mut self, after: Duration) {
        self.keep_alive = after;
        self.kernel.set_keep_alive(after);
    }

    fn watch(&mut self, stream: &mut XdpStream, token: usize) -> io::Result<()> {
        match &mut stream.0 {
            Owner::Kernel(stream) => self.kernel.watch(stream, token),
            Owner::Stack(place) => {
                self.stack.watch(*place, token);
                Ok(())
            }
        }
    }

    fn connect(&mut self, address: SocketAddr, token: usize) -> io::Result<XdpStream> {
        match self.next_hop(address) {
            Some((to, next_hop)) => {
                tracing::debug!(%to, interface = self.interface.name(), "connecting past the kernel");
                self.connect_by_stack(to, next_hop, token)
            }
            None => {
                tracing::debug!(%address, "connecting by a socket of the kernel");
                let stream = self.kernel.connect(address, token)?;
                Ok(XdpStream(Owner::Kernel(stream)))
            }
        }
    }

    fn connected(&mut self, stream: &XdpStream) -> io::Result<()> {
        match &stream.0 {
            Owner::Kernel(stream) => self.kernel.connected(stream),
            Owner::Stack(place) => self.stack.connection(*place).connected(),
        }
    }

    fn read(&mut self, stream: &mut XdpStream, into: &mut [u8]) -> io::Result<usize> {
        match &mut stream.0 {
            Owner::Kernel(stream) => self.kernel.read(stream, into),
            Owner::Stack(place) => self.stack.read(*place, into),
        }
    }

    fn write(&mut self, stream: &mut XdpStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut stream.0 {
            Owner::Kernel(stream) => self.kernel.write(stream, pieces),
            Owner::Stack(place) => self.stack.write(*place, pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.turn()
    }

    fn local_address(&self, stream: &XdpStream) -> io::Result<SocketAddr> {
        match &stream.0 {
            Owner::Kernel(stream) => self.kernel.local_address(stream),
            Owner::Stack(place) => {
                let port = self.stack.local_port(*place);
                Ok(SocketAddr::from((self.interface.address(), port)))
            }
        }
    }

    fn descriptor(&self, stream: &XdpStream) -> RawFd {
        match &stream.0 {
            Owner::Kernel(stream) => self.kernel.descriptor(stream),
            Owner::Stack(_) => -1,
        }
    }

    fn registry(&mut self) -> io::Result<&mio::Registry> {
        self.kernel.registry()
    }

    fn set_dead_after(&mut self, stream: &XdpStream, dead_after: Duration) -> io::Result<()> {
        match &stream.0 {
            Owner::Kernel(stream) => self.kernel.set_dead_after(stream, dead_after),
            Owner::Stack(place) => {
                self.stack.connection(*place).set_dead_after(dead_after);
                Ok(())
            }
        }
    }

    fn end_output(&mut self, stream: &mut XdpStream) -> io::Result<()> {
        match &mut stream.0 {
            Owner::Kernel(stream) => self.kernel.end_output(stream),
            Owner::Stack(place) => {
                self.stack.end_output(*place);
                Ok(())
            }
        }
    }

    fn close(&mut self, stream: XdpStream) {
        match stream.0 {
            Owner::Kernel(stream) => self.kernel.close(stream),
            Owner::Stack(place) => {
                let now = self.now();
                self.stack.close(place, now);
                self.stack.transmit(now, &mut self.transmitter);
                if let Err(error) = self.transmitter.flush() {
                    tracing::debug!(%error, "packets are not sent");
                }
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.kernel.is_settled() && self.stack.is_settled()
    }

    fn since_look(&self) -> Duration {
        self.kernel.since_look()
    }

    fn has_looked(&self) -> bool {
        !self.spared
    }

    fn wait(
        &mut self,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.turn()?;
        let sleeps = timeout != Some(Duration::ZERO);
        if sleeps && !self.stack.has_events() && self.spin() {
            self.turn()?;
        }
        let must_not_sleep = self.stack.has_events() || !sleeps || self.receiver.has_packet();
        self.spared = must_not_sleep && self.kernel.since_look() < ASKED;
        if !self.spared {
            let timeout = match must_not_sleep {
                true => Some(Duration::ZERO),
                false => self.sleep(timeout),
            };
            self.kernel.wait(happened, timeout)?;
            self.turn()?;
        }
        self.stack.take_events(happened);
        Ok(())
    }
}
