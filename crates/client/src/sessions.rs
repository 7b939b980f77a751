//! Sessions at replicated partitions, kept for the next calls.
//!
//! A transaction that has a number in a session can be sent again: the partition executes it once.
//!
//! Invariants:
//! 1. A session has one transaction under way at a time: the call that takes a session has it alone.
//! 2. No number is used twice for different transactions.
//! 3. A session is given back only if the outcome of its last transaction is known.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base::PartitionId;
use base::participant::Sequenced;
use parking_lot::Mutex;

/// A session that was not used for so long is not used again: partitions forget sessions that are silent
/// for twice as long, and a request to a forgotten session costs a round trip.
const IDLE: Duration = Duration::from_secs(300);

/// The free sessions of a client.
#[derive(Default)]
pub(crate) struct FreeSessions {
    /// Free sessions, with their last numbers and when they were used, the latest at the end.
    free: Mutex<HashMap<PartitionId, Vec<(Instant, Sequenced)>>>,
}

impl FreeSessions {
    /// Returns a free session, with its next number.
    pub(crate) fn take(&self, of: PartitionId) -> Option<Sequenced> {
        let mut free = self.free.lock();
        let here = free.get_mut(&of)?;
        let (used, last) = here.pop()?;
        if used.elapsed() >= IDLE {
            // The others were not used since then, either.
            here.clear();
            return None;
        }
        Some(Sequenced {
            sequence: last.sequence + 1,
            ..last
        })
    }

    /// Gives a session back, with the last number that was used.
    pub(crate) fn give_back(&self, of: PartitionId, last: Sequenced) {
        let mut free = self.free.lock();
        free.entry(of).or_default().push((Instant::now(), last));
    }

    /// Notes that a partition has forgotten a session; the free ones were not used for longer.
    pub(crate) fn forget(&self, of: PartitionId) {
        self.free.lock().remove(&of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_by_one_and_its_numbers_grow() {
        let (sessions, of) = (FreeSessions::default(), PartitionId(1));
        assert_eq!(sessions.take(of), None);
        let at = |session, sequence| Sequenced { session, sequence };
        sessions.give_back(of, at(7, 1));
        sessions.give_back(of, at(9, 4));
        assert_eq!(sessions.take(PartitionId(2)), None);
        assert_eq!(sessions.take(of), Some(at(9, 5)), "the last that was used");
        assert_eq!(sessions.take(of), Some(at(7, 2)));
        assert_eq!(sessions.take(of), None);
        sessions.give_back(of, at(7, 2));
        sessions.forget(of);
        assert_eq!(sessions.take(of), None);
    }
}
