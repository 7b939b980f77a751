//! Bulks: transactions that come and are answered together, each of which is executed by itself (paper
//! 5, section 3.1.3; transactions that must fail together are one transaction).

use base::participant::Participant;
use base::partition::OwnedReply;
use base::{Abort, Epoch, Op};

use crate::message::Answer;
use crate::node::{Asker, Node};
use crate::pending_answers::{Haste, PendingAnswer};

/// Outcome of a transaction, and the epoch for which its answer waits.
pub(crate) type Outcome = (Epoch, Result<Vec<OwnedReply>, Abort>);

impl<C> Node<C> {
    /// Executes the transactions one after the other, and answers when all outcomes are known. None of
    /// them waits for holds: one that meets a hold is answered so, and its client may send it by itself.
    pub(crate) fn execute_each(
        &mut self,
        partition: &mut impl Participant,
        asker: Asker,
        transactions: &[Vec<Op<'_>>],
    ) {
        let outcomes: Vec<Outcome> = transactions
            .iter()
            .map(|ops| self.execute_one(partition, ops))
            .collect();
        let last = outcomes.iter().map(|(epoch, _)| *epoch).max();
        let pending = (asker, PendingAnswer::Each(outcomes));
        self.pending_answers
            .push(last.unwrap_or(Epoch::ZERO), Haste::Soon, pending, self.now);
    }

    fn execute_one(&self, partition: &mut impl Participant, ops: &[Op<'_>]) -> Outcome {
        if let Some(abort) = self.unfit_ops(ops) {
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
}

/// Returns the answer for a bulk all of whose epochs are durable or lost. They may be of several
/// leaderships: each is looked up.
pub(crate) fn told(outcomes: Vec<Outcome>, partition: &impl Participant) -> Answer {
    let known = |(epoch, outcome): Outcome| match outcome {
        Ok(_) if partition.is_lost(epoch) => Err(Abort::Unknown {
            what: "the node that was asked has ceased to lead the partition".to_owned(),
        }),
        // What the abort shows may be lost; the transaction can be tried again.
        Err(_) if partition.is_lost(epoch) => Err(Abort::Elsewhere { leader: None }),
        outcome => outcome,
    };
    Answer::Each(outcomes.into_iter().map(known).collect())
}
