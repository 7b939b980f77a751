//! What the parts of a node share: its place in the cluster, its time, its connections to other nodes,
//! and the answers that it has to handle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::{Abort, NodeId, PartitionId, TransactionId};

use crate::clock::HybridClock;
use crate::connections::PeerConnections;
use crate::counters::Counters;
use crate::leaders::Leaders;
use crate::message::{Answer, ParticipantList};
use crate::requester::{LostRequest, RequestPurpose, Requester};
use crate::timeouts::Timeouts;
use crate::topology::Topology;

/// Acknowledgements of commits, and the home's consent to another attempt, are requested again after
/// this time.
pub(crate) const REPEAT_AFTER: Duration = Duration::from_millis(500);
/// A request is repeated after this time if another node leads the partition.
const REDIRECT_PAUSE: Duration = Duration::from_millis(20);
/// A request is repeated after this time if no node is known to lead the partition.
const LEADERLESS_PAUSE: Duration = Duration::from_millis(100);

/// See the module's description.
pub(crate) struct NodeContext {
    pub(crate) topology: Arc<Topology>,
    pub(crate) leaders: Arc<Leaders>,
    pub(crate) node: NodeId,
    /// The partition that this node holds, alone or with others.
    pub(crate) local_partition: Option<PartitionId>,
    /// The second half of the ids of the attempts that this node coordinates.
    pub(crate) unique: u64,
    pub(crate) timeouts: Timeouts,
    pub(crate) clock: HybridClock,
    /// The time of the event that is handled.
    pub(crate) now: Duration,
    pub(crate) connections: PeerConnections,
    /// Answers to this node's requests that were not handled yet.
    pub(crate) answers: VecDeque<(RequestPurpose, Result<Answer, LostRequest>)>,
    pub(crate) counters: Counters,
}

impl NodeContext {
    /// Returns the id of a new attempt; `time_ms` is the local partition's time.
    pub(crate) fn next_transaction_id(&mut self, time_ms: u64) -> TransactionId {
        TransactionId {
            timestamp: self.clock.next(time_ms),
            unique: self.unique,
        }
    }

    /// Gives an answer to the sender of its request.
    pub(crate) fn deliver(&mut self, requester: Requester, answer: Answer) {
        match requester {
            Requester::Local(purpose) => self.answers.push_back((purpose, Ok(answer))),
            Requester::Remote { link, number } => self.connections.reply(link, number, answer),
        }
    }

    /// Queues requests that have no answer, so that their senders learn it.
    pub(crate) fn deliver_lost(&mut self, lost: Vec<(RequestPurpose, LostRequest)>) {
        let lost = lost.into_iter();
        self.answers
            .extend(lost.map(|(purpose, lost)| (purpose, Err(lost))));
    }

    /// Returns the abort for a caller if nothing has happened because a partition did not answer. If the
    /// partition has other nodes, one of them may answer.
    pub(crate) fn unanswered(&self, of: PartitionId, what: String) -> Abort {
        if self.leaders.is_replicated(of) {
            let leader = self.leaders.leader(of);
            Abort::Elsewhere { leader }
        } else {
            Abort::Unavailable { what }
        }
    }

    /// Returns when to repeat a request to a partition that has not done what was asked, if that is
    /// earlier than planned: because another node leads it, or will.
    pub(crate) fn repeat_early_at(
        &self,
        of: PartitionId,
        answer: &Result<Answer, LostRequest>,
    ) -> Option<Duration> {
        let is_led = self.leaders.leader(of).is_some();
        let pause = if is_led {
            REDIRECT_PAUSE
        } else {
            LEADERLESS_PAUSE
        };
        let may_move = match answer {
            Ok(Answer::Aborted(_)) => true,
            Ok(_) => false,
            Err(_) => self.leaders.is_replicated(of),
        };
        may_move.then_some(self.now + pause)
    }

    /// Returns what is wrong with a list of participants: a partition that the cluster's file does not
    /// have.
    pub(crate) fn unknown_participant(&self, participant_list: &ParticipantList) -> Option<String> {
        let unknown = |of: &&PartitionId| self.topology.partition(**of).is_none();
        let unknown = participant_list.participants.iter().find(unknown)?;
        Some(format!(
            "partition {unknown} takes part, which the cluster's file does not have"
        ))
    }
}
