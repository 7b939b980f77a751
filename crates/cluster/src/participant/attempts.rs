//! The states of attempts at this node's own partition: prepared, committed, aborted, refused.

use base::participant::{
    Isolation, Leadership, Prepare, State, TransactionExecutor, TwoPhaseCommit,
};
use base::planted::{self, Bug};
use base::transaction::Holder;
use base::{Abort, Epoch, Timestamp, TransactionId};

use super::execution;
use super::pending_answers::SyncUrgency;
use super::served::ServedRequest;
use super::wait_queue::{BlockedKind, BlockedPrepare, HoldWaitQueue};
use crate::context::NodeContext;
use crate::message::{Answer, AttemptOutcome};

/// A prepare whose timestamp is this far behind the partition's time is refused. So refusals need not be
/// remembered for ever.
const OLDEST_PREPARE_MS: u64 = 30_000;
/// How long a refusal is remembered: longer than a prepare can still come.
const REFUSAL_MS: u64 = 2 * OLDEST_PREPARE_MS;

/// Attempts of which this node's own partition is a participant. Their states are kept by the partition;
/// this is what a node keeps besides.
pub(super) struct Attempts {
    pub(super) wait_queue: HoldWaitQueue,
    /// Attempts that have aborted while a part of them was on its way into the log.
    unfinished_aborts: Vec<TransactionId>,
    /// Attempts whose outcome this partition, their home, was asked for while they were prepared here:
    /// the attempt, and the note with its participants.
    in_doubt: Vec<(TransactionId, Vec<u8>)>,
}

impl Attempts {
    pub(super) fn new(wait_queue: HoldWaitQueue) -> Attempts {
        Attempts {
            wait_queue,
            unfinished_aborts: Vec::new(),
            in_doubt: Vec::new(),
        }
    }

    /// Prepares an attempt. It has to wait if younger ones hold what it needs.
    pub(super) fn prepare<P: TransactionExecutor + TwoPhaseCommit + ?Sized>(
        &self,
        context: &mut NodeContext,
        partition: &mut P,
        prepare: &Prepare<'_>,
    ) -> ServedRequest {
        if let Some(abort) = unfit_prepare(context, partition, prepare) {
            return ServedRequest::aborted(abort);
        }
        let Holder { id, age } = prepare.holder;
        let is_older = |by: Holder| (age, id) < (by.age, by.id);
        let holds = prepare.isolation == Isolation::Serializable;
        let ahead = self.wait_queue.older_conflict(prepare.holder, prepare.ops);
        let outcome = match ahead.filter(|_| holds) {
            Some(by) => Err(Abort::Held { by }),
            None => partition.prepare(prepare),
        };
        let answer = match outcome {
            Ok(replies) => {
                context.counters.prepared += 1;
                Answer::Replies(replies)
            }
            Err(Abort::Held { by }) if holds && is_older(by) => {
                let blocked = BlockedPrepare {
                    holder: prepare.holder,
                    siblings: prepare.siblings.to_vec(),
                    note: prepare.note.to_vec(),
                };
                return ServedRequest::Blocked(BlockedKind::Prepare(blocked), by);
            }
            Err(abort) => {
                context.counters.died += u64::from(matches!(abort, Abort::Held { .. }));
                Answer::Aborted(abort)
            }
        };
        let epoch = if planted::is(Bug::EarlyDecision) {
            Epoch::ZERO
        } else {
            execution::shown_epoch(&answer, partition)
        };
        ServedRequest::after(answer, epoch)
    }

