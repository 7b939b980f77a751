//! The coordinator's side of two-phase commit, up to the commit point; the steps are those of module
//! [`node`](crate::node).

use std::time::Duration;

use base::participant::{Isolation, Participant};
use base::{Abort, Op, PartitionId, TransactionId};

use super::transaction::{
    AttemptProgress, CoordinatedTransaction, ExecutionMode, TransactionPart, TransactionStage,
};
use crate::context::REPEAT_AFTER;
use crate::message::{Answer, AttemptOutcome, Notice, ParticipantList, Request};
use crate::ramp::{self, Algorithm};
use crate::requester::{AttemptStep, LostRequest, RequestPurpose};
use crate::router::PartitionRouter;

/// Carries out step 1 of the protocol.
pub(super) fn begin<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    ops: &[Op<'_>],
) {
    let id = router
        .context
        .next_transaction_id(router.partition.time_ms());
    transaction.stage = TransactionStage::Preparing { id };
    let written = ops.iter().filter(|op| !op.is_read_only());
    let written = written.filter_map(Op::key);
    let (isolation, algorithm) = match transaction.mode {
        ExecutionMode::ReadAtomicWrite(algorithm) => (Isolation::ReadAtomic, algorithm),
        _ => (Isolation::Serializable, Algorithm::Fast),
    };
    let siblings = ramp::siblings(algorithm, written);
    if isolation == Isolation::ReadAtomic {
        router.context.counters.ramp_writes += u64::from(transaction.attempt == 1);
    }
    // The own part is prepared first: if it fails, the other partitions have no work.
    let local = router.context.local_partition;
    transaction.parts.sort_by_key(|part| Some(part.of) != local);
    let participant_list = ParticipantList {
        home: home(local, &transaction.parts),
        participants: transaction.parts.iter().map(|part| part.of).collect(),
    };
    for at in 0..transaction.parts.len() {
        let part = &transaction.parts[at];
        let request = Request::Prepare {
            id,
            age: transaction.age,
            participant_list: participant_list.clone(),
            siblings: &siblings,
            isolation,
            ops: part.ops.iter().map(|&op| ops[op].clone()).collect(),
        };
        let purpose = transaction.purpose(AttemptStep::Prepare { part: at });
        router.request(part.of, request, purpose);
        if is_vote_against(router, purpose) {
            // The own part votes against: the other partitions need not be asked.
            transaction.parts.truncate(at + 1);
            break;
        }
    }
}

/// Returns `true` if the partition has answered at once that it does not prepare.
fn is_vote_against<P: ?Sized>(router: &PartitionRouter<'_, P>, purpose: RequestPurpose) -> bool {
    let last = router.context.answers.back();
    last.is_some_and(|(of, answer)| *of == purpose && matches!(answer, Ok(Answer::Aborted(_))))
}

/// Handles a participant's vote.
pub(super) fn on_vote<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    at: usize,
    answer: Result<Answer, LostRequest>,
) -> AttemptProgress {
    let TransactionStage::Preparing { id } = transaction.stage else {
        return AttemptProgress::Pending;
    };
    let part = &transaction.parts[at];
    let of = part.of;
    let why = match answer {
        Ok(Answer::Replies(replies)) if replies.len() == part.ops.len() => {
            return if transaction.replied(at, replies) {
                AttemptProgress::Committed(id)
            } else {
                AttemptProgress::Pending
            };
        }
        // The participant does not know if its vote is durable: as good as lost.
        Ok(Answer::Aborted(Abort::Unknown { what })) => router.context.unanswered(of, what),
        Ok(Answer::Aborted(abort)) => {
            let abort = part.abort_of_whole(abort);
            let overtaken = matches!(abort, Abort::Overtaken { .. });
            let writes_versions = matches!(transaction.mode, ExecutionMode::ReadAtomicWrite(_));
            router.context.counters.ramp_overtaken += u64::from(overtaken && writes_versions);
            return abort_participants(router, transaction, Some(at), id, abort);
        }
        // A request that was never sent is as good as a vote against.
        Err(LostRequest { sent: false, why }) => {
            let abort = router.context.unanswered(of, why);
            return abort_participants(router, transaction, Some(at), id, abort);
        }
        Err(LostRequest { why, .. }) => router.context.unanswered(of, why),
        Ok(other) => {
            let what = format!("a participant answered a prepare with {other:?}");
            Abort::Unavailable { what }
        }
    };
    abandon(router, transaction, why);
    AttemptProgress::Pending
}

