//! The memory of one part: its slots, the free ones, and those that have to give way.
//!
//! A part consists of *pages* of one size. A page is given to a *class* and divided into slots of the
//! class's size. Each of its slots is free, taken by a key, or *resting*: it was freed and its grace
//! period has not passed.
//!
//! | a request for | is served from, in this order |
//! |---|---|
//! | a slot | the class's free ones; those of it that have rested; an empty page |
//! | room, when there is none | slots of the class that were not asked for since the clock's hand came by last; and if the class has less than its share of the pages, one of a class that took no slot for long, or of the class that has most |
//!
//! A slot that gives way rests first, so that the key that needed the room gets it only later. Meanwhile
//! at most an eighth of a class rests because of that, and one page: however often room is asked for,
//! the slots that are read keep their places.
//!
//! Invariants:
//! 1. A slot is reused only when its grace period has passed, and a page is divided anew only when those
//!    of all of its slots have passed.
//! 2. The layout changes before any word of a page is written that was divided before.

use std::collections::VecDeque;

use super::classes;

/// Number of slots that the clock's hand passes at a time.
const SWEEP: usize = 64;
/// Number of slots that it takes at a time.
const TAKEN: usize = 8;
/// A class that took no slot for this many grace periods has no claim to a share.
const IDLE: u64 = 64;

/// A slot of this part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotIndex {
    page: u32,
    slot: u32,
}

/// The key that has a slot.
pub(super) struct SlotHolder {
    pub(super) key: Box<[u8]>,
    pub(super) hash: u64,
    /// The key was asked for since the hand came by.
    is_asked: bool,
    /// How often the slot may still be renewed before the key is asked for again.
    renewals: u8,
}

/// A slot is renewed for so many writes after its key was asked for: the owner does not notice reads of
/// slots, and a key that is written and not read should not cost its writers more for ever.
const MOST_RENEWALS: u8 = 16;

#[derive(Default)]
struct SlotPage {
    class: usize,
    /// Empty if the page is not divided.
    slots: Vec<Option<SlotHolder>>,
    /// Number of slots that are not free and have not rested, while the page leaves its class.
    leaving: Option<usize>,
    was_divided: bool,
}

struct SizeClass {
    words: u32,
    pages: Vec<u32>,
    free: Vec<SlotIndex>,
    /// Slots that rest, with the times when they were freed.
    resting: VecDeque<(u64, SlotIndex)>,
    slots: usize,
    hand: (usize, usize),
    /// When a slot was taken last.
    used: u64,
}

/// The memory of a part; see the module.
pub(super) struct SlotAllocator {
    first_word: usize,
    page_words: usize,
    grace_ns: u64,
    pages: Vec<SlotPage>,
    empty: Vec<u32>,
    classes: Vec<SizeClass>,
    /// The page that leaves its class.
    leaving: Option<u32>,
    layout: u32,
}

impl SlotAllocator {
    pub(super) fn new(
        first_word: usize,
        pages: usize,
        page_words: usize,
        grace_ns: u64,
    ) -> SlotAllocator {
        let class = |words| SizeClass {
            words,
            pages: Vec::new(),
            free: Vec::new(),
            resting: VecDeque::new(),
            slots: 0,
            hand: (0, 0),
            used: 0,
        };
        SlotAllocator {
            first_word,
            page_words,
            grace_ns,
            pages: (0..pages).map(|_| SlotPage::default()).collect(),
            empty: (0..pages as u32).rev().collect(),
            classes: classes::of_page(page_words)
                .into_iter()
                .map(class)
                .collect(),
            leaving: None,
            layout: 0,
        }
    }

    /// Returns the smallest class with at least this many words, if there is one.
    pub(super) fn class_for(&self, words: usize) -> Option<usize> {
        let class = self
            .classes
            .partition_point(|it| (it.words as usize) < words);
        (class < self.classes.len()).then_some(class)
    }

    pub(super) fn layout(&self) -> u32 {
        self.layout
    }

    /// Returns the first word of a slot in the region, and the number of its words.
    pub(super) fn location(&self, index: SlotIndex) -> (usize, usize) {
        let words = self.classes[self.class_of(index)].words as usize;
        let page = self.first_word + index.page as usize * self.page_words;
        (page + index.slot as usize * words, words)
    }

