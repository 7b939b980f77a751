//! Calls of clients and coordinators to nodes, and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use base::participant::{
    Leadership, Prepare, Sequenced, State, TransactionExecutor, TwoPhaseCommit,
};
use base::partition::OwnedReply;
use base::transaction::{Holder, Observed};
use base::{Abort, Epoch, Op, Reply, TransactionId};

use super::job::PlannedTransaction;
use crate::worker::Worker;

/// The number of a node's life: an event that was scheduled in another life does not count.
pub(super) type NodeLife = u32;

/// The origin of a call: a client, or a coordinator of transactions over several partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Client(usize),
    Coordinator(usize),
}

/// A call on its way to a node.
#[derive(Clone)]
pub(super) struct CallRequest {
    pub(super) caller: Caller,
    /// The number of the call; the outcome of an earlier one is of no use.
    pub(super) number: u64,
    pub(super) node: usize,
    pub(super) call: Arc<Call>,
}

/// A caller that waits for a ticket, and the outcome that it gets then.
pub(super) struct WaitingCall {
    pub(super) request: CallRequest,
    pub(super) ticket: base::Epoch,
    pub(super) outcome: PendingOutcome,
}

/// The outcome that a waiting caller gets.
pub(super) enum PendingOutcome {
    Known(CallOutcome),
    /// The outcome of operations that are executed after consensus.
    Naive(u64),
    /// The id of a session.
    Session(u64),
}

/// A call to a node.
#[derive(Debug)]
pub(super) enum Call {
    Run(Arc<PlannedTransaction>, Option<Sequenced>),
    /// Opens a session.
    Open,
    /// Reads state that may be this old.
    Stale(Arc<PlannedTransaction>, Duration),
    Prepare(TransactionId, Arc<PlannedTransaction>),
    Commit(TransactionId),
    Abort(TransactionId),
    Refuse(TransactionId),
    Forget(TransactionId),
    State(TransactionId),
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub(super) enum CallOutcome {
    Done(CallValue),
    Abort(Abort),
    /// The leadership was lost.
    Lost,
    /// The node is gone, or does not answer.
    Broken,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(super) enum CallValue {
    Replies(Vec<OwnedReply>),
    /// A session with this id was opened.
    Session(u64),
    /// Replies that were read at this time from state that may be old.
    Stale(Vec<OwnedReply>, Duration),
    State(State),
}

const NO_SESSION: Sequenced = Sequenced {
    session: 0,
    sequence: 0,
};

/// The duration of refusals, which is longer than any run.
const REFUSED_FOR_MS: u64 = 10_000_000;

impl Call {
    /// Runs the call. Returns the ticket for which the outcome waits.
    pub(super) fn run(&self, worker: &mut Worker, now: Duration) -> (Epoch, PendingOutcome) {
        let done = |outcome| PendingOutcome::Known(outcome);
        let outcome = match self {
            Call::Run(job, once) => {
                let ops = job.ops();
                let result = if worker.is_naive() && !job.is_read_only() {
                    match worker.propose(&ops, once.unwrap_or(NO_SESSION)) {
                        Ok(number) => {
                            return (worker.observed().epoch, PendingOutcome::Naive(number));
                        }
                        Err(abort) => Err(abort),
                    }
                } else {
                    run(worker, &ops, *once)
                };
                result.map(CallValue::Replies)
            }
            Call::Open => match worker.open_session() {
                Ok(number) => return (worker.observed().epoch, PendingOutcome::Session(number)),
                Err(abort) => Err(abort),
            },
            Call::Stale(job, bound) => worker
                .read_stale(&job.ops(), *bound, own)
                .map(|replies| CallValue::Stale(replies, now)),
            Call::Prepare(id, job) => prepare(worker, *id, job).map(CallValue::Replies),
            Call::Commit(id) => {
                TwoPhaseCommit::commit(worker, *id).map(|(state, _)| CallValue::State(state))
            }
            Call::Abort(id) => {
                TwoPhaseCommit::abort(worker, *id).map(|(state, _)| CallValue::State(state))
            }
            Call::Refuse(id) => {
                let until = TransactionExecutor::time_ms(worker) + REFUSED_FOR_MS;
                worker
                    .refuse(*id, until)
                    .map(|(state, _)| CallValue::State(state))
            }
            Call::Forget(id) => worker
                .forget(*id)
                .map(|()| CallValue::State(State::Unknown)),
            Call::State(id) => match Leadership::leads(worker) {
                Ok(()) => Ok(CallValue::State(TwoPhaseCommit::state(worker, *id).0)),
                Err(leader) => Err(Abort::Elsewhere { leader }),
            },
        };
        match outcome {
            Ok(value) => (worker.observed().epoch, done(CallOutcome::Done(value))),
            Err(abort) if abort.shows() || abort == Abort::Forgotten => {
                (worker.observed().epoch, done(CallOutcome::Abort(abort)))
            }
            Err(abort) => (Epoch::ZERO, done(CallOutcome::Abort(abort))),
        }
    }
}

fn own(replies: &[Reply<'_>], _: Observed) -> Vec<OwnedReply> {
    replies.iter().map(OwnedReply::from).collect()
}

fn run(
    worker: &mut Worker,
    ops: &[Op<'_>],
    once: Option<Sequenced>,
) -> Result<Vec<OwnedReply>, Abort> {
    worker.refresh();
    // Some clients share their places in groups with others.
    worker.serve(ops.len() as u64 % 3);
    match once {
        Some(sequenced) => worker.execute_once(ops, sequenced),
        None => worker.execute(ops, own),
    }
}

fn prepare(
    worker: &mut Worker,
    id: TransactionId,
    job: &PlannedTransaction,
) -> Result<Vec<OwnedReply>, Abort> {
    let holder = Holder {
        id,
        age: id.timestamp,
    };
    TwoPhaseCommit::prepare(
        worker,
        &Prepare {
            holder,
            ops: &job.ops(),
            siblings: b"",
            note: b"a note",
            isolation: base::participant::Isolation::Serializable,
        },
    )
}
