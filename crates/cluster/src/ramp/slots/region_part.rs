//! One part of a region: the slots of the keys whose hash leads here, and the keys that hold them. All
//! work happens under the part's lock.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;

use super::gate::{Gate, Pass};
use super::slot_allocator::{SlotAllocator, SlotIndex};
use super::{Address, classes, header, image, state};

/// The owner of the part.
#[derive(Clone, Copy)]
pub(super) struct RegionOwner<'o> {
    /// The whole region.
    pub(super) words: &'o [AtomicU64],
    pub(super) gates: &'o [Gate],
    /// The gate of writers of all keys.
    pub(super) all: &'o Gate,
    /// The owner's clock.
    pub(super) now: u64,
}

impl<'o> RegionOwner<'o> {
    pub(super) fn gate(self, hash: u64) -> &'o Gate {
        &self.gates[hash as usize & (self.gates.len() - 1)]
    }
}

/// A version to be published.
pub(super) struct Publication<'p> {
    pub(super) key: &'p [u8],
    pub(super) hash: u64,
    /// The passes of the key's gate, and of that for all keys.
    pub(super) passes: (Pass, Pass),
    pub(super) image: &'p [u64],
}

/// Why nothing was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unpublished {
    /// A writer has begun since the ticket was taken. Each writer publishes in the end.
    #[error("the key, or another one of its gate, is being written")]
    Overtaken,
    /// There is no room at this moment; slots that were not asked for lately are giving way.
    #[error("there is no room in registered memory at this moment")]
    Full,
    /// The version exceeds the largest slot.
    #[error("no slot is so large")]
    TooLarge,
    /// The region is revoked.
    #[error("the region is revoked")]
    Revoked,
}

/// A part of a region; see the module.
pub(super) struct RegionPart {
    number: usize,
    incarnation: u64,
    table: HashTable<SlotIndex>,
    allocator: SlotAllocator,
    layout: u32,
    pub(super) evicted: u64,
}

impl RegionPart {
    pub(super) fn new(number: usize, incarnation: u64, allocator: SlotAllocator) -> RegionPart {
        RegionPart {
            number,
            incarnation,
            table: HashTable::new(),
            allocator,
            layout: 0,
            evicted: 0,
        }
    }

    /// Clears the key's slot, because a writer has begun. Returns `true` if the slot is to be renewed
    /// after the write.
    pub(super) fn clear(&mut self, owner: RegionOwner<'_>, key: &[u8], hash: u64) -> bool {
        let Some(index) = self.find(key, hash) else {
            return false;
        };
        state::clear(self.slot(owner.words, index));
        self.allocator.take_renewal(index)
    }

    /// Clears all slots, because a writer of all keys has begun.
    pub(super) fn clear_all(&self, words: &[AtomicU64]) {
        let indexes = self.table.iter();
        indexes.for_each(|index| state::clear(self.slot(words, *index)));
    }

    pub(super) fn has(&self, key: &[u8], hash: u64) -> bool {
        self.find(key, hash).is_some()
    }

    /// Returns the address of the key's slot, if it has one, and marks the slot as asked for.
    pub(super) fn address(
        &mut self,
        words: &[AtomicU64],
        key: &[u8],
        hash: u64,
    ) -> Option<Address> {
        let index = self.find(key, hash)?;
        self.allocator.ask(index);
        Some(self.address_of(words, index))
    }

    /// As [`RegionPart::address`], if the slot is valid and has not expired.
    pub(super) fn current(
        &mut self,
        words: &[AtomicU64],
        key: &[u8],
        hash: u64,
    ) -> Option<Address> {
        let slot = self.slot(words, self.find(key, hash)?);
        let word = |at: usize| slot[at].load(Ordering::Relaxed);
        let is_current = image::is_current(word, header::time_ms(words));
        is_current.then(|| self.address(words, key, hash)).flatten()
    }

