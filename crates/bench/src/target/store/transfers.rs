//! Transfers between accounts: their sum stays, whatever happens.

use base::Reply;
use fastrand::Rng;
use history::workload::conservation::Options;
use history::workload::{Plan, Seen, Step};
use store::{Db, Op, Worker};

use super::{Bench, Seat, Ticket};
use crate::driver;
use crate::target::StoreJob;
use crate::workload::Transfers;

/// The workload.
pub(super) struct Load {
    options: Options,
    workers: usize,
}

impl Load {
    pub(super) fn new(transfers: &Transfers, job: &StoreJob) -> Load {
        Load {
            options: transfers.options(),
            workers: job.workers,
        }
    }
}

impl super::Load for Load {
    type Client<'r> = Client;

    fn load(&self, bench: &Bench<'_>) -> Result<(), String> {
        let mut worker = bench.worker()?;
        run(&mut worker, &self.options.opening())?;
        if bench.plant {
            // Money from nowhere.
            let key = format!("{}{:06}", self.options.prefix, 0);
            let step = Step::Add { key, delta: 1 };
            run(&mut worker, &Plan { steps: vec![step] })?;
        }
        let epoch = worker.observed().epoch;
        worker
            .wait_durable(epoch)
            .map_err(|abort| abort.to_string())
    }

    fn clients<'r>(&self, bench: &Bench<'r>) -> Result<Vec<Client>, String> {
        let client = |number: usize| {
            Ok(Client {
                seat: bench.seat(number)?,
                ticket: bench.ticket(),
                options: self.options.clone(),
                rng: Rng::with_seed(bench.seed ^ (number as u64) << 32),
                runs: 0,
            })
        };
        (0..self.workers).map(client).collect()
    }

    fn ended(&mut self, _: Vec<Client>) {}

    fn check(&self, db: &Db) -> Result<u64, String> {
        let mut worker = db.worker().ok_or("the store has no worker left")?;
        let seen = run(&mut worker, &self.options.audit(true))?;
        self.options.judge(&seen).map_err(|lost| lost.to_string())?;
        let pairs = seen.iter().flat_map(|seen| match seen {
            Seen::Pairs(pairs) => &pairs[..],
            _ => &[],
        });
        let place = |(i, (_, balance)): (usize, &(String, i64))| {
            super::check::digest(i as u64, &balance.to_le_bytes())
        };
        Ok(pairs.enumerate().map(place).fold(0, u64::wrapping_add))
    }
}

pub(super) struct Client {
    seat: Seat,
    ticket: Ticket,
    options: Options,
    rng: Rng,
    runs: usize,
}

impl driver::Client for Client {
    fn run(&mut self) -> Result<u64, String> {
        self.runs += 1;
        let worker = self.seat.take()?;
        if self.runs.is_multiple_of(self.options.audit_every.max(1)) {
            let seen = run(worker, &self.options.audit(self.rng.bool()))?;
            self.options.judge(&seen).map_err(|lost| lost.to_string())?;
        } else {
            run(worker, &self.options.transfer(&mut self.rng))?;
        }
        Ok(self.ticket.of(worker.observed().epoch))
    }

    fn settle(&mut self, ticket: u64) -> Result<(), String> {
        self.ticket.settle(ticket)
    }
}

/// Runs a plan as one list of operations.
fn run(worker: &mut Worker, plan: &Plan) -> Result<Vec<Seen>, String> {
    let texts: Vec<String> = plan
        .steps
        .iter()
        .map(|step| match step {
            Step::Put { value, .. } => value.to_string(),
            _ => String::new(),
        })
        .collect();
    let ops: Vec<Op<'_>> = plan
        .steps
        .iter()
        .zip(&texts)
        .map(|(step, text)| op(step, text))
        .collect();
    worker.refresh();
    let done = worker.execute(&ops).map_err(|abort| abort.to_string())?;
    done.replies().iter().map(seen).collect()
}

fn op<'a>(step: &'a Step, text: &'a str) -> Op<'a> {
    match step {
        Step::Get { key } => Op::Get {
            key: key.as_bytes(),
        },
        Step::Put { key, .. } => Op::put(key.as_bytes(), text.as_bytes()),
        Step::Add { key, delta } => Op::Add {
            key: key.as_bytes(),
            delta: *delta,
        },
        Step::Delete { key } => Op::Delete {
            key: key.as_bytes(),
        },
        Step::Scan { from, to, limit } => Op::Scan {
            from: from.as_bytes(),
            to: to.as_deref().map(str::as_bytes),
            limit: *limit,
            values: true,
        },
    }
}

fn seen(reply: &Reply<'_>) -> Result<Seen, String> {
    let balance = |text: &[u8]| {
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        text.parse::<i64>()
            .map_err(|_| format!("'{text}' is no balance"))
    };
    Ok(match reply {
        Reply::Ok => Seen::Done,
        Reply::Nil => Seen::Value(None),
        Reply::Int(number) => Seen::Value(Some(*number)),
        Reply::Bytes(text) => Seen::Value(Some(balance(text)?)),
        Reply::Pairs(pairs) => {
            let pair = |(key, text): &(&[u8], &[u8])| {
                Ok((String::from_utf8_lossy(key).into_owned(), balance(text)?))
            };
            Seen::Pairs(pairs.iter().map(pair).collect::<Result<_, String>>()?)
        }
        other => return Err(format!("a transfer was answered with {other:?}")),
    })
}