    pub(super) fn class_of(&self, index: SlotIndex) -> usize {
        self.pages[index.page as usize].class
    }

    /// Returns the key that has this slot.
    ///
    /// # Panics
    /// If the slot is not taken.
    pub(super) fn holder(&self, index: SlotIndex) -> &SlotHolder {
        let holder = &self.pages[index.page as usize].slots[index.slot as usize];
        holder.as_ref().expect("the slot is taken")
    }

    /// Marks the key of a slot as asked for.
    pub(super) fn ask(&mut self, index: SlotIndex) {
        let holder = self.holder_mut(index);
        holder.is_asked = true;
        holder.renewals = MOST_RENEWALS;
    }

    /// Returns `true` if the slot is to be renewed after a write of its key, which this counts.
    pub(super) fn take_renewal(&mut self, index: SlotIndex) -> bool {
        let holder = self.holder_mut(index);
        let is_left = holder.renewals > 0;
        holder.renewals = holder.renewals.saturating_sub(1);
        is_left
    }

    fn holder_mut(&mut self, index: SlotIndex) -> &mut SlotHolder {
        let holder = &mut self.pages[index.page as usize].slots[index.slot as usize];
        holder.as_mut().expect("the slot is taken")
    }

    /// Takes a slot of a class for a key.
    pub(super) fn take(
        &mut self,
        class: usize,
        now: u64,
        key: &[u8],
        hash: u64,
    ) -> Option<SlotIndex> {
        self.end_rests(class, now);
        let mut index = self.classes[class].free.pop();
        if index.is_none() {
            // A page that leaves another class rests there.
            if let Some(leaving) = self.leaving {
                self.end_rests(self.pages[leaving as usize].class, now);
            }
            self.divide(class);
            index = self.classes[class].free.pop();
        }
        let index = index?;
        self.classes[class].used = now;
        self.pages[index.page as usize].slots[index.slot as usize] = Some(SlotHolder {
            key: key.into(),
            hash,
            is_asked: true,
            renewals: MOST_RENEWALS,
        });
        Some(index)
    }

    /// Frees a slot, which rests from now on.
    pub(super) fn free(&mut self, index: SlotIndex, now: u64) {
        let class = self.class_of(index);
        self.pages[index.page as usize].slots[index.slot as usize] = None;
        self.classes[class].resting.push_back((now, index));
    }

    /// Returns the slots that must be freed, so that there will be room in this class.
    pub(super) fn evict_candidates(&mut self, class: usize, now: u64) -> Vec<SlotIndex> {
        let mut indexes = self.sweep(class);
        if self.leaving.is_none() {
            indexes.extend(self.page_of_another(class, now));
        }
        indexes
    }

    /// Returns how many slots are taken.
    pub(super) fn taken(&self) -> usize {
        let away = |class: &SizeClass| class.free.len() + class.resting.len();
        let slots: usize = self.classes.iter().map(|class| class.slots).sum();
        slots - self.classes.iter().map(away).sum::<usize>() - self.left()
    }

    /// Returns how many slots of the leaving page have rested, and wait for the others.
    fn left(&self) -> usize {
        self.leaving.map_or(0, |page| {
            let page = &self.pages[page as usize];
            page.slots.len() - page.leaving.expect("it leaves")
        })
    }

    /// Ends the rests whose time is over.
    fn end_rests(&mut self, class: usize, now: u64) {
        while let Some((freed, index)) = self.classes[class].resting.front().copied() {
            // A clock that was set back makes a rest longer.
            if now.saturating_sub(freed) < self.grace_ns {
                break;
            }
            self.classes[class].resting.pop_front();
            match &mut self.pages[index.page as usize].leaving {
                None => self.classes[class].free.push(index),
                Some(remaining) => {
                    *remaining -= 1;
                    if *remaining == 0 {
                        self.leave(index.page);
                    }
                }
            }
        }
    }

    /// Gives an empty page to a class.
    fn divide(&mut self, class: usize) {
        let Some(page) = self.empty.pop() else { return };
        let owner = &mut self.classes[class];
        let slots = (self.page_words / owner.words as usize) as u32;
        let it = &mut self.pages[page as usize];
        if std::mem::replace(&mut it.was_divided, true) {
            self.layout += 1;
        }
        it.class = class;
        it.slots.resize_with(slots as usize, || None);
        owner.pages.push(page);
        owner.slots += slots as usize;
        owner
            .free
            .extend((0..slots).rev().map(|slot| SlotIndex { page, slot }));
    }

