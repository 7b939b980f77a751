//! The callers of a node's transactions, and the outcomes that they get.

use base::Abort;
use base::participant::Participant;
use base::partition::OwnedReply;
use fabric::Link;

use crate::message::Answer;
use crate::router::PartitionRouter;

/// The outcome of a caller's transaction, which may be shown.
#[derive(Debug)]
pub struct Finished<C> {
    /// The caller.
    pub caller: C,
    /// The replies in the order of the operations, or why there are none.
    pub outcome: Result<Vec<OwnedReply>, Abort>,
    /// The transaction's time, milliseconds since the Unix epoch.
    pub time_ms: u64,
}

/// The sender of a transaction.
pub(crate) enum TransactionCaller<C> {
    /// A caller of this process.
    Local(C),
    /// A client, or another node.
    Remote { link: Link, number: u64 },
}

/// The outcomes of this process's callers that were not taken yet.
pub(crate) struct CallerOutcomes<C>(Vec<Finished<C>>);

impl<C> CallerOutcomes<C> {
    pub(crate) fn new() -> CallerOutcomes<C> {
        CallerOutcomes(Vec::new())
    }

    /// Answers a caller.
    pub(crate) fn finish<P: Participant + ?Sized>(
        &mut self,
        router: &mut PartitionRouter<'_, P>,
        caller: TransactionCaller<C>,
        outcome: Result<Vec<OwnedReply>, Abort>,
    ) {
        let counters = &mut router.context.counters;
        match &outcome {
            Ok(_) | Err(Abort::Unacknowledged { .. }) => counters.committed += 1,
            Err(Abort::Unknown { .. }) => counters.unknown += 1,
            Err(_) => counters.aborted += 1,
        }
        match caller {
            TransactionCaller::Local(caller) => self.0.push(Finished {
                caller,
                outcome,
                time_ms: router.partition.time_ms(),
            }),
            TransactionCaller::Remote { link, number } => {
                let answer = outcome.map_or_else(Answer::Aborted, Answer::Replies);
                router.context.connections.reply(link, number, answer);
            }
        }
    }

    /// Takes the outcomes.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Finished<C>> + '_ {
        self.0.drain(..)
    }
}
