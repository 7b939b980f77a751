//! Rooms under random use: which slot has which words, and since when they rest.

use std::collections::HashMap;

use super::*;

const FIRST: usize = 24;
const PAGE: usize = 128;
const GRACE: u64 = 100;

/// The state that a room must keep, kept in another way.
struct Model {
    allocator: SlotAllocator,
    /// Words of a page.
    page: usize,
    now: u64,
    /// Slots that are taken, with their keys.
    taken: Vec<(SlotIndex, u64)>,
    /// When each word was freed last.
    freed: HashMap<usize, u64>,
    /// The size of the slot to which each word belonged last, and the layout then.
    sizes: HashMap<usize, (usize, u32)>,
}

impl Model {
    fn take(&mut self, words: usize, key: u64) -> bool {
        let class = self.allocator.class_for(words).expect("there is one");
        let Some(index) = self
            .allocator
            .take(class, self.now, &key.to_le_bytes(), key)
        else {
            return false;
        };
        let (at, len) = self.allocator.location(index);
        assert!(
            len >= words
                && at >= FIRST
                && (at - FIRST) / self.page == (at + len - 1 - FIRST) / self.page
        );
        for (other, _) in &self.taken {
            let (from, more) = self.allocator.location(*other);
            assert!(
                at + len <= from || from + more <= at,
                "{index:?} and {other:?} overlap"
            );
        }
        for word in at..at + len {
            let rested = self
                .freed
                .get(&word)
                .is_none_or(|it| self.now - it >= GRACE);
            assert!(rested, "word {word} has not rested");
            let layout = self.allocator.layout();
            let before = self.sizes.insert(word, (len, layout));
            if let Some((size, under)) = before {
                assert!(
                    size == len || under < layout,
                    "word {word} was divided unnoticed"
                );
            }
        }
        assert_eq!(*self.allocator.holder(index).key, key.to_le_bytes());
        self.taken.push((index, key));
        true
    }

    fn free(&mut self, index: SlotIndex) {
        let at = self.taken.iter().position(|(it, _)| *it == index);
        self.taken
            .swap_remove(at.expect("only what is taken gives way"));
        let (at, len) = self.allocator.location(index);
        (at..at + len).for_each(|word| {
            self.freed.insert(word, self.now);
        });
        self.allocator.free(index, self.now);
    }
}

#[test]
fn slots_never_overlap_and_rest_before_they_are_reused() {
    // Pages, words of a page, and the longest version: once with few slots of a page, and once with
    // many.
    use_at_random(30, (10, PAGE, PAGE));
    use_at_random(400, (3, 512, 40));
}

fn use_at_random(seeds: u64, (pages, page, most): (usize, usize, usize)) {
    let mut changes = 0;
    for seed in 0..seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Model {
            allocator: SlotAllocator::new(FIRST, pages, page, GRACE),
            page,
            now: 0,
            taken: Vec::new(),
            freed: HashMap::new(),
            sizes: HashMap::new(),
        };
        let (mut full, mut placed) = (0, 0);
        let mut sizes = 1..=most;
        for key in 0..3000 {
            if key % 500 == 0 {
                // The sizes change, so that pages have to change hands.
                let largest = random.usize(8..=most);
                sizes = random.usize(1..=largest)..=largest;
            }
            let words = random.usize(sizes.clone());
            if model.take(words, key) {
                placed += 1;
            } else {
                full += 1;
                let class = model.allocator.class_for(words).expect("there is one");
                for index in model.allocator.evict_candidates(class, model.now) {
                    model.free(index);
                }
            }
            if random.u8(..) < 30 && !model.taken.is_empty() {
                let (index, _) = model.taken[random.usize(..model.taken.len())];
                model.free(index);
            }
            for _ in 0..random.usize(..3) {
                if let Some((index, _)) = random.choice(&model.taken) {
                    model.allocator.ask(*index);
                }
            }
            model.now += random.u64(..40);
            assert_eq!(model.allocator.taken(), model.taken.len());
        }
        assert!(full > 100 && placed > 300, "full {full}, placed {placed}");
        changes += model.allocator.layout();
    }
    assert!(changes > seeds as u32 / 2, "pages hardly change hands");
}

#[test]
fn little_gives_way_at_a_time() {
    let mut allocator = SlotAllocator::new(FIRST, 16, PAGE, GRACE);
    let class = allocator.class_for(16).expect("there is one");
    let take = |allocator: &mut SlotAllocator, now| allocator.take(class, now, b"k", 1);
    while take(&mut allocator, 0).is_some() {}
    let slots = allocator.taken();
    assert_eq!(slots, 16 * PAGE / 16);
    let mut gone = 0;
    for _ in 0..1000 {
        for index in allocator.evict_candidates(class, 0) {
            allocator.free(index, 0);
            gone += 1;
        }
    }
    assert_eq!(gone, slots / 8, "the others stay as long as these rest");
    assert!(take(&mut allocator, GRACE - 1).is_none() && take(&mut allocator, GRACE).is_some());
}

#[test]
fn an_unused_size_leaves_its_pages_to_others() {
    let mut allocator = SlotAllocator::new(FIRST, 16, PAGE, GRACE);
    let [small, large] = [16, 64].map(|words| allocator.class_for(words).expect("there is one"));
    while allocator.take(small, 0, b"small", 1).is_some() {}
    let mut now = 0;
    for _ in 0..4000 {
        now += GRACE / 2;
        // Each key is asked for while it is there, as hot keys are.
        if allocator.take(large, now, b"large", 2).is_none() {
            for index in allocator.evict_candidates(large, now) {
                allocator.free(index, now);
            }
        }
    }
    assert_eq!(allocator.classes[large].pages.len(), 16);
    assert_eq!(allocator.layout(), 16);
}
