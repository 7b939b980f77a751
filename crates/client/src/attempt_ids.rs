//! The ids of the writes that a client coordinates: a time, and a number that belongs to the client.
//!
//! Ids order the versions of a key. A client's time may be wrong; as with nodes, a participant refuses an id
//! that is not above that of the version which it would replace, and one that lies far ahead of its own
//! time. After the former the client goes on from the participant's time.

use std::time::{Duration, SystemTime};

use base::{Timestamp, TransactionId};
use cluster::CoordinatorKey;
use cluster::clock::HybridClock;
use parking_lot::Mutex;

/// See the module's description.
pub(crate) struct AttemptIds {
    key: CoordinatorKey,
    unique: u64,
    clock: Mutex<HybridClock>,
}

impl AttemptIds {
    /// Creates the ids of a new client.
    ///
    /// # Panics
    /// If the machine has no random numbers.
    pub(crate) fn new() -> AttemptIds {
        let mut bytes = [0; CoordinatorKey::BYTES];
        getrandom::fill(&mut bytes).expect("the machine has random numbers");
        let key = CoordinatorKey::new(bytes);
        AttemptIds {
            unique: key.unique(),
            key,
            clock: Mutex::default(),
        }
    }

    /// Returns the key that proves that the ids belong to this client.
    pub(crate) fn key(&self) -> CoordinatorKey {
        self.key
    }

    /// Returns an id that was never returned before.
    pub(crate) fn next(&self) -> TransactionId {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_ms = now.unwrap_or(Duration::ZERO).as_millis() as u64;
        TransactionId {
            timestamp: self.clock.lock().next(now_ms),
            unique: self.unique,
        }
    }

    /// Lets further ids be above `timestamp`, which a participant has named.
    pub(crate) fn pass(&self, timestamp: Timestamp) {
        let mut clock = self.clock.lock();
        *clock = HybridClock::after(clock.last().max(timestamp));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_only_grow_and_pass_what_participants_name() {
        let ids = AttemptIds::new();
        let first = ids.next();
        ids.pass(Timestamp::ZERO);
        let second = ids.next();
        let ahead = Timestamp(second.timestamp.0 + (1 << 40));
        ids.pass(ahead);
        let third = ids.next();
        assert!(first < second && third.timestamp > ahead);
        assert_ne!(AttemptIds::new().next().unique, first.unique);
    }
}
