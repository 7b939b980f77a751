//! Reads of read-atomic keys by a node's callers: each round of a [`ReadAtomicRead`] is sent to the partitions
//! of its keys.

use base::Abort;
use base::participant::Participant;

use super::transaction::{
    AttemptProgress, CoordinatedTransaction, ExecutionMode, TransactionPart, TransactionStage,
};
use crate::counters::Counters;
use crate::message::{Answer, Request};
use crate::ramp::{ReadAtomicRead, ReadStep};
use crate::requester::{AttemptStep, LostRequest};
use crate::router::PartitionRouter;

/// Sends the questions of the round that has just begun. The parts are those of the round, and their
/// operations are the indexes of keys.
pub(super) fn send_round<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
) {
    let ExecutionMode::ReadAtomicRead(reading) = &transaction.mode else {
        unreachable!("it reads");
    };
    router.context.counters.ramp_reads += u64::from(reading.round() == 1);
    let mut parts: Vec<(TransactionPart, Vec<_>)> = Vec::new();
    for (key, ask) in reading.asks() {
        let of = transaction.partitions[key].expect("each key is of a partition");
        let at = parts.iter().position(|(part, _)| part.of == of);
        let at = at.unwrap_or_else(|| {
            parts.push((TransactionPart::new(of), Vec::new()));
            parts.len() - 1
        });
        parts[at].0.ops.push(key);
        parts[at].1.push(ask);
    }
    let mut asked = Vec::with_capacity(parts.len());
    for (at, (part, asks)) in parts.into_iter().enumerate() {
        let round = reading.round();
        let purpose = transaction.purpose(AttemptStep::Versions { round, part: at });
        router.request(part.of, Request::Versions { asks }, purpose);
        asked.push(part);
    }
    transaction.stage = TransactionStage::ReadingVersions;
    transaction.missing = asked.len();
    transaction.parts = asked;
}

/// Handles a partition's answer to a round.
pub(super) fn on_versions<P: Participant + ?Sized>(
    router: &mut PartitionRouter<'_, P>,
    transaction: &mut CoordinatedTransaction,
    (round, part): (u32, usize),
    answer: Result<Answer, LostRequest>,
) -> AttemptProgress {
    let (TransactionStage::ReadingVersions, ExecutionMode::ReadAtomicRead(reading)) =
        (&transaction.stage, &mut transaction.mode)
    else {
        return AttemptProgress::Pending;
    };
    if reading.round() != round {
        return AttemptProgress::Pending;
    }
    let asked = &mut transaction.parts[part];
    let founds = match answer {
        Ok(Answer::Versions(founds)) if founds.len() == asked.ops.len() => founds,
        other => return transaction.failed_read(router.context, part, other),
    };
    asked.replies = Some(Vec::new());
    let answers = asked.ops.iter().copied().zip(founds);
    match reading.answered(round, answers, router.context.now) {
        ReadStep::Wait => AttemptProgress::Pending,
        ReadStep::Ask => {
            send_round(router, transaction);
            AttemptProgress::Pending
        }
        ReadStep::Done | ReadStep::GaveUp => {
            count(&mut router.context.counters, reading);
            AttemptProgress::Finished(take_outcome(transaction))
        }
    }
}

/// Returns the outcome of a read that has ended.
fn take_outcome(
    transaction: &mut CoordinatedTransaction,
) -> Result<Vec<base::partition::OwnedReply>, Abort> {
    let mode = std::mem::replace(&mut transaction.mode, ExecutionMode::Serializable);
    let ExecutionMode::ReadAtomicRead(reading) = mode else {
        unreachable!("it reads");
    };
    if reading.is_done() {
        Ok(reading.replies())
    } else {
        let attempts = reading.costs().restarts + 1;
        Err(Abort::Conflict { attempts })
    }
}

fn count(counters: &mut Counters, reading: &ReadAtomicRead) {
    let costs = reading.costs();
    if costs.lost > 0 && counters.ramp_lost == 0 {
        tracing::warn!(
            "a partition does not have what was written together with what another one has: it has \
             lost what it had acknowledged, as can happen without durability; what is left is read. \
             This warning is logged once"
        );
    }
    counters.ramp_second_rounds += u64::from(costs.second_asks > 0);
    counters.ramp_restarts += u64::from(costs.restarts);
    counters.ramp_lost += u64::from(costs.lost);
}
