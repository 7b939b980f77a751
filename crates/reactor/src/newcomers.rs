//! Places for connections that have not authenticated: the policy of a listener, without sockets.
//!
//! Connections that have not authenticated have few places of their own, so that they take none
//! from those that have. When all places are taken, a new connection gets that of the oldest: peers
//! that know the secret authenticate within a round trip, and connections that send nothing are
//! pushed out by the next ones. Each connection also has a bounded time.
//!
//! Invariants:
//! 1. At most `limit` connections have a place.
//! 2. Places are in the order of admission, and so are their deadlines.

use std::collections::BTreeMap;
use std::time::Duration;

/// The least places of a thread, if half of the limit on all clients allows so many, so that
/// clients that connect together do not push each other out.
const LEAST: usize = 16;

/// Returns the places of each of a listener's `threads` for connections that have not
/// authenticated. All threads together may have `clients` connections. The places of all threads
/// are at most `most`, and a quarter of the limit on all clients, or half of it if that is little.
#[must_use]
pub fn places_of_thread(clients: usize, most: usize, threads: usize) -> usize {
    let threads = threads.max(1);
    let least = LEAST.min(clients / 2 / threads);
    (most.min(clients / 4) / threads).max(least)
}

/// Names the place of a connection that has not authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdmissionTicket(u64);

/// See the module's description. `K` names a connection.
#[derive(Debug)]
pub struct Newcomers<K> {
    limit: usize,
    within: Duration,
    /// In the order of admission: the connection, and the time by which it must have authenticated.
    places: BTreeMap<AdmissionTicket, (K, Duration)>,
    admitted: u64,
}

impl<K> Newcomers<K> {
    /// Returns a policy with at most `limit` places, at least one; a connection keeps its place for the
    /// time `within`.
    #[must_use]
    pub fn new(limit: usize, within: Duration) -> Newcomers<K> {
        Newcomers {
            limit: limit.max(1),
            within,
            places: BTreeMap::new(),
            admitted: 0,
        }
    }

    /// Admits a connection at the time `now`. Returns its place, and the connection that has lost its own
    /// and must be closed.
    pub fn admit(&mut self, connection: K, now: Duration) -> (AdmissionTicket, Option<K>) {
        let evicted = match self.places.len() < self.limit {
            true => None,
            false => self.places.pop_first().map(|(_, (oldest, _))| oldest),
        };
        self.admitted += 1;
        let place = AdmissionTicket(self.admitted);
        self.places.insert(place, (connection, now + self.within));
        (place, evicted)
    }

    /// Gives a place back: its connection has authenticated, or is closed. Does nothing if it has lost the
    /// place already.
    pub fn leave(&mut self, place: AdmissionTicket) {
        self.places.remove(&place);
    }

    /// Takes the place from a connection whose time has passed. Returns the connection, which must be
    /// closed.
    pub fn late(&mut self, now: Duration) -> Option<K> {
        let first = self.places.first_entry()?;
        (first.get().1 <= now).then(|| first.remove().0)
    }

    /// Returns the time at which [`Newcomers::late`] will return a connection, if nothing happens
    /// before.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        self.places.first_key_value().map(|(_, (_, due))| *due)
    }

    /// Returns the number of connections with a place.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns `true` if no connection has a place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_part_of_what_all_clients_have() {
        assert_eq!(places_of_thread(10_000, 2048, 4), 512);
        assert_eq!(places_of_thread(1000, 2048, 2), 125);
        assert_eq!(places_of_thread(100, 2048, 2), 16, "more than a quarter");
        assert_eq!(places_of_thread(10, 2048, 2), 2, "half");
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_new_connection_gets_the_place_of_the_oldest() {
        let mut newcomers = Newcomers::new(2, 5 * SECOND);
        let (first, evicted) = newcomers.admit('a', Duration::ZERO);
        assert_eq!(evicted, None);
        let (second, evicted) = newcomers.admit('b', Duration::ZERO);
        assert_eq!(evicted, None);
        let (third, evicted) = newcomers.admit('c', SECOND);
        assert_eq!((evicted, newcomers.len()), (Some('a'), 2));
        // A place that is lost cannot be given back.
        newcomers.leave(first);
        assert_eq!(newcomers.len(), 2);
        // A connection that has authenticated makes room.
        newcomers.leave(second);
        assert_eq!(newcomers.admit('d', SECOND).1, None);
        assert_eq!(newcomers.admit('e', SECOND).1, Some('c'));
        newcomers.leave(third);
        assert_eq!(newcomers.len(), 2);
    }

    #[test]
    fn a_connection_that_does_not_authenticate_in_time_is_late() {
        let mut newcomers = Newcomers::new(3, 5 * SECOND);
        assert_eq!(newcomers.due(), None);
        newcomers.admit('a', SECOND);
        let (second, _) = newcomers.admit('b', 2 * SECOND);
        newcomers.admit('c', 3 * SECOND);
        assert_eq!(newcomers.due(), Some(6 * SECOND));
        assert_eq!(newcomers.late(5 * SECOND), None);
        assert_eq!(newcomers.late(6 * SECOND), Some('a'));
        newcomers.leave(second);
        assert_eq!(newcomers.late(7 * SECOND), None);
        assert_eq!(newcomers.late(8 * SECOND), Some('c'));
        assert!(newcomers.is_empty() && newcomers.due().is_none());
    }

    #[test]
    fn a_policy_has_one_place_at_least() {
        let mut newcomers = Newcomers::new(0, SECOND);
        assert_eq!(newcomers.admit(1, Duration::ZERO).1, None);
        assert_eq!(newcomers.admit(2, Duration::ZERO).1, Some(1));
    }
}
