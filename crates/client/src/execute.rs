//! One transaction: where it is sent, and what the client does when that fails.
//!
//! A transaction that writes, and whose keys are all in one replicated partition, is *numbered*: it has
//! a number in a session there, so that it can be sent again.
//!
//! | what comes back | reads only | writes | writes, numbered |
//! |---|---|---|---|
//! | replies | done | done | done |
//! | another node leads | again, there | again, there | again, there |
//! | not sent, or a partition is unavailable | asks for a newer file, again | asks for a newer file, again | asks for a newer file, again |
//! | others were in the way (`Conflict`, `Held`, `Overtaken`, `Refused`) | again | again | again |
//! | no answer, or `Unknown` | again | [`Error::Unknown`] | again, with the same number |
//! | `Forgotten` | – | – | again, under another session; [`Error::Unknown`] if in doubt |
//! | a malformed answer | [`Error::Answer`] | [`Error::Unknown`] | again, with the same number |
//! | a stale token (`Stale`) | – | [`Error::Aborted`] | [`Error::Aborted`] |
//! | `Unacknowledged` (read-atomic writes) | – | [`Error::Committed`] | – |
//! | any other abort | [`Error::Aborted`] | [`Error::Aborted`] | [`Error::Aborted`]; [`Error::Unknown`] if in doubt |
//!
//! A numbered transaction is *in doubt* from the time when an answer did not come until it gets replies.
//! An abort does not end that: the first message may still be under way, and aborts are not remembered.

use std::sync::Arc;
use std::time::Instant;

use base::participant::Sequenced;
use base::partition::OwnedReply;
use base::{Abort, NodeId, Op, PartitionId};
use cluster::message::{Answer, Request};
use cluster::ramp::Algorithm;

use crate::attempt::{AttemptResult, RetryReason, describe_other, judge, judge_other};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::cluster_map::{ClusterMap, Route, route};
use crate::connection_pool::RequestFailure;
use crate::error::Error;

/// A transaction to be executed.
struct TransactionCall<'c> {
    ops: &'c [Op<'c>],
    /// The node that the caller chose, if it chose one.
    at: Option<NodeId>,
    /// Keys that are only read are held, too.
    holds: bool,
    /// The algorithm, for a transaction that only reads or only writes several read-atomic keys.
    ramp: Option<Algorithm>,
    reads: bool,
    deadline: Instant,
    numbered: Option<NumberedAttempt>,
}

/// The number of a transaction that may be sent again.
#[derive(Clone, Copy)]
struct NumberedAttempt {
    partition: PartitionId,
    of: Sequenced,
    /// The transaction may have been executed.
    doubt: bool,
}

impl<'c> TransactionCall<'c> {
    fn new(ops: &'c [Op<'c>], deadline: Instant) -> TransactionCall<'c> {
        TransactionCall {
            ops,
            at: None,
            holds: false,
            ramp: None,
            reads: ops.iter().all(Op::is_read_only),
            deadline,
            numbered: None,
        }
    }

    fn in_doubt(&self) -> bool {
        self.numbered.is_some_and(|numbered| numbered.doubt)
    }

    fn doubt(&mut self) {
        if let Some(numbered) = &mut self.numbered {
            numbered.doubt = true;
        }
    }

    /// Returns the time at which the client stops waiting for an answer. For a transaction that may not
    /// be sent again, that is the deadline of the call.
    fn patience(&self, client: &Client) -> Instant {
        if self.reads || self.numbered.is_some() {
            let answer = Instant::now() + client.options.answer_within;
            self.deadline.min(answer)
        } else {
            self.deadline
        }
    }
}

