//! A transaction that a node coordinates: its operations, its parts, and the progress of its attempt.

use std::time::Duration;

use base::partition::OwnedReply;
use base::{Abort, Epoch, PartitionId, Timestamp, TransactionId};

use crate::context::NodeContext;
use crate::message::Answer;
use crate::ramp::{Algorithm, ReadAtomicRead};
use crate::requester::{AttemptKey, AttemptStep, LostRequest, RequestPurpose};

/// See the module's description.
pub(crate) struct CoordinatedTransaction {
    /// Its number at its coordinator.
    pub(crate) number: u64,
    /// The operations, encoded; empty for [`ExecutionMode::ReadAtomicRead`], which has the keys itself.
    pub(crate) ops: Vec<u8>,
    /// The partition of each operation, or of each key for [`ExecutionMode::ReadAtomicRead`]; `None` for
    /// an operation that each participant executes.
    pub(crate) partitions: Vec<Option<PartitionId>>,
    pub(crate) read_only: bool,
    pub(crate) mode: ExecutionMode,
    pub(crate) begun: Duration,
    pub(crate) age: Timestamp,
    /// The number of the attempt, from 1 on.
    pub(crate) attempt: u32,
    pub(crate) attempt_begun: Duration,
    pub(crate) stage: TransactionStage,
    pub(crate) parts: Vec<TransactionPart>,
    /// Number of missing answers.
    pub(crate) missing: usize,
    /// Of a validated read: the part of this node's own partition was read at once, before any other.
    pub(crate) local_part_was_first: bool,
}

/// How a transaction of several partitions is executed.
pub(crate) enum ExecutionMode {
    Serializable,
    /// With holds also for keys that are only read.
    HoldingReads,
    /// It writes read-atomic keys.
    ReadAtomicWrite(Algorithm),
    /// It reads read-atomic keys.
    ReadAtomicRead(Box<ReadAtomicRead>),
}

/// Progress of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum TransactionStage {
    /// Before an attempt.
    Paused,
    /// One partition executes all of it.
    Executing,
    /// A validated read, first and second round.
    ReadingParts,
    Validating,
    /// A round of a read-atomic read.
    ReadingVersions,
    /// Votes are coming.
    Preparing {
        id: TransactionId,
    },
    /// The home is asked to abort, for this reason; again from this time on.
    Abandoning {
        id: TransactionId,
        why: Abort,
        again_at: Duration,
    },
}

/// The part of a transaction that belongs to one partition.
#[derive(Debug)]
pub(crate) struct TransactionPart {
    pub(crate) of: PartitionId,
    /// Indexes of its operations.
    pub(crate) ops: Vec<usize>,
    pub(crate) replies: Option<Vec<OwnedReply>>,
    /// An epoch that had finished there when the attempt began.
    pub(crate) finished: Epoch,
}

/// What follows from an answer to an attempt.
#[derive(Debug)]
pub(crate) enum AttemptProgress {
    /// Other answers are awaited.
    Pending,
    /// The attempt has no effect. Another one may have.
    Failed(Abort),
    /// The transaction has ended: this is the outcome.
    Finished(Result<Vec<OwnedReply>, Abort>),
    /// All parts of the attempt are prepared, durably: it has committed.
    Committed(TransactionId),
}

impl AttemptProgress {
    /// The transaction has ended, and it is not known if it took effect.
    pub(crate) fn unknown(what: String) -> AttemptProgress {
        AttemptProgress::Finished(Err(Abort::Unknown { what }))
    }
}

impl TransactionPart {
    pub(crate) fn new(of: PartitionId) -> TransactionPart {
        TransactionPart {
            of,
            ops: Vec::new(),
            replies: None,
            finished: Epoch::ZERO,
        }
    }

    /// Translates the abort of this part into one of the whole transaction.
    pub(crate) fn abort_of_whole(&self, abort: Abort) -> Abort {
        match abort {
            Abort::Precondition { op } => Abort::Precondition {
                op: self.ops.get(op).copied().unwrap_or_default(),
            },
            other => other,
        }
    }
}

impl CoordinatedTransaction {
    /// Returns the purpose of a request of the current attempt.
    pub(crate) fn purpose(&self, step: AttemptStep) -> RequestPurpose {
        let attempt = AttemptKey {
            transaction: self.number,
            attempt: self.attempt,
        };
        RequestPurpose::Attempt { attempt, step }
    }

    /// Divides the operations by partition, in their order.
    pub(crate) fn divide(&mut self) {
        let mut parts: Vec<TransactionPart> = Vec::new();
        for of in self.partitions.iter().flatten() {
            if parts.iter().all(|part| part.of != *of) {
                parts.push(TransactionPart::new(*of));
            }
        }
        for (op, of) in self.partitions.iter().enumerate() {
            let executes = |part: &&mut TransactionPart| of.is_none_or(|of| part.of == of);
            let parts = parts.iter_mut().filter(executes);
            parts.for_each(|part| part.ops.push(op));
        }
        self.missing = parts.len();
        self.parts = parts;
    }

    /// Notes a part's replies. Returns `true` if all parts have replied.
    pub(crate) fn replied(&mut self, part: usize, replies: Vec<OwnedReply>) -> bool {
        self.parts[part].replies = Some(replies);
        self.missing -= 1;
        self.missing == 0
    }

    /// Takes the parts' replies, in the order of the operations.
    pub(crate) fn take_replies(&mut self) -> Vec<OwnedReply> {
        let mut replies: Vec<OwnedReply> = vec![OwnedReply::Nil; self.partitions.len()];
        for part in &mut self.parts {
            let own = part.replies.take().expect("every part has answered");
            for (&op, reply) in part.ops.iter().zip(own) {
                replies[op] = reply;
            }
        }
        replies
    }

    /// Returns what follows from a part that was not read; a read can be tried again in any case.
    pub(crate) fn failed_read(
        &self,
        context: &NodeContext,
        part: usize,
        answer: Result<Answer, LostRequest>,
    ) -> AttemptProgress {
        let part = &self.parts[part];
        AttemptProgress::Failed(match answer {
            Ok(Answer::Aborted(Abort::Unknown { what }) | Answer::Failed(what)) => {
                context.unanswered(part.of, what)
            }
            Ok(Answer::Aborted(abort)) => part.abort_of_whole(abort),
            Ok(other) => Abort::Unavailable {
                what: format!("a node answered a read with {other:?}"),
            },
            Err(LostRequest { why, .. }) => context.unanswered(part.of, why),
        })
    }
}
