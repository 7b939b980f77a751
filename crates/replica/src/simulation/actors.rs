//! The state of those who act in a run: clients, coordinators and the administrator; and the
//! progress of the run's end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::TransactionId;
use base::participant::Sequenced;
use fastrand::Rng;

use super::job::{PlannedTransaction, Watched};
use crate::membership::{ChangeAnswer, MembershipChange};

/// A transaction whose outcome is not known yet.
pub(super) struct ClientTransaction {
    pub(super) job: Arc<PlannedTransaction>,
    /// `true` if it has a number, or gets one.
    pub(super) numbered: bool,
    pub(super) once: Option<Sequenced>,
    pub(super) stale: Option<Duration>,
    pub(super) begun: Duration,
    pub(super) tries: u32,
    /// `true` if it may have taken effect.
    pub(super) doubt: bool,
}

impl ClientTransaction {
    /// Returns `true` if there is no session yet in which it could have a number.
    pub(super) fn is_opening(&self) -> bool {
        self.numbered && self.once.is_none()
    }
}

/// The task of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientTask {
    /// Runs transactions of all kinds.
    Any,
    /// Adds to counters of its own, again and again, at any node, and does not wait for long: a
    /// leader that cannot go on holds few of its transactions.
    Beats,
    /// Adds to counters, each time under another session, misses many answers, and sends again when
    /// it has slept for longer than a session lasts.
    Sleeps,
    /// Reads these counters at any node, including one that leads no longer.
    Watches,
}

/// A client: runs one transaction after another at the current leader.
pub(super) struct SimulatedClient {
    pub(super) process: usize,
    pub(super) task: ClientTask,
    pub(super) number: u64,
    pub(super) transaction: Option<ClientTransaction>,
    pub(super) watched: Watched,
    /// `true` if it numbers its transactions.
    pub(super) numbers: bool,
    /// Its session, if there is one, and its last transaction's number.
    pub(super) session: Option<Sequenced>,
    pub(super) node: usize,
    /// The transactions that it runs, if they are decided beforehand.
    pub(super) script: Option<VecDeque<PlannedTransaction>>,
}

impl SimulatedClient {
    pub(super) fn new(process: usize, random: &mut Rng, founders: usize) -> SimulatedClient {
        let numbers = random.bool();
        SimulatedClient {
            process,
            task: ClientTask::Any,
            number: 0,
            transaction: None,
            watched: Watched::new(),
            numbers,
            session: None,
            node: random.usize(..founders),
            script: None,
        }
    }

    /// Makes it a client that runs the transactions of a script, once each.
    pub(super) fn scripted(self, script: Vec<PlannedTransaction>) -> SimulatedClient {
        SimulatedClient {
            numbers: true,
            script: Some(script.into()),
            ..self
        }
    }

    /// Makes it a client that repeats the same task.
    pub(super) fn with_task(self, task: ClientTask) -> SimulatedClient {
        SimulatedClient {
            numbers: task == ClientTask::Sleeps,
            task,
            ..self
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.transaction.is_none() && self.script.as_ref().is_none_or(VecDeque::is_empty)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptStage {
    Prepare,
    /// Asks if it is prepared.
    Ask,
    Refuse,
    Commit,
    Abort,
    Forget,
}

/// A transaction over several partitions that is in progress.
pub(super) struct SimulatedAttempt {
    pub(super) id: TransactionId,
    pub(super) job: Arc<PlannedTransaction>,
    pub(super) begun: Duration,
    pub(super) stage: AttemptStage,
    /// `true` if this stage may have taken effect.
    pub(super) doubt: bool,
    /// The operations that are recorded when it commits.
    pub(super) ops: String,
}

/// A coordinator of transactions over several partitions.
pub(super) struct SimulatedCoordinator {
    pub(super) process: usize,
    pub(super) number: u64,
    pub(super) node: usize,
    pub(super) attempt: Option<SimulatedAttempt>,
}

impl SimulatedCoordinator {
    pub(super) fn new(process: usize) -> SimulatedCoordinator {
        SimulatedCoordinator {
            process,
            number: 0,
            node: 0,
            attempt: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.attempt.is_none()
    }
}

/// The administrator, who changes the members.
#[derive(Default)]
pub(super) struct Administrator {
    pub(super) pending: Option<(MembershipChange, ChangeAnswer)>,
    /// Nodes that were removed or wiped, and are not members again.
    pub(super) out: Vec<usize>,
    /// `true` if all nodes know of the spare ones.
    pub(super) enlarged: bool,
}

/// The progress of the end of a run.
#[derive(Default)]
pub(super) struct RunEnd {
    /// `true` if the first transaction has committed.
    pub(super) opened: bool,
    /// `true` if no client begins a transaction any more.
    pub(super) quiet: bool,
    /// The times at which the last committed transaction was begun and answered.
    pub(super) committed: Option<(Duration, Duration)>,
    pub(super) served: bool,
    pub(super) last_reads: bool,
    pub(super) over: bool,
}

impl RunEnd {
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn committed(&mut self, begun: Duration, now: Duration) {
        self.opened = true;
        self.committed = Some((begun, now));
    }
}
