//! A proxy: a table, a clock, and their faults.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::partition::OwnedReply;
use base::planted::{self, Bug};
use base::transaction::Abort;

use super::client_request::ClientRequest;
use super::plan::{Plan, REQUEST_TIMEOUT};
use crate::authority::{self, Authority, Ledger};
use crate::error::LockError;
use crate::lock::{Answer, Request, Ticket};
use crate::moment::MonotonicTime;
use crate::shared::{self, Operation, Shared, TransactionNumber};

/// A message to a proxy.
#[derive(Clone, Debug)]
pub(super) enum Mail {
    Request(Ticket, String, ClientRequest),
    Cancel(Ticket, String),
    Result(TransactionNumber, Result<Vec<OwnedReply>, Abort>),
    LedgerKept(Result<(), LockError>),
    Wake,
}

/// An action of a proxy.
#[derive(Clone, Debug)]
pub(super) enum Doing {
    Transact(TransactionNumber, Vec<Operation>),
    Keep(Ledger),
    Answer(Ticket, Result<Answer, LockError>),
}

pub(super) enum Table {
    Shared(Box<Shared>),
    Authority(Box<Authority>),
}

pub(super) struct Proxy {
    /// Number of its starts; mail of another life is lost.
    pub(super) life: u64,
    pub(super) table: Option<Table>,
    pub(super) paused: bool,
    pub(super) cut_until: MonotonicTime,
    /// Messages that came while it was paused.
    pub(super) mailbox: VecDeque<Mail>,
    /// Speed of its clock.
    pub(super) rate: f64,
    /// Its clock's time at the beginning of the run; negative if the clock began later.
    pub(super) offset_us: i64,
    /// Error of its wall clock, in milliseconds.
    pub(super) skew_ms: i64,
    pub(super) wake_at: Option<MonotonicTime>,
    /// The ledger that is durable.
    pub(super) ledger: Option<Ledger>,
    /// Actions that it was about to carry out when it was paused.
    pub(super) held_back: Vec<Doing>,
    /// When each request came, by a clock that stops during pauses, and how long it waits.
    pub(super) open: BTreeMap<Ticket, (MonotonicTime, Duration)>,
    /// Length of all pauses so far.
    pub(super) lost: Duration,
    pub(super) paused_at: MonotonicTime,
}

/// Draws the speed of a clock: it is as wrong as allowed, or less.
pub(super) fn rate(rng: &mut fastrand::Rng) -> f64 {
    let wrong = match rng.u8(0..4) {
        0 => -1.0,
        1 => 1.0,
        _ => rng.f64() * 2.0 - 1.0,
    };
    1.0 + wrong / 64.0
}

impl Proxy {
    pub(super) fn new(rng: &mut fastrand::Rng) -> Proxy {
        Proxy {
            life: 0,
            table: None,
            paused: false,
            cut_until: MonotonicTime::default(),
            mailbox: VecDeque::new(),
            rate: rate(rng),
            offset_us: rng.i64(0..1_000_000_000),
            skew_ms: 0,
            wake_at: None,
            ledger: None,
            held_back: Vec::new(),
            open: BTreeMap::new(),
            lost: Duration::ZERO,
            paused_at: MonotonicTime::default(),
        }
    }

    /// Returns the time of the proxy's clock.
    pub(super) fn local(&self, now: MonotonicTime) -> MonotonicTime {
        let passed = (now.as_us() as f64 * self.rate) as i64;
        MonotonicTime::from_us(u64::try_from(self.offset_us + passed).unwrap_or(0))
    }

    /// Returns the time that the proxy's clock would show if it stopped during pauses.
    pub(super) fn unpaused(&self, now: MonotonicTime) -> MonotonicTime {
        let paused = now.since(MonotonicTime::default() + self.lost);
        self.local(MonotonicTime::default() + paused)
    }

    /// Returns when the proxy's clock will show this time, rounded up.
    pub(super) fn world(&self, local: MonotonicTime) -> MonotonicTime {
        let us = (local.as_us() as i64).saturating_sub(self.offset_us).max(0);
        MonotonicTime::from_us((us as f64 / self.rate) as u64 + 1)
    }

    /// Starts the clock again, as a start of the machine does.
    pub(super) fn reboot(&mut self, now: MonotonicTime) {
        self.offset_us = -((now.as_us() as f64 * self.rate) as i64);
    }

