//! Meets a peer in one exchange: one grant names a queue pair and a mailbox of a side.
//!
//! The address in such a grant, in bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 12 | where the mailbox is, as in any grant of the module `memory` |
//! | 12 | 40 | where the queue pair is, an [`QueuePairAddress`] |
//!
//! | step | initiator | acceptor |
//! |---|---|---|
//! | 1 | makes an offer, and sends its grant | |
//! | 2 | | makes an offer, accepts the initiator's, and sends its own grant |
//! | 3 | accepts the acceptor's offer, and says so; may write from here on | |
//! | 4 | | has heard so; may write from here on |
//!
//! Grants travel over a link whose peer has proved its identity, and are used once. No call here
//! waits: the key of a mailbox that was announced just now is not checked.

use std::io;

use base::memory::RemoteError;

use super::address::QueuePairAddress;
use super::connection::Opening;
use super::memory::{ADDRESS, Domain, VerbsRegion, VerbsRemote};
use super::options::Depths;
use crate::memory::{Access, Grant, Region as _, RegionKind};

/// The number of a peer's words that can be in transit to here.
const LANDING: usize = 64;

/// A queue pair and a mailbox, for a peer that is not known yet.
#[derive(Debug)]
pub struct PairOffer {
    opening: Opening,
    mailbox: VerbsRegion,
    grant: Grant,
}

/// The result of two offers.
#[derive(Debug)]
pub struct EstablishedPair {
    /// The mailbox here, which the peer writes.
    pub mailbox: VerbsRegion,
    /// The peer's mailbox, which this side writes.
    pub remote: VerbsRemote,
}

impl Domain {
    /// Makes a queue pair and a mailbox of `words` words, which the peer may write. It takes little
    /// memory besides, and no descriptor, as there may be many: it carries no messages, reads come
    /// in small pieces, and as much can be in transit as the mailbox holds, or as the depths allow
    /// if that is less.
    ///
    /// # Errors
    /// Returns an error if the device has no more, or if the system does not lock so much memory.
    pub fn offer(&self, words: usize) -> io::Result<PairOffer> {
        let depths = &self.device.options.depths;
        let small = Depths {
            staging_words: words.clamp(LANDING, depths.staging_words),
            ..*depths
        };
        let opening = self.open_with(&small, false)?;
        let mailbox = self.register(words, Access::Write)?;
        let grant = join_grants(mailbox.grant(), opening.address());
        Ok(PairOffer {
            opening,
            mailbox,
            grant,
        })
    }
}

impl PairOffer {
    /// Returns the grant that the peer needs in order to accept it.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Connects to the peer that has sent this grant.
    ///
    /// # Errors
    /// Returns an error if the grant does not come from an offer, or if the two do not fit
    /// together.
    pub fn accept(self, peer: &Grant) -> Result<EstablishedPair, RemoteError> {
        let refused = |text: &str| RemoteError::Refused(text.to_owned());
        if peer.kind() != RegionKind::Verbs || peer.access() != Access::Write {
            return Err(refused("the peer offers no mailbox of an RDMA device"));
        }
        let Some((inner, address)) = split_grant(peer) else {
            return Err(refused(
                "the peer's offer has no address that is known here",
            ));
        };
        // Words that are written and not yet taken have to fit into this side's memory for them.
        let (near, far) = (self.grant.words(), peer.words());
        if near != far {
            return Err(refused(&format!(
                "the mailbox there has {far} words, and the one here {near}; give both sides \
                 rings of one size"
            )));
        }
        let connection = self.opening.connect(&address);
        let connection = connection.map_err(|error| RemoteError::Lost(error.to_string()))?;
        Ok(EstablishedPair {
            mailbox: self.mailbox,
            remote: connection.reach_untried(&inner, LANDING)?,
        })
    }
}

/// Makes a grant for a region that names a queue pair, too.
pub(super) fn join_grants(region: &Grant, pair: &QueuePairAddress) -> Grant {
    let mut address = region.address().to_vec();
    pair.encode(&mut address);
    let (access, words) = (region.access(), region.words());
    Grant::new(RegionKind::Verbs, access, words, region.key(), &address)
}

/// Splits a grant that names both a region and a queue pair.
pub(super) fn split_grant(grant: &Grant) -> Option<(Grant, QueuePairAddress)> {
    let (region, pair) = grant.address().split_at_checked(ADDRESS)?;
    let address = QueuePairAddress::decode(pair)?;
    let (access, words) = (grant.access(), grant.words());
    let is_ours = grant.kind() == RegionKind::Verbs;
    is_ours.then(|| {
        let region = Grant::new(RegionKind::Verbs, access, words, grant.key(), region);
        (region, address)
    })
}
