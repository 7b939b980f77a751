//! The origin of a request to a partition, and the purpose for which this node sent one.

use std::collections::HashMap;

use base::{PartitionId, TransactionId};
use fabric::Link;

/// A map by numbers that this node chose, so that no other machine can choose them.
pub(crate) type Numbered<V> = HashMap<u64, V, foldhash::fast::RandomState>;

/// The receiver of a partition's answer.
#[derive(Debug)]
pub(crate) enum Requester {
    /// This node itself.
    Local(RequestPurpose),
    /// A peer.
    Remote { link: Link, number: u64 },
}

/// The part of this node that sent a request to a partition, and what it does with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestPurpose {
    /// The coordinator executes an attempt of a transaction.
    Attempt {
        attempt: AttemptKey,
        step: AttemptStep,
    },
    /// A committed attempt is committed at this participant.
    Commit { id: TransactionId, of: PartitionId },
    /// The resolver looks after an attempt that is not decided, or not forgotten.
    Resolve {
        id: TransactionId,
        step: ResolutionStep,
    },
}

/// An attempt of a transaction that this node coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptKey {
    /// The number of the transaction at its coordinator.
    pub(crate) transaction: u64,
    /// The number of the attempt, from 1 on.
    pub(crate) attempt: u32,
}

/// What a coordinator has asked a partition for; `part` is the index of the partition's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptStep {
    /// To execute the whole transaction, which is of that partition.
    Execute,
    /// The first round of a validated read.
    Read { part: usize },
    /// The second round of a validated read.
    Validate { part: usize },
    /// A vote.
    Prepare { part: usize },
    /// The home's consent to try again.
    Abandon,
    /// A round of a read-atomic read.
    Versions { round: u32, part: usize },
}

/// What a resolver has asked a partition for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolutionStep {
    /// A participant asks the home for the outcome.
    Outcome,
    /// The home asks this participant for its vote.
    Vote { of: PartitionId },
    /// A participant asks the home if it may forget.
    Inquire,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRequest {
    /// The request may have arrived.
    pub sent: bool,
    /// The reason, for people.
    pub why: String,
}