    /// Commits a prepared attempt. `awaited`: a caller waits for it.
    pub(super) fn commit<P: TwoPhaseCommit + ?Sized>(
        context: &mut NodeContext,
        partition: &mut P,
        id: TransactionId,
        awaited: bool,
    ) -> ServedRequest {
        match partition.commit(id) {
            Ok((state, epoch)) => {
                if state == State::Refused {
                    tracing::error!(%id, "told to commit what was refused: atomicity is lost");
                }
                let urgency = if awaited {
                    SyncUrgency::Request
                } else {
                    SyncUrgency::Await
                };
                ServedRequest::Answered(Answer::Done, epoch, urgency)
            }
            // Another transaction is just changing what this one must change.
            Err(Abort::Held { by }) if awaited => {
                context.counters.commits_waited += 1;
                ServedRequest::Blocked(BlockedKind::Commit { id, awaited }, by)
            }
            Err(abort) => undone(abort),
        }
    }

    /// Aborts an attempt, as the coordinator or the home says.
    pub(super) fn abort<P: TwoPhaseCommit + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        id: TransactionId,
    ) {
        self.drop_waiting_prepare(context, id);
        match partition.abort(id) {
            // Its preparation is on its way into the log.
            Err(Abort::Held { .. }) => self.unfinished_aborts.push(id),
            // Its leader learns it from the home, when it asks.
            Ok(_) | Err(Abort::Elsewhere { .. }) => {}
            Err(error) => {
                tracing::warn!(%id, %error, "cannot undo a prepared transaction; trying again later");
            }
        }
    }

    /// Aborts the attempts that were on their way into the log, when holds have been released.
    pub(super) fn retry_aborts<P: TwoPhaseCommit + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
    ) {
        for id in std::mem::take(&mut self.unfinished_aborts) {
            self.abort(context, partition, id);
        }
    }

    /// Returns `true` if a release of holds lets work go on.
    pub(super) fn awaits_releases(&self) -> bool {
        self.wait_queue.len() > 0 || !self.unfinished_aborts.is_empty()
    }

    /// Takes an attempt whose outcome was asked for while it was prepared here, at its home.
    pub(super) fn next_in_doubt(&mut self) -> Option<(TransactionId, Vec<u8>)> {
        self.in_doubt.pop()
    }

    /// Answers the state of an attempt, which is refused if it is unknown.
    pub(super) fn vote<P: TransactionExecutor + TwoPhaseCommit + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        id: TransactionId,
    ) -> ServedRequest {
        // It is undecided, but not because its coordinator is gone.
        if self.wait_queue.has_prepare(id) {
            let what = "it waits for keys that another transaction holds".to_owned();
            return ServedRequest::at_once(Answer::Failed(what));
        }
        let known = partition.refuse(id, partition.time_ms() + REFUSAL_MS);
        self.drop_waiting_prepare(context, id);
        match known {
            Ok((state, epoch)) => {
                context.counters.refused += u64::from(state == State::Unknown);
                ServedRequest::after(Answer::State(state), epoch)
            }
            Err(abort) => undone(abort),
        }
    }

    /// Answers the outcome of an attempt whose home this is.
    pub(super) fn outcome<P: TransactionExecutor + TwoPhaseCommit + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        id: TransactionId,
    ) -> ServedRequest {
        // It is undecided, but not because its coordinator is gone.
        if self.wait_queue.has_prepare(id) {
            return ServedRequest::at_once(Answer::AttemptOutcome(AttemptOutcome::Open));
        }
        let (state, epoch) = match partition.refuse(id, partition.time_ms() + REFUSAL_MS) {
            Ok(known) => known,
            Err(abort) => return undone(abort),
        };
        self.drop_waiting_prepare(context, id);
        let fate = match state {
            State::Committed(_) => AttemptOutcome::Committed,
            State::Refused => AttemptOutcome::Aborted,
            State::Unknown => {
                context.counters.refused += 1;
                AttemptOutcome::Aborted
            }
            State::Prepared(note) => {
                self.in_doubt.push((id, note));
                AttemptOutcome::Open
            }
        };
        ServedRequest::after(Answer::AttemptOutcome(fate), epoch)
    }

    /// Aborts an attempt whose home this is, unless it has committed, and answers the outcome.
    pub(super) fn abandon<P: TransactionExecutor + TwoPhaseCommit + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &mut P,
        id: TransactionId,
    ) -> ServedRequest {
        self.drop_waiting_prepare(context, id);
        context.counters.abandoned += 1;
        match abort_unless_committed(partition, id) {
            Ok((fate, epoch)) => ServedRequest::after(Answer::AttemptOutcome(fate), epoch),
            Err(abort) => undone(abort),
        }
    }

    /// Answers the state of an attempt, and changes nothing. The partition is led here.
    pub(super) fn inquire<P: TwoPhaseCommit + Leadership + ?Sized>(
        context: &mut NodeContext,
        partition: &mut P,
        id: TransactionId,
    ) -> ServedRequest {
        let leadership = partition.leadership();
        let (state, epoch) = partition.state(id);
        // The leadership may have changed in between; then the state means nothing.
        match partition.leads() {
            Ok(()) if partition.leadership() == leadership => {
                ServedRequest::after(Answer::State(state), epoch)
            }
            led => {
                context.counters.redirected += 1;
                let leader = led.err().flatten();
                ServedRequest::aborted(Abort::Elsewhere { leader })
            }
        }
    }

    /// Drops a prepare that waits and must not be prepared any more.
    fn drop_waiting_prepare(&mut self, context: &mut NodeContext, id: TransactionId) {
        for request in self.wait_queue.take_prepare(id) {
            context.deliver(request.requester, Answer::Aborted(Abort::Refused));
        }
    }
}

