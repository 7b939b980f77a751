//! Answers that wait until their content is durable.

use std::collections::BTreeMap;
use std::time::Duration;

use base::participant::{DurableEpochs, Leadership, Participant, TransactionExecutor};
use base::partition::OwnedReply;
use base::{Abort, Epoch};

use crate::context::NodeContext;
use crate::message::Answer;
use crate::ramp::published_slots::{LocatedVersions, PublishedSlots};
use crate::requester::Requester;

/// The outcome of one transaction of a batch, and the epoch for which its answer waits.
pub(super) type BatchOutcome = (Epoch, Result<Vec<OwnedReply>, Abort>);

/// How urgent an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncUrgency {
    /// A sync is requested.
    Request,
    /// Syncs that others need will do, or those of an idle log. An acknowledgement of a commit, after
    /// which only notes are forgotten, is not worth a sync.
    Await,
}

/// An answer that waits.
#[derive(Debug)]
pub(super) enum PendingAnswer {
    /// This answer.
    Answer(Answer),
    /// Versions, which are published when they are durable.
    Located(LocatedVersions),
    /// The id of a session, which the partition then has under this number.
    Session(u64),
    /// These answers, each of which waits for its own epoch.
    Batch(Vec<BatchOutcome>),
}

/// Time for which answers that request no sync wait.
const LONGEST_AWAIT: Duration = Duration::from_millis(100);

/// The answers that wait.
#[derive(Default)]
pub(super) struct PendingAnswers {
    /// The answers by the epoch for which each waits, and in the order in which they came.
    waiting: BTreeMap<(Epoch, u64), (Requester, PendingAnswer)>,
    sequence: u64,
    /// The newest epoch that is requested; zero if none is.
    requested: Epoch,
    /// The newest epoch of the answers that request no sync, and since when there are any.
    awaited: Option<(Epoch, Duration)>,
}

impl PendingAnswers {
    /// Lets an answer wait for `epoch`.
    pub(super) fn push(
        &mut self,
        (epoch, urgency): (Epoch, SyncUrgency),
        pending: (Requester, PendingAnswer),
        now: Duration,
    ) {
        match urgency {
            SyncUrgency::Request => self.requested = self.requested.max(epoch),
            SyncUrgency::Await => {
                let (newest, since) = self.awaited.unwrap_or((epoch, now));
                self.awaited = Some((newest.max(epoch), since));
            }
        }
        self.sequence += 1;
        self.waiting.insert((epoch, self.sequence), pending);
    }

    /// Takes the next answer that need not wait any more. The flag is `true` if its epoch was lost, and
    /// `false` if that is durable.
    pub(super) fn pop(
        &mut self,
        durable: Epoch,
        is_lost: impl Fn(Epoch) -> bool,
    ) -> Option<(Requester, PendingAnswer, bool)> {
        let first = self.waiting.first_entry()?;
        let epoch = first.key().0;
        let is_lost = is_lost(epoch);
        if is_lost || epoch <= durable {
            let (requester, pending) = first.remove();
            return Some((requester, pending, is_lost));
        }
        if self.requested <= durable {
            self.requested = Epoch::ZERO;
        }
        self.awaited = self.awaited.filter(|(epoch, _)| *epoch > durable);
        None
    }

    /// Requests the epoch of answers that request no sync that have waited long enough.
    pub(super) fn request_overdue(&mut self, now: Duration) {
        if let Some((epoch, since)) = self.awaited
            && since + LONGEST_AWAIT <= now
        {
            self.requested = self.requested.max(epoch);
        }
    }

    /// Returns the epoch that is requested.
    pub(super) fn requested_epoch(&self) -> Option<Epoch> {
        let is_requested = !self.waiting.is_empty() && self.requested > Epoch::ZERO;
        is_requested.then_some(self.requested)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Answers once `epoch` is durable.
    pub(super) fn answer<P: DurableEpochs + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &P,
        requester: Requester,
        answer: Answer,
        (epoch, urgency): (Epoch, SyncUrgency),
    ) {
        let durable = partition.durable();
        if epoch <= durable && !partition.is_lost(epoch) {
            context.deliver(requester, answer);
        } else {
            let pending = (requester, PendingAnswer::Answer(answer));
            self.push((epoch, urgency), pending, context.now);
        }
    }

    /// Delivers the answers that have become durable, and replaces those whose epoch was lost.
    pub(super) fn deliver_due<P: Participant + ?Sized>(
        &mut self,
        context: &mut NodeContext,
        partition: &P,
        published: Option<&PublishedSlots>,
    ) {
        if self.is_empty() {
            return;
        }
        // Read before `is_lost`: a lost epoch is known as lost before later epochs become durable.
        let durable = partition.durable();
        let is_lost = |epoch| partition.is_lost(epoch);
        while let Some((requester, pending, is_lost)) = self.pop(durable, is_lost) {
            let answer = match pending {
                PendingAnswer::Batch(outcomes) => batch_answer(outcomes, partition),
                pending if is_lost => lost_answer(context, partition, &pending),
                PendingAnswer::Answer(answer) => answer,
                PendingAnswer::Located(located) => located_answer(published, located),
                PendingAnswer::Session(number) => session_answer(partition, number),
            };
            context.deliver(requester, answer);
        }
    }
}

