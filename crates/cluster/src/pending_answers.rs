//! Answers that wait until their content is durable.

use std::collections::BTreeMap;
use std::time::Duration;

use base::participant::Participant;
use base::{Abort, Epoch};

use crate::bulk::{self, Outcome};
use crate::message::Answer;
use crate::node::{Asker, Node};
use crate::ramp::published::Located;

/// How urgent an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// A sync is requested.
    Soon,
    /// Syncs that others need will do, or those of an idle log. An acknowledgement of a commit, after
    /// which only notes are forgotten, is not worth a sync.
    Leisure,
}

/// An answer that waits.
#[derive(Debug)]
pub(crate) enum PendingAnswer {
    /// This answer.
    Answer(Answer),
    /// Versions, which are published when they are durable.
    Located(Located),
    /// The id of a session, which the partition then has under this number.
    Session(u64),
    /// These answers, each of which waits for its own epoch.
    Each(Vec<Outcome>),
}

/// Time for which answers without haste wait.
const LEISURE: Duration = Duration::from_millis(100);

/// The answers that wait.
#[derive(Default)]
pub(crate) struct PendingAnswers {
    /// The answers by the epoch for which each waits, and in the order in which they came.
    waiting: BTreeMap<(Epoch, u64), (Asker, PendingAnswer)>,
    sequence: u64,
    /// The newest epoch that is requested; zero if none is.
    until: Epoch,
    /// The newest epoch of the answers without haste, and since when there are any.
    leisure: Option<(Epoch, Duration)>,
}

impl PendingAnswers {
    /// Lets an answer wait for `epoch`.
    pub(crate) fn push(
        &mut self,
        epoch: Epoch,
        haste: Haste,
        pending: (Asker, PendingAnswer),
        now: Duration,
    ) {
        match haste {
            Haste::Soon => self.until = self.until.max(epoch),
            Haste::Leisure => {
                let (newest, since) = self.leisure.unwrap_or((epoch, now));
                self.leisure = Some((newest.max(epoch), since));
            }
        }
        self.sequence += 1;
        self.waiting.insert((epoch, self.sequence), pending);
    }

    /// Takes the next answer that need not wait any more. The flag is `true` if its epoch was lost, and
    /// `false` if that is durable.
    pub(crate) fn pop(
        &mut self,
        durable: Epoch,
        is_lost: impl Fn(Epoch) -> bool,
    ) -> Option<(Asker, PendingAnswer, bool)> {
        let first = self.waiting.first_entry()?;
        let epoch = first.key().0;
        let is_lost = is_lost(epoch);
        if is_lost || epoch <= durable {
            let (asker, pending) = first.remove();
            return Some((asker, pending, is_lost));
        }
        if self.until <= durable {
            self.until = Epoch::ZERO;
        }
        self.leisure = self.leisure.filter(|(epoch, _)| *epoch > durable);
        None
    }

    /// Requests the epoch of answers without haste that have waited long enough.
    pub(crate) fn hurry(&mut self, now: Duration) {
        if let Some((epoch, since)) = self.leisure
            && since + LEISURE <= now
        {
            self.until = self.until.max(epoch);
        }
    }

