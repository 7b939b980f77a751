//! The deadlines of keys that the log has not said to have passed, in bounded memory.
//!
//! The leader's time must not pass a deadline of any key before an entry of the log says so. The
//! set may therefore contain too many deadlines, such as those of keys that are gone, and it may
//! take a deadline for earlier than it is: then an entry comes too early, and nothing else happens.
//! It must never miss a deadline.
//!
//! Deadlines lie in cells, whose width is a power of two. The set knows the earliest and the latest
//! deadline of each cell. A cell is a millisecond wide until there are too many cells. Then all
//! cells become wider, by as much as it takes to halve their number. They stay that wide until all
//! deadlines have passed.
//!
//! Invariant: each deadline that was inserted, and is later than the time that has passed, lies
//! between the earliest and the latest deadline of a cell.

use std::collections::BTreeMap;

/// The greatest number of cells.
const MOST: usize = 1 << 18;
/// While time moves through a cell, in which the places of the deadlines are not known, the log
/// states the time no more often than once in so many milliseconds. A key expires at most this much
/// too late then.
const PACE_MS: u64 = 100;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct DeadlineSet {
    /// The earliest and the latest deadline of each cell, by the number of the cell.
    cells: BTreeMap<u64, (u64, u64)>,
    /// Cells are `1 << shift` milliseconds wide.
    shift: u32,
    most: usize,
    /// The time that the log has stated last.
    passed: u64,
}

impl Default for DeadlineSet {
    fn default() -> DeadlineSet {
        DeadlineSet {
            cells: BTreeMap::new(),
            shift: 0,
            most: MOST,
            passed: 0,
        }
    }
}

impl DeadlineSet {
    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.shift = 0;
    }

    pub(crate) fn insert(&mut self, deadline: u64) {
        let cell = self.cells.entry(deadline >> self.shift);
        let (low, high) = cell.or_insert((deadline, deadline));
        (*low, *high) = (deadline.min(*low), deadline.max(*high));
        if self.cells.len() > self.most {
            self.widen();
        }
    }

    /// Returns the time that the leader must not reach before the log says so.
    pub(crate) fn first(&self) -> Option<u64> {
        let (_, (low, _)) = self.cells.first_key_value()?;
        Some(*low)
    }

    /// Returns `true` if the log should state the time `now`.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let Some((_, (low, high))) = self.cells.first_key_value() else {
            return false;
        };
        if self.passed > 0 && *low == self.passed + 1 {
            // Time is within the cell, or just before it.
            now >= (*high).min(self.passed + PACE_MS)
        } else {
            now >= *low
        }
    }

    /// Notes that the log has stated the time `now`.
    pub(crate) fn pass(&mut self, now: u64) {
        self.passed = self.passed.max(now);
        while let Some(mut cell) = self.cells.first_entry() {
            let (low, high) = cell.get_mut();
            if *high > now {
                *low = (*low).max(now + 1);
                return;
            }
            cell.remove();
        }
        self.shift = 0;
    }

    fn widen(&mut self) {
        let widest = u64::BITS - 1 - self.shift;
        // Finds the least width that is enough; wider cells are never more.
        let (mut by, mut enough) = (1, widest);
        while by < enough {
            let middle = by.midpoint(enough);
            if self.count(middle) <= self.most / 2 {
                enough = middle;
            } else {
                by = middle + 1;
            }
        }
        self.shift += by;
        let mut wider: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (number, (low, high)) in std::mem::take(&mut self.cells) {
            let cell = wider.entry(number >> by).or_insert((low, high));
            cell.1 = high;
        }
        self.cells = wider;
    }

    /// Returns the number of cells that there would be if they were wider.
    fn count(&self, by: u32) -> usize {
        let (mut count, mut last) = (0, None);
        for number in self.cells.keys().map(|number| number >> by) {
            count += usize::from(last != Some(number));
            last = Some(number);
        }
        count
    }
}

impl Extend<u64> for DeadlineSet {
    fn extend<T: IntoIterator<Item = u64>>(&mut self, deadlines: T) {
        deadlines.into_iter().for_each(|one| self.insert(one));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn bounded(most: usize) -> DeadlineSet {
        DeadlineSet {
            most,
            ..DeadlineSet::default()
        }
    }

    /// No deadline is ever passed before the log says so, for random deadlines and times.
    #[test]
    fn no_deadline_is_missed() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut deadlines, mut all) = (bounded(rng.usize(2..40)), BTreeSet::new());
            let span = 1 << rng.u32(3..40);
            let mut now = rng.u64(1..1000);
            for _ in 0..2000 {
                if rng.u32(0..3) > 0 {
                    let deadline = (now + rng.u64(0..span)).saturating_sub(5);
                    deadlines.insert(deadline);
                    all.insert(deadline);
                } else {
                    now += rng.u64(0..span / 16 + 2);
                    if deadlines.is_due(now) {
                        deadlines.pass(now);
                        all = all.split_off(&(now + 1));
                    }
                }
                let (limit, first) = (deadlines.first(), all.first().copied());
                assert_eq!(limit.is_none(), first.is_none(), "seed {seed}");
                assert!(limit <= first, "seed {seed}: {limit:?}, {first:?}");
                assert!(deadlines.cells.len() <= deadlines.most, "seed {seed}");
            }
        }
    }

    #[test]
    fn few_are_known_exactly() {
        let mut deadlines = bounded(4);
        deadlines.extend([50, 10, 10, 1 << 40, 30]);
        for deadline in [10, 30, 50, 1 << 40] {
            assert_eq!(deadlines.first(), Some(deadline));
            assert!(!deadlines.is_due(deadline - 1) && deadlines.is_due(deadline));
            deadlines.pass(deadline);
        }
        assert_eq!(deadlines.first(), None);
        assert!(!deadlines.is_due(u64::MAX));
    }

    /// Time moves through a wide cell at a pace, and cells are narrow again behind it.
    #[test]
    fn wide_cells_are_passed_at_a_pace() {
        let mut deadlines = bounded(2);
        deadlines.extend([10_000, 14_000, 15_000, 16_300]);
        assert_eq!(deadlines.cells.len(), 1);
        assert!(!deadlines.is_due(9_999));
        let (mut now, mut entries) = (9_999, 0);
        while deadlines.first().is_some() {
            now += 1;
            if deadlines.is_due(now) {
                deadlines.pass(now);
                entries += 1;
            }
        }
        assert_eq!(now, 16_300, "not before the latest one, nor later");
        assert_eq!(entries, 1 + 6_300 / PACE_MS);
        deadlines.extend([20_000, 20_001]);
        assert_eq!(deadlines.cells.len(), 2);
    }
}