/// Aborts an attempt that cannot commit: a participant has voted against, or was never asked.
fn abort_participants<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &CoordinatedTransaction,
    against: Option<usize>,
    id: TransactionId,
    abort: Abort,
) -> AttemptProgress {
    for (at, part) in transaction.parts.iter().enumerate() {
        if Some(at) != against {
            router.notify(part.of, Notice::Abort { id });
        }
    }
    AttemptProgress::Failed(abort)
}

/// Asks the home to abort the attempt, because a vote is lost, or does not come: the home may have seen
/// all of them, and decides.
pub(super) fn abandon<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    why: Abort,
) {
    let TransactionStage::Preparing { id } = transaction.stage else {
        return;
    };
    transaction.stage = TransactionStage::Abandoning {
        id,
        why,
        again_at: router.context.now,
    };
    request_consent(router, transaction);
}

fn request_consent<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
) {
    let TransactionStage::Abandoning { id, again_at, .. } = &mut transaction.stage else {
        return;
    };
    *again_at = router.context.now + REPEAT_AFTER;
    let id = *id;
    let purpose = transaction.purpose(AttemptStep::Abandon);
    let home = home(router.context.local_partition, &transaction.parts);
    router.request(home, Request::Abandon { id }, purpose);
}

/// Handles the home's answer.
pub(super) fn on_abandoned<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    answer: Result<Answer, LostRequest>,
) -> AttemptProgress {
    let home = home(router.context.local_partition, &transaction.parts);
    let is_over = is_over(router, transaction);
    let TransactionStage::Abandoning { id, why, again_at } = &mut transaction.stage else {
        return AttemptProgress::Pending;
    };
    if is_over {
        // The home may have committed and forgotten it by now.
        return AttemptProgress::unknown(reason(why));
    }
    match answer {
        Ok(Answer::AttemptOutcome(AttemptOutcome::Aborted)) => {
            let (id, why) = (*id, why.clone());
            abort_participants(router, transaction, None, id, why)
        }
        Ok(Answer::AttemptOutcome(AttemptOutcome::Committed)) => {
            let what = format!("{}: the replies of the transaction are lost", reason(why));
            AttemptProgress::unknown(what)
        }
        // Its log has failed: only a restart will show the outcome.
        Ok(Answer::Failed(what)) => AttemptProgress::unknown(what),
        // The sweep asks again, or gives up.
        other => {
            if let Some(early) = router.context.repeat_early_at(home, &other) {
                *again_at = early.min(*again_at);
            }
            AttemptProgress::Pending
        }
    }
}

/// Asks the home again if it has not answered, until it is too late.
pub(super) fn sweep_abandoning<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
) -> AttemptProgress {
    if is_over(router, transaction)
        && let TransactionStage::Abandoning { why, .. } = &transaction.stage
    {
        return AttemptProgress::unknown(reason(why));
    }
    request_consent(router, transaction);
    AttemptProgress::Pending
}

/// Returns `true` if the home of an abandoned attempt is to be asked again at this time.
pub(super) fn is_to_be_asked_again(transaction: &CoordinatedTransaction, now: Duration) -> bool {
    matches!(&transaction.stage, TransactionStage::Abandoning { again_at, .. } if *again_at <= now)
}

fn is_over<P: ?Sized>(
    router: &PartitionRouter<'_, P>,
    transaction: &CoordinatedTransaction,
) -> bool {
    transaction.begun + router.context.timeouts.transaction <= router.context.now
}

/// Returns the participant that decides.
fn home(local: Option<PartitionId>, parts: &[TransactionPart]) -> PartitionId {
    let own = parts.iter().find(|part| Some(part.of) == local);
    own.unwrap_or(&parts[0]).of
}

/// Returns why an attempt was given up, without its outcome.
fn reason(why: &Abort) -> String {
    match why {
        Abort::Unavailable { what } => what.clone(),
        Abort::Elsewhere { .. } => "the leader of a partition was lost".to_owned(),
        other => other.to_string(),
    }
}
