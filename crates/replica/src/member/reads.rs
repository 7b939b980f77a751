//! Rounds of messages that show, for reads, that no other member leads; and the leases that rest on
//! them.
//!
//! A read is executed first, on the applied state. All that was acknowledged before the read began
//! is applied here, unless another member has led since. A round that began after the read shows
//! that no other member has. Entries of this term that were proposed after the read and have
//! committed show the same.
//!
//! A lease rests on this: followers vote for no candidate within an election time-out of a message
//! of their leader. So no other member leads for that long from the beginning of a confirmed round,
//! less the possible difference of the clocks.

use std::collections::VecDeque;
use std::time::Duration;

use base::NodeId;
use raft::ReadState;

use super::Member;
use crate::messages::Envelope;
use crate::options::ELECTION_TICKS;
use crate::status::node_of;

/// See the module's description.
#[derive(Default)]
pub(super) struct Rounds {
    /// The last round that was begun, and the last one that was confirmed.
    begun: u64,
    pub(super) confirmed: u64,
    /// The times at which the rounds began that are not confirmed.
    open: VecDeque<(u64, Duration)>,
    /// The time at which the last round began.
    begun_at: Duration,
    /// The commit index that a leader sent last, and the time of the question.
    heard: Option<(u64, Duration)>,
}

impl Rounds {
    /// Returns `true` if a round is in progress.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Forgets all rounds: no read waits for them.
    pub(super) fn forget(&mut self) {
        self.confirmed = self.begun;
        self.open.clear();
    }
}

impl Member {
    /// Begins a round, and returns its number.
    pub(super) fn ask(&mut self) -> u64 {
        self.rounds.begun += 1;
        self.rounds.begun_at = self.now.since;
        let round = self.rounds.begun;
        self.rounds.open.push_back((round, self.now.since));
        if let Some(raft) = &mut self.raft {
            raft.read_index(round.to_be_bytes().to_vec());
        }
        round
    }

    /// Begins another round if the last one was not confirmed for long, because messages were lost,
    /// or if the lease is to be prolonged.
    pub(super) fn ask_again(&mut self) {
        if !self.shared.tickets.is_serving() {
            return;
        }
        let pause = self.options.election / 5;
        let last = self.rounds.open.back().map(|(_, begun)| *begun);
        let due = match last {
            Some(begun) => self.now.since >= begun + self.options.tick(),
            None => self.options.leases && self.now.since >= self.rounds.begun_at + pause,
        };
        if due {
            self.ask();
        }
    }

    /// Takes the rounds that have been confirmed.
    pub(super) fn confirm(&mut self, reads: Vec<ReadState>) {
        for read in reads {
            let Ok(round) = read.request_ctx.as_slice().try_into() else {
                continue;
            };
            let round = u64::from_be_bytes(round);
            self.rounds.confirmed = self.rounds.confirmed.max(round);
            while let Some((open, begun)) = self.rounds.open.front().copied()
                && open <= round
            {
                self.rounds.open.pop_front();
                if open == round {
                    self.prolong(begun);
                }
            }
        }
    }

    fn prolong(&mut self, begun: Duration) {
        let Some(raft) = &self.raft else { return };
        if self.leading.is_none() || raft.raft.term == self.handed_over_in {
            return;
        }
        // A follower counts whole ticks, the first of which may come at once.
        let ticks = self.options.tick() * (ELECTION_TICKS as u32 - 1);
        self.shared.set_lease(begun + ticks * 8 / 10);
    }

    /// Asks the leader, as a follower, for its commit index, so that this member knows the age of
    /// the state that it shows: at the time of the question, no more was committed than the answer
    /// says.
    pub(super) fn ask_committed(&mut self) {
        let leader = self.raft.as_ref().map_or(0, |raft| raft.raft.leader_id);
        if leader != 0 && self.leading.is_none() {
            let asked = self.now.since.as_nanos() as u64;
            self.send(node_of(leader), &Envelope::HowFar { asked });
        }
    }

    pub(super) fn on_how_far(&mut self, from: NodeId, asked: u64) {
        let Some(raft) = self.raft.as_ref().filter(|_| self.leading.is_some()) else {
            return;
        };
        let (term, index) = (raft.raft.term, raft.raft.raft_log.committed);
        self.send(from, &Envelope::Committed { term, index, asked });
    }

    pub(super) fn on_committed(&mut self, term: u64, index: u64, asked: u64) {
        // This is the answer to a question from before a restart.
        if u128::from(asked) > self.now.since.as_nanos() {
            return;
        }
        if self
            .raft
            .as_ref()
            .is_some_and(|raft| term >= raft.raft.term)
        {
            self.rounds.heard = Some((index, Duration::from_nanos(asked)));
        }
    }

    /// Notes the time up to which this member shows all that was committed.
    pub(super) fn note_fresh(&mut self) {
        if let Some((index, at)) = self.rounds.heard
            && self.applied >= index
        {
            self.shared.set_fresh(at);
            self.rounds.heard = None;
        }
    }
}