/// Publishes versions that have become durable, and returns the answer.
pub(super) fn located_answer(
    published: Option<&PublishedSlots>,
    located: LocatedVersions,
) -> Answer {
    let addresses = match published {
        Some(published) => published.publish_located(&located),
        None => vec![None; located.founds.len()],
    };
    Answer::Located {
        founds: located.founds,
        addresses,
    }
}

fn lost_outcome() -> Abort {
    let what = "the node that was asked has ceased to lead the partition".to_owned();
    Abort::Unknown { what }
}

/// Returns the answer in place of one whose epoch was lost, so that its content may not hold.
fn lost_answer<P: DurableEpochs + Leadership + ?Sized>(
    context: &mut NodeContext,
    partition: &P,
    pending: &PendingAnswer,
) -> Answer {
    context.counters.lost += 1;
    match (partition.failed(), pending) {
        (Some(reason), _) => Answer::Failed(reason),
        // For each of these, nothing has happened, or nothing that matters.
        (
            None,
            PendingAnswer::Answer(Answer::Read { .. } | Answer::Versions(_) | Answer::Aborted(_))
            | PendingAnswer::Located(_)
            | PendingAnswer::Session(_),
        ) => {
            let leader = partition.leads().err().flatten();
            Answer::Aborted(Abort::Elsewhere { leader })
        }
        (None, _) => Answer::Aborted(lost_outcome()),
    }
}

/// Returns the answer for a batch all of whose epochs are durable or lost. They may be of several
/// leaderships: each is looked up.
fn batch_answer<P: DurableEpochs + ?Sized>(outcomes: Vec<BatchOutcome>, partition: &P) -> Answer {
    let known = |(epoch, outcome): BatchOutcome| match outcome {
        Ok(_) if partition.is_lost(epoch) => Err(lost_outcome()),
        // What the abort shows may be lost; the transaction can be tried again.
        Err(_) if partition.is_lost(epoch) => Err(Abort::Elsewhere { leader: None }),
        outcome => outcome,
    };
    Answer::Each(outcomes.into_iter().map(known).collect())
}

fn session_answer<P: TransactionExecutor + ?Sized>(partition: &P, number: u64) -> Answer {
    match partition.opened(number) {
        Some(Ok(session)) => Answer::Session(session),
        Some(Err(abort)) => Answer::Aborted(abort),
        // It was lost since it was asked for.
        None => Answer::Aborted(Abort::Elsewhere { leader: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(number: u64) -> Requester {
        let link = fabric::Link(1);
        Requester::Remote { link, number }
    }

    fn popped(answers: &mut PendingAnswers, durable: u64) -> Vec<u64> {
        let (kept, lost) = popped_and_lost(answers, durable, 0..0);
        assert!(lost.is_empty());
        kept
    }

    /// Returns the answers that leave because their epochs are durable, and those whose epochs are lost.
    fn popped_and_lost(
        answers: &mut PendingAnswers,
        durable: u64,
        lost: std::ops::Range<u64>,
    ) -> (Vec<u64>, Vec<u64>) {
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        while let Some((requester, _, is_lost)) =
            answers.pop(Epoch(durable), |epoch| lost.contains(&epoch.0))
        {
            let Requester::Remote { number, .. } = requester else {
                unreachable!("none was put in")
            };
            if is_lost { &mut gone } else { &mut kept }.push(number);
        }
        (kept, gone)
    }

    #[test]
    fn what_is_lost_leaves_as_such_also_when_later_epochs_are_durable() {
        for durable in [4, 6, 9] {
            let mut answers = PendingAnswers::default();
            for epoch in [3, 5, 6, 9] {
                let answer = (requester(epoch), PendingAnswer::Answer(Answer::Done));
                answers.push((Epoch(epoch), SyncUrgency::Request), answer, Duration::ZERO);
            }
            let (kept, lost) = popped_and_lost(&mut answers, durable, 5..7);
            assert_eq!(lost, [5, 6]);
            assert_eq!(kept, if durable == 9 { vec![3, 9] } else { vec![3] });
        }
    }

    #[test]
    fn answers_leave_in_order_and_only_haste_asks_for_a_sync() {
        let mut answers = PendingAnswers::default();
        let mut push = |epoch, urgency, number| {
            answers.push(
                (Epoch(epoch), urgency),
                (requester(number), PendingAnswer::Answer(Answer::Done)),
                Duration::ZERO,
            );
        };
        push(5, SyncUrgency::Await, 1);
        push(4, SyncUrgency::Await, 2);
        push(4, SyncUrgency::Await, 3);
        assert_eq!(answers.requested_epoch(), None);
        answers.request_overdue(LONGEST_AWAIT / 2);
        assert_eq!(answers.requested_epoch(), None);
        assert_eq!(popped(&mut answers, 4), [2, 3]);
        answers.request_overdue(LONGEST_AWAIT);
        assert_eq!(answers.requested_epoch(), Some(Epoch(5)));
        answers.push(
            (Epoch(7), SyncUrgency::Request),
            (requester(4), PendingAnswer::Answer(Answer::Done)),
            LONGEST_AWAIT,
        );
        assert_eq!(popped(&mut answers, 5), [1]);
        assert_eq!(answers.requested_epoch(), Some(Epoch(7)));
        assert_eq!(popped(&mut answers, 7), [4]);
        assert!(answers.is_empty() && answers.requested_epoch().is_none());
    }
}
