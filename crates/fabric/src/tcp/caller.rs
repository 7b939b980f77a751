//! A connection that blocks, for clients: one thread sends messages, and waits for answers.

mod error;
mod memory_link;
mod ring_io;

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use base::NodeId;
use socket2::SockRef;

use super::connection_terms;
use super::negotiation::{LocalTransports, Negotiated, Negotiation, NegotiationStep};
use super::options::{Encryption, Transport, TransportLimits};
use crate::cipher::{Cipher, Scratch};
use crate::frame::{BODY_MAX, HEADER, LENGTH, message_head, message_len};
use crate::handshake::{AuthenticatedPeer, HandshakeRefusal, Identity, Secret};
use crate::link::Peer;
use crate::shm::Shm;
use crate::verbs::Domain;
pub use error::CallError;
use memory_link::CallerMemoryLink;

/// The minimum number of bytes that are read at a time.
const READ: usize = 16 << 10;
/// The greatest memory that is kept between messages.
const KEPT: usize = 1 << 20;
/// Directions of a socket.
const READING: usize = 0;
const WRITING: usize = 1;

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct CallerOptions {
    /// The cluster's secret.
    pub secret: Secret,
    /// The cluster's fingerprint; `None` accepts any, and [`Caller::cluster`] returns it.
    pub cluster: Option<u64>,
    /// The node that should answer; `None` accepts any, and [`Caller::node`] returns it.
    pub node: Option<NodeId>,
    /// The transport of messages.
    pub transport: Transport,
    /// The connections that are encrypted.
    pub encryption: Encryption,
    /// The directory of shared memory.
    pub shm: Shm,
    /// The RDMA device's domain, if there is one.
    pub verbs: Option<Domain>,
    /// Limits on messages, on the time for connecting, and on the time after which a machine that
    /// does not react counts as dead. The others do not apply.
    pub limits: TransportLimits,
}

