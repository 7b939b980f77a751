//! One connection: its socket, its handshake, and its output.
//!
//! An idle connection holds no buffers, except for its mailbox if messages travel through memory.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use reactor::Network;
use reactor::budget::{Budget, Full, Share};
use reactor::newcomers;

use super::connection_balancer::ConnectionCount;
use super::link_error::LinkError;
use super::link_memory::LinkStream;
use super::memory_link::MemoryLink;
use super::message_assembler::{self, AssemblyProgress, MessageAssembler};
use super::negotiation::Negotiation;
use super::output::{Output, Written};
use super::socket::LinkSocket;
use crate::cipher::{self, Cipher, Scratch};
use crate::frame::{LENGTH, message_head};
use crate::inbox::Inbox;
use crate::link::{Link, SendError};
use crate::send_limit::SendLimit;

/// The number of bytes that are written before others have their turn.
const TURN: usize = 1 << 20;
/// The length of a part from which on copying it takes longer than a system call.
const LONG: usize = 16 << 10;

/// See the module's description.
pub(super) struct Connection<N: Network> {
    pub(super) link: Link,
    /// Its socket, from the moment at which the system begins to connect it.
    pub(super) stream: Option<N::Stream>,
    pub(super) address: SocketAddr,
    pub(super) phase: Phase,
    /// `true` if the user knows the link, and is owed its `Down`.
    pub(super) announced: bool,
    /// The node to which it was made, if it was made here.
    pub(super) to: Option<NodeId>,
    /// Its place among the incoming connections that have not authenticated.
    pub(super) newcomer: Option<newcomers::AdmissionTicket>,
    /// Counts it among the connections that its thread was assigned.
    pub(super) counted: Option<ConnectionCount<N>>,
    /// The time by which its phase must have ended.
    pub(super) deadline: Option<Duration>,
    /// Messages that wait until the link is up.
    early: Output,
    assembler: MessageAssembler,
    output: Output,
    room: SendLimit,
    /// The memory that it holds, as part of the limit for all links.
    share: Share,
    /// The encryption of the socket's bytes, if they are encrypted.
    cipher: Option<Box<Cipher>>,
    /// The rings through which messages travel, if not through the socket.
    pub(super) rings: Option<Box<MemoryLink>>,
    /// The user has closed it; it ends when it is up and its output is sent.
    pub(super) closing: bool,
    /// The reason why writing has failed.
    failed: Option<LinkError>,
    /// The system takes no more output for now.
    pub(super) full: bool,
    /// An event has shown that nothing more will come, behind the bytes that are still to be read.
    pub(super) end_seen: bool,
    /// It is in the list of connections that may have something to read.
    pub(super) in_ready: bool,
    /// It is in the list of connections that have something to write.
    pub(super) in_dirty: bool,
}

/// The result of a look at a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RingPoll {
    /// Something has come.
    Input,
    /// There is room for output that waits.
    Space,
    /// There is nothing to do.
    Nothing,
}

/// The phase of a connection.
#[derive(Debug)]
pub(super) enum Phase {
    /// The system is connecting it.
    Connecting(Box<Negotiation>),
    /// It is connected; the peers authenticate, and agree on the way. The bytes are those that have
    /// arrived and are not used.
    Greeting(Box<Negotiation>, Vec<u8>),
    /// Messages pass.
    Up,
    /// It will be closed when its output is sent and the peer has seen the end. The reason is there
    /// if the user does not know it yet.
    Ending(Option<LinkError>),
}

impl<N: Network> Connection<N> {
    pub(super) fn new(
        link: Link,
        stream: Option<N::Stream>,
        address: SocketAddr,
        phase: Phase,
        (queue, budget): (usize, &Arc<Budget>),
    ) -> Connection<N> {
        let initiated = matches!(phase, Phase::Connecting(_));
        Connection {
            link,
            stream,
            address,
            phase,
            announced: initiated,
            to: None,
            newcomer: None,
            counted: None,
            deadline: None,
            early: Output::default(),
            assembler: MessageAssembler::default(),
            output: Output::default(),
            room: SendLimit::new(queue),
            share: Share::new(budget),
            cipher: None,
            rings: None,
            closing: false,
            failed: None,
            full: false,
            end_seen: false,
            in_ready: false,
            in_dirty: false,
        }
    }

