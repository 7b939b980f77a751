//! Ways for messages besides the connection: memory of this machine, and of RDMA devices.

use std::io;

use super::link_error::MailboxError;
use super::options::Transport;
use crate::frame::TransportSet;
use crate::memory::{Access, Grant, Kind, Memory, Region};
use crate::ring::{RingError, Rings, Until};
use crate::shm::{Shm, ShmRegion, ShmRemote};
use crate::verbs;

/// Returns the way of a kind of memory.
pub(super) fn transport_of(kind: Kind) -> TransportSet {
    match kind {
        Kind::Shm => TransportSet::SHM,
        Kind::Verbs => TransportSet::VERBS,
    }
}

/// A mailbox of this side, before the peer's is known.
#[derive(Debug)]
pub(super) enum LinkMailbox {
    Shm(Shm, ShmRegion),
    Verbs(Box<verbs::PairOffer>),
}

impl LinkMailbox {
    /// Makes a mailbox of `words` words in memory of this machine.
    pub(super) fn shm(shm: &Shm, words: usize) -> io::Result<LinkMailbox> {
        let region = shm.register(words, Access::Write)?;
        Ok(LinkMailbox::Shm(shm.clone(), region))
    }

    /// Makes a mailbox of `words` words that a device reaches.
    pub(super) fn verbs(domain: &verbs::Domain, words: usize) -> io::Result<LinkMailbox> {
        Ok(LinkMailbox::Verbs(Box::new(domain.offer(words)?)))
    }

    /// Returns the grant that the peer needs in order to write to it.
    pub(super) fn grant(&self) -> Grant {
        match self {
            LinkMailbox::Shm(_, region) => region.grant().clone(),
            LinkMailbox::Verbs(offer) => offer.grant().clone(),
        }
    }

    /// Makes rings over this mailbox and the peer's.
    pub(super) fn connect(self, peer: &Grant) -> Result<LinkRings, MailboxError> {
        if peer.access() != Access::Write {
            return Err(MailboxError::NotWritable);
        }
        let rings = match self {
            LinkMailbox::Shm(shm, near) => {
                let mut far = shm.reach(peer)?;
                // The connection shows when the peer is gone.
                far.trust_owner();
                Rings::new(near, far).map(LinkRings::Shm)
            }
            LinkMailbox::Verbs(offer) => {
                let negotiated = offer.accept(peer)?;
                Rings::new(negotiated.mailbox, negotiated.remote).map(LinkRings::Verbs)
            }
        };
        Ok(rings?)
    }
}

/// Both directions of a link through memory, of either kind.
#[derive(Debug)]
pub(super) enum LinkRings {
    Shm(Rings<ShmRegion, ShmRemote>),
    Verbs(Rings<verbs::Region, verbs::Remote>),
}

/// Evaluates an expression with rings of either kind.
macro_rules! either {
    ($self:ident, $rings:ident => $what:expr) => {
        match $self {
            LinkRings::Shm($rings) => $what,
            LinkRings::Verbs($rings) => $what,
        }
    };
}

impl LinkRings {
    /// Returns the transport.
    pub(super) fn transport(&self) -> Transport {
        match self {
            LinkRings::Shm(_) => Transport::Shm,
            LinkRings::Verbs(_) => Transport::Verbs,
        }
    }

    /// Closes the mailbox to other processes: both sides have what they need of each other. The
    /// mailbox of a device belongs to one connection anyway.
    pub(super) fn close_to_others(&mut self) {
        if let LinkRings::Shm(rings) = self {
            rings.mailbox_mut().close_to_others();
        }
    }

    #[inline]
    pub(super) fn has_input(&self) -> bool {
        either!(self, rings => rings.has_input())
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        either!(self, rings => rings.has_room())
    }

    #[inline]
    pub(super) fn is_unsettled(&self) -> bool {
        either!(self, rings => rings.is_unsettled())
    }

    #[inline]
    pub(super) fn must_ring(&mut self) -> Result<bool, RingError> {
        either!(self, rings => rings.must_ring())
    }

    pub(super) fn sleep(&mut self, until: Until) -> Result<bool, RingError> {
        either!(self, rings => rings.sleep(until))
    }

    #[inline]
    pub(super) fn wake(&mut self) -> Result<(), RingError> {
        either!(self, rings => rings.wake())
    }
}

impl io::Read for LinkRings {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, rings => rings.read(into))
    }
}

impl io::Write for LinkRings {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, rings => rings.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
