//! Reads a region of a peer through a connection that serves no other purpose.
//!
//! | step | visitor | owner |
//! |---|---|---|
//! | 1 | makes a queue pair ([`Domain::visit`]), and sends its address | |
//! | 2 | | connects one of its own to it ([`Domain::admit`]), and answers with a grant that names both region and queue pair |
//! | 3 | connects ([`Visit::enter`]), and may read | |
//!
//! The grant is as in the module `offer`, with the region in the mailbox's place. Grants and
//! addresses travel over a link whose peer has proved its identity.
//!
//! The owner does nothing on the connection, except to check now and then if the visitor still
//! exists. Each visitor has a connection of its own: a refusal ends only its own reads.

use std::fmt;
use std::io;
use std::time::Duration;

use base::memory::RemoteError;

use super::active_pair::ActivePair;
use super::address::QueuePairAddress;
use super::connection::Opening;
use super::memory::{Domain, VerbsRemote};
use super::options::Depths;
use super::pair_offer::{join_grants, split_grant};
use crate::memory::{Access, Grant};

/// Depths for the owner's side, where there is next to no work.
pub(super) const OWNER_DEPTHS: Depths = Depths {
    sends: 8,
    reads: 1,
    landing_words: 64,
    staging_words: 64,
    signal_every: 1,
};

/// The greatest time that a visitor waits for a read: it has other nodes to ask, and the device may
/// take a minute to give an owner up.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// A queue pair that will read a region of a peer.
#[derive(Debug)]
pub struct Visit(Opening);

/// The owner's side of a visit. Dropping it ends the visitor's reads.
pub struct AdmittedVisit(ActivePair);

impl fmt::Debug for AdmittedVisit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.pair.number();
        f.debug_tuple("AdmittedVisit").field(&number).finish()
    }
}

impl Domain {
    /// Makes a queue pair that will read a region of a peer.
    ///
    /// # Errors
    /// Returns an error if the device has no more, or if the system does not lock so much memory.
    pub fn visit(&self) -> io::Result<Visit> {
        let depths = Depths {
            staging_words: OWNER_DEPTHS.staging_words,
            ..self.device.options.depths
        };
        self.open_with(&depths, true).map(Visit)
    }

    /// Lets a visitor read a region of this domain, of which this is the grant. Returns the grant
    /// that the visitor needs.
    ///
    /// # Errors
    /// Returns an error if the address is not valid, if the two do not fit together, or if the
    /// device has no more.
    pub fn admit(
        &self,
        region: &Grant,
        visitor: &[u8],
    ) -> Result<(Grant, AdmittedVisit), RemoteError> {
        let refused = |text: &str| RemoteError::Refused(text.to_owned());
        if region.access() != Access::Read {
            return Err(refused("visitors read, and this region can be written"));
        }
        let address = QueuePairAddress::decode(visitor);
        let address = address.ok_or_else(|| refused("the visitor has no address"))?;
        let lost = |error: io::Error| RemoteError::Lost(error.to_string());
        let opening = self.open_with(&OWNER_DEPTHS, false).map_err(lost)?;
        let grant = join_grants(region, opening.address());
        let line = opening.connect_line(&address).map_err(lost)?;
        Ok((grant, AdmittedVisit(line)))
    }
}

impl Visit {
    /// Returns the address that the owner needs in order to admit the visitor.
    #[must_use]
    pub fn address(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(QueuePairAddress::LEN);
        self.0.address().encode(&mut bytes);
        bytes
    }

    /// Connects to the owner that has answered with this grant, and checks that the region is that
    /// of the grant. `is_alive` is called while a read takes long: if it returns `false`, the
    /// region is [`Lost`](RemoteError::Lost) at once, and not only when the device has given the
    /// owner up.
    ///
    /// # Errors
    /// Returns an error if the grant does not come from a visit, or if the region is out of reach.
    pub fn enter(
        self,
        grant: &Grant,
        is_alive: impl Fn() -> bool + Send + 'static,
    ) -> Result<VerbsRemote, RemoteError> {
        let Some((region, address)) = split_grant(grant) else {
            let text = "the grant is not one for a visit".to_owned();
            return Err(RemoteError::Refused(text));
        };
        let connection = self.0.connect(&address);
        let connection = connection.map_err(|error| RemoteError::Lost(error.to_string()))?;
        let mut line = connection.line();
        line.watch(Box::new(is_alive));
        line.be_patient(READ_TIMEOUT);
        drop(line);
        crate::memory::Memory::reach(&connection, &region)
    }
}

impl AdmittedVisit {
    /// Returns `true` if the visitor has gone, as far as is known here: [`AdmittedVisit::ask`]
    /// finds out.
    pub fn has_gone(&mut self) -> bool {
        self.0.poll();
        self.0.check().is_err()
    }

    /// Asks the visitor's device for a sign of life, unless a question is unanswered.
    pub fn ask(&mut self) {
        if self.0.is_idle() {
            // A failure is kept for the next call.
            drop(self.0.touch());
        }
    }
}
