//! Executes requests at this node's own partition: the checks of what is asked for, and the answers. It
//! keeps no state.

use base::participant::{Sequenced, State, TransactionExecutor, TwoPhaseCommit};
use base::partition::OwnedReply;
use base::transaction::check_guards;
use base::versions::{Ask, Found, OwnedFound};
use base::{Abort, Epoch, Op};

use super::pending_answers::BatchOutcome;
use super::served::ServedRequest;
use super::wait_queue::BlockedKind;
use crate::context::NodeContext;
use crate::message::Answer;
use crate::ramp;

/// Most keys and ids in a request.
const MOST_ASKED: usize = 1 << 20;
/// Most bytes of values that one request reads.
const MOST_READ: usize = 1 << 29;

/// Executes a transaction of this partition alone.
pub(super) fn execute<P: TransactionExecutor + ?Sized>(
    context: &NodeContext,
    partition: &mut P,
    ops: &[Op<'_>],
) -> ServedRequest {
    if let Some(abort) = unfit_ops(context, ops) {
        return ServedRequest::aborted(abort);
    }
    let mut replies = Vec::new();
    let outcome = partition.execute(ops, &mut |seen, _| {
        replies = seen.iter().map(OwnedReply::from).collect();
    });
    served(
        partition,
        BlockedKind::Execute,
        outcome.map(|()| Answer::Replies(replies)),
    )
}

/// Executes a transaction that its client numbered.
pub(super) fn execute_once<P: TransactionExecutor + ?Sized>(
    context: &NodeContext,
    partition: &mut P,
    ops: &[Op<'_>],
    of: Sequenced,
) -> ServedRequest {
    if let Some(abort) = unfit_ops(context, ops) {
        return ServedRequest::aborted(abort);
    }
    let outcome = partition.execute_once(ops, of);
    served(
        partition,
        BlockedKind::Once(of),
        outcome.map(Answer::Replies),
    )
}

/// Reads, and returns the versions of the keys.
pub(super) fn read<P: TransactionExecutor + ?Sized>(
    context: &NodeContext,
    partition: &mut P,
    ops: &[Op<'_>],
) -> ServedRequest {
    if !ops.iter().all(Op::is_read_only) {
        let what = "a read was asked for that writes".to_owned();
        return ServedRequest::at_once(Answer::Failed(what));
    }
    if let Some(abort) = misplaced_ops(context, ops) {
        return ServedRequest::aborted(abort);
    }
    let watches = ops.iter().filter_map(Op::key);
    let watches = watches.map(|key| Op::Watch { key });
    let all: Vec<Op<'_>> = ops.iter().cloned().chain(watches).collect();
    let mut replies = Vec::new();
    let outcome = partition.execute(&all, &mut |seen, _| {
        replies = seen.iter().map(OwnedReply::from).collect();
    });
    let outcome = outcome.map(|()| Answer::Read {
        finished: partition.finished(),
        replies,
    });
    served(partition, BlockedKind::Read, outcome)
}

/// Executes one transaction of a batch, which does not wait for holds.
pub(super) fn execute_of_batch<P: TransactionExecutor + ?Sized>(
    context: &NodeContext,
    partition: &mut P,
    ops: &[Op<'_>],
) -> BatchOutcome {
    if let Some(abort) = unfit_ops(context, ops) {
        return (Epoch::ZERO, Err(abort));
    }
    let mut replies = Vec::new();
    let outcome = partition.execute(ops, &mut |seen, _| {
        replies = seen.iter().map(OwnedReply::from).collect();
    });
    let epoch = match outcome {
        Err(ref abort) if !abort.shows() => Epoch::ZERO,
        Ok(()) | Err(_) => partition.observed().epoch,
    };
    (epoch, outcome.map(|()| replies))
}

/// Reads versions of read-atomic keys. Returns the answer, and the epoch for which it waits.
pub(super) fn read_versions<P: TransactionExecutor + TwoPhaseCommit + ?Sized>(
    context: &NodeContext,
    partition: &mut P,
    asks: &[Ask<'_>],
) -> (Answer, Epoch) {
    let aborted = |abort| (Answer::Aborted(abort), Epoch::ZERO);
    let declared = context.topology.read_atomic();
    let keys = || asks.iter().map(Ask::key);
    if let Some(abort) = misplaced_key(context, keys()) {
        return aborted(abort);
    }
    if let Some(key) = keys().find(|key| !declared.covers(key)) {
        return aborted(ramp::ReadAtomicRefusal::not_covered(key).into());
    }
    let ids = |ask: &Ask<'_>| match ask {
        Ask::OneOf { ids, .. } => ids.len(),
        _ => 0,
    };
    if asks.len() + asks.iter().map(ids).sum::<usize>() > MOST_ASKED {
        return aborted(Abort::TooLarge { what: "operations" });
    }
    let mut bytes = 0;
    let mut founds = Vec::with_capacity(asks.len());
    let outcome = partition.read_versions(asks, &mut |found| {
        bytes += value_bytes(&found);
        if bytes <= MOST_READ {
            let copy = OwnedFound::copy(found, founds.last());
            founds.push(copy);
        }
    });
    let answer = match outcome {
        Ok(()) if bytes > MOST_READ => Answer::Aborted(Abort::TooLarge { what: "bytes read" }),
        Ok(()) => Answer::Versions(founds),
        Err(abort) => Answer::Aborted(abort),
    };
    let mut epoch = shown_epoch(&answer, partition);
    if let Answer::Versions(founds) = &answer {
        epoch = epoch.max(commit_what_others_show(partition, asks, founds));
    }
    (answer, epoch)
}

/// Returns why operations cannot be executed here: they are refused wherever their keys lie, or a key
/// belongs to another partition.
fn unfit_ops(context: &NodeContext, ops: &[Op<'_>]) -> Option<Abort> {
    let refusal = ramp::classify(context.topology.read_atomic(), ops).err();
    let refusal = refusal.map(Abort::from).or_else(|| check_guards(ops).err());
    refusal.or_else(|| misplaced_ops(context, ops))
}

/// Returns the abort if a key belongs to another partition. The sender has another file.
pub(super) fn misplaced_ops(context: &NodeContext, ops: &[Op<'_>]) -> Option<Abort> {
    misplaced_key(context, ops.iter().filter_map(Op::key))
}

fn misplaced_key<'k>(
    context: &NodeContext,
    mut keys: impl Iterator<Item = &'k [u8]>,
) -> Option<Abort> {
    let is_other =
        |key: &&[u8]| Some(context.topology.partition_of(key)) != context.local_partition;
    let slot = crate::slot::of(keys.find(is_other)?);
    let what = format!("slot {slot} is not of the node that was asked");
    Some(Abort::Unavailable { what })
}

fn served<P: TransactionExecutor + ?Sized>(
    partition: &P,
    kind: BlockedKind,
    outcome: Result<Answer, Abort>,
) -> ServedRequest {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(Abort::Held { by }) => return ServedRequest::Blocked(kind, by),
        Err(abort) => Answer::Aborted(abort),
    };
    let epoch = shown_epoch(&answer, partition);
    ServedRequest::after(answer, epoch)
}

/// Returns the epoch that an answer promises or shows. An answer that a request was blocked shows
/// nothing.
pub(super) fn shown_epoch<P: TransactionExecutor + ?Sized>(
    answer: &Answer,
    partition: &P,
) -> Epoch {
    match answer {
        Answer::Aborted(abort) if abort.shows() || *abort == Abort::Forgotten => {
            partition.observed().epoch
        }
        Answer::Aborted(_) => Epoch::ZERO,
        _ => partition.observed().epoch,
    }
}

/// Returns the bytes of a version's value.
fn value_bytes(found: &Found<'_>) -> usize {
    match found {
        Found::Version(version) => version.content.map_or(0, |content| content.value.len()),
        _ => 0,
    }
}

/// Commits versions that are prepared here and were asked for by their ids: another partition shows
/// them, so their transactions have committed. Otherwise a later read of the key alone could be older
/// than this one. Returns the epoch that must be durable before the answer is sent.
///
/// A commit that another transaction blocks is left to the coordinator.
fn commit_what_others_show<P: TwoPhaseCommit + ?Sized>(
    partition: &mut P,
    asks: &[Ask<'_>],
    founds: &[OwnedFound],
) -> Epoch {
    let mut epoch = Epoch::ZERO;
    for (ask, found) in asks.iter().zip(founds) {
        let (Ask::OneOf { .. }, Some(id)) = (ask, found.id()) else {
            continue;
        };
        if !matches!(partition.state(id), (State::Prepared(_), _)) {
            continue;
        }
        if let Ok((_, committed)) = partition.commit(id) {
            epoch = epoch.max(committed);
        }
    }
    epoch
}
