//! Reads over several partitions without holds: each part is read together with the versions of its
//! keys.
//!
//! **One round is enough** if every version that was read is of an epoch that its partition had finished
//! before the read began, as the coordinator knows from an earlier answer of that partition. Then each
//! value was current from that moment until it was read, so that all of them were current at that
//! moment. This is the common case: the values were written before the last message came. An absence may
//! be due to an expiry or a flush, which leave no version, and does not qualify.
//!
//! **Otherwise** the versions are compared once more. Every value was current from its reading to its
//! comparison; all readings come before all comparisons, so that there is a moment in between at
//! which all values were current. With one partition besides the coordinator's own, the own part is
//! read before and compared after the other one is read, which then needs no comparison; unless
//! the own part had to wait for holds, and may have been read last.
//!
//! At that moment the read stands in the serial order: after everything that was acknowledged before it
//! began. A transaction over several partitions is never seen in part: its prepared writes are held
//! wherever it is not yet committed, and a read waits for it there.

use base::participant::Participant;
use base::partition::OwnedReply;
use base::{Abort, Epoch, Op, Tid, Version};

use super::transaction::{
    AttemptProgress, CoordinatedTransaction, TransactionPart, TransactionStage,
};
use crate::codec;
use crate::message::{Answer, Request};
use crate::requester::{AttemptStep, LostRequest};
use crate::router::PartitionRouter;

/// Begins the first round.
pub(super) fn begin<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    ops: &[Op<'_>],
) {
    transaction.stage = TransactionStage::ReadingParts;
    for part in &mut transaction.parts {
        part.finished = if Some(part.of) == router.context.local_partition {
            router.partition.finished()
        } else {
            let leader = router.context.leaders.leader(part.of);
            let connections = &router.context.connections;
            leader.map_or(Epoch::ZERO, |leader| connections.finished(leader))
        };
    }
    let blocked = router.service.blocked_requests();
    let is_led = router.partition.leads().is_ok();
    for (at, part) in transaction.parts.iter().enumerate() {
        let request = Request::Read {
            ops: part.ops.iter().map(|&op| ops[op].clone()).collect(),
        };
        let purpose = transaction.purpose(AttemptStep::Read { part: at });
        router.request(part.of, request, purpose);
    }
    // Other partitions are asked when this node sends; the own partition is read at once, unless the
    // read has to wait or another node leads.
    transaction.local_part_was_first = is_led && router.service.blocked_requests() == blocked;
}

/// Handles the result of reading a part.
pub(super) fn on_read<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    part: usize,
    answer: Result<Answer, LostRequest>,
) -> AttemptProgress {
    if !matches!(transaction.stage, TransactionStage::ReadingParts) {
        return AttemptProgress::Pending;
    }
    match answer {
        Ok(Answer::Read { replies, .. }) if replies.len() >= transaction.parts[part].ops.len() => {
            if !transaction.replied(part, replies) {
                AttemptProgress::Pending
            } else if transaction.parts.iter().all(was_there) {
                AttemptProgress::Finished(Ok(take_values(transaction)))
            } else {
                validate(router, transaction);
                AttemptProgress::Pending
            }
        }
        other => transaction.failed_read(router.context, part, other),
    }
}

/// Begins the second round.
fn validate<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
) {
    let ops = codec::decode_ops(&transaction.ops).expect("it was encoded here");
    let local = router.context.local_partition;
    let has_local = transaction.parts.iter().any(|part| Some(part.of) == local);
    let local_is_enough =
        transaction.parts.len() == 2 && has_local && transaction.local_part_was_first;
    let mut missing = 0;
    for (at, part) in transaction.parts.iter().enumerate() {
        if local_is_enough && Some(part.of) != local {
            continue;
        }
        let keys = part.ops.iter().filter_map(|&op| ops[op].key());
        let checks = keys.zip(versions(part));
        let checks = checks.map(|(key, version)| Op::Check { key, version });
        let along = part.ops.iter().map(|&op| ops[op].clone());
        let along = along.filter(|op| matches!(op, Op::CheckLibraries { .. }));
        let request = Request::Execute {
            ops: checks.chain(along).collect(),
        };
        let purpose = transaction.purpose(AttemptStep::Validate { part: at });
        missing += 1;
        router.request(part.of, request, purpose);
    }
    transaction.stage = TransactionStage::Validating;
    transaction.missing = missing;
    router.context.counters.compared += 1;
}

/// Handles the result of comparing a part.
pub(super) fn on_validated<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    part: usize,
    answer: Result<Answer, LostRequest>,
) -> AttemptProgress {
    if !matches!(transaction.stage, TransactionStage::Validating) {
        return AttemptProgress::Pending;
    }
    match answer {
        Ok(Answer::Replies(_)) => {
            transaction.missing -= 1;
            if transaction.missing > 0 {
                return AttemptProgress::Pending;
            }
            AttemptProgress::Finished(Ok(take_values(transaction)))
        }
        // A key has changed meanwhile.
        Ok(Answer::Aborted(Abort::Precondition { .. })) => {
            let attempts = transaction.attempt;
            AttemptProgress::Failed(Abort::Conflict { attempts })
        }
        other => transaction.failed_read(router.context, part, other),
    }
}

/// Returns the versions that were read with a part.
fn versions(part: &TransactionPart) -> impl Iterator<Item = Version> {
    let replies = part.replies.as_deref().unwrap_or_default();
    let behind = part.ops.len().min(replies.len());
    replies[behind..].iter().filter_map(|reply| match reply {
        OwnedReply::Version(version) => Some(*version),
        _ => None,
    })
}

/// Returns `true` if all that a part has read was there when the attempt began.
fn was_there(part: &TransactionPart) -> bool {
    let there = |version: Version| {
        let tid = Tid::from_bits(version.to_bits());
        version == Version::present(tid) && tid.epoch() <= part.finished
    };
    versions(part).all(there)
}

/// Takes the replies of all parts without the versions behind them.
fn take_values(transaction: &mut CoordinatedTransaction) -> Vec<OwnedReply> {
    for part in &mut transaction.parts {
        let values = part.ops.len();
        let replies = part.replies.as_mut().expect("it was read");
        replies.truncate(values);
    }
    transaction.take_replies()
}