/// Forgets an attempt: no node will ask for it any more.
pub(crate) fn forget<P: TwoPhaseCommit + ?Sized>(partition: &mut P, id: TransactionId) {
    match partition.forget(id) {
        // The resolver asks when it finds the attempt again.
        Ok(()) | Err(Abort::Elsewhere { .. } | Abort::Held { .. }) => {}
        Err(error) => {
            tracing::warn!(%id, %error, "cannot forget a committed transaction; trying again later");
        }
    }
}

/// Takes over the time of an attempt. Returns the abort if it is too far from this partition's time, or
/// one of its keys is of another partition.
fn unfit_prepare<P: TransactionExecutor + ?Sized>(
    context: &mut NodeContext,
    partition: &P,
    prepare: &Prepare<'_>,
) -> Option<Abort> {
    let timestamp = prepare.holder.id.timestamp;
    if let Err(error) = context.clock.witness(timestamp, partition.time_ms()) {
        // Other transactions could not write its keys until their clocks had caught up.
        let what = error.to_string();
        return Some(Abort::Unavailable { what });
    }
    let oldest = partition.time_ms().saturating_sub(OLDEST_PREPARE_MS);
    if timestamp.ms() < oldest {
        let newest = Timestamp::at_ms(partition.time_ms());
        return Some(Abort::Overtaken { newest });
    }
    execution::misplaced_ops(context, prepare.ops)
}

fn abort_unless_committed<P: TransactionExecutor + TwoPhaseCommit + ?Sized>(
    partition: &mut P,
    id: TransactionId,
) -> Result<(AttemptOutcome, Epoch), Abort> {
    loop {
        let (state, epoch) = partition.abort(id)?;
        match state {
            State::Committed(_) => return Ok((AttemptOutcome::Committed, epoch)),
            State::Prepared(_) => return Ok((AttemptOutcome::Aborted, epoch)),
            State::Unknown | State::Refused => {}
        }
        let until = partition.time_ms() + REFUSAL_MS;
        let (state, epoch) = partition.refuse(id, until)?;
        if let State::Unknown | State::Refused = state {
            return Ok((AttemptOutcome::Aborted, epoch));
        }
        // Another thread of this node has prepared it in between.
    }
}

/// Returns the answer when nothing was done: the abort itself if the sender may try again, here or
/// elsewhere.
fn undone(abort: Abort) -> ServedRequest {
    match abort {
        Abort::Elsewhere { .. } | Abort::Held { .. } | Abort::Unknown { .. } => {
            ServedRequest::aborted(abort)
        }
        other => ServedRequest::at_once(Answer::Failed(other.to_string())),
    }
}