    /// Returns the number of bytes that wait to be sent.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.output.len() + self.early.len()
    }

    /// Notes the memory that it holds.
    ///
    /// # Errors
    /// Returns an error if all links together would hold more than they may.
    #[inline]
    pub(super) fn charge(&mut self) -> Result<(), LinkError> {
        let records = self.cipher.as_ref().map_or(0, |cipher| cipher.memory());
        let posted = self.rings.as_ref().map_or(0, |it| it.rings.posted());
        let held = self.waiting() + self.assembler.memory() + records + posted;
        self.share.set(held).map_err(|Full| {
            let address = self.address;
            tracing::warn!(%address, held, "closed: links hold as much as they may together");
            LinkError::MemoryLimit { held }
        })
    }

    /// Takes a message of this length to be sent, in parts.
    #[inline]
    pub(super) fn take(
        &mut self,
        len: usize,
        parts: &[&[u8]],
        pool: &mut Vec<Vec<u8>>,
    ) -> Result<(), SendError> {
        let to = match self.admit(len)? {
            true => &mut self.output,
            false => &mut self.early,
        };
        to.append(&message_head(len), pool);
        parts.iter().for_each(|part| to.append(part, pool));
        Ok(())
    }

    /// Does the same, and writes the message at once if nothing waits before it and its last part is long: that part
    /// is not copied to the output.
    pub(super) fn take_now(
        &mut self,
        network: &mut N,
        len: usize,
        parts: &[&[u8]],
        pool: &mut Vec<Vec<u8>>,
    ) -> Result<io::Result<()>, SendError> {
        if let [first @ .., last] = parts
            && last.len() >= LONG
            && self.waiting() == 0
            && !self.full
            // Encryption copies it anyway.
            && self.cipher.is_none()
            && self.admit(len)?
        {
            let first = [&message_head(len), &first.concat()[..]].concat();
            return Ok(self.write_at_once(network, &first, last, pool));
        }
        self.take(len, parts, pool).map(Ok)
    }

    /// Returns `true` if a message of this length can be taken and the link is up, `false` if the message must wait
    /// until the link is up.
    #[inline]
    fn admit(&mut self, len: usize) -> Result<bool, SendError> {
        let is_up = match self.phase {
            _ if self.closing || self.failed.is_some() => return Err(SendError::Down),
            Phase::Up => true,
            Phase::Connecting(_) | Phase::Greeting(..) => false,
            Phase::Ending(_) => return Err(SendError::Down),
        };
        self.room.admit(self.waiting(), LENGTH + len)?;
        Ok(is_up)
    }

    /// Writes both parts as far as that is possible now, and keeps the rest as output.
    fn write_at_once(
        &mut self,
        network: &mut N,
        first: &[u8],
        last: &[u8],
        pool: &mut Vec<Vec<u8>>,
    ) -> io::Result<()> {
        let mut socket = LinkSocket {
            network,
            stream: &mut self.stream,
        };
        let mut both = [IoSlice::new(first), IoSlice::new(last)];
        let mut rest = &mut both[..];
        while !rest.is_empty() {
            let written = match &mut self.rings {
                Some(through) => through.rings.write(&rest[0]),
                None => socket.write_vectored(rest),
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => IoSlice::advance_slices(&mut rest, n),
                // Flushing notices the error, too.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        rest.iter().for_each(|part| self.output.append(part, pool));
        Ok(())
    }

    /// Appends frames of the handshake.
    pub(super) fn send_frames(&mut self, frames: &[u8]) {
        self.output.append(frames, &mut Vec::new());
    }

    /// Encrypts the socket's bytes from now on; `arrived` are the first bytes of records.
    pub(super) fn encrypt(&mut self, mut cipher: Box<Cipher>, arrived: &[u8]) {
        cipher.send_plain(&self.output.take());
        cipher.take_arrived(arrived);
        self.cipher = Some(cipher);
    }

    /// Returns `true` if the socket's bytes are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// Makes the connection ready for messages, because the peer has authenticated: early messages
    /// may be sent.
    ///
    /// # Errors
    /// Returns an error if the end of the handshake cannot be encrypted.
    pub(super) fn up(&mut self, rings: Option<Box<LinkStream>>) -> io::Result<()> {
        self.phase = Phase::Up;
        self.deadline = None;
        if let Some(rings) = rings {
            let words = self.output.take();
            let words = match self.cipher.take() {
                Some(mut cipher) => cipher.seal(&words)?,
                None => words,
            };
            self.rings = Some(Box::new(MemoryLink::new(*rings, words)));
        }
        self.output.follow(std::mem::take(&mut self.early));
        Ok(())
    }

    /// Has the network report the events of a device, if messages travel by its Receives: as those of
    /// the socket.
    ///
    /// # Errors
    /// Returns an error if the network waits for sockets alone.
    pub(super) fn watch_events(&self, network: &mut N, token: usize) -> io::Result<()> {
        let rings = self.rings.as_ref();
        match rings.and_then(|through| through.rings.events()) {
            // The descriptor is closed with the connection, and is watched no longer then.
            Some(events) => {
                let mut source = mio::unix::SourceFd(&events);
                let registry = network.registry()?;
                registry.register(&mut source, mio::Token(token), mio::Interest::READABLE)
            }
            None => Ok(()),
        }
    }

    /// Returns `true` if messages travel by Send and Receive.
    pub(super) fn is_send_receive(&self) -> bool {
        let rings = self.rings.as_ref();
        rings.is_some_and(|through| through.rings.transport().is_send_receive())
    }

    /// Notes that writing has failed. Bytes that have arrived before can still be read.
    pub(super) fn fail(&mut self, error: &io::Error) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(LinkError::broken(error));
        self.output = Output::default();
    }

    /// Returns the reason why writing has failed, if it has.
    pub(super) fn failed(&self) -> Option<LinkError> {
        self.failed.clone()
    }

    /// Returns `true` if the user must be informed that the link takes messages again.
    pub(super) fn drained(&mut self) -> bool {
        let waiting = self.waiting();
        matches!(self.phase, Phase::Up) && self.room.drained(waiting)
    }

    /// Writes the output. Returns `true` if there is more that the system would take.
    pub(super) fn write(
        &mut self,
        network: &mut N,
        pool: &mut Vec<Vec<u8>>,
        scratch: &mut Scratch,
    ) -> io::Result<bool> {
        let mut socket = LinkSocket {
            network,
            stream: &mut self.stream,
        };
        if let Some(through) = &mut self.rings {
            through.finish_handshake(&mut socket)?;
        }
        if !self.full {
            let written = match (&mut self.rings, &mut self.cipher) {
                (Some(through), _) => self.output.write(TURN, pool, |b| through.rings.write(b)),
                (None, Some(cipher)) => {
                    let written = self
                        .output
                        .write(TURN, pool, |b| cipher.write(&mut socket, b, scratch))?;
                    match cipher.flush(&mut socket)? {
                        true => Ok(written),
                        false => Ok(Written::Full),
                    }
                }
                (None, None) => self.output.write(TURN, pool, |b| socket.write(b)),
            };
            match written? {
                Written::All => {}
                Written::Enough => return Ok(true),
                Written::Full => self.full = true,
            }
        }
        self.ring(network)?;
        Ok(false)
    }

    /// Rings a bell for the peer if it sleeps and there is something for it in a ring.
    #[inline]
    pub(super) fn ring(&mut self, network: &mut N) -> io::Result<()> {
        let stream = &mut self.stream;
        match &mut self.rings {
            Some(through) => through.ring(&mut LinkSocket { network, stream }),
            None => Ok(()),
        }
    }

    /// Returns `true` if all output has been sent, and the peer can see it.
    pub(super) fn is_written(&self) -> bool {
        self.waiting() == 0
            && self.cipher.as_deref().is_none_or(Cipher::is_flushed)
            && self.rings.as_deref().is_none_or(MemoryLink::is_written)
    }

    /// Looks at the ring.
    #[inline]
    pub(super) fn look(&self) -> RingPoll {
        match &self.rings {
            Some(through) if through.rings.has_input() => RingPoll::Input,
            Some(through) if self.full && through.rings.has_room() => RingPoll::Space,
            _ => RingPoll::Nothing,
        }
    }

    /// Reads once, and appends the messages that are whole.
    pub(super) fn read(
        &mut self,
        network: &mut N,
        inbox: &mut Inbox,
        limit: usize,
        scratch: &mut Scratch,
    ) -> AssemblyProgress {
        let (to, end_seen) = ((self.link, limit), self.end_seen);
        let mut socket = LinkSocket {
            network,
            stream: &mut self.stream,
        };
        let Some(through) = &mut self.rings else {
            return match &mut self.cipher {
                None => self.assembler.read(&mut socket, inbox, to, end_seen),
                Some(cipher) => {
                    let mut from = Decrypted {
                        cipher,
                        socket: &mut socket,
                        scratch,
                        records: cipher::ALL,
                    };
                    self.assembler.read(&mut from, inbox, to, end_seen)
                }
            };
        };
        // The socket comes first: the bytes that a peer wrote before it closed are in the ring
        // then.
        through.drain_bells(&mut socket);
        let progress = self.assembler.read(&mut through.rings, inbox, to, false);
        through.end_behind(progress)
    }

    /// Reads frames of the handshake, and appends them to the bytes that have arrived.
    pub(super) fn read_greeting(
        &mut self,
        network: &mut N,
        arrived: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> AssemblyProgress {
        let mut socket = LinkSocket {
            network,
            stream: &mut self.stream,
        };
        match &mut self.cipher {
            None => message_assembler::append(&mut socket, arrived),
            Some(cipher) => {
                let mut from = Decrypted {
                    cipher,
                    socket: &mut socket,
                    scratch,
                    // Bells may follow.
                    records: 1,
                };
                message_assembler::append(&mut from, arrived)
            }
        }
    }

    /// Takes the messages that have come together with the end of the handshake.
    pub(super) fn read_rest(
        &mut self,
        rest: &[u8],
        inbox: &mut Inbox,
        limit: usize,
    ) -> Result<(), LinkError> {
        if self.rings.is_some() {
            // These are bells; the ring is looked at anyway.
            return Ok(());
        }
        self.assembler.take(rest, inbox, (self.link, limit))
    }

    /// Reads and drops bytes that are not needed any more, encrypted or not.
    pub(super) fn discard(&mut self, network: &mut N, inbox: &mut Inbox) -> AssemblyProgress {
        let mut socket = LinkSocket {
            network,
            stream: &mut self.stream,
        };
        let Some(through) = &mut self.rings else {
            return message_assembler::discard(&mut socket, inbox);
        };
        through.drain_bells(&mut socket);
        // A peer that is closing, too, can then send its waiting output.
        let progress = message_assembler::discard(&mut through.rings, inbox);
        through.end_behind(progress)
    }
}

/// The bytes of an encrypted connection.
struct Decrypted<'a, R> {
    cipher: &'a mut Cipher,
    socket: &'a mut R,
    scratch: &'a mut Scratch,
    /// The greatest number of records that are opened by one read.
    records: usize,
}

impl<R: Read> Read for Decrypted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.cipher
            .read(self.socket, into, self.scratch, self.records)
    }
}