    /// Starts the proxy.
    pub(super) fn start(
        &mut self,
        plan: &Plan,
        incarnation: u64,
        now: MonotonicTime,
        wall_ms: u64,
    ) -> Vec<Doing> {
        self.life += 1;
        self.mailbox.clear();
        self.open.clear();
        self.held_back.clear();
        self.wake_at = None;
        self.paused = false;
        self.lost = Duration::ZERO;
        let local = self.local(now);
        let mut out = Vec::new();
        self.table = Some(if plan.alone {
            let options = authority::Options {
                shards: 4,
                block: 8,
                first_bound: Duration::from_millis(300),
                margin: Duration::from_millis(100),
                ..authority::Options::default()
            };
            let table = Authority::new(&options, self.ledger, wall_ms, local, &mut out);
            Table::Authority(Box::new(table))
        } else {
            let options = shared::Options {
                margin: Duration::from_millis(20),
                request_timeout: REQUEST_TIMEOUT,
                transaction_timeout: Duration::from_millis(500),
                transactions: 2,
                batch: plan.batch,
                poll: (Duration::from_millis(5), Duration::from_millis(100)),
                sweep: Duration::from_secs(2),
                ..shared::Options::default()
            };
            Table::Shared(Box::new(Shared::new(options, incarnation, local)))
        });
        out.into_iter().map(of_authority).collect()
    }

    /// Handles a message. Returns the actions that follow.
    pub(super) fn handle(&mut self, mail: Mail, now: MonotonicTime, wall_ms: u64) -> Vec<Doing> {
        let (local, came) = (self.local(now), self.unpaused(now));
        let mut doings = Vec::new();
        match self.table.as_mut() {
            None => return doings,
            Some(Table::Shared(table)) => {
                if planted::is(Bug::TrustedWallClock) {
                    table.set_wall_ms(wall_ms);
                }
                match mail {
                    Mail::Request(ticket, key, ask) => {
                        self.open.insert(ticket, (came, ask.wait()));
                        let request = |request: &Request<'_>| {
                            table.request(ticket, key.as_bytes(), request, local)
                        };
                        if let Err(error) = ask.with(request) {
                            doings.push(Doing::Answer(ticket, Err(error)));
                        }
                    }
                    Mail::Cancel(ticket, key) => {
                        if table.cancel(key.as_bytes(), ticket, local) {
                            self.open.remove(&ticket);
                        }
                    }
                    Mail::Result(number, result) => table.transacted(number, result, local),
                    Mail::LedgerKept(_) | Mail::Wake => {}
                }
                let mut out = Vec::new();
                table.step(local, &mut out);
                doings.extend(out.into_iter().map(of_shared));
            }
            Some(Table::Authority(table)) => {
                let mut out = Vec::new();
                match mail {
                    Mail::Request(ticket, key, ask) => {
                        self.open.insert(ticket, (came, ask.wait()));
                        let outcome = ask.with(|request| {
                            table.request(ticket, key.as_bytes(), request, local, &mut out)
                        });
                        doings.extend(outcome.map(|outcome| Doing::Answer(ticket, outcome)));
                    }
                    Mail::Cancel(ticket, key) => {
                        if table.cancel(key.as_bytes(), ticket) {
                            self.open.remove(&ticket);
                        }
                    }
                    Mail::LedgerKept(kept) => table.ledger_kept(kept, local, &mut out),
                    Mail::Result(..) | Mail::Wake => {}
                }
                table.expire(local, &mut out);
                doings.extend(out.into_iter().map(of_authority));
            }
        }
        doings
    }

    /// Returns when it wants to be woken.
    pub(super) fn next_due(&self) -> Option<MonotonicTime> {
        let local = match self.table.as_ref()? {
            Table::Shared(table) => table.next_due(),
            Table::Authority(table) => table.next_due(),
        };
        local.map(|local| self.world(local))
    }

    /// Returns how much is left in it: keys and requests.
    pub(super) fn load(&self) -> (usize, usize) {
        match &self.table {
            None => (0, 0),
            Some(Table::Shared(table)) => {
                let (keys, requests) = table.load();
                (keys + table.held(), requests + table.open())
            }
            Some(Table::Authority(table)) => (table.locks(), self.open.len()),
        }
    }
}

pub(super) fn of_authority(command: authority::AuthorityCommand) -> Doing {
    match command {
        authority::AuthorityCommand::KeepLedger(ledger) => Doing::Keep(ledger),
        authority::AuthorityCommand::Answer { ticket, outcome } => Doing::Answer(ticket, outcome),
    }
}

fn of_shared(command: shared::SharedCommand) -> Doing {
    match command {
        shared::SharedCommand::Transact { number, operations } => {
            Doing::Transact(number, operations)
        }
        shared::SharedCommand::Answer { ticket, outcome } => Doing::Answer(ticket, outcome),
    }
}
