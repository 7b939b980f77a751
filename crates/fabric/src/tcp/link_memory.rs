//! Ways for messages besides the connection: memory of this machine, and of RDMA devices.

use std::io;
use std::os::fd::RawFd;

use super::link_error::MailboxError;
use super::options::Transport;
use crate::frame::TransportSet;
use crate::memory::{Access, Grant, Memory, Region, RegionKind};
use crate::ring::{RingError, Rings, Until};
use crate::send_receive::{EmulatedPair, ReceiveDepth, SendReceive};
use crate::shm::{Shm, ShmRegion, ShmRemote};
use crate::verbs;

/// Returns the ways that a peer must know for a kind of memory.
pub(super) fn ways_for(kind: RegionKind) -> TransportSet {
    match kind {
        RegionKind::Shm => TransportSet::SHM,
        RegionKind::Verbs => TransportSet::VERBS,
        RegionKind::ShmReceives => TransportSet::SHM.or(TransportSet::SEND_RECEIVE),
        RegionKind::VerbsReceives => TransportSet::VERBS.or(TransportSet::SEND_RECEIVE),
    }
}

/// Memory of this side for a link, before the peer's is known.
#[derive(Debug)]
pub(super) enum LinkOffer {
    Shm(Shm, ShmRegion),
    Verbs(Box<verbs::PairOffer>),
    ShmReceives(Shm, ShmRegion, ReceiveDepth),
    VerbsReceives(Box<verbs::MessageOffer>),
}

impl LinkOffer {
    /// Makes a mailbox of `words` words in memory of this machine.
    pub(super) fn shm(shm: &Shm, words: usize) -> io::Result<LinkOffer> {
        let region = shm.register(words, Access::Write)?;
        Ok(LinkOffer::Shm(shm.clone(), region))
    }

    /// Makes a mailbox of `words` words that a device reaches.
    pub(super) fn verbs(domain: &verbs::Domain, words: usize) -> io::Result<LinkOffer> {
        Ok(LinkOffer::Verbs(Box::new(domain.offer(words)?)))
    }

    /// Makes places for emulated Receives in memory of this machine.
    pub(super) fn shm_receives(shm: &Shm, depth: ReceiveDepth) -> io::Result<LinkOffer> {
        let words = EmulatedPair::<ShmRegion, ShmRemote>::words(depth);
        let region = shm.register(words, Access::Write)?;
        Ok(LinkOffer::ShmReceives(shm.clone(), region, depth))
    }

    /// Makes places for the Receives of a device.
    pub(super) fn verbs_receives(
        domain: &verbs::Domain,
        depth: ReceiveDepth,
    ) -> io::Result<LinkOffer> {
        let offer = domain.message_offer(depth)?;
        Ok(LinkOffer::VerbsReceives(Box::new(offer)))
    }

    /// Returns the grant that the peer needs in order to write to it.
    pub(super) fn grant(&self) -> Grant {
        match self {
            LinkOffer::Shm(_, region) => region.grant().clone(),
            LinkOffer::Verbs(offer) => offer.grant().clone(),
            LinkOffer::ShmReceives(_, region, _) => {
                region.grant().with_kind(RegionKind::ShmReceives)
            }
            LinkOffer::VerbsReceives(offer) => offer.grant().clone(),
        }
    }

    /// Makes a stream over this memory and the peer's.
    pub(super) fn connect(self, peer: &Grant) -> Result<LinkStream, MailboxError> {
        if peer.access() != Access::Write {
            return Err(MailboxError::NotWritable);
        }
        let rings = match self {
            LinkOffer::Shm(shm, near) => {
                let mut far = shm.reach(peer)?;
                // The connection shows when the peer is gone.
                far.trust_owner();
                Rings::new(near, far).map(LinkStream::Shm)
            }
            LinkOffer::Verbs(offer) => {
                let negotiated = offer.accept(peer)?;
                Rings::new(negotiated.mailbox, negotiated.remote).map(LinkStream::Verbs)
            }
            LinkOffer::ShmReceives(shm, near, depth) => {
                let mut far = shm.reach(&peer.with_kind(RegionKind::Shm))?;
                far.trust_owner();
                let pair = EmulatedPair::new(near, far, depth)?;
                Ok(LinkStream::ShmSend(SendReceive::new(pair)))
            }
            LinkOffer::VerbsReceives(offer) => {
                let pair = offer.accept(peer)?;
                Ok(LinkStream::VerbsSend(SendReceive::new(pair)))
            }
        };
        Ok(rings?)
    }
}