    /// Puts a version into the key's slot, if no writer has begun since it was read.
    pub(super) fn publish(
        &mut self,
        owner: RegionOwner<'_>,
        it: &Publication<'_>,
    ) -> Result<Address, Unpublished> {
        let class = self.allocator.class_for(it.image.len());
        let class = class.expect("the caller has asked whether a slot is so large");
        let mut found = self.find(it.key, it.hash);
        let gate = owner.gate(it.hash);
        let (own, all) = it.passes;
        let admitted = owner.all.admits(all)
            && match found {
                Some(_) => gate.admits(own),
                None => gate.admits_new(own),
            };
        if !admitted {
            return Err(Unpublished::Overtaken);
        }
        if let Some(index) = found {
            let slot = self.slot(owner.words, index);
            if image::is_same(it.image, |at| slot[at].load(Ordering::Relaxed)) {
                return Ok(self.address_of(owner.words, index));
            }
            if self.allocator.class_of(index) != class {
                // The gate goes on counting the slot, for the new one.
                self.free(owner, index);
                found = None;
            }
        }
        let Some(index) = found.or_else(|| self.take(owner, class, it)) else {
            gate.withdraw();
            self.make_room(owner, class);
            return Err(Unpublished::Full);
        };
        state::publish(self.slot(owner.words, index), it.image);
        Ok(self.address_of(owner.words, index))
    }

    /// Takes the key's slot away: it gets none for its present version.
    pub(super) fn give_up(&mut self, owner: RegionOwner<'_>, key: &[u8], hash: u64) {
        if let Some(index) = self.find(key, hash) {
            self.free(owner, index);
            owner.gate(hash).withdraw();
        }
    }

    /// Returns how many slots keys have.
    pub(super) fn taken(&self) -> usize {
        self.allocator.taken()
    }

    fn take(
        &mut self,
        owner: RegionOwner<'_>,
        class: usize,
        it: &Publication<'_>,
    ) -> Option<SlotIndex> {
        let index = self.allocator.take(class, owner.now, it.key, it.hash)?;
        if self.layout != self.allocator.layout() {
            self.layout = self.allocator.layout();
            header::change_layout(owner.words, self.number, self.layout);
        }
        let allocator = &self.allocator;
        let hash_of = |index: &SlotIndex| allocator.holder(*index).hash;
        self.table.insert_unique(it.hash, index, hash_of);
        Some(index)
    }

    fn make_room(&mut self, owner: RegionOwner<'_>, class: usize) {
        for index in self.allocator.evict_candidates(class, owner.now) {
            let hash = self.allocator.holder(index).hash;
            self.free(owner, index);
            owner.gate(hash).withdraw();
            self.evicted += 1;
        }
    }

    /// Frees a key's slot. Its words are wiped, so that a deleted value cannot be read for longer than
    /// it must, and a late reader finds that the slot is another key's.
    fn free(&mut self, owner: RegionOwner<'_>, index: SlotIndex) {
        let slot = self.slot(owner.words, index);
        state::clear(slot);
        slot[1..]
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        let hash = self.allocator.holder(index).hash;
        let entry = self.table.find_entry(hash, |other| *other == index);
        entry.expect("who has a slot is in the table").remove();
        self.allocator.free(index, owner.now);
    }

    fn find(&self, key: &[u8], hash: u64) -> Option<SlotIndex> {
        let is_it = |index: &SlotIndex| *self.allocator.holder(*index).key == *key;
        self.table.find(hash, is_it).copied()
    }

    fn slot<'w>(&self, words: &'w [AtomicU64], index: SlotIndex) -> &'w [AtomicU64] {
        let (at, len) = self.allocator.location(index);
        &words[at..at + len]
    }

    fn address_of(&self, words: &[AtomicU64], index: SlotIndex) -> Address {
        let (at, len) = self.allocator.location(index);
        let told = image::LENGTHS.map(|word| words[at + word].load(Ordering::Relaxed));
        let used = image::words_used(told);
        let with_some_to_grow = (used + used / 8).next_multiple_of(classes::LINE);
        Address {
            at: at as u32,
            words: with_some_to_grow.min(len) as u32,
            part: self.number as u32,
            layout: self.layout,
            incarnation: self.incarnation,
        }
    }
}
