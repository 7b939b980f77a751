//! Sessions of clients on a replicated partition, within its leader's process.
//!
//! All of them share a worker of the leader, as the connections of one thread of a server do: each
//! executes its request, gets a *ticket*, and is woken when the ticket has resolved. Another
//! task of the same thread learns from the member when tickets have resolved, and wakes the sessions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use base::partition::OwnedReply;
use base::{Abort, Epoch, Op};
use parking_lot::Mutex;
use replica::{ReplicatedPartition, Sequenced, Worker};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot};

use super::counter_client::CounterExecutor;
use crate::error::RunError;
use crate::keys;

/// Counters that are loaded at once.
const BATCH: usize = 500;

/// The outcome for a task that waits for a ticket.
type TicketOutcome = Result<(), RunError>;

/// The tasks that wait.
#[derive(Default)]
struct WaitingTasks {
    /// By ticket, and by their order.
    tickets: BTreeMap<(u64, u64), oneshot::Sender<TicketOutcome>>,
    drawn: u64,
    /// Tasks that wait until holds are given back.
    held: Vec<oneshot::Sender<()>>,
}

/// See the module's description.
pub(super) struct SharedWorker {
    worker: RefCell<Worker>,
    partition: Arc<ReplicatedPartition>,
    waiting: Arc<Mutex<WaitingTasks>>,
}

impl SharedWorker {
    pub(super) fn open(
        leader: &Arc<ReplicatedPartition>,
        runtime: &Runtime,
    ) -> Result<Rc<SharedWorker>, RunError> {
        let worker = leader.worker();
        let none = || RunError::Failed("the leader has no worker left".to_owned());
        let worker = SharedWorker {
            worker: RefCell::new(worker.ok_or_else(none)?),
            partition: Arc::clone(leader),
            waiting: Arc::default(),
        };
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        leader.on_change(Box::new(move || notify.notify_one()));
        let waiting = Arc::clone(&worker.waiting);
        runtime.spawn(wake_resolved(Arc::downgrade(leader), waiting, changed));
        Ok(Rc::new(worker))
    }

    /// Creates all counters, at zero.
    pub(super) async fn load(&self, counters: u64) -> Result<(), RunError> {
        let all: Vec<u64> = (0..counters).collect();
        let session = self.open_session().await?;
        for (sequence, some) in (1..).zip(all.chunks(BATCH)) {
            let keys: Vec<[u8; 8]> = some.iter().map(|&index| keys::encode(index)).collect();
            let ops: Vec<Op<'_>> = keys.iter().map(|key| Op::put(key, b"0")).collect();
            let sequenced = Sequenced { session, sequence };
            self.execute(&ops, sequenced).await?;
        }
        Ok(())
    }

    /// Opens a session, whose transactions are numbered.
    async fn open_session(&self) -> Result<u64, RunError> {
        let (number, ticket) = {
            let mut worker = self.worker.borrow_mut();
            let number = worker.open_session().map_err(RunError::of)?;
            (number, worker.observed().epoch)
        };
        self.resolved(ticket).await?;
        let opened = self.worker.borrow_mut().opened(number);
        let opened = opened.ok_or("no session is there when its ticket has resolved")?;
        opened.map_err(RunError::of)
    }

