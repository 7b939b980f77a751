//! The result of serving a request.

use base::transaction::Holder;
use base::{Abort, Epoch};

use super::pending_answers::SyncUrgency;
use super::wait_queue::BlockedKind;
use crate::message::Answer;

/// The result of serving a request.
pub(super) enum ServedRequest {
    /// This answer, which may be sent once the epoch is durable.
    Answered(Answer, Epoch, SyncUrgency),
    /// Nothing was done: this transaction holds what the request needs.
    Blocked(BlockedKind, Holder),
}

impl ServedRequest {
    /// An answer that may be sent once `epoch` is durable, which is requested.
    pub(super) fn after(answer: Answer, epoch: Epoch) -> ServedRequest {
        ServedRequest::Answered(answer, epoch, SyncUrgency::Request)
    }

    /// An answer that promises nothing, and shows nothing of the partition.
    pub(super) fn at_once(answer: Answer) -> ServedRequest {
        ServedRequest::after(answer, Epoch::ZERO)
    }

    /// An abort that shows nothing of the partition.
    pub(super) fn aborted(abort: Abort) -> ServedRequest {
        ServedRequest::at_once(Answer::Aborted(abort))
    }
}
