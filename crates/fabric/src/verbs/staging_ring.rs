//! The words of a memory that work in progress uses: the memory as a ring.

use std::collections::VecDeque;

/// See the [module](self).
pub(super) struct StagingRing {
    words: usize,
    /// The next free word, and the number of words that are not free.
    next: usize,
    used: usize,
    /// Work and the number of words that it holds, in its order.
    in_use: VecDeque<(u64, usize)>,
}

impl StagingRing {
    pub(super) fn new(words: usize) -> StagingRing {
        StagingRing {
            words,
            next: 0,
            used: 0,
            in_use: VecDeque::new(),
        }
    }

    /// Returns the number of words of the whole ring.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Returns the place for `words` words in one piece, and the number of words at the ring's end
    /// that are left out for that.
    fn place(&self, words: usize) -> (usize, usize) {
        match self.next + words > self.words {
            true => (0, self.words - self.next),
            false => (self.next, 0),
        }
    }

    /// Returns `true` if this many words can be taken.
    pub(super) fn has_room(&self, words: usize) -> bool {
        let (_, left_out) = self.place(words);
        words == 0 || self.used + left_out + words <= self.words
    }

    /// Takes words, for which there must be room, for a work. Returns their place.
    pub(super) fn take(&mut self, id: u64, words: usize) -> usize {
        if words == 0 {
            return 0;
        }
        let (at, left_out) = self.place(words);
        self.next = at + words;
        self.used += left_out + words;
        self.in_use.push_back((id, left_out + words));
        at
    }

    /// Takes back the words of work up to this one.
    pub(super) fn give_back(&mut self, id: u64) {
        while let Some((in_use, words)) = self.in_use.front()
            && *in_use <= id
        {
            self.used -= words;
            self.in_use.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_not_taken_again() {
        let mut staging = StagingRing::new(64);
        let mut rng = fastrand::Rng::with_seed(3);
        let mut in_use: VecDeque<(u64, std::ops::Range<usize>)> = VecDeque::new();
        let mut full = 0;
        for id in 0..10_000 {
            let words = rng.usize(0..=16);
            while !staging.has_room(words) {
                full += 1;
                let (oldest, _) = in_use.pop_front().expect("nothing is held, and it is full");
                staging.give_back(oldest);
            }
            let at = staging.take(id, words);
            assert!(at + words <= 64);
            let is_free = |(_, range): &(u64, std::ops::Range<usize>)| {
                words == 0 || range.is_empty() || at + words <= range.start || range.end <= at
            };
            assert!(in_use.iter().all(is_free), "{at}..{}", at + words);
            in_use.push_back((id, at..at + words));
        }
        assert!(full > 100);
    }

    #[test]
    fn the_end_is_used_to_the_last_word() {
        let mut staging = StagingRing::new(8);
        assert_eq!([staging.take(0, 4), staging.take(1, 4)], [0, 4]);
        assert!(!staging.has_room(1) && staging.has_room(0));
        staging.give_back(0);
        assert!(staging.has_room(4) && !staging.has_room(5));
        assert_eq!(staging.take(2, 4), 0);
    }

    #[test]
    fn words_that_are_left_out_come_back() {
        let mut staging = StagingRing::new(8);
        staging.take(0, 6);
        staging.give_back(0);
        assert_eq!(staging.take(1, 4), 0, "two words at the end are left out");
        assert!(staging.has_room(2) && !staging.has_room(3));
        staging.give_back(1);
        assert_eq!(staging.take(2, 4), 4);
        assert!(staging.has_room(4));
    }
}