impl CallerOptions {
    /// Returns options for a connection to any node of any cluster that has the secret.
    #[must_use]
    pub fn new(secret: Secret) -> CallerOptions {
        CallerOptions {
            secret,
            cluster: None,
            node: None,
            transport: Transport::default(),
            encryption: Encryption::default(),
            shm: Shm::default(),
            verbs: None,
            limits: TransportLimits::default(),
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct Caller {
    stream: TcpStream,
    address: SocketAddr,
    node: NodeId,
    cluster: u64,
    message: usize,
    /// The bytes that have arrived lie in `input[from..filled]`; the rest is memory to read into.
    input: Vec<u8>,
    from: usize,
    filled: usize,
    output: Vec<u8>,
    /// The time-outs of the socket for reading and for writing.
    spin_policy: [Duration; 2],
    /// A message was sent or received in part: no other can follow.
    torn: bool,
    /// The encryption of the socket's bytes, if they are encrypted.
    cipher: Option<Box<(Cipher, Scratch)>>,
    /// The rings through which messages travel, if not through the socket.
    rings: Option<Box<CallerMemoryLink>>,
}

impl Caller {
    /// Connects, and proves the identity of this client.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn connect(address: SocketAddr, options: &CallerOptions) -> Result<Caller, CallError> {
        let deadline = Instant::now() + options.limits.handshake;
        let cannot = |error| CallError::Connect { address, error };
        let stream =
            TcpStream::connect_timeout(&address, options.limits.handshake).map_err(cannot)?;
        reactor::set_dead_after(&SockRef::from(&stream), options.limits.dead_after)
            .and_then(|()| stream.set_nodelay(true))
            .map_err(cannot)?;
        let mut caller = Caller {
            stream,
            address,
            node: NodeId(0),
            cluster: 0,
            message: options.limits.message,
            input: Vec::new(),
            from: 0,
            filled: 0,
            output: Vec::new(),
            spin_policy: [Duration::MAX; 2],
            torn: false,
            cipher: None,
            rings: None,
        };
        let (shm, verbs) = (&options.shm, options.verbs.as_ref());
        let transports = LocalTransports::new(options.transport, shm, verbs, &options.limits);
        let identity = Identity {
            me: Peer::Client,
            cluster: options.cluster,
            secret: options.secret.clone(),
            clients: None,
            ways: transports.ways(),
        };
        let proved = caller.greet(&identity, &transports, options, deadline)?;
        if let (Peer::Node(node), Some(cluster)) = (proved.peer, proved.cluster) {
            (caller.node, caller.cluster) = (node, cluster);
        }
        Ok(caller)
    }

    fn greet(
        &mut self,
        identity: &Identity,
        transports: &LocalTransports,
        options: &CallerOptions,
        deadline: Instant,
    ) -> Result<AuthenticatedPeer, CallError> {
        let address = self.address;
        let terms = connection_terms(options.encryption, address);
        let terms = terms.map_err(|error| CallError::Connect { address, error })?;
        let mut out = Vec::new();
        let mut negotiation = Negotiation::initiate(identity, options.node, terms, &mut out);
        loop {
            self.write(&out, deadline)?;
            out.clear();
            match self.read(HEADER + BODY_MAX, deadline) {
                Err(CallError::TimedOut { .. }) => {
                    let refused = HandshakeRefusal::late();
                    return Err(CallError::Refused { address, refused });
                }
                read => read?,
            }
            loop {
                let arrived = &self.input[self.from..self.filled];
                let advanced = negotiation.advance(identity, transports, arrived, &mut out);
                let (used, step) = match advanced {
                    Ok(advanced) => advanced,
                    Err(refused) => {
                        tracing::warn!(peer = %address, "no connection: {refused}");
                        // The peer may have gone already.
                        drop(self.write(&out, deadline));
                        return Err(CallError::Refused { address, refused });
                    }
                };
                self.from += used;
                match step {
                    NegotiationStep::Incomplete => break,
                    NegotiationStep::Complete(negotiated) => {
                        self.write(&out, deadline)?;
                        return Ok(self.complete(negotiated));
                    }
                    NegotiationStep::Encrypted(mut cipher) => {
                        self.write(&out, deadline)?;
                        out.clear();
                        cipher.take_arrived(&self.input[self.from..self.filled]);
                        self.filled = self.from;
                        self.cipher = Some(Box::new((*cipher, Scratch::default())));
                    }
                }
            }
        }
    }

    /// Makes the connection ready for messages.
    fn complete(&mut self, negotiated: Negotiated) -> AuthenticatedPeer {
        if let Some(rings) = negotiated.rings {
            self.rings = Some(Box::new(CallerMemoryLink::new(*rings)));
            // The bytes that follow on the socket are bells.
            self.filled = self.from;
            self.cipher = None;
        }
        negotiated.proved
    }

    /// Returns the node at the other end.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the fingerprint of its cluster.
    #[must_use]
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Returns an error if the peer has not got the message, and never will; see [`CallError`].
    pub fn send(&mut self, message: &[u8], deadline: Instant) -> Result<(), CallError> {
        self.send_together(&[message], deadline)
    }

    /// Sends messages in this order, in one piece.
    ///
    /// # Errors
    /// Returns an error if the peer has not got the last message, and never will, or if one is too long;
    /// then none is sent. See [`CallError`].
    pub fn send_together(
        &mut self,
        messages: &[&[u8]],
        deadline: Instant,
    ) -> Result<(), CallError> {
        let (len, limit) = (messages.iter().map(|one| one.len()).max(), self.message);
        if let Some(len) = len.filter(|len| *len > limit) {
            return Err(CallError::TooLong { len, limit });
        }
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        for message in messages {
            output.extend_from_slice(&message_head(message.len()));
            output.extend_from_slice(message);
        }
        let sent = self.write(&output, deadline);
        if output.capacity() <= KEPT {
            self.output = output;
        }
        sent
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn receive(&mut self, deadline: Instant) -> Result<&[u8], CallError> {
        if self.from == self.filled {
            (self.from, self.filled) = (0, 0);
            self.input.truncate(KEPT);
        }
        loop {
            let arrived = &self.input[self.from..self.filled];
            let mut wanted = LENGTH;
            if let Some(len) = message_len(arrived) {
                if len > self.message {
                    let text = format!("a message of {len} bytes is on its way");
                    return Err(self.broken(io::Error::new(ErrorKind::InvalidData, text)));
                }
                wanted = LENGTH + len;
                if wanted <= arrived.len() {
                    let at = self.from + LENGTH;
                    self.from = at + len;
                    return Ok(&self.input[at..self.from]);
                }
            }
            self.read(wanted, deadline)?;
        }
    }

    /// Returns `true` if the connection is still usable, as far as can be determined without
    /// sending: the peer has not closed it, and has sent nothing that was not requested.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let nothing = match &self.rings {
            Some(through) => through.is_quiet(&self.stream),
            None => {
                let mut byte = [MaybeUninit::uninit()];
                let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
                let peeked = SockRef::from(&self.stream).recv_with_flags(&mut byte, flags);
                peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            }
        };
        let kept = self.cipher.as_ref().map_or(0, |it| it.0.memory());
        nothing && !self.torn && self.from == self.filled && kept == 0
    }

    /// Returns the transport: never [`Transport::Auto`].
    #[must_use]
    pub fn transport(&self) -> Transport {
        let way = self.rings.as_ref().map(|through| through.transport());
        way.unwrap_or(Transport::Tcp)
    }

    fn broken(&mut self, error: io::Error) -> CallError {
        self.torn = true;
        let address = self.address;
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => CallError::TimedOut { address },
            _ => CallError::Broken { address, error },
        }
    }

