//! The leader's rounds of messages, which show for reads that no other member leads.
//!
//! A read is executed first, on the applied state. All that was acknowledged before the read began
//! is applied here, unless another member has led since. A round that began after the read shows
//! that no other member has. Entries of this term that were proposed after the read and have
//! committed show the same.

use std::collections::VecDeque;
use std::time::Duration;

use raft::ReadState;

use super::context::RaftNode;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct ReadRounds {
    /// The last round that was begun, and the last one that was confirmed.
    begun: u64,
    confirmed: u64,
    /// The rounds that are not confirmed, and the times at which they began.
    open: VecDeque<(u64, Duration)>,
    /// The time at which the last round began.
    begun_at: Duration,
}

impl ReadRounds {
    /// Returns `true` if a round is in progress.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns the last round that was confirmed.
    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Begins a round, and returns its number.
    pub(super) fn begin(&mut self, raft: &mut RaftNode, now: Duration) -> u64 {
        self.begun += 1;
        self.begun_at = now;
        self.open.push_back((self.begun, now));
        raft.read_index(self.begun.to_be_bytes().to_vec());
        self.begun
    }

    /// Returns `true` if another round is due: the last one was not confirmed within `patience`,
    /// because messages were lost, or none is in progress and the last one began `interval` ago.
    pub(super) fn is_due(
        &self,
        now: Duration,
        patience: Duration,
        interval: Option<Duration>,
    ) -> bool {
        match self.open.back() {
            Some((_, begun)) => now >= *begun + patience,
            None => interval.is_some_and(|interval| now >= self.begun_at + interval),
        }
    }

    /// Takes the rounds that have been confirmed. Returns the time at which the last of them began.
    pub(super) fn confirm(&mut self, reads: Vec<ReadState>) -> Option<Duration> {
        let mut last = None;
        for read in reads {
            let Ok(round) = read.request_ctx.as_slice().try_into() else {
                continue;
            };
            let round = u64::from_be_bytes(round);
            self.confirmed = self.confirmed.max(round);
            while let Some((open, begun)) = self.open.pop_front_if(|(open, _)| *open <= round) {
                if open == round {
                    last = Some(begun);
                }
            }
        }
        last
    }

    /// Forgets all rounds, because the leadership has ended: no read waits for them.
    pub(super) fn forget(&mut self) {
        self.confirmed = self.begun;
        self.open.clear();
    }
}
