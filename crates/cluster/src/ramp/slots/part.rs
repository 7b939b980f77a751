//! One part of a region: the slots of the keys whose hash leads here, and the keys that hold them. All
//! work happens under the part's lock.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;

use super::gate::{Gate, Pass};
use super::room::{Room, Spot};
use super::{Address, classes, header, image, state};

/// The owner of the part.
#[derive(Clone, Copy)]
pub(super) struct Owner<'o> {
    /// The whole region.
    pub(super) words: &'o [AtomicU64],
    pub(super) gates: &'o [Gate],
    /// The gate of writers of all keys.
    pub(super) all: &'o Gate,
    /// The owner's clock.
    pub(super) now: u64,
}

impl<'o> Owner<'o> {
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
pub(super) struct Part {
    number: usize,
    incarnation: u64,
    table: HashTable<Spot>,
    room: Room,
    layout: u32,
    pub(super) evicted: u64,
}

impl Part {
    pub(super) fn new(number: usize, incarnation: u64, room: Room) -> Part {
        Part {
            number,
            incarnation,
            table: HashTable::new(),
            room,
            layout: 0,
            evicted: 0,
        }
    }

    /// Clears the key's slot, because a writer has begun.
    pub(super) fn clear(&self, owner: Owner<'_>, key: &[u8], hash: u64) {
        if let Some(spot) = self.find(key, hash) {
            state::clear(self.slot(owner.words, spot));
        }
    }

    /// Clears all slots, because a writer of all keys has begun.
    pub(super) fn clear_all(&self, words: &[AtomicU64]) {
        let spots = self.table.iter();
        spots.for_each(|spot| state::clear(self.slot(words, *spot)));
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
        let spot = self.find(key, hash)?;
        self.room.ask(spot);
        Some(self.address_of(words, spot))
    }

    /// As [`Part::address`], if the slot is valid and has not expired.
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
        owner: Owner<'_>,
        it: &Publication<'_>,
    ) -> Result<Address, Unpublished> {
        let class = self.room.class_for(it.image.len());
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
        if let Some(spot) = found {
            let slot = self.slot(owner.words, spot);
            if image::is_same(it.image, |at| slot[at].load(Ordering::Relaxed)) {
                return Ok(self.address_of(owner.words, spot));
            }
            if self.room.class_of(spot) != class {
                // The gate goes on counting the slot, for the new one.
                self.free(owner, spot);
                found = None;
            }
        }
        let Some(spot) = found.or_else(|| self.take(owner, class, it)) else {
            gate.withdraw();
            self.make_room(owner, class);
            return Err(Unpublished::Full);
        };
        state::publish(self.slot(owner.words, spot), it.image);
        Ok(self.address_of(owner.words, spot))
    }

    /// Takes the key's slot away: it gets none for its present version.
    pub(super) fn give_up(&mut self, owner: Owner<'_>, key: &[u8], hash: u64) {
        if let Some(spot) = self.find(key, hash) {
            self.free(owner, spot);
            owner.gate(hash).withdraw();
        }
    }

    /// Returns how many slots keys have.
    pub(super) fn taken(&self) -> usize {
        self.room.taken()
    }

    fn take(&mut self, owner: Owner<'_>, class: usize, it: &Publication<'_>) -> Option<Spot> {
        let spot = self.room.take(class, owner.now, it.key, it.hash)?;
        if self.layout != self.room.layout() {
            self.layout = self.room.layout();
            header::change_layout(owner.words, self.number, self.layout);
        }
        let room = &self.room;
        let hash_of = |spot: &Spot| room.holder(*spot).hash;
        self.table.insert_unique(it.hash, spot, hash_of);
        Some(spot)
    }

    fn make_room(&mut self, owner: Owner<'_>, class: usize) {
        for spot in self.room.who_gives_way(class, owner.now) {
            let hash = self.room.holder(spot).hash;
            self.free(owner, spot);
            owner.gate(hash).withdraw();
            self.evicted += 1;
        }
    }

    /// Frees a key's slot. Its words are wiped, so that a deleted value cannot be read for longer than
    /// it must, and a late reader finds that the slot is another key's.
    fn free(&mut self, owner: Owner<'_>, spot: Spot) {
        let slot = self.slot(owner.words, spot);
        state::clear(slot);
        slot[1..]
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        let hash = self.room.holder(spot).hash;
        let entry = self.table.find_entry(hash, |other| *other == spot);
        entry.expect("who has a slot is in the table").remove();
        self.room.free(spot, owner.now);
    }

    fn find(&self, key: &[u8], hash: u64) -> Option<Spot> {
        let is_it = |spot: &Spot| *self.room.holder(*spot).key == *key;
        self.table.find(hash, is_it).copied()
    }

    fn slot<'w>(&self, words: &'w [AtomicU64], spot: Spot) -> &'w [AtomicU64] {
        let (at, len) = self.room.place(spot);
        &words[at..at + len]
    }

    fn address_of(&self, words: &[AtomicU64], spot: Spot) -> Address {
        let (at, len) = self.room.place(spot);
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