    /// Makes a page empty.
    fn leave(&mut self, page: u32) {
        let it = &mut self.pages[page as usize];
        let owner = &mut self.classes[it.class];
        owner.slots -= it.slots.len();
        it.slots.clear();
        it.leaving = None;
        self.leaving = None;
        self.empty.push(page);
    }

    /// Returns the slots that the hand takes of a class, in one round at most: keys that were asked for
    /// since the last round stay.
    fn sweep(&mut self, class: usize) -> Vec<SlotIndex> {
        let it = &mut self.classes[class];
        let most = (it.slots / 8)
            .max(1)
            .saturating_sub(it.resting.len())
            .min(TAKEN);
        let mut taken = Vec::new();
        // Slots of a page that leaves count, but the hand does not come to them.
        let pages = it.pages.iter();
        let round: usize = pages
            .map(|page| self.pages[*page as usize].slots.len())
            .sum();
        for _ in 0..SWEEP.min(round) {
            if taken.len() == most || it.pages.is_empty() {
                break;
            }
            let (at, slot) = it.hand;
            let page = it.pages[at % it.pages.len()];
            let slots = &mut self.pages[page as usize].slots;
            it.hand = if slot + 1 < slots.len() {
                (at % it.pages.len(), slot + 1)
            } else {
                ((at + 1) % it.pages.len(), 0)
            };
            let Some(Some(holder)) = slots.get_mut(slot) else {
                continue;
            };
            if !std::mem::replace(&mut holder.is_asked, false) {
                let slot = slot as u32;
                taken.push(SlotIndex { page, slot });
            }
        }
        taken
    }

    /// Takes a page from another class, if this one has less than its share. Returns the page's slots
    /// that are taken.
    fn page_of_another(&mut self, class: usize, now: u64) -> Vec<SlotIndex> {
        let idle = |it: &SizeClass| now.saturating_sub(it.used) > IDLE * self.grace_ns.max(1);
        let own = self.classes[class].pages.len();
        let busy = |it: &&SizeClass| !it.pages.is_empty() && !idle(it);
        let busy = self.classes.iter().filter(busy).count() + usize::from(own == 0);
        if own > 0 && own >= self.pages.len() / busy.max(1) {
            return Vec::new();
        }
        let others = self
            .classes
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != class);
        let most = others.max_by_key(|(_, it)| (idle(it) && !it.pages.is_empty(), it.pages.len()));
        let Some((victim, it)) = most else {
            return Vec::new();
        };
        let is_asked = |slot: &&Option<SlotHolder>| slot.as_ref().is_some_and(|it| it.is_asked);
        let asked = |page: &u32| {
            self.pages[*page as usize]
                .slots
                .iter()
                .filter(is_asked)
                .count()
        };
        let pages = it.pages.iter().map(asked).enumerate();
        let Some((at, asked)) = pages.min_by_key(|(_, asked)| *asked) else {
            return Vec::new();
        };
        if idle(it) || it.pages.len() > own + 1 || own == 0 && asked == 0 {
            return self.begin_leaving(victim, at);
        }
        if own == 0 {
            // Keys that are still needed will be asked for before this class needs room again.
            let page = it.pages[at] as usize;
            let slots = self.pages[page].slots.iter_mut().flatten();
            slots.for_each(|holder| holder.is_asked = false);
        }
        Vec::new()
    }

    fn begin_leaving(&mut self, class: usize, at: usize) -> Vec<SlotIndex> {
        let owner = &mut self.classes[class];
        let page = owner.pages.swap_remove(at);
        let before = owner.free.len();
        owner.free.retain(|index| index.page != page);
        let free = before - owner.free.len();
        let it = &mut self.pages[page as usize];
        it.leaving = Some(it.slots.len() - free);
        self.leaving = Some(page);
        let slots = it.slots.iter().enumerate();
        let taken = slots.filter_map(|(slot, holder)| holder.as_ref().map(|_| slot as u32));
        let indexes = taken.map(|slot| SlotIndex { page, slot }).collect();
        if it.leaving == Some(0) {
            self.leave(page);
        }
        indexes
    }
}

#[cfg(test)]
#[path = "slot_allocator_tests.rs"]
mod tests;
