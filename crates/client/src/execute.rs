//! One transaction: where it goes, and what is done when that fails.
//!
//! | what comes back | reads only | writes |
//! |---|---|---|
//! | replies | done | done |
//! | not sent, or a partition is unavailable | asks for a newer file, again | asks for a newer file, again |
//! | others were in the way (`Conflict`, `Held`, `Overtaken`, `Refused`) | again | again |
//! | no answer, or `Unknown` | again | [`Error::Unknown`] |
//! | an answer that makes no sense | [`Error::Answer`] | [`Error::Unknown`] |
//! | any other abort | [`Error::Aborted`] | [`Error::Aborted`] |

use std::sync::Arc;
use std::time::Instant;

use base::partition::OwnedReply;
use base::{Abort, NodeId, Op};
use cluster::Topology;
use cluster::message::{Answer, Request};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::Error;
use crate::map::{Route, route};
use crate::pool::Failure;

/// Why an attempt is followed by another.
struct Again {
    why: String,
    /// Whether a newer file may help.
    stale: bool,
}

impl Client {
    /// Executes a transaction over any keys, atomically; the replies have the order of the
    /// operations. Operations without a key (`Count`, `Scan`, `Flush`) are executed by the
    /// partition that the transaction is sent to: that of most of its keys, and the first without
    /// any; see [`Client::execute_at`].
    ///
    /// An operation that failed by itself has [`OwnedReply::Error`] in its place, and the others
    /// have taken effect.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn execute(&self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Error> {
        self.execute_until(ops, None, Instant::now() + self.options.timeout)
    }

    /// As [`Client::execute`], by this node, whatever the keys.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn execute_at(&self, node: NodeId, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Error> {
        self.execute_until(ops, Some(node), Instant::now() + self.options.timeout)
    }

    pub(crate) fn execute_until(
        &self,
        ops: &[Op<'_>],
        at: Option<NodeId>,
        deadline: Instant,
    ) -> Result<Vec<OwnedReply>, Error> {
        let reads = ops.iter().all(Op::is_read_only);
        let mut backoff = Backoff::until(deadline);
        loop {
            let topology = self.map.current();
            let again = match self.attempt(&topology, ops, at, reads, deadline) {
                Ok(Ok(replies)) => return Ok(replies),
                Ok(Err(again)) => again,
                Err(error) => return Err(error),
            };
            if !backoff.pause() {
                return Err(Error::TimedOut {
                    attempts: backoff.attempts,
                    why: again.why,
                });
            }
            if again.stale {
                self.map.refresh(&topology, &self.pool, deadline);
            }
        }
    }

    fn attempt(
        &self,
        topology: &Arc<Topology>,
        ops: &[Op<'_>],
        at: Option<NodeId>,
        reads: bool,
        deadline: Instant,
    ) -> Result<Result<Vec<OwnedReply>, Again>, Error> {
        let Route { node, several } = match at {
            Some(node) => Route {
                node,
                several: true,
            },
            None => route(topology, ops),
        };
        let Some(info) = topology.node(node) else {
            let why = format!("the cluster has no node {node}");
            return Ok(Err(Again { why, stale: true }));
        };
        let ops_sent = ops.to_vec();
        let request = if several {
            Request::Coordinate { ops: ops_sent }
        } else {
            Request::Execute { ops: ops_sent }
        };
        let to = (node, info.fabric, topology.fingerprint());
        let patience = if reads {
            deadline.min(Instant::now() + self.options.answer_within)
        } else {
            deadline
        };
        let answer = self.pool.ask(to, request, patience);
        judge(answer, ops.len(), node, reads)
    }
}

/// What an attempt has come to; see the module's table.
fn judge(
    answer: Result<Answer, Failure>,
    count: usize,
    node: NodeId,
    reads: bool,
) -> Result<Result<Vec<OwnedReply>, Again>, Error> {
    let again = |why: String, stale: bool| Ok(Err(Again { why, stale }));
    let unknown = |why: String| Err(Error::Unknown { why });
    match answer {
        Ok(Answer::Replies(replies)) if replies.len() == count => Ok(Ok(replies)),
        Ok(Answer::Aborted(abort)) => match abort {
            Abort::Unavailable { .. } | Abort::Elsewhere { .. } => again(abort.to_string(), true),
            Abort::Conflict { .. }
            | Abort::Held { .. }
            | Abort::Overtaken { .. }
            | Abort::Refused => again(abort.to_string(), false),
            Abort::Unknown { what } if reads => again(what, true),
            Abort::Unknown { what } => unknown(what),
            abort => Err(Error::Aborted(abort)),
        },
        Err(Failure::NotSent(why)) => again(why, true),
        Err(Failure::TooLong(why)) => Err(Error::TooLong { why }),
        Err(Failure::Refused(why)) => Err(Error::Refused { why }),
        Err(Failure::Lost(why)) if reads => again(why, true),
        Err(Failure::Lost(why)) => unknown(why),
        Ok(other) => {
            let what = match other {
                Answer::Failed(what) => what,
                other => format!("{other:?}"),
            };
            if reads {
                Err(Error::Answer { node, what })
            } else {
                unknown(format!("node {node} answered: {what}"))
            }
        }
    }
}
