//! The owner of a region: it announces writers, publishes, and revokes.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use base::memory::{WORD, Words};
use base::versions::Versioned;
use foldhash::quality::RandomState;
use parking_lot::Mutex;

use super::gate::{Gate, Pass};
use super::region_part::{Publication, RegionOwner, RegionPart, Unpublished};
use super::slot_allocator::SlotAllocator;
use super::{Address, Options, Unsuited, classes, header, image};

/// Taken before a version is read, and needed to publish it; see [`Slots::ticket`].
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    hash: u64,
    passes: (Pass, Pass),
}

/// Counters of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Versions that were published.
    pub published: u64,
    /// Versions that were not, because a writer began meanwhile.
    pub overtaken: u64,
    /// Versions that were not, because there was no room.
    pub full: u64,
    /// Versions that were not, because they exceed the largest slot.
    pub too_large: u64,
    /// Slots that gave way to others.
    pub evicted: u64,
    /// Slots that keys have now.
    pub slots: u64,
    /// Bytes of the region.
    pub bytes: u64,
}

/// The least number of pages of a part, as long as there is more than one part.
const PAGES_OF_PART: usize = 16;

/// The clock of a region's owner: nanoseconds, never set.
pub type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// The slots of one region, for its owner. Any number of threads may use it at once.
///
/// Dropping it revokes the region.
pub struct Slots {
    memory: Box<dyn Words>,
    incarnation: u64,
    clock: Clock,
    hasher: RandomState,
    /// Words of the largest slot.
    largest: usize,
    gates: Box<[Gate]>,
    /// The gate of writers of all keys.
    all: Gate,
    parts: Box<[Mutex<RegionPart>]>,
    /// The number of the next publication.
    sequence: AtomicU64,
    published: AtomicU64,
    overtaken: AtomicU64,
    full: AtomicU64,
    too_large: AtomicU64,
}

impl Slots {
    /// A lease without an end.
    pub const FOR_EVER: u64 = header::FOR_EVER;

    /// Creates slots in a region. Its earlier content does not matter.
    ///
    /// # Errors
    /// Returns an error if the region is too small for a single page, or too large for addresses.
    ///
    /// # Panics
    /// If the incarnation is 0, or there are no parts, gates or bytes of a page.
    pub fn new(memory: Box<dyn Words>, options: &Options, clock: Clock) -> Result<Slots, Unsuited> {
        assert!(options.incarnation != 0, "0 is no incarnation");
        assert!(options.parts > 0 && options.gates > 0 && options.page_bytes >= 16 * WORD);
        let page_words = options.page_bytes / WORD / classes::LINE * classes::LINE;
        let (words, most) = (memory.words().len(), u32::MAX as usize);
        if words < header::WORDS + page_words || words > most {
            return Err(Unsuited {
                bytes: words * WORD,
                least: (header::WORDS + page_words) * WORD,
                most: most * WORD,
            });
        }
        let grace = u64::try_from(options.grace.as_nanos()).unwrap_or(u64::MAX);
        header::begin(memory.words(), options.incarnation, options.lease, grace);
        let pages = (words - header::WORDS) / page_words;
        // A part with few pages has slots of few sizes.
        let parts = options.parts.min(header::PARTS);
        let number = parts.min(pages / PAGES_OF_PART).max(1);
        let part = |at: usize| {
            // The first parts get the remaining pages.
            let (each, more) = (pages / number, pages % number);
            let first = header::WORDS + (at * each + at.min(more)) * page_words;
            let allocator =
                SlotAllocator::new(first, each + usize::from(at < more), page_words, grace);
            Mutex::new(RegionPart::new(at, options.incarnation, allocator))
        };
        let gates = options.gates.next_power_of_two();
        Ok(Slots {
            parts: (0..number).map(part).collect(),
            memory,
            incarnation: options.incarnation,
            clock,
            hasher: RandomState::default(),
            largest: page_words,
            gates: (0..gates).map(|_| Gate::default()).collect(),
            all: Gate::default(),
            sequence: AtomicU64::new(1),
            published: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
            full: AtomicU64::new(0),
            too_large: AtomicU64::new(0),
        })
    }

    /// Begins a write of a key: a prepare, another write, a delete, or the removal of an expired
    /// version. From now on readers reject its slot, until the key is published anew. Returns `true` if
    /// the key has a slot which the writer should renew: it was asked for lately.
    ///
    /// To be called before any effect of the write can be seen; for a write that was prepared before a
    /// restart, before any key can be read.
    pub fn writing(&self, key: &[u8]) -> bool {
        let hash = self.hash(key);
        self.owner(0).gate(hash).enter() && {
            let mut part = self.part(hash).lock();
            part.clear(self.owner(0), key, hash)
        }
    }

    /// Ends a write of a key, with or without success: its effect can be read where versions are, and no
    /// more will follow. To be called once for each [`Slots::writing`]; the writer may be answered after
    /// it, and preferably after the key was published anew.
    pub fn written(&self, key: &[u8]) {
        self.owner(0).gate(self.hash(key)).leave();
    }

    /// Begins a write of all keys. As [`Slots::writing`].
    pub fn writing_all(&self) {
        self.all.enter();
        for part in &self.parts {
            part.lock().clear_all(self.memory.words());
        }
    }

    /// Ends a write of all keys. As [`Slots::written`].
    pub fn written_all(&self) {
        self.all.leave();
    }

