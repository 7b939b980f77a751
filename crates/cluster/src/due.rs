//! Answers that wait until what they tell is durable.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Epoch;

use crate::message::Answer;
use crate::node::Asker;

/// Whether somebody waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// A sync is asked for.
    Soon,
    /// Syncs that others need will do, or those of an idle log. An acknowledgement of a commit,
    /// after which only notes are forgotten, is not worth a sync.
    Leisure,
}

/// For so long answers that can wait do so.
const LEISURE: Duration = Duration::from_millis(100);

/// See the module's description.
#[derive(Default)]
pub(crate) struct Dues {
    /// By the epoch that each waits for, and in the order in which they came.
    waiting: BTreeMap<(Epoch, u64), (Asker, Answer)>,
    sequence: u64,
    /// The newest epoch that is asked for; zero if none is.
    until: Epoch,
    /// The newest epoch of those that can wait, and since when there are any.
    leisure: Option<(Epoch, Duration)>,
}

impl Dues {
    /// Has an answer wait for `epoch`.
    pub(crate) fn push(
        &mut self,
        epoch: Epoch,
        haste: Haste,
        answer: (Asker, Answer),
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
        self.waiting.insert((epoch, self.sequence), answer);
    }

    /// The next answer that waits for nothing any more.
    pub(crate) fn pop(&mut self, durable: Epoch) -> Option<(Asker, Answer)> {
        let first = self.waiting.first_entry()?;
        if first.key().0 <= durable {
            return Some(first.remove());
        }
        if self.until <= durable {
            self.until = Epoch::ZERO;
        }
        self.leisure = self.leisure.filter(|(epoch, _)| *epoch > durable);
        None
    }

    /// Takes all of them: what they wait for will never come.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = Asker> + use<> {
        let waiting = std::mem::take(self).waiting;
        waiting.into_values().map(|(asker, _)| asker)
    }

    /// Asks for what has waited long enough.
    pub(crate) fn hurry(&mut self, now: Duration) {
        if let Some((epoch, since)) = self.leisure
            && since + LEISURE <= now
        {
            self.until = self.until.max(epoch);
        }
    }

    /// The epoch that is asked for.
    pub(crate) fn wants(&self) -> Option<Epoch> {
        let wanted = !self.waiting.is_empty() && self.until > Epoch::ZERO;
        wanted.then_some(self.until)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(number: u64) -> Asker {
        let link = fabric::Link(1);
        Asker::Remote { link, number }
    }

    fn popped(dues: &mut Dues, durable: u64) -> Vec<u64> {
        let pop = || dues.pop(Epoch(durable));
        let numbers = std::iter::from_fn(pop).map(|(asker, _)| match asker {
            Asker::Remote { number, .. } => number,
            Asker::Own(_) => unreachable!("none was put in"),
        });
        numbers.collect()
    }

    #[test]
    fn answers_leave_in_order_and_only_haste_asks_for_a_sync() {
        let mut dues = Dues::default();
        let mut push = |epoch, haste, number| {
            dues.push(
                Epoch(epoch),
                haste,
                (asker(number), Answer::Done),
                Duration::ZERO,
            );
        };
        push(5, Haste::Leisure, 1);
        push(4, Haste::Leisure, 2);
        push(4, Haste::Leisure, 3);
        assert_eq!(dues.wants(), None);
        dues.hurry(LEISURE / 2);
        assert_eq!(dues.wants(), None);
        assert_eq!(popped(&mut dues, 4), [2, 3]);
        dues.hurry(LEISURE);
        assert_eq!(dues.wants(), Some(Epoch(5)));
        dues.push(Epoch(7), Haste::Soon, (asker(4), Answer::Done), LEISURE);
        assert_eq!(popped(&mut dues, 5), [1]);
        assert_eq!(dues.wants(), Some(Epoch(7)));
        assert_eq!(dues.give_up().count(), 1);
        assert!(dues.is_empty() && dues.wants().is_none());
    }
}
