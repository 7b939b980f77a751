//! The network stack of the earlier proxy: a process of its own, between the proxy's process and the
//! network (paper 3, section 4.3, figure 4; there DPDK-ANS).
//!
//! One thread has all connections, because that stack did not use several queues of a network card.
//! For each TCP connection there is a connection by Unix sockets to the proxy's process, and every byte
//! is copied from one to the other, in both directions. The stack of the paper passes bytes through
//! memory that the processes share, and polls; Unix sockets are the nearest that needs neither.
//!
//! | connection | who connects | to what |
//! |---|---|---|
//! | of a client | the client, by TCP, to `listen`; then this process | the Unix socket `…-clients` of the proxy |
//! | to a node | the proxy's process, to the Unix socket `…-node-N` of this process | then this process, by TCP, to node *N* |
//!
//! Names of Unix sockets are abstract and follow from the address `listen`, of which there is one on
//! this machine. When one side of a connection ends, the other one is closed.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};

use bytes::BytesMut;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use serde::{Deserialize, Serialize};
use slab::Slab;

use super::client_connection::write_out;
use super::message::ByteStream;
use crate::error::RunError;

/// Bytes copied at a time.
const ROOM: usize = 64 * 1024;
/// The token of the listener of clients. Those of nodes follow.
const CLIENTS: usize = 0;

/// The configuration of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkProcessConfig {
    /// The address on which it listens for clients.
    pub listen: SocketAddr,
    /// The nodes.
    pub nodes: Vec<SocketAddr>,
}

/// Returns the Unix socket on which the proxy whose clients connect to `listen` takes them.
pub(crate) fn clients_socket(listen: SocketAddr) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("kumiki-bench-{listen}-clients"))
}

/// Returns the Unix socket through which that proxy reaches a node.
pub(super) fn node_socket(listen: SocketAddr, node: usize) -> io::Result<UnixAddress> {
    UnixAddress::from_abstract_name(format!("kumiki-bench-{listen}-node-{node}"))
}

/// Runs the process until it is killed.
///
/// # Errors
/// The configuration is malformed, or the system refuses a listener.
pub fn serve_network(config: &str) -> Result<(), RunError> {
    let config: NetworkProcessConfig = serde_json::from_str(config).map_err(RunError::of)?;
    let network = NetworkProcess::new(&config).map_err(RunError::of)?;
    network.run().map_err(RunError::of)
}

/// See the module's page.
pub struct NetworkProcess {
    poll: Poll,
    clients: TcpListener,
    nodes: Vec<(mio::net::UnixListener, SocketAddr)>,
    listen: SocketAddr,
    pairs: Slab<RelayedPair>,
    room: Vec<u8>,
}

/// Two connections, each of which gets the bytes of the other.
struct RelayedPair {
    sides: [RelayedSide; 2],
}

struct RelayedSide {
    stream: Box<dyn ByteStream>,
    /// Bytes from the other side that the socket has not taken.
    output: BytesMut,
}

impl NetworkProcess {
    /// Starts to listen.
    ///
    /// # Errors
    /// The system refuses a listener.
    pub fn new(config: &NetworkProcessConfig) -> io::Result<NetworkProcess> {
        let poll = Poll::new()?;
        let mut clients = TcpListener::bind(config.listen)?;
        let registry = poll.registry();
        registry.register(&mut clients, Token(CLIENTS), Interest::READABLE)?;
        let listen = clients.local_addr()?;
        let mut nodes = Vec::new();
        for (node, &address) in config.nodes.iter().enumerate() {
            let listener = UnixListener::bind_addr(&node_socket(listen, node)?)?;
            listener.set_nonblocking(true)?;
            let mut listener = mio::net::UnixListener::from_std(listener);
            let token = Token(CLIENTS + 1 + node);
            registry.register(&mut listener, token, Interest::READABLE)?;
            nodes.push((listener, address));
        }
        Ok(NetworkProcess {
            poll,
            clients,
            nodes,
            listen,
            pairs: Slab::new(),
            room: vec![0; ROOM],
        })
    }

    /// Returns the address on which it listens for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Relays until the system refuses to wait for events.
    ///
    /// # Errors
    /// Returns that error.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let first = CLIENTS + 1 + self.nodes.len();
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                let token = event.token().0;
                match token.checked_sub(first) {
                    None if token == CLIENTS => self.accept_clients(),
                    None => self.accept_for_node(token - CLIENTS - 1),
                    Some(place) => {
                        let side = place % 2;
                        self.serve(place / 2, side, event.is_readable(), event.is_writable());
                    }
                }
            }
        }
    }

    fn accept_clients(&mut self) {
        while let Ok((client, _)) = self.clients.accept() {
            // The proxy may not have started yet, or have ended: the client is closed.
            let connected =
                clients_socket(self.listen).and_then(|at| UnixStream::connect_addr(&at));
            let added = connected.and_then(|stream| {
                client.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let proxy = mio::net::UnixStream::from_std(stream);
                self.add(Box::new(client), Box::new(proxy))
            });
            if let Err(error) = added {
                tracing::debug!(%error, "a client is closed: the proxy cannot be reached");
            }
        }
    }

    fn accept_for_node(&mut self, node: usize) {
        let address = self.nodes[node].1;
        while let Ok((proxy, _)) = self.nodes[node].0.accept() {
            let connected = std::net::TcpStream::connect(address);
            let added = connected.and_then(|stream| {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let node = mio::net::TcpStream::from_std(stream);
                self.add(Box::new(node), Box::new(proxy))
            });
            if let Err(error) = added {
                tracing::error!(%error, %address, "a node cannot be reached");
            }
        }
    }

    fn add(&mut self, outside: Box<dyn ByteStream>, inside: Box<dyn ByteStream>) -> io::Result<()> {
        let first = CLIENTS + 1 + self.nodes.len();
        let sides = [outside, inside].map(|stream| RelayedSide {
            stream,
            output: BytesMut::new(),
        });
        let place = self.pairs.insert(RelayedPair { sides });
        for side in 0..2 {
            let both = Interest::READABLE | Interest::WRITABLE;
            let token = Token(first + 2 * place + side);
            let stream = &mut self.pairs[place].sides[side].stream;
            if let Err(error) = self.poll.registry().register(stream, token, both) {
                self.pairs.remove(place);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Copies what a side of a pair has, and, if it takes bytes again, what the other side has.
    fn serve(&mut self, place: usize, side: usize, readable: bool, writable: bool) {
        let Some(pair) = self.pairs.get_mut(place) else {
            return;
        };
        let room = &mut self.room;
        let reads = |pair: &mut RelayedPair, room: &mut Vec<u8>| match readable {
            true => pair.copy(side, room),
            false => Ok(()),
        };
        let writes = |pair: &mut RelayedPair, room: &mut Vec<u8>| match writable {
            true => pair.copy(1 - side, room),
            false => Ok(()),
        };
        if reads(pair, room).and_then(|()| writes(pair, room)).is_err() {
            self.pairs.remove(place);
        }
    }
}

impl RelayedPair {
    /// Copies bytes from a side to the other, as long as there are any and they are taken.
    ///
    /// # Errors
    /// One of the two has ended.
    fn copy(&mut self, from: usize, room: &mut [u8]) -> io::Result<()> {
        loop {
            let to = &mut self.sides[1 - from];
            write_out(&mut *to.stream, &mut to.output)?;
            if !to.output.is_empty() {
                return Ok(());
            }
            match self.sides[from].stream.read(room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.sides[1 - from]
                    .output
                    .extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
