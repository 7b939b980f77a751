//! Transactions of one partition, which executes them by itself.

use base::participant::Participant;
use base::{Abort, Op};

use super::transaction::{AttemptProgress, CoordinatedTransaction, TransactionStage};
use crate::context::NodeContext;
use crate::message::{Answer, Request};
use crate::requester::{AttemptStep, LostRequest};
use crate::router::PartitionRouter;

/// Sends the operations to the only partition.
pub(super) fn begin<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    ops: Vec<Op<'_>>,
) {
    let of = transaction.parts[0].of;
    transaction.stage = TransactionStage::Executing;
    let purpose = transaction.purpose(AttemptStep::Execute);
    router.request(of, Request::Execute { ops }, purpose);
}

/// Handles the answer of the partition.
pub(super) fn on_executed(
    context: &NodeContext,
    transaction: &CoordinatedTransaction,
    answer: Result<Answer, LostRequest>,
) -> AttemptProgress {
    if !matches!(transaction.stage, TransactionStage::Executing) {
        return AttemptProgress::Pending;
    }
    let safe = transaction.read_only;
    let of = transaction.parts[0].of;
    match answer {
        Ok(Answer::Replies(replies)) if replies.len() == transaction.partitions.len() => {
            AttemptProgress::Finished(Ok(replies))
        }
        Ok(Answer::Aborted(Abort::Unknown { what }) | Answer::Failed(what)) if safe => {
            AttemptProgress::Failed(context.unanswered(of, what))
        }
        Ok(Answer::Aborted(abort)) => AttemptProgress::Failed(abort),
        Err(LostRequest { sent, why }) if !sent || safe => {
            AttemptProgress::Failed(context.unanswered(of, why))
        }
        Err(LostRequest { why, .. }) => AttemptProgress::unknown(why),
        Ok(Answer::Failed(what)) => AttemptProgress::unknown(what),
        Ok(other) => AttemptProgress::unknown(format!("a node answered {other:?}")),
    }
}