    /// Reads once, for a frame that has `wanted` bytes.
    fn read(&mut self, wanted: usize, deadline: Instant) -> Result<(), CallError> {
        self.make_room(wanted);
        if self.rings.is_some() {
            return self.read_ring(deadline);
        }
        loop {
            let read = self.be_patient(READING, deadline).and_then(|()| {
                let into = &mut self.input[self.filled..];
                match self.cipher.as_deref_mut() {
                    None => self.stream.read(into),
                    Some((cipher, scratch)) => cipher.read(&mut self.stream, into, scratch, 1),
                }
            });
            match read {
                Ok(0) => {
                    let text = "the peer closed it";
                    return Err(self.broken(io::Error::new(ErrorKind::UnexpectedEof, text)));
                }
                Ok(n) => {
                    self.filled += n;
                    return Ok(());
                }
                Err(error) => self.again_or_broken(error, deadline)?,
            }
        }
    }

    /// Sets the socket's time-out to about the deadline. It calls the system only if the present
    /// time-out is much shorter, or is longer.
    fn be_patient(&mut self, direction: usize, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        // Sockets count microseconds, and take zero for no limit.
        let left = left.max(Duration::from_micros(1));
        if (left / 2..=left + Duration::from_millis(1)).contains(&self.spin_policy[direction]) {
            return Ok(());
        }
        self.spin_policy[direction] = left;
        if direction == READING {
            self.stream.set_read_timeout(Some(left))
        } else {
            self.stream.set_write_timeout(Some(left))
        }
    }

    fn again_or_broken(&mut self, error: io::Error, deadline: Instant) -> Result<(), CallError> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            // The socket's time-out was shorter.
            ErrorKind::WouldBlock if Instant::now() < deadline => {
                self.spin_policy = [Duration::MAX; 2];
                Ok(())
            }
            _ => Err(self.broken(error)),
        }
    }

    /// Makes room to read into: for all of the frame if that is little, else for as much again as
    /// has arrived.
    fn make_room(&mut self, wanted: usize) {
        if self.from > 0 {
            self.input.copy_within(self.from..self.filled, 0);
            self.filled -= self.from;
            self.from = 0;
        }
        let missing = wanted.saturating_sub(self.filled);
        let room = missing.min(self.filled).max(READ);
        if self.input.len() < self.filled + room {
            self.input.resize(self.filled + room, 0);
        }
    }

    fn write(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), CallError> {
        if self.torn {
            let text = "an earlier message was sent or received in part";
            return Err(self.broken(io::Error::new(ErrorKind::BrokenPipe, text)));
        }
        if self.rings.is_some() {
            return self.write_ring(bytes, deadline);
        }
        let Some((cipher, _)) = self.cipher.as_deref_mut() else {
            return self.write_socket(bytes, deadline);
        };
        let records = cipher.seal(bytes);
        let records = records.map_err(|error| self.broken(error))?;
        self.write_socket(&records, deadline)
    }

    fn write_socket(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), CallError> {
        while !bytes.is_empty() {
            let written = self
                .be_patient(WRITING, deadline)
                .and_then(|()| self.stream.write(bytes));
            match written {
                Ok(n) => bytes = &bytes[n..],
                Err(error) => self.again_or_broken(error, deadline)?,
            }
        }
        Ok(())
    }
}