    /// Returns the epoch that is requested.
    pub(crate) fn wants(&self) -> Option<Epoch> {
        let wanted = !self.waiting.is_empty() && self.until > Epoch::ZERO;
        wanted.then_some(self.until)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl<C> Node<C> {
    /// Delivers the answers that have become durable, and replaces those whose epoch was lost.
    pub(crate) fn deliver_due(&mut self, partition: &impl Participant) {
        if self.pending_answers.is_empty() {
            return;
        }
        // Read before `is_lost`: a lost epoch is known as lost before later epochs become durable.
        let durable = partition.durable();
        let is_lost = |epoch| partition.is_lost(epoch);
        while let Some((asker, pending, is_lost)) = self.pending_answers.pop(durable, is_lost) {
            let answer = match pending {
                PendingAnswer::Each(outcomes) => bulk::told(outcomes, partition),
                pending if is_lost => self.lost_answer(partition, &pending),
                PendingAnswer::Answer(answer) => answer,
                PendingAnswer::Located(located) => self.located(located),
                PendingAnswer::Session(number) => opened(partition, number),
            };
            self.deliver(asker, answer);
        }
    }

    /// Returns the answer in place of one whose epoch was lost, so that its content may not hold.
    fn lost_answer(&mut self, partition: &impl Participant, pending: &PendingAnswer) -> Answer {
        self.counters.lost += 1;
        match (partition.failed(), pending) {
            (Some(reason), _) => Answer::Failed(reason),
            // For each of these, nothing has happened, or nothing that matters.
            (
                None,
                PendingAnswer::Answer(
                    Answer::Read { .. } | Answer::Versions(_) | Answer::Aborted(_),
                )
                | PendingAnswer::Located(_)
                | PendingAnswer::Session(_),
            ) => {
                let leader = partition.leads().err().flatten();
                Answer::Aborted(Abort::Elsewhere { leader })
            }
            (None, _) => {
                let what = "the node that was asked has ceased to lead the partition".to_owned();
                Answer::Aborted(Abort::Unknown { what })
            }
        }
    }

    /// Answers once `epoch` is durable.
    pub(crate) fn answer(
        &mut self,
        partition: &impl Participant,
        asker: Asker,
        answer: Answer,
        (epoch, haste): (Epoch, Haste),
    ) {
        let durable = partition.durable();
        if epoch <= durable && !partition.is_lost(epoch) {
            self.deliver(asker, answer);
        } else {
            let pending = (asker, PendingAnswer::Answer(answer));
            self.pending_answers.push(epoch, haste, pending, self.now);
        }
    }

    /// As [`Node::answer`], for versions that are published then.
    pub(crate) fn answer_located(
        &mut self,
        partition: &impl Participant,
        asker: Asker,
        located: Located,
        epoch: Epoch,
    ) {
        if epoch <= partition.durable() && !partition.is_lost(epoch) {
            let answer = self.located(located);
            self.deliver(asker, answer);
        } else {
            let pending = (asker, PendingAnswer::Located(located));
            self.pending_answers
                .push(epoch, Haste::Soon, pending, self.now);
        }
    }

    pub(crate) fn deliver(&mut self, asker: Asker, answer: Answer) {
        match asker {
            Asker::Own(purpose) => self.answers.push_back((purpose, Ok(answer))),
            Asker::Remote { link, number } => self.wires.reply(link, number, answer),
        }
    }
}

fn opened(partition: &impl Participant, number: u64) -> Answer {
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

    fn asker(number: u64) -> Asker {
        let link = fabric::Link(1);
        Asker::Remote { link, number }
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
        while let Some((asker, _, is_lost)) =
            answers.pop(Epoch(durable), |epoch| lost.contains(&epoch.0))
        {
            let Asker::Remote { number, .. } = asker else {
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
                let answer = (asker(epoch), PendingAnswer::Answer(Answer::Done));
                answers.push(Epoch(epoch), Haste::Soon, answer, Duration::ZERO);
            }
            let (kept, lost) = popped_and_lost(&mut answers, durable, 5..7);
            assert_eq!(lost, [5, 6]);
            assert_eq!(kept, if durable == 9 { vec![3, 9] } else { vec![3] });
        }
    }

    #[test]
    fn answers_leave_in_order_and_only_haste_asks_for_a_sync() {
        let mut answers = PendingAnswers::default();
        let mut push = |epoch, haste, number| {
            answers.push(
                Epoch(epoch),
                haste,
                (asker(number), PendingAnswer::Answer(Answer::Done)),
                Duration::ZERO,
            );
        };
        push(5, Haste::Leisure, 1);
        push(4, Haste::Leisure, 2);
        push(4, Haste::Leisure, 3);
        assert_eq!(answers.wants(), None);
        answers.hurry(LEISURE / 2);
        assert_eq!(answers.wants(), None);
        assert_eq!(popped(&mut answers, 4), [2, 3]);
        answers.hurry(LEISURE);
        assert_eq!(answers.wants(), Some(Epoch(5)));
        answers.push(
            Epoch(7),
            Haste::Soon,
            (asker(4), PendingAnswer::Answer(Answer::Done)),
            LEISURE,
        );
        assert_eq!(popped(&mut answers, 5), [1]);
        assert_eq!(answers.wants(), Some(Epoch(7)));
        assert_eq!(popped(&mut answers, 7), [4]);
        assert!(answers.is_empty() && answers.wants().is_none());
    }
}
