//! A store that is measured, its workers, and what each workload implements for it.

use base::affinity::Affinity;
use store::Db;

use crate::driver::{DONE, LoadSchedule};
use crate::error::RunError;

/// The parts of a run that each workload implements.
pub(super) trait StoreWorkload: Sized {
    type Client<'r>: crate::driver::BlockingClient;

    /// Writes the initial data.
    fn load(&self, bench: &StoreUnderTest<'_>) -> Result<(), RunError>;

    /// Returns a client for each worker.
    fn clients<'r>(&self, bench: &StoreUnderTest<'r>) -> Result<Vec<Self::Client<'r>>, RunError>;

    /// Takes the acknowledged transactions from the clients.
    fn ended(&mut self, clients: Vec<Self::Client<'_>>);

    /// Checks the contents of the store, and returns their digest.
    fn check(&self, db: &Db) -> Result<u64, RunError>;
}

/// A store under test.
pub(super) struct StoreUnderTest<'r> {
    pub(super) db: Db,
    pub(super) workers: usize,
    pub(super) pace: LoadSchedule,
    pub(super) logged: bool,
    pub(super) recorder: Option<&'r history::Recorder>,
    pub(super) number: usize,
    pub(super) seed: u64,
    pub(super) plant: bool,
    pub(super) affinity: Option<&'r Affinity>,
}

impl StoreUnderTest<'_> {
    pub(super) fn worker(&self) -> Result<store::Worker, RunError> {
        let worker = self.db.worker();
        worker.ok_or_else(|| "the store has no worker left".into())
    }

    /// Returns the worker of a lane, whose number determines its logger.
    pub(super) fn seat(&self, lane: usize) -> Result<PinnedWorker, RunError> {
        let worker = self.db.worker_at(lane);
        let places = self.affinity.iter().flat_map(|all| all.workers());
        let cpu = places.map(|(_, cpu)| cpu).nth(lane);
        Ok(PinnedWorker {
            worker: worker.ok_or_else(|| format!("the store has no worker {lane}"))?,
            cpu,
        })
    }

    /// Returns the ticket of transactions that became visible in this epoch.
    pub(super) fn ticket(&self) -> TicketSource {
        TicketSource {
            db: self.db.clone(),
            asks: self.logged && self.pace != LoadSchedule::Closed,
            requested: 0,
        }
    }
}

/// A client's worker, and the processor on which its thread must run.
pub(super) struct PinnedWorker {
    worker: store::Worker,
    cpu: Option<usize>,
}

impl PinnedWorker {
    /// Pins the calling thread to its processor, on the first call.
    pub(super) fn take(&mut self) -> Result<&mut store::Worker, RunError> {
        if let Some(cpu) = self.cpu.take() {
            base::cpus::pin_current_thread(cpu).map_err(RunError::of)?;
        }
        Ok(&mut self.worker)
    }
}

/// Makes tickets of epochs: a ticket is the epoch's number, because a client that waits for a
/// transaction waits for its epoch.
pub(super) struct TicketSource {
    db: Db,
    /// `true` if another thread than the client's own will wait.
    asks: bool,
    requested: u64,
}

impl TicketSource {
    /// Requests durability of what was observed, once for each epoch.
    pub(super) fn of(&mut self, observed: store::Epoch) -> u64 {
        if self.db.durable_epoch() >= observed {
            return DONE;
        }
        if self.asks && observed.0 > self.requested {
            self.requested = observed.0;
            self.db.request_durable(observed);
        }
        observed.0
    }

    pub(super) fn settle(&self, ticket: u64) -> Result<(), RunError> {
        if ticket == DONE {
            return Ok(());
        }
        let epoch = store::Epoch(ticket);
        if self.db.sync_inline(epoch) {
            return Ok(());
        }
        let waited = self.db.wait_durable(epoch);
        waited.map_err(RunError::of)
    }
}