    /// Executes operations as one transaction, and waits until their outcome is known.
    async fn execute(
        &self,
        ops: &[Op<'_>],
        sequenced: Sequenced,
    ) -> Result<Vec<OwnedReply>, RunError> {
        if self.worker.borrow().is_naive() {
            return self.propose(ops, sequenced).await;
        }
        loop {
            let releases = self.partition.releases();
            let (tried, ticket) = {
                let mut worker = self.worker.borrow_mut();
                let tried = worker.execute_once(ops, sequenced);
                (tried, worker.observed().epoch)
            };
            match tried {
                Ok(replies) => {
                    self.resolved(ticket).await?;
                    return Ok(replies);
                }
                Err(Abort::Held { .. }) => self.released(releases).await,
                Err(abort) => return Err(RunError::of(abort)),
            }
        }
    }

    /// As `execute`, for a partition that executes after consensus.
    async fn propose(
        &self,
        ops: &[Op<'_>],
        sequenced: Sequenced,
    ) -> Result<Vec<OwnedReply>, RunError> {
        let (number, ticket) = {
            let mut worker = self.worker.borrow_mut();
            let number = worker.propose(ops, sequenced);
            let number = number.map_err(RunError::of)?;
            (number, worker.observed().epoch)
        };
        self.resolved(ticket).await?;
        let outcome = self.worker.borrow_mut().outcome(number);
        let outcome = outcome.ok_or("the outcome is not there when its ticket has resolved")?;
        outcome.map_err(RunError::of)
    }

    async fn resolved(&self, ticket: Epoch) -> TicketOutcome {
        let wait = {
            let mut waiting = self.waiting.lock();
            if let Some(outcome) = known(&self.partition, ticket) {
                return outcome;
            }
            let (send, wait) = oneshot::channel();
            waiting.drawn += 1;
            let place = (ticket.0, waiting.drawn);
            waiting.tickets.insert(place, send);
            wait
        };
        let gone = |_| {
            Err(RunError::Failed(
                "no thread wakes the waiting clients".to_owned(),
            ))
        };
        wait.await.unwrap_or_else(gone)
    }

    /// Waits until holds have been given back since the count was `releases`.
    async fn released(&self, releases: u64) {
        let wait = {
            let mut waiting = self.waiting.lock();
            if self.partition.releases() != releases {
                return;
            }
            let (send, wait) = oneshot::channel();
            waiting.held.push(send);
            wait
        };
        // If no task wakes this one, the next attempt returns the reason.
        let _ = wait.await;
    }
}

/// Returns the outcome of a ticket, if it is known.
fn known(partition: &ReplicatedPartition, ticket: Epoch) -> Option<TicketOutcome> {
    if partition.is_lost(ticket) {
        return Some(Err("the leader has lost its leadership".into()));
    }
    (ticket <= partition.durable()).then_some(Ok(()))
}

/// Wakes the tasks that wait for a change, until the partition is gone.
async fn wake_resolved(
    partition: Weak<ReplicatedPartition>,
    waiting: Arc<Mutex<WaitingTasks>>,
    changed: Arc<Notify>,
) {
    loop {
        changed.notified().await;
        let Some(partition) = partition.upgrade() else {
            return;
        };
        let mut waiting = waiting.lock();
        while let Some(first) = waiting.tickets.first_entry()
            && let Some(outcome) = known(&partition, Epoch(first.key().0))
        {
            // A task that does not wait any more need not be woken.
            let _ = first.remove().send(outcome);
        }
        for held in waiting.held.drain(..) {
            let _ = held.send(());
        }
    }
}

/// A client's session, whose transactions are numbered.
pub(super) struct WorkerSession {
    worker: Rc<SharedWorker>,
    /// Its number, from the first transaction on.
    session: Option<u64>,
    /// Transactions that it has sent.
    sequence: u64,
}

impl WorkerSession {
    pub(super) fn new(worker: &Rc<SharedWorker>) -> WorkerSession {
        WorkerSession {
            worker: Rc::clone(worker),
            session: None,
            sequence: 0,
        }
    }
}

impl CounterExecutor for WorkerSession {
    async fn execute(&mut self, ops: &[Op<'_>]) -> Result<Vec<OwnedReply>, RunError> {
        let session = match self.session {
            Some(session) => session,
            None => *self.session.insert(self.worker.open_session().await?),
        };
        self.sequence += 1;
        let sequence = self.sequence;
        let sequenced = Sequenced { session, sequence };
        self.worker.execute(ops, sequenced).await
    }
}
