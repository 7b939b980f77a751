//! Meeting a peer in one exchange: a queue pair and a mailbox of each side, told in one grant.
//!
//! The address in such a grant, in bytes:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 12 | where the mailbox is, as in any grant of the module `memory` |
//! | 12 | 40 | where the queue pair is, an [`Address`] |
//!
//! | step | initiator | acceptor |
//! |---|---|---|
//! | 1 | makes an offer, and sends its grant | |
//! | 2 | | makes an offer, accepts the initiator's, and sends its own grant |
//! | 3 | accepts the acceptor's offer, and says so; may write from here on | |
//! | 4 | | has heard so; may write from here on |
//!
//! Grants travel over a link that has proved who is at its other end, and are of use once. Nothing
//! here waits: a mailbox that was told just now is not asked for its key.

use std::io;

use base::memory::RemoteError;

use super::address::Address;
use super::connection::Opening;
use super::memory::{ADDRESS, Domain, Region, Remote};
use super::options::Depths;
use crate::memory::{Access, Grant, Kind, Region as _};

/// Words of a peer that can be on their way to here.
const LANDING: usize = 64;

/// A queue pair and a mailbox, for a peer that is not known yet.
#[derive(Debug)]
pub struct Offer {
    opening: Opening,
    mailbox: Region,
    grant: Grant,
}

/// What has come of two offers.
#[derive(Debug)]
pub struct Met {
    /// The mailbox here, which the peer writes.
    pub mailbox: Region,
    /// The peer's, to be written from here.
    pub remote: Remote,
}

impl Domain {
    /// Makes a queue pair and a mailbox of so many words, which the peer may write. It takes little
    /// memory besides, and no descriptor, as there may be many: it carries no messages, reads come
    /// in small pieces, and as much can be on its way as the mailbox holds, or the depths allow if
    /// that is less.
    ///
    /// # Errors
    /// The device has no more, or the system does not lock so much memory.
    pub fn offer(&self, words: usize) -> io::Result<Offer> {
        let depths = &self.device.options.depths;
        let small = Depths {
            receives: 0,
            staging_words: words.clamp(LANDING, depths.staging_words),
            ..*depths
        };
        let opening = self.open_with(&small, false)?;
        let mailbox = self.register(words, Access::Write)?;
        let inner = mailbox.grant();
        let mut address = inner.address().to_vec();
        opening.address().encode(&mut address);
        let grant = Grant::new(Kind::Verbs, Access::Write, words, inner.key(), &address);
        Ok(Offer {
            opening,
            mailbox,
            grant,
        })
    }
}

impl Offer {
    /// What the peer needs in order to accept it.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Connects to the peer, of which this is the grant.
    ///
    /// # Errors
    /// The grant is none of an offer, or the two do not fit together.
    pub fn accept(self, peer: &Grant) -> Result<Met, RemoteError> {
        let refused = |text: &str| RemoteError::Refused(text.to_owned());
        if peer.kind() != Kind::Verbs || peer.access() != Access::Write {
            return Err(refused("the peer offers no mailbox of an RDMA device"));
        }
        let parts = peer.address().split_at_checked(ADDRESS);
        let parts = parts.and_then(|(memory, pair)| Some((memory, Address::decode(pair)?)));
        let Some((memory, address)) = parts else {
            return Err(refused(
                "the peer's offer has no address that is known here",
            ));
        };
        let connection = self.opening.connect(&address);
        let connection = connection.map_err(|error| RemoteError::Lost(error.to_string()))?;
        let inner = Grant::new(Kind::Verbs, Access::Write, peer.words(), peer.key(), memory);
        Ok(Met {
            mailbox: self.mailbox,
            remote: connection.reach_untried(&inner, LANDING)?,
        })
    }
}
