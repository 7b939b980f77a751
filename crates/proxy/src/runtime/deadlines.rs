//! Deadlines by which clients must go on, by the clients' places.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use foldhash::fast::RandomState;

/// See the module documentation. A client has at most one deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// All deadlines, the earliest first.
    all: BTreeSet<(Duration, usize)>,
    of: HashMap<usize, Duration, RandomState>,
}

impl Deadlines {
    /// Sets the time by which the client must have gone on. An earlier deadline stays; when it comes,
    /// the caller checks if it still holds.
    pub(crate) fn set(&mut self, place: usize, due: Duration) {
        match self.of.get_mut(&place) {
            Some(earlier) if *earlier <= due => {}
            Some(later) => {
                self.all.remove(&(*later, place));
                *later = due;
                self.all.insert((due, place));
            }
            None => {
                self.of.insert(place, due);
                self.all.insert((due, place));
            }
        }
    }

    /// Removes the deadline of a client that is gone.
    pub(crate) fn remove(&mut self, place: usize) {
        if !self.of.is_empty()
            && let Some(due) = self.of.remove(&place)
        {
            self.all.remove(&(due, place));
        }
    }

    /// Removes and returns a client whose deadline has come.
    pub(crate) fn take(&mut self, now: Duration) -> Option<usize> {
        let &(due, place) = self.all.first()?;
        (due <= now).then(|| {
            self.remove(place);
            place
        })
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.all.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_each_client_has_one() {
        let ms = Duration::from_millis;
        let mut deadlines = Deadlines::default();
        deadlines.set(1, ms(30));
        deadlines.set(2, ms(20));
        deadlines.set(3, ms(10));
        deadlines.set(1, ms(5));
        deadlines.set(2, ms(40));
        deadlines.remove(3);
        deadlines.remove(4);
        assert_eq!(deadlines.next(), Some(ms(5)));
        assert_eq!(deadlines.take(ms(4)), None);
        assert_eq!(deadlines.take(ms(25)), Some(1));
        assert_eq!(deadlines.take(ms(25)), Some(2));
        assert_eq!((deadlines.take(ms(99)), deadlines.next()), (None, None));
    }
}
