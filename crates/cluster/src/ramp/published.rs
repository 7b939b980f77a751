//! Slots of a node's own partition (paper 1, section 3.2; GET\*): a request for keys may ask for the
//! addresses of their slots, and then has each key published.
//!
//! The engine reports every write when its version becomes the newest one ([`Watcher`]). From then on
//! the key's slot is not valid. The next request for the key has the new version published, as soon as
//! that is durable: a key that is written and not read costs its writer a look at a counter.

use std::fmt;
use std::sync::Arc;

use base::participant::Participant;
use base::versions::{Ask, OwnedFound, OwnedVersion, Versioned, Watcher};

use super::slots::{Address, Slots, Ticket};
use crate::message::{Answer, RegionInfo};
use crate::node::{Asker, Node};
use crate::pending_answers::Haste;

/// The ways by which peers reach the memory that slots are in.
pub trait Door: Send + Sync {
    /// Returns what a peer needs in order to read the memory, given its offer (see [`Request::Region`]);
    /// `None` if the peer cannot reach it.
    ///
    /// [`Request::Region`]: crate::message::Request::Region
    fn open(&self, offer: &[u8]) -> Option<Vec<u8>>;
}

/// The slots of a partition, and how peers reach them.
pub struct Published {
    slots: Slots,
    door: Box<dyn Door>,
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.slots.figures();
        f.debug_tuple("Published").field(&figures).finish()
    }
}

/// Versions that were found, and are published when they are durable.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) founds: Vec<OwnedFound>,
    keys: Vec<(Vec<u8>, Option<Ticket>)>,
}

impl Published {
    /// Creates slots in memory that peers reach through this door.
    #[must_use]
    pub fn new(slots: Slots, door: Box<dyn Door>) -> Arc<Published> {
        Arc::new(Published { slots, door })
    }

    /// Returns the slots.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
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

impl Watcher for Published {
    fn writing(&self, key: &[u8]) {
        self.slots.writing(key);
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

impl<C> Node<C> {
    /// Returns what a peer needs in order to read this node's slots, given its offer.
    pub(crate) fn region(&self, offer: &[u8]) -> Answer {
        Answer::Region(self.published.as_ref().and_then(|published| {
            let grant = published.door.open(offer)?;
            let clock = published.slots.now();
            Some(RegionInfo { grant, clock })
        }))
    }

    /// Reads the newest versions of read-atomic keys, and publishes them.
    pub(crate) fn locate(
        &mut self,
        partition: &mut impl Participant,
        asker: Asker,
        keys: &[&[u8]],
    ) {
        let asks: Vec<Ask<'_>> = keys.iter().map(|key| Ask::Newest { key }).collect();
        // Taken before the versions are read; otherwise a version might be published that is not the
        // newest one.
        let published = self.published.clone();
        let ticket = |key: &&[u8]| {
            let slots = published.as_ref().map(|published| &published.slots)?;
            slots.ticket(key)
        };
        let tickets: Vec<Option<Ticket>> = keys.iter().map(ticket).collect();
        let (answer, epoch) = self.look_at_versions(partition, &asks);
        let Answer::Versions(founds) = answer else {
            return self.answer(partition, asker, answer, (epoch, Haste::Soon));
        };
        let keys = keys.iter().map(|key| key.to_vec()).zip(tickets).collect();
        self.answer_located(partition, asker, Located { founds, keys }, epoch);
    }

    /// Publishes versions that have become durable.
    pub(crate) fn located(&self, located: Located) -> Answer {
        let address = |(found, (key, ticket)): (&OwnedFound, (Vec<u8>, Option<Ticket>))| {
            let published = self.published.as_ref()?;
            match found {
                OwnedFound::Version(version) => published.publish(&key, ticket, version),
                _ => None,
            }
        };
        let pairs = located.founds.iter().zip(located.keys);
        let addresses = pairs.map(address).collect();
        Answer::Located {
            founds: located.founds,
            addresses,
        }
    }
}
