//! The ticks by which Raft measures time, and the random time-out after which a follower wants to be
//! elected.

use std::time::Duration;

use super::context::RaftNode;
use crate::options::{ELECTION_TICKS, MemberOptions};
use crate::time::Now;

/// See the module's description.
pub(super) struct ElectionTimer {
    next_tick: Duration,
    random: fastrand::Rng,
    /// The term, role and leader when the election time-out was drawn last.
    drawn_for: (u64, raft::StateRole, u64),
    /// The election time-out, in ticks.
    timeout: usize,
}

impl ElectionTimer {
    pub(super) fn new(options: &MemberOptions, now: Now) -> ElectionTimer {
        ElectionTimer {
            next_tick: now.since + options.tick(),
            random: fastrand::Rng::with_seed(options.seed),
            drawn_for: (0, raft::StateRole::Follower, 0),
            timeout: ELECTION_TICKS,
        }
    }

    /// Returns the time of the next tick, as [`Now::since`].
    pub(super) fn next_tick(&self) -> Duration {
        self.next_tick
    }

    /// Returns `true` if the clock has ticked. A time during which the process slept counts once,
    /// because the process could receive no message.
    pub(super) fn has_ticked(&mut self, now: Now, tick: Duration) -> bool {
        if now.since < self.next_tick {
            return false;
        }
        self.next_tick += tick;
        if self.next_tick < now.since {
            self.next_tick = now.since + tick;
        }
        true
    }

    /// Gives Raft a time-out from this timer's random numbers: a new one if its term, role or
    /// leader has changed. The library draws from a generator of its own, which the seed does not
    /// control.
    pub(super) fn set_timeout(&mut self, raft: &mut RaftNode) {
        let state = (raft.raft.term, raft.raft.state, raft.raft.leader_id);
        if state != self.drawn_for {
            self.drawn_for = state;
            self.timeout = self.random.usize(ELECTION_TICKS..2 * ELECTION_TICKS);
        }
        raft.raft.set_randomized_election_timeout(self.timeout);
    }
}