/// Both directions of a link through memory, of any kind.
#[derive(Debug)]
pub(super) enum LinkStream {
    Shm(Rings<ShmRegion, ShmRemote>),
    Verbs(Rings<verbs::VerbsRegion, verbs::VerbsRemote>),
    ShmSend(SendReceive<EmulatedPair<ShmRegion, ShmRemote>>),
    VerbsSend(SendReceive<verbs::MessagePair>),
}

/// Evaluates an expression with a stream of any kind.
macro_rules! any {
    ($self:ident, $stream:ident => $what:expr) => {
        match $self {
            LinkStream::Shm($stream) => $what,
            LinkStream::Verbs($stream) => $what,
            LinkStream::ShmSend($stream) => $what,
            LinkStream::VerbsSend($stream) => $what,
        }
    };
}

impl LinkStream {
    /// Returns the transport.
    pub(super) fn transport(&self) -> Transport {
        match self {
            LinkStream::Shm(_) => Transport::Shm,
            LinkStream::Verbs(_) => Transport::Verbs,
            LinkStream::ShmSend(_) => Transport::ShmSend,
            LinkStream::VerbsSend(_) => Transport::VerbsSend,
        }
    }

    /// Returns the bytes that this side has posted for Receives; of rings none.
    pub(super) fn posted(&self) -> usize {
        match self {
            LinkStream::Shm(_) | LinkStream::Verbs(_) => 0,
            LinkStream::ShmSend(stream) => stream.posted(),
            LinkStream::VerbsSend(stream) => stream.posted(),
        }
    }

    /// Returns the descriptor of a device that becomes readable when something comes while this
    /// side sleeps; `None` if the peer rings bells.
    pub(super) fn events(&self) -> Option<RawFd> {
        match self {
            LinkStream::VerbsSend(stream) => stream.events(),
            LinkStream::Shm(_) | LinkStream::Verbs(_) | LinkStream::ShmSend(_) => None,
        }
    }

    /// Closes the mailbox to other processes: both sides have what they need of each other. The
    /// mailbox of a device belongs to one connection anyway.
    pub(super) fn close_to_others(&mut self) {
        match self {
            LinkStream::Shm(rings) => rings.mailbox_mut().close_to_others(),
            LinkStream::ShmSend(stream) => stream.pair_mut().region_mut().close_to_others(),
            LinkStream::Verbs(_) | LinkStream::VerbsSend(_) => {}
        }
    }

    #[inline]
    pub(super) fn has_input(&self) -> bool {
        any!(self, stream => stream.has_input())
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        any!(self, stream => stream.has_room())
    }

    #[inline]
    pub(super) fn is_unsettled(&self) -> bool {
        any!(self, stream => stream.is_unsettled())
    }

    #[inline]
    pub(super) fn must_ring(&mut self) -> Result<bool, RingError> {
        any!(self, stream => stream.must_ring())
    }

    pub(super) fn sleep(&mut self, until: Until) -> Result<bool, RingError> {
        any!(self, stream => stream.sleep(until))
    }

    #[inline]
    pub(super) fn wake(&mut self) -> Result<(), RingError> {
        any!(self, stream => stream.wake())
    }
}

impl io::Read for LinkStream {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        any!(self, stream => stream.read(into))
    }
}

impl io::Write for LinkStream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        any!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
