//! Polls the rings of connections whose messages travel through memory, and puts them to sleep.

use std::io;
use std::time::Duration;

use super::connection::RingPoll;
use super::polled_connections::LONELY;
use super::{Tcp, note};
use crate::ring::Until;
use reactor::{Network, SocketEvent};

/// The result of a look at a connection.
enum PollResult {
    Nothing,
    Something,
    /// There is nothing to look at any more.
    Gone,
}

impl<N: Network> Tcp<N> {
    /// Starts to look at a connection's ring, if it has one.
    #[inline]
    pub(super) fn wake(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else {
            return;
        };
        let Some(through) = &mut connection.rings else {
            return;
        };
        if std::mem::replace(&mut through.awake, true) {
            return;
        }
        let polled = &mut self.polled;
        if polled.is_asleep() {
            if through.called {
                let after = self.now.saturating_sub(polled.since);
                polled.spin_policy.called(after);
            }
            polled.since = self.now;
        }
        through.quiet_since = self.now;
        polled.awake.push(place);
        if let Err(error) = through.rings.wake() {
            self.fail(place, &io::Error::from(error));
        }
    }

    /// Waits for events of the network, and looks at rings meanwhile if the thread does not sleep.
    ///
    /// # Errors
    /// Returns the network's errors.
    pub fn wait(
        &self,
        network: &mut N,
        happened: &mut Vec<SocketEvent>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if self.polled.is_asleep() || timeout != Some(Duration::ZERO) {
            return network.wait(happened, timeout);
        }
        let has_input = |&place: &usize| self.connections[place].look() != RingPoll::Nothing;
        network.look(happened, || self.polled.awake.iter().any(has_input))
    }

    /// Looks at the rings of the connections that are awake. They go to sleep if the looks have
    /// found nothing for long enough.
    pub(super) fn look_at_rings(&mut self, network: &mut N) {
        if self.polled.is_asleep() {
            return;
        }
        let nothing_before = self.ready.is_empty();
        let mut something = false;
        let mut awake = std::mem::take(&mut self.polled.awake);
        awake.retain(|&place| match self.look_at(network, place) {
            PollResult::Gone => false,
            PollResult::Nothing => !self.is_lonely(place) || !self.try_to_sleep(place),
            PollResult::Something => {
                something = true;
                true
            }
        });
        let now = self.now;
        let polled = &mut self.polled;
        if std::mem::take(&mut polled.expects) {
            // The time of other work of this thread since then does not count as looking.
            polled.since = now;
        }
        let looked = now.saturating_sub(polled.since);
        if something {
            polled.since = now;
            if !looked.is_zero() {
                polled.spin_policy.saw_event();
            }
        } else if polled.spin_policy.is_over(looked) {
            awake.retain(|&place| !self.try_to_sleep(place));
        }
        awake.append(&mut self.polled.awake);
        self.polled.awake = awake;
        if nothing_before && self.ready.is_empty() && !self.polled.is_asleep() {
            // The peer may want this processor.
            self.polled.spin_policy.give_way();
        }
    }

    /// Looks at one ring.
    #[inline]
    fn look_at(&mut self, network: &mut N, place: usize) -> PollResult {
        let Some(connection) = self.connections.get_mut(place) else {
            return PollResult::Gone;
        };
        let was_written = connection.is_written();
        if let Err(error) = connection.ring(network) {
            self.fail(place, &error);
            return PollResult::Something;
        }
        if !was_written && connection.is_written() {
            // If the peer must learn of the end, it does so now.
            note(&mut self.dirty, place, &mut connection.in_dirty);
        }
        let look = connection.look();
        let Some(through) = &mut connection.rings else {
            return PollResult::Gone;
        };
        match look {
            RingPoll::Nothing => return PollResult::Nothing,
            RingPoll::Space => {
                connection.full = false;
                note(&mut self.dirty, place, &mut connection.in_dirty);
            }
            RingPoll::Input => {
                if !std::mem::replace(&mut connection.in_ready, true) {
                    self.ready.push_back(place);
                }
            }
        }
        through.quiet_since = self.now;
        PollResult::Something
    }

    /// Returns `true` if nothing has happened on a connection for long.
    fn is_lonely(&self, place: usize) -> bool {
        let rings = self.connections[place].rings.as_ref();
        rings.is_some_and(|through| self.now.saturating_sub(through.quiet_since) >= LONELY)
    }

    /// Puts a connection to sleep. Returns `true` if it sleeps: not if something has come at the
    /// last moment, or there is still something to do.
    fn try_to_sleep(&mut self, place: usize) -> bool {
        let connection = &mut self.connections[place];
        let Some(through) = &mut connection.rings else {
            return true;
        };
        if connection.in_ready || through.rings.is_unsettled() {
            return false;
        }
        let until = if connection.full {
            Until::Either
        } else {
            Until::Input
        };
        match through.rings.sleep(until) {
            Ok(false) => false,
            Ok(true) => {
                through.awake = false;
                true
            }
            Err(error) => {
                self.fail(place, &io::Error::from(error));
                false
            }
        }
    }
}
