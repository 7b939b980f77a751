//! The time by which versions of read-atomic keys grow old: that which the janitor has lived through.

use std::collections::VecDeque;

use base::Epoch;
use base::versions::ReadAtomic;

/// [`ReadAtomic::KEPT`] in milliseconds.
pub(super) const KEPT_MS: u64 = ReadAtomic::KEPT.as_millis() as u64;

/// The most that the time between two looks counts for the age of retained records.
const LEAP_MS: u64 = KEPT_MS / 4;

/// The janitor's own time.
pub(super) struct AgeClock {
    /// The time that the janitor has lived through, in milliseconds, and the moment when it was
    /// last added to. No leap of the clock makes retained records older than they are, but for
    /// [`LEAP_MS`].
    pub(super) age_ms: u64,
    pub(super) seen_ms: u64,
    /// The ages at which epochs were the current one, for the last while: the oldest one determines
    /// what is old enough.
    moments: VecDeque<(u64, Epoch)>,
}

impl AgeClock {
    /// Returns a clock that begins at the engine's time `now_ms`.
    pub(super) fn new(now_ms: u64) -> AgeClock {
        AgeClock {
            age_ms: 0,
            seen_ms: now_ms,
            moments: VecDeque::new(),
        }
    }

    /// Goes on to the engine's time.
    pub(super) fn advance(&mut self, time_ms: u64) {
        let time_ms = time_ms.max(self.seen_ms);
        self.age_ms += (time_ms - self.seen_ms).min(LEAP_MS);
        self.seen_ms = time_ms;
    }

    /// Notes the epoch that is current now.
    pub(super) fn note_epoch(&mut self, epoch: Epoch) {
        let age_ms = self.age_ms;
        let is_new = |(last, _): &(u64, Epoch)| last + KEPT_MS / 8 <= age_ms;
        if self.moments.back().is_none_or(is_new) {
            self.moments.push_back((age_ms, epoch));
        }
        let is_old = |(at, _): &(u64, Epoch)| at + KEPT_MS <= age_ms;
        while self.moments.get(1).is_some_and(is_old) {
            self.moments.pop_front();
        }
    }

    /// Returns the newest epoch of which everything was committed [`ReadAtomic::KEPT`] ago, as far
    /// as this janitor has seen it.
    pub(super) fn old_enough(&self) -> Epoch {
        let old = |(at, _): &&(u64, Epoch)| at + KEPT_MS <= self.age_ms;
        let newest = self.moments.iter().rev().find(old);
        newest.map_or(Epoch::ZERO, |(_, epoch)| epoch.prev())
    }
}
