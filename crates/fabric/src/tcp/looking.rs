//! Connections through memory: those that are looked at in each turn, and those that sleep.

use std::io;

use super::connection::Look;
use super::{Tcp, note};
use crate::ring::Until;

impl Tcp {
    /// Has a connection's ring looked at from now on, if it has one.
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
        if through.called {
            let slept = self.now.saturating_sub(through.asleep_since);
            through.patience.called(slept);
        }
        through.looks_since = self.now;
        self.awake.push(place);
        if let Err(error) = through.rings.wake() {
            self.fail(place, &io::Error::from(error));
        }
    }

    /// Looks at the rings of those that are awake. Who has looked in vain for long enough goes to
    /// sleep.
    pub(super) fn look_at_rings(&mut self) {
        if self.awake.is_empty() {
            return;
        }
        let mut awake = std::mem::take(&mut self.awake);
        let nothing_before = self.ready.is_empty();
        awake.retain(|&place| self.look_at(place));
        awake.append(&mut self.awake);
        self.awake = awake;
        if nothing_before && self.ready.is_empty() && !self.awake.is_empty() {
            // Who is waited for may want this processor.
            std::thread::yield_now();
        }
    }

    /// Looks at one ring. Returns whether it stays awake.
    #[inline]
    fn look_at(&mut self, place: usize) -> bool {
        let Some(connection) = self.connections.get_mut(place) else {
            return false;
        };
        let was_written = connection.is_written();
        if let Err(error) = connection.ring() {
            self.fail(place, &error);
            return true;
        }
        if !was_written && connection.is_written() {
            // Who is to be told of the end is told now.
            note(&mut self.dirty, place, &mut connection.in_dirty);
        }
        let look = connection.look();
        let Some(through) = &mut connection.rings else {
            return false;
        };
        let looked = self.now.saturating_sub(through.looks_since);
        if look == Look::Nothing {
            let busy = connection.in_ready || through.rings.is_unsettled();
            return busy || !through.patience.is_over(looked) || !self.try_to_sleep(place);
        }
        if !looked.is_zero() {
            through.patience.came(looked);
            through.looks_since = self.now;
        }
        if look == Look::Room {
            connection.full = false;
            note(&mut self.dirty, place, &mut connection.in_dirty);
            return true;
        }
        if !std::mem::replace(&mut connection.in_ready, true) {
            self.ready.push_back(place);
        }
        true
    }

    /// Returns whether a connection sleeps now: not if something has come at the last moment.
    fn try_to_sleep(&mut self, place: usize) -> bool {
        let connection = &mut self.connections[place];
        let Some(through) = &mut connection.rings else {
            return false;
        };
        let until = if connection.full {
            Until::Either
        } else {
            Until::Come
        };
        match through.rings.sleep(until) {
            Ok(false) => false,
            Ok(true) => {
                through.patience.slept();
                through.awake = false;
                through.asleep_since = self.now;
                true
            }
            Err(error) => {
                self.fail(place, &io::Error::from(error));
                false
            }
        }
    }
}
