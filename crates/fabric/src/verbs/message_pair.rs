//! Send and Receive: the queues of a device for [`send_receive`](crate::send_receive).
//!
//! Two sides meet by one exchange, as in the module `pair_offer`. The grant of an offer has the kind
//! [`RegionKind::VerbsReceives`], the words of all places, a key without meaning, and as its address the
//! queue pair's [`QueuePairAddress`], which says how many places there are, and how long they are.
//!
//! Each Send is signalled: its completion tells that the peer's device has the piece. Events come
//! from Receives alone.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use base::memory::{RemoteError, WORD};

use super::active_pair::ActivePair;
use super::address::QueuePairAddress;
use super::connection::Opening;
use super::memory::Domain;
use super::options::{Depths, ReceiveQueue};
use super::resources::Registered;
use crate::memory::{Access, Grant, RegionKind};
use crate::send_receive::{ArrivedPiece, QueuePair, ReceiveDepth, copy};

/// The number of Sends that may be in progress in addition to those that the peer has places for.
const MARGIN: u32 = 2;

/// A queue pair with posted places, for a peer that is not known yet.
#[derive(Debug)]
pub struct MessageOffer {
    opening: Opening,
    depth: ReceiveDepth,
    grant: Grant,
}

/// The queues of a connection for pieces of a stream.
pub struct MessagePair {
    line: ActivePair,
    inbox: Arc<Registered>,
    depth: ReceiveDepth,
    peer: ReceiveDepth,
}

impl std::fmt::Debug for MessagePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessagePair")
            .field("pair", &self.line.pair.number())
            .finish_non_exhaustive()
    }
}

impl Domain {
    /// Makes a queue pair and posts these places. As many bytes may be sent and not yet taken by the
    /// device as the places hold. It needs one descriptor.
    ///
    /// # Errors
    /// Returns an error if the device has no more, or if the system does not lock so much memory.
    pub fn message_offer(&self, depth: ReceiveDepth) -> io::Result<MessageOffer> {
        let (places, bytes) = (depth.places as u32, depth.bytes as u32);
        let depths = Depths {
            sends: (places + MARGIN).max(8),
            staging_words: (depth.total() / WORD).max(64),
            signal_every: 1,
            ..self.device.options.depths
        };
        let opening = self.open_receiving(&depths, ReceiveQueue { places, bytes }, true)?;
        let mut address = Vec::with_capacity(QueuePairAddress::LEN);
        opening.address().encode(&mut address);
        let words = depth.total() / WORD;
        let grant = Grant::new(
            RegionKind::VerbsReceives,
            Access::Write,
            words,
            [0; 16],
            &address,
        );
        Ok(MessageOffer {
            opening,
            depth,
            grant,
        })
    }
}

impl MessageOffer {
    /// Returns the grant that the peer needs in order to accept it.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Connects to the peer that has sent this grant. The peer may send as soon as it knows that.
    ///
    /// # Errors
    /// Returns an error if the grant does not come from such an offer, or if the two do not fit
    /// together.
    pub fn accept(self, peer: &Grant) -> Result<MessagePair, RemoteError> {
        let refused = |text: &str| Err(RemoteError::Refused(text.to_owned()));
        if peer.kind() != RegionKind::VerbsReceives {
            return refused("the peer offers no Receives of an RDMA device");
        }
        let Some(address) = QueuePairAddress::decode(peer.address()) else {
            return refused("the peer's offer has no address that is known here");
        };
        let theirs = ReceiveDepth {
            places: usize::from(address.receives),
            bytes: address.receive_bytes as usize,
        };
        if !(ReceiveDepth::PLACES_MIN..=ReceiveDepth::PLACES_MAX).contains(&theirs.places) {
            return refused("the peer posts too few or too many Receives");
        }
        let lost = |error: io::Error| RemoteError::Lost(error.to_string());
        let (line, inbox) = self.opening.connect_receiving(&address).map_err(lost)?;
        let Some(inbox) = inbox else {
            return refused("no Receives were posted here");
        };
        Ok(MessagePair {
            peer: ReceiveDepth {
                // A piece lies in this side's staging memory, of which it takes a quarter at most.
                bytes: theirs.bytes.min(line.piece() * WORD),
                ..theirs
            },
            line,
            inbox,
            depth: self.depth,
        })
    }
}

impl QueuePair for MessagePair {
    fn receives(&self) -> ReceiveDepth {
        self.depth
    }

    fn peer_receives(&self) -> ReceiveDepth {
        self.peer
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.line.has_room(bytes.div_ceil(WORD))
    }

    fn send(&mut self, piece: &[u8], number: u32) -> Result<(), RemoteError> {
        self.line.send(piece, number)
    }

    fn receive(&mut self) -> Result<Option<ArrivedPiece>, RemoteError> {
        if self.line.arrived.is_empty() {
            self.line.poll();
            self.line.poll_messages();
        }
        let Some(arrived) = self.line.arrived.pop_front() else {
            return self.line.check().map(|()| None);
        };
        Ok(Some(ArrivedPiece {
            place: arrived.place as usize,
            len: arrived.len.min(self.depth.bytes),
            number: arrived.number,
        }))
    }

    fn load(&self, place: usize, from: usize, into: &mut [u8]) {
        let words = &self.inbox.words()[place * self.depth.bytes / WORD..];
        copy(words, from, into);
    }

    fn post(&mut self, place: usize) -> Result<(), RemoteError> {
        self.line
            .expect(place as u64, &self.inbox, self.depth.bytes)
    }

    fn is_unsettled(&self) -> bool {
        !self.line.is_idle() && self.line.check().is_ok()
    }

    fn settle(&mut self) -> Result<bool, RemoteError> {
        if !self.line.is_idle() {
            self.line.poll();
            self.line.check()?;
        }
        Ok(false)
    }

    fn arm(&mut self) -> Result<(), RemoteError> {
        // An event for an earlier request may have come since.
        self.disarm()?;
        let asked = self.line.pair.ask_for_receive_event();
        asked.map_err(|error| RemoteError::Lost(error.to_string()))
    }

    fn disarm(&mut self) -> Result<(), RemoteError> {
        if let Some(channel) = self.line.pair.channel() {
            channel.take();
        }
        Ok(())
    }

    fn events(&self) -> Option<RawFd> {
        self.line.pair.channel().map(|channel| channel.fd())
    }
}
