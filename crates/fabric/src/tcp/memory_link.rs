//! A connection whose messages travel through memory. Bytes on the socket are bells then, and the
//! end of the socket is the end of the link.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use super::link_error::LinkError;
use super::link_memory::LinkStream;
use super::message_assembler::AssemblyProgress;

/// See the module's description.
#[derive(Debug)]
pub(super) struct MemoryLink {
    pub(super) rings: LinkStream,
    /// The end of the handshake, which is still to be sent on the socket.
    words: Vec<u8>,
    /// The socket may have bells, or its end.
    pub(super) called: bool,
    /// The reason why nothing more will come than the contents of the ring.
    ended: Option<LinkError>,
    /// It is in the list of connections whose rings are looked at.
    pub(super) awake: bool,
    /// The time of the last event while it was looked at.
    pub(super) quiet_since: Duration,
}

impl MemoryLink {
    pub(super) fn new(rings: LinkStream, words: Vec<u8>) -> MemoryLink {
        MemoryLink {
            rings,
            words,
            called: true,
            ended: None,
            awake: false,
            quiet_since: Duration::ZERO,
        }
    }

    /// Returns `true` if everything has been sent, including the handshake, and the peer can see
    /// it.
    pub(super) fn is_written(&self) -> bool {
        self.words.is_empty() && !self.rings.is_unsettled()
    }

    /// Sends the end of the handshake. If the socket does not take it, this is tried again with the
    /// next message; an event of the system tells when the socket has room.
    pub(super) fn finish_handshake(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while !self.words.is_empty() {
            match stream.write(&self.words) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.words.drain(..n)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Rings a bell for the peer if it sleeps and there is something for it in a ring.
    #[inline]
    pub(super) fn ring(&mut self, stream: &mut impl Write) -> io::Result<()> {
        // A peer whose handshake has not ended does not sleep.
        if !self.words.is_empty() || !self.rings.must_ring()? {
            return Ok(());
        }
        match stream.write(&[0]) {
            // The socket is full of bells that wait for the peer already.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            rung => rung.map(drop),
        }
    }

    /// Takes the bells from the socket, and notices its end.
    pub(super) fn drain_bells(&mut self, stream: &mut impl Read) {
        let mut bells = [0; 64];
        while self.called && self.ended.is_none() {
            match stream.read(&mut bells) {
                Ok(0) => self.ended = Some(LinkError::ClosedByPeer),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.called = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.ended = Some(LinkError::broken(&error)),
            }
        }
    }

    /// Returns the result of reading if the socket has ended: the contents of the ring came before
    /// that.
    pub(super) fn end_behind(&self, progress: AssemblyProgress) -> AssemblyProgress {
        match (progress, &self.ended) {
            (AssemblyProgress::Dry, Some(why)) => AssemblyProgress::End(why.clone()),
            (progress, _) => progress,
        }
    }
}
