//! Memory that a peer writes through a connection of its own: see [`window`](crate::window).
//!
//! The owner's grant is as in the module `offer`, with the region in the mailbox's place. The
//! answer is the address of the writer's queue pair. The owner does nothing on the connection.

use std::fmt;
use std::io;

use base::memory::RemoteError;

use super::active_pair::ActivePair;
use super::address::QueuePairAddress;
use super::connection::Opening;
use super::memory::{Domain, VerbsRegion, VerbsRemote};
use super::options::Depths;
use super::pair_offer::{join_grants, split_grant};
use super::visit::OWNER_DEPTHS;
use crate::memory::{Access, Grant, Region as _};

/// The number of words that the writer reads to see that its writes have taken place.
const LANDING: usize = 64;

/// A region that one peer may write.
pub struct VerbsWindow {
    region: VerbsRegion,
    grant: Grant,
    opening: Option<Opening>,
    line: Option<ActivePair>,
}

impl fmt::Debug for VerbsWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Window");
        shown.field("region", &self.region);
        shown.field("met", &self.line.is_some());
        shown.finish_non_exhaustive()
    }
}

impl Domain {
    /// Makes a region of `words` words that a peer may write, and a queue pair for that.
    ///
    /// # Errors
    /// Returns an error if the device has no more, or if the system does not lock so much memory.
    pub fn window(&self, words: usize) -> io::Result<VerbsWindow> {
        let opening = self.open_with(&OWNER_DEPTHS, false)?;
        let region = self.register(words, Access::Write)?;
        let grant = join_grants(region.grant(), opening.address());
        Ok(VerbsWindow {
            region,
            grant,
            opening: Some(opening),
            line: None,
        })
    }

    /// Reaches a peer's window. Also returns the answer for which the peer waits before it requests
    /// anything.
    ///
    /// # Errors
    /// Returns an error if the grant does not come from a window, or if the two do not fit
    /// together.
    pub fn write_to(&self, window: &Grant) -> Result<(VerbsRemote, Vec<u8>), RemoteError> {
        let refused = |text: &str| RemoteError::Refused(text.to_owned());
        let lost = |error: io::Error| RemoteError::Lost(error.to_string());
        let (region, peer) =
            split_grant(window).ok_or_else(|| refused("the grant is none of a window"))?;
        let depths = Depths {
            ..self.device.options.depths
        };
        let opening = self.open_with(&depths, false).map_err(lost)?;
        let mut answer = Vec::new();
        opening.address().encode(&mut answer);
        let connection = opening.connect(&peer).map_err(lost)?;
        Ok((connection.reach_untried(&region, LANDING)?, answer))
    }
}

impl VerbsWindow {
    /// Returns the grant that the writer needs.
    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns the region.
    pub(crate) fn region(&self) -> &VerbsRegion {
        &self.region
    }

    /// Connects to the writer's queue pair.
    pub(crate) fn meet(&mut self, answer: &[u8]) -> Result<(), RemoteError> {
        let refused = |text: &str| RemoteError::Refused(text.to_owned());
        let peer =
            QueuePairAddress::decode(answer).ok_or_else(|| refused("the answer is no address"))?;
        let opening = self.opening.take();
        let opening = opening.ok_or_else(|| refused("another peer writes to it"))?;
        let line = opening.connect_line(&peer);
        self.line = Some(line.map_err(|error| RemoteError::Lost(error.to_string()))?);
        Ok(())
    }
}
