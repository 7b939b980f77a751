//! Slots of a node's own partition (paper 1, section 3.2; GET\*): a request for keys may ask for the
//! addresses of their slots, and then has each key published.
//!
//! The engine reports every write when its version becomes the newest one ([`Watcher`]). From then on
//! the key's slot is not valid, until the new version is published as soon as that is durable:
//!
//! | by whom | when |
//! |---|---|
//! | the node ([`Renewal::OnCommit`]; paper 1, algorithm 2) | the key has a slot, and was asked for within its last writes. Addresses that readers keep stay good |
//! | the next request for the key | otherwise |
//!
//! A key that is written and not read costs its writer a look at a counter.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::versions::{OwnedFound, OwnedVersion, Versioned, Watcher};
use parking_lot::Mutex;

use super::slots::{Address, Slots, Ticket};

/// The ways by which peers reach the memory that slots are in.
pub trait RegionAccess: Send + Sync {
    /// Returns what a peer needs in order to read the memory, given its offer (see [`Request::Region`]);
    /// `None` if the peer cannot reach it.
    ///
    /// [`Request::Region`]: crate::message::Request::Region
    fn open(&self, offer: &[u8]) -> Option<Vec<u8>>;
}

/// When a slot whose key was written is published again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renewal {
    /// When the write is durable. A thread that serves alone does it before it answers a writer that is a
    /// client of the cluster's protocol; of several threads another one may do it a moment later.
    #[default]
    OnCommit,
    /// When the key is asked for.
    OnRequest,
}

/// A name that is none of a [`Renewal`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no time of renewal: take on-commit or on-request")]
pub struct UnknownRenewal(String);

impl FromStr for Renewal {
    type Err = UnknownRenewal;

    fn from_str(name: &str) -> Result<Renewal, UnknownRenewal> {
        match name {
            "on-commit" => Ok(Renewal::OnCommit),
            "on-request" => Ok(Renewal::OnRequest),
            other => Err(UnknownRenewal(other.to_owned())),
        }
    }
}

/// The slots of a partition, and how peers reach them.
pub struct PublishedSlots {
    slots: Slots,
    access: Box<dyn RegionAccess>,
    renewal: Renewal,
    /// Keys whose slots are to be renewed.
    written: Mutex<Vec<Vec<u8>>>,
    /// `true` if there are any.
    has_written: AtomicBool,
}

impl fmt::Debug for PublishedSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.slots.figures();
        f.debug_tuple("Published").field(&figures).finish()
    }
}

/// Versions that were found, and are published when they are durable.
#[derive(Debug)]
pub(crate) struct LocatedVersions {
    pub(crate) founds: Vec<OwnedFound>,
    /// The keys, and the state of each key's slot before the key was read.
    pub(crate) keys: Vec<(Vec<u8>, Option<Ticket>)>,
}

impl PublishedSlots {
    /// Creates slots in memory that peers reach by `access`.
    #[must_use]
    pub fn new(
        slots: Slots,
        access: Box<dyn RegionAccess>,
        renewal: Renewal,
    ) -> Arc<PublishedSlots> {
        Arc::new(PublishedSlots {
            slots,
            access,
            renewal,
            written: Mutex::default(),
            has_written: AtomicBool::new(false),
        })
    }

    /// Returns keys whose slots are to be renewed, each once for each write.
    pub(crate) fn take_written(&self) -> Vec<Vec<u8>> {
        match self.has_written.swap(false, Ordering::AcqRel) {
            true => std::mem::take(&mut *self.written.lock()),
            false => Vec::new(),
        }
    }

    /// Notes that the slot of a key is to be renewed.
    pub(crate) fn note_written(&self, key: Vec<u8>) {
        self.written.lock().push(key);
        self.has_written.store(true, Ordering::Release);
    }

    /// Returns the slots.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns what a peer needs in order to read the slots, given its offer, and the slots' clock in
    /// nanoseconds; `None` if the peer cannot reach the memory.
    pub(crate) fn grant(&self, offer: &[u8]) -> Option<(Vec<u8>, u64)> {
        Some((self.access.open(offer)?, self.slots.now()))
    }

    /// Publishes versions that have become durable. Returns the addresses of the keys' slots.
    pub(crate) fn publish_located(&self, located: &LocatedVersions) -> Vec<Option<Address>> {
        let pairs = located.founds.iter().zip(&located.keys);
        let address =
            |(found, (key, ticket)): (&OwnedFound, &(Vec<u8>, Option<Ticket>))| match found {
                OwnedFound::Version(version) => self.publish(key, *ticket, version),
                _ => None,
            };
        pairs.map(address).collect()
    }

    /// Publishes a version. Returns the address of the key's slot.
    fn publish(
        &self,
        key: &[u8],
        ticket: Option<Ticket>,
        version: &OwnedVersion,
    ) -> Option<Address> {
        if let Some(address) = self.slots.current(key) {
            return Some(address);
        }
        let content = version.content.as_ref();
        if content.is_some_and(|content| content.deadline.is_some()) {
            // Readers would have to know the engine's time.
            return None;
        }
        let version = Versioned {
            id: version.id,
            siblings: &version.siblings,
            content: version.content.as_ref().map(|content| content.as_content()),
        };
        let published = ticket.map(|ticket| self.slots.publish(ticket, key, &version));
        // A client that has the address keeps it while the key is written.
        published
            .and_then(Result::ok)
            .or_else(|| self.slots.address(key))
    }
}

impl Watcher for PublishedSlots {
    fn writing(&self, key: &[u8]) {
        if self.slots.writing(key) && self.renewal == Renewal::OnCommit {
            self.note_written(key.to_vec());
        }
    }

    fn written(&self, key: &[u8]) {
        self.slots.written(key);
    }

    fn writing_all(&self) {
        self.slots.writing_all();
    }

    fn written_all(&self) {
        self.slots.written_all();
    }
}
