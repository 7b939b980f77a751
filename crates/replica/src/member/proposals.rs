//! What the leader has taken from the queue of submissions and has not finished: entries that are
//! not applied, and turns whose tickets have not resolved.

use std::collections::VecDeque;

use base::TransactionId;

use crate::shared::MemberShared;
use crate::tickets::Submission;

/// The number of entries that may be in progress, and their bytes. More entries wait in the queue,
/// and their clients wait with them.
const MOST_ENTRIES: usize = 1 << 14;
const MOST_BYTES: usize = 64 << 20;

/// What a proposed entry settles when it is applied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Proposal {
    /// The transaction whose holds are given back.
    release: Option<TransactionId>,
    /// The number under which a worker waits for the outcome.
    number: Option<u64>,
    /// The client whose transaction it is; 0 if it belongs to no client.
    client: u64,
    /// The length of the entry.
    bytes: usize,
}

impl Proposal {
    pub(super) fn of(submission: &Submission) -> Proposal {
        Proposal {
            release: submission.release,
            number: submission.number,
            client: submission.client,
            bytes: submission.payload.len(),
        }
    }
}

/// A turn whose ticket has not resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenTurn {
    pub(super) ticket: u64,
    /// The last entry that it took; 0 if it took none.
    pub(super) last: u64,
    /// The round of messages that its reads wait for; 0 if they wait for none.
    pub(super) round: u64,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    /// Entries that are not applied, by their index.
    entries: VecDeque<(u64, Proposal)>,
    bytes: usize,
    turns: VecDeque<OpenTurn>,
}

impl Proposals {
    /// Returns `true` if more entries may be proposed.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < MOST_ENTRIES && self.bytes < MOST_BYTES
    }

    /// Returns `true` if so many waiting entries may be proposed: at least as many as are proposed and not applied. Many small
    /// groups would each take a sync and a round of messages of their own.
    pub(super) fn let_through(&self, waiting: usize) -> bool {
        waiting >= self.entries.len()
    }

    /// Returns `true` if all proposed entries are applied.
    pub(super) fn are_applied(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns `true` if the tickets of all turns have resolved.
    pub(super) fn are_resolved(&self) -> bool {
        self.turns.is_empty()
    }

    /// Notes proposed entries, the first of which has the index `first`.
    pub(super) fn add(&mut self, first: u64, proposals: Vec<Proposal>) {
        self.bytes += proposals.iter().map(|one| one.bytes).sum::<usize>();
        self.entries.extend((first..).zip(proposals));
    }

    /// Notes a turn whose ticket is to be resolved.
    pub(super) fn add_turn(&mut self, turn: OpenTurn) {
        self.turns.push_back(turn);
    }

    /// Returns the number under which a worker of this node waits for the outcome of the entry that
    /// is applied next.
    pub(super) fn waiter(&self, index: u64) -> Option<u64> {
        let (front, proposal) = self.entries.front()?;
        proposal.number.filter(|_| *front == index)
    }

    /// Returns the transaction of this leadership whose holds end with the entry that is applied next.
    pub(super) fn holder(&self, index: u64) -> Option<TransactionId> {
        let (front, proposal) = self.entries.front()?;
        proposal.release.filter(|_| *front == index)
    }

    /// Gives back the holds of the entries up to `applied`.
    pub(super) fn settle(&mut self, applied: u64, shared: &MemberShared) {
        while let Some((_, proposal)) = self.entries.pop_front_if(|(index, _)| *index <= applied) {
            self.bytes -= proposal.bytes;
            if let Some(id) = proposal.release {
                shared.engine.release(id);
            }
            if proposal.client != 0 {
                shared.under_way.lock().remove(&proposal.client);
            }
        }
    }

    /// Removes the turns whose outcome is known: their entries are applied up to `applied`, and
    /// their rounds are confirmed up to `confirmed`. Returns the ticket of the last one.
    pub(super) fn resolve(&mut self, applied: u64, confirmed: u64) -> Option<u64> {
        let mut newest = None;
        while let Some(turn) = self
            .turns
            .pop_front_if(|turn| turn.last <= applied && turn.round <= confirmed)
        {
            newest = Some(turn.ticket);
        }
        newest
    }

    /// Drops everything, because the leadership has ended.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.turns.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(ticket: u64, last: u64, round: u64) -> OpenTurn {
        OpenTurn {
            ticket,
            last,
            round,
        }
    }

    #[test]
    fn tickets_resolve_in_order_when_entries_are_applied_and_rounds_confirmed() {
        let mut proposals = Proposals::default();
        for one in [turn(1, 5, 0), turn(2, 0, 3), turn(3, 7, 0)] {
            proposals.add_turn(one);
        }
        assert_eq!(proposals.resolve(4, 9), None);
        assert_eq!(
            proposals.resolve(7, 2),
            Some(1),
            "the next one waits for its round"
        );
        assert_eq!(proposals.resolve(7, 3), Some(3));
        assert!(proposals.are_resolved());
    }

    #[test]
    fn a_worker_waits_for_the_entry_that_is_applied_next() {
        let mut proposals = Proposals::default();
        let numbered = Proposal {
            number: Some(70),
            bytes: MOST_BYTES,
            ..Proposal::default()
        };
        proposals.add(7, vec![numbered, Proposal::default()]);
        assert_eq!(proposals.waiter(7), Some(70));
        assert_eq!(proposals.waiter(8), None);
        assert!(!proposals.has_room() && !proposals.are_applied());
        assert!(!proposals.let_through(1) && proposals.let_through(2));
        proposals.clear();
        assert!(proposals.has_room() && proposals.are_applied());
        assert!(proposals.let_through(1));
    }
}