impl Client {
    /// Executes a transaction over any keys, atomically. Returns the replies in the order of the
    /// operations. Operations without a key (`Count`, `Scan`, `Flush`) are executed by the partition to
    /// which the transaction is sent: that of most of its keys, or the first one if it has no keys; see
    /// [`Client::execute_at`].
    ///
    /// Guards (`Guard`) are executed by every participant. The time (`Now`) is only available to
    /// transactions whose keys are all in one partition.
    ///
    /// An operation that failed by itself has [`OwnedReply::Error`] in its place, and the others have
    /// taken effect.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn execute(&self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Error> {
        self.execute_until(ops, Instant::now() + self.options.timeout)
    }

    /// As [`Client::execute`], but sends the transaction to this node, wherever its keys are.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn execute_at(&self, node: NodeId, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Error> {
        let deadline = Instant::now() + self.options.timeout;
        self.finish(TransactionCall {
            at: Some(node),
            ..TransactionCall::new(ops, deadline)
        })
    }

    /// As [`Client::execute`], with strict two-phase locking: where several partitions take part, keys
    /// that are only read are held until the transaction is decided, instead of being validated. Other
    /// transactions wait for them meanwhile. This is for comparisons (paper 1's S2PL), and not for
    /// read-atomic keys.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn execute_holding(&self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, Error> {
        let deadline = Instant::now() + self.options.timeout;
        self.finish(TransactionCall {
            holds: true,
            ..TransactionCall::new(ops, deadline)
        })
    }

    pub(crate) fn execute_until(
        &self,
        ops: &[Op<'_>],
        deadline: Instant,
    ) -> Result<Vec<OwnedReply>, Error> {
        self.finish(TransactionCall::new(ops, deadline))
    }

    /// Reads, or writes, several read-atomic keys.
    pub(crate) fn ramp_until(
        &self,
        ops: &[Op<'_>],
        algorithm: Algorithm,
        deadline: Instant,
    ) -> Result<Vec<OwnedReply>, Error> {
        self.finish(TransactionCall {
            ramp: Some(algorithm),
            ..TransactionCall::new(ops, deadline)
        })
    }

    fn finish(&self, mut call: TransactionCall<'_>) -> Result<Vec<OwnedReply>, Error> {
        let outcome = self.repeat(&mut call);
        if let Some(numbered) = call.numbered
            && (outcome.is_ok() || !numbered.doubt)
        {
            self.sessions.give_back(numbered.partition, numbered.of);
        }
        outcome
    }

    /// Repeats the attempt until there is an outcome, or the time is up.
    fn repeat(&self, call: &mut TransactionCall<'_>) -> Result<Vec<OwnedReply>, Error> {
        let mut backoff = Backoff::until(call.deadline);
        loop {
            let map = self.map.current();
            let again = match self.attempt(&map, call)? {
                Ok(replies) => return Ok(replies),
                Err(again) => again,
            };
            if !backoff.pause() {
                let (attempts, why) = (backoff.attempts, again.why);
                return Err(if call.in_doubt() {
                    Error::Unknown { why }
                } else {
                    Error::TimedOut { attempts, why }
                });
            }
            if again.stale {
                self.map.refresh(&map, &self.pool, call.deadline);
            }
        }
    }

    fn attempt(
        &self,
        map: &Arc<ClusterMap>,
        call: &mut TransactionCall<'_>,
    ) -> AttemptResult<Vec<OwnedReply>> {
        let Route { partition, several } = route(&map.topology, call.ops);
        let coordinated = several || call.at.is_some();
        let numbers = !coordinated && !call.reads && map.topology.is_replicated(partition);
        let moved = |one: &NumberedAttempt| !numbers || one.partition != partition;
        if call.numbered.as_ref().is_some_and(moved) {
            // The file has changed.
            if call.in_doubt() {
                let why = "its keys have moved since it was sent".to_owned();
                return Err(Error::Unknown { why });
            }
            call.numbered = None;
        }
        if numbers && call.numbered.is_none() {
            match self.session(map, partition, call.deadline)? {
                Ok(of) => {
                    call.numbered = Some(NumberedAttempt {
                        partition,
                        of,
                        doubt: false,
                    });
                }
                Err(again) => return Ok(Err(again)),
            }
        }
        let (ops, holds) = (call.ops.to_vec(), call.holds);
        let request = match (call.numbered, call.ramp) {
            (Some(NumberedAttempt { of, .. }), _) => Request::Once { of, ops },
            (None, _) if !coordinated => Request::Execute { ops },
            (None, Some(algorithm)) => Request::Ramp { algorithm, ops },
            (None, None) => Request::Coordinate { holds, ops },
        };
        let node = call.at.unwrap_or_else(|| map.find(partition));
        let patience = call.patience(self);
        let answer = self.ask(map, (node, partition), request, patience);
        match call.numbered {
            Some(_) => self.judge_numbered(answer, call),
            None => judge(answer, call.ops.len(), node, call.reads),
        }
    }

    /// Returns a free session with its next number; opens one if there is none.
    fn session(
        &self,
        map: &Arc<ClusterMap>,
        partition: PartitionId,
        deadline: Instant,
    ) -> AttemptResult<Sequenced> {
        if let Some(of) = self.sessions.take(partition) {
            return Ok(Ok(of));
        }
        let node = map.find(partition);
        let patience = deadline.min(Instant::now() + self.options.answer_within);
        // An opened session that this client does not learn of does no harm, so it is asked for like a
        // read.
        match self.ask(map, (node, partition), Request::OpenSession, patience) {
            Ok(Answer::Session(session)) => Ok(Ok(Sequenced {
                session,
                sequence: 1,
            })),
            answer => judge_other(answer, node).map(Err),
        }
    }

    /// Sends a node a request about a partition, and notes what the answer says about the partition's
    /// leader.
    pub(crate) fn ask(
        &self,
        map: &ClusterMap,
        (node, of): (NodeId, PartitionId),
        request: Request<'_>,
        patience: Instant,
    ) -> Result<Answer, RequestFailure> {
        let coordinated = matches!(request, Request::Coordinate { .. } | Request::Ramp { .. });
        let to = map.address_of(node)?;
        let answer = self.pool.ask(to, request, patience);
        // A coordinator's answer may be about other partitions.
        if !coordinated || answer.is_err() {
            map.learn(of, node, &answer);
        }
        answer
    }

    fn judge_numbered(
        &self,
        answer: Result<Answer, RequestFailure>,
        call: &mut TransactionCall<'_>,
    ) -> AttemptResult<Vec<OwnedReply>> {
        let again = |why: String, stale: bool| Ok(Err(RetryReason { why, stale }));
        let final_error = match answer {
            Ok(Answer::Replies(replies)) if replies.len() == call.ops.len() => {
                return Ok(Ok(replies));
            }
            Ok(Answer::Aborted(abort)) => match abort {
                Abort::Unavailable { .. } => return again(abort.to_string(), true),
                Abort::Elsewhere { .. }
                | Abort::Conflict { .. }
                | Abort::Held { .. }
                | Abort::Overtaken { .. }
                | Abort::Refused => return again(abort.to_string(), false),
                Abort::Unknown { what } => {
                    call.doubt();
                    return again(what, false);
                }
                Abort::Forgotten if !call.in_doubt() => {
                    let partition = call.numbered.take().map(|one| one.partition);
                    partition
                        .into_iter()
                        .for_each(|of| self.sessions.forget(of));
                    return again(abort.to_string(), false);
                }
                // A token does not become valid again: a message that was sent earlier is refused, too,
                // if it was not executed. If it was executed, the answer would say so.
                stale @ Abort::Stale { .. } => return Err(Error::Aborted(stale)),
                abort => Error::Aborted(abort),
            },
            Err(RequestFailure::NotSent(why)) => return again(why, true),
            Err(RequestFailure::Lost(why)) => {
                call.doubt();
                return again(why, false);
            }
            Err(RequestFailure::TooLong(why)) => Error::TooLong { why },
            Err(RequestFailure::Refused(why)) => Error::Refused { why },
            Ok(other) => {
                call.doubt();
                return again(describe_other(other), false);
            }
        };
        if call.in_doubt() {
            let why = final_error.to_string();
            return Err(Error::Unknown { why });
        }
        Err(final_error)
    }
}
