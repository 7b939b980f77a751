//! Transfers between accounts: their sum is constant.

use fastrand::Rng;
use store::{Db, Op, Worker};
use testkit::workload::transfers::{Options, Teller};
use testkit::workload::{self, Client as _, Ended, Plan, Seen, Step, Times, Workload, ops};

use super::job::StoreJob;
use super::read_back;
use super::store_under_test::{PinnedWorker, StoreUnderTest, StoreWorkload, TicketSource};
use crate::driver;
use crate::error::RunError;
use crate::workload::TransferSettings;

/// The workload.
pub(super) struct TransfersLoad {
    options: Options,
    workers: usize,
}

impl TransfersLoad {
    pub(super) fn new(transfers: &TransferSettings, job: &StoreJob) -> TransfersLoad {
        TransfersLoad {
            options: transfers.options(),
            workers: job.workers,
        }
    }
}

impl StoreWorkload for TransfersLoad {
    type Client<'r> = TransfersClient;

    fn load(&self, bench: &StoreUnderTest<'_>) -> Result<(), RunError> {
        let mut worker = bench.worker()?;
        run(
            &mut worker,
            &workload::Transfers::new(self.options.clone()).setup(),
        )?;
        if bench.plant {
            // Money from nowhere.
            let key = format!("{}{:06}", self.options.prefix, 0);
            let step = Step::Add { key, delta: 1 };
            run(&mut worker, &Plan { steps: vec![step] })?;
        }
        let epoch = worker.observed().epoch;
        worker.wait_durable(epoch).map_err(RunError::of)
    }

    fn clients<'r>(&self, bench: &StoreUnderTest<'r>) -> Result<Vec<TransfersClient>, RunError> {
        let client = |number: usize| {
            Ok(TransfersClient {
                seat: bench.seat(number)?,
                ticket: bench.ticket(),
                teller: workload::Transfers::new(self.options.clone())
                    .start(Rng::with_seed(bench.seed ^ (number as u64) << 32)),
            })
        };
        (0..self.workers).map(client).collect()
    }

    fn ended(&mut self, _: Vec<TransfersClient>) {}

    fn check(&self, db: &Db) -> Result<u64, RunError> {
        let mut worker = db.worker().ok_or("the store has no worker left")?;
        let seen = run(&mut worker, &self.options.audit(true))?;
        self.options.judge(&seen).map_err(RunError::of)?;
        let pairs = seen.iter().flat_map(|seen| match seen {
            Seen::Pairs(pairs) => &pairs[..],
            _ => &[],
        });
        let place = |(i, (_, balance)): (usize, &(String, i64))| {
            read_back::digest(i as u64, &balance.to_le_bytes())
        };
        Ok(pairs.enumerate().map(place).fold(0, u64::wrapping_add))
    }
}

pub(super) struct TransfersClient {
    seat: PinnedWorker,
    ticket: TicketSource,
    teller: Teller,
}

impl driver::BlockingClient for TransfersClient {
    fn run(&mut self) -> Result<u64, RunError> {
        let worker = self.seat.take()?;
        let plan = self.teller.plan();
        let ended = Ended::Committed(run(worker, &plan)?);
        self.teller
            .end(&plan, &ended, Times::default())
            .map_err(RunError::of)?;
        Ok(self.ticket.of(worker.observed().epoch))
    }

    fn settle(&mut self, ticket: u64) -> Result<(), RunError> {
        self.ticket.settle(ticket)
    }
}

/// Runs a plan as one list of operations.
fn run(worker: &mut Worker, plan: &Plan) -> Result<Vec<Seen>, RunError> {
    let texts = ops::texts(plan);
    let pairs = plan.steps.iter().zip(&texts);
    let all: Vec<Op<'_>> = pairs.map(|(step, text)| ops::op(step, text)).collect();
    worker.refresh();
    let done = worker.execute(&all).map_err(RunError::of)?;
    let replies = plan.steps.iter().zip(done.replies());
    replies
        .map(|(step, reply)| ops::seen(step, reply).map_err(RunError::of))
        .collect()
}
