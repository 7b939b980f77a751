//! Bulks: many transactions in one message, each executed by itself (paper 5, section 3.1.3).
//! Transactions that must fail together are one transaction: [`Client::execute`].
//!
//! | what comes back of a transaction | then |
//! |---|---|
//! | replies | done |
//! | it is known not to have happened, and may succeed | sent again by itself, as [`Client::execute`] does |
//! | the outcome is unknown | reads: again by itself; writes: [`Error::Unknown`] |
//! | any other abort | [`Error::Aborted`] |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use base::partition::OwnedReply;
use base::{Abort, Op, PartitionId};
use cluster::message::{Answer, Request};

use crate::attempt::final_error;
use crate::client::Client;
use crate::cluster_map::{ClusterMap, Route, route};
use crate::connection_pool::RequestFailure;
use crate::error::Error;

/// Outcome of a transaction.
type TransactionOutcome = Result<Vec<OwnedReply>, Error>;

/// What the client knows of a transaction after it sent the bulk.
enum BulkResult {
    Done(TransactionOutcome),
    /// The transaction has not happened, or does no harm if it happens again.
    Retry,
}

impl Client {
    /// Executes many transactions, each by itself: the outcome of one says nothing about the others, and
    /// their order is not defined. Returns the outcomes in the order of `transactions`. The transactions
    /// of one partition travel in one message; transactions over several partitions are sent one by one.
    ///
    /// Unlike the transactions of [`Client::execute`], these are not numbered: a write whose answer is
    /// lost returns [`Error::Unknown`]. The call takes no longer than [`crate::Options::timeout`].
    pub fn execute_each(&self, transactions: &[Vec<Op<'_>>]) -> Vec<TransactionOutcome> {
        let deadline = Instant::now() + self.options.timeout;
        let map = self.map.current();
        let mut results: Vec<BulkResult> = transactions.iter().map(|_| BulkResult::Retry).collect();
        for (partition, places) in by_partition(&map, transactions) {
            let some = places.iter().map(|&place| transactions[place].clone());
            let answers = self.send_bulk(&map, partition, some.collect(), deadline);
            for (place, answer) in places.into_iter().zip(answers) {
                let reads = transactions[place].iter().all(Op::is_read_only);
                results[place] = judge(answer, transactions[place].len(), reads);
            }
        }
        let finish = |(ops, results): (&Vec<Op<'_>>, BulkResult)| match results {
            BulkResult::Done(outcome) => outcome,
            BulkResult::Retry => self.execute_until(ops, deadline),
        };
        transactions.iter().zip(results).map(finish).collect()
    }

    /// Sends the transactions to their partition in one message. Returns the answer to each.
    fn send_bulk(
        &self,
        map: &Arc<ClusterMap>,
        partition: PartitionId,
        transactions: Vec<Vec<Op<'_>>>,
        deadline: Instant,
    ) -> Vec<Result<Vec<OwnedReply>, Abort>> {
        let count = transactions.len();
        let all = |abort: Abort| (0..count).map(|_| Err(abort.clone())).collect();
        let node = map.find(partition);
        let request = Request::Each { transactions };
        match self.ask(map, (node, partition), request, deadline) {
            Ok(Answer::Each(outcomes)) if outcomes.len() == count => outcomes,
            Ok(Answer::Aborted(abort)) => all(abort),
            // Each of them alone may be short enough; if it is not, its own error says more.
            Err(
                RequestFailure::NotSent(_)
                | RequestFailure::TooLong(_)
                | RequestFailure::Refused(_),
            ) => all(Abort::Elsewhere { leader: None }),
            Err(RequestFailure::Lost(what)) => all(Abort::Unknown { what }),
            Ok(other) => all(Abort::Unknown {
                what: format!("node {node} answered {other:?}"),
            }),
        }
    }
}

/// Returns the transactions' places, by the partition that has all of their keys.
fn by_partition(
    map: &ClusterMap,
    transactions: &[Vec<Op<'_>>],
) -> BTreeMap<PartitionId, Vec<usize>> {
    let mut places: BTreeMap<PartitionId, Vec<usize>> = BTreeMap::new();
    for (place, ops) in transactions.iter().enumerate() {
        let Route { partition, several } = route(&map.topology, ops);
        if !several {
            places.entry(partition).or_default().push(place);
        }
    }
    // A transaction that is alone gains nothing in a bulk, and would lose its number.
    places.retain(|_, places| places.len() > 1);
    places
}

fn judge(answer: Result<Vec<OwnedReply>, Abort>, count: usize, reads: bool) -> BulkResult {
    BulkResult::Done(match answer {
        Ok(replies) if replies.len() == count => Ok(replies),
        Ok(_) if reads => return BulkResult::Retry,
        Ok(replies) => Err(Error::Unknown {
            why: format!("{} replies to {count} operations", replies.len()),
        }),
        Err(
            Abort::Elsewhere { .. }
            | Abort::Unavailable { .. }
            | Abort::Conflict { .. }
            | Abort::Held { .. }
            | Abort::Overtaken { .. }
            | Abort::Refused,
        ) => return BulkResult::Retry,
        Err(Abort::Unknown { .. }) if reads => return BulkResult::Retry,
        Err(abort) => Err(final_error(abort)),
    })
}