    /// Returns a ticket, which is taken before the newest committed version of a key is read, so that it
    /// can be published afterwards. Returns `None` while the key is written.
    #[must_use]
    pub fn ticket(&self, key: &[u8]) -> Option<Ticket> {
        let hash = self.hash(key);
        let all = self.all.pass()?;
        let own = self.owner(0).gate(hash).pass()?;
        Some(Ticket {
            hash,
            passes: (own, all),
        })
    }

    /// Publishes the version that was the newest committed one of a key after the ticket was taken, if
    /// it still is. It must be as durable as answers to other clients.
    ///
    /// # Errors
    /// [`Unpublished`] says why it was not published. The slot that the key may have is unchanged: not
    /// valid if the key is being written. An address of the key stays good then, unless the version is
    /// too large or there is no room.
    ///
    /// # Panics
    /// If the ticket is another key's.
    pub fn publish(
        &self,
        ticket: Ticket,
        key: &[u8],
        version: &Versioned<'_>,
    ) -> Result<Address, Unpublished> {
        assert!(ticket.hash == self.hash(key), "the ticket is another key's");
        let published = self.try_publish(ticket, key, version);
        let count = match published {
            Ok(_) => &self.published,
            Err(Unpublished::Overtaken) => &self.overtaken,
            Err(Unpublished::Full) => &self.full,
            Err(Unpublished::TooLarge) => &self.too_large,
            Err(Unpublished::Revoked) => return published,
        };
        count.fetch_add(1, Ordering::Relaxed);
        published
    }

    fn try_publish(
        &self,
        ticket: Ticket,
        key: &[u8],
        version: &Versioned<'_>,
    ) -> Result<Address, Unpublished> {
        if header::is_revoked(self.memory.words()) {
            return Err(Unpublished::Revoked);
        }
        let part = self.part(ticket.hash);
        // Checked before the version is copied.
        if image::words(key, version).is_none_or(|words| words > self.largest) {
            let mut part = part.lock();
            part.give_up(self.owner((self.clock)()), key, ticket.hash);
            return Err(Unpublished::TooLarge);
        }
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let image = image::encode(sequence, self.incarnation, key, version);
        let it = Publication {
            key,
            hash: ticket.hash,
            passes: ticket.passes,
            image: &image,
        };
        let mut part = part.lock();
        // The clock is read under the lock: memory that is freed rests from this time on.
        part.publish(self.owner((self.clock)()), &it)
    }

    /// Returns the address of a key's slot, if it has one, for an answer to a reader of the key. Slots
    /// whose addresses are asked for are kept longer.
    #[must_use]
    pub fn address(&self, key: &[u8]) -> Option<Address> {
        self.look(key, |part, words, hash| part.address(words, key, hash))
    }

    /// As [`Slots::address`], if there is nothing to publish: the slot is valid, and has not expired.
    #[must_use]
    pub fn current(&self, key: &[u8]) -> Option<Address> {
        self.look(key, |part, words, hash| part.current(words, key, hash))
    }

    /// Looks for a key's slot in its part, unless the key's gate knows that there is none.
    fn look(
        &self,
        key: &[u8],
        find: impl FnOnce(&mut RegionPart, &[AtomicU64], u64) -> Option<Address>,
    ) -> Option<Address> {
        let hash = self.hash(key);
        let may_have = self.owner(0).gate(hash).has_slots();
        may_have
            .then(|| find(&mut self.part(hash).lock(), self.memory.words(), hash))
            .flatten()
    }

    /// Returns `true` if a key has a slot. This does not count as a request for the key.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        let hash = self.hash(key);
        self.owner(0).gate(hash).has_slots() && self.part(hash).lock().has(key, hash)
    }

    /// Revokes the region: readers reject what they find from now on, also if the lease has not ended.
    pub fn revoke(&self) {
        header::revoke(self.memory.words());
    }

    /// Extends the lease to this time, by the owner's clock in nanoseconds. Never shortens it.
    pub fn extend_lease(&self, until: u64) {
        header::extend_lease(self.memory.words(), until);
    }

    /// As [`Slots::extend_lease`], and may shorten the lease: a reader that reads the header from now on
    /// knows. One thread at a time calls it. Versions that are read in a region whose lease was
    /// shortened and then begins again must be the newest by then.
    pub fn set_lease(&self, until: u64) {
        header::set_lease(self.memory.words(), until);
    }

    /// Sets the engine's time in milliseconds; never sets it back. To be called before any answer that
    /// was judged by that time; an earlier call does no harm.
    pub fn refresh_time(&self, ms: u64) {
        header::refresh_time(self.memory.words(), ms);
    }

    /// Returns the time of the owner's clock, for a reader that asks for it; see [`super::OwnersClock`].
    #[must_use]
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Returns the counters.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut figures = Figures {
            published: count(&self.published),
            overtaken: count(&self.overtaken),
            full: count(&self.full),
            too_large: count(&self.too_large),
            bytes: (self.memory.words().len() * WORD) as u64,
            ..Figures::default()
        };
        for part in &self.parts {
            let part = part.lock();
            figures.evicted += part.evicted;
            figures.slots += part.taken() as u64;
        }
        figures
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Selects the part by other bits of the hash than the gate and the table use.
    fn part(&self, hash: u64) -> &Mutex<RegionPart> {
        &self.parts[(hash >> 32) as u16 as usize % self.parts.len()]
    }

    fn owner(&self, now: u64) -> RegionOwner<'_> {
        RegionOwner {
            words: self.memory.words(),
            gates: &self.gates,
            all: &self.all,
            now,
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.revoke();
    }
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
