//! The world: events in their order.

use std::time::Duration;

use ::simulation::{Coverage, EventQueue, Trace, VirtualTime};
use base::transaction::Abort;

use super::client::{Client, Stage};
use super::judge::Judge;
use super::plan::{CLIENTS_END, END, FAULTS_END, LAST_ROUND, Plan, REQUEST_TIMEOUT};
use super::proxy::{Doing, Mail, Proxy, Table};
use super::reached::CoveragePoint;
use crate::authority::Ledger;
use crate::error::LockError;
use crate::lock::{Answer, Ticket};
use crate::model::Partition;
use crate::moment::MonotonicTime;
use crate::shared::{Operation, TransactionNumber};

/// Milliseconds since the Unix epoch when a run begins.
const EPOCH_MS: u64 = 1_700_000_000_000;

#[derive(Debug)]
pub(super) enum Event {
    /// A message reaches a life of a proxy.
    Mail(usize, u64, Mail),
    /// A transaction of a life of a proxy reaches the partition.
    Execute(usize, u64, TransactionNumber, Vec<Operation>, MonotonicTime),
    /// A ledger of a life of a proxy is kept, or is not.
    Ledger(usize, u64, Ledger, bool),
    Answer(usize, Ticket, Result<Answer, LockError>),
    /// A client has thought long enough.
    Acts(usize),
    /// A client has waited too long for this answer.
    GivesUp(usize, Ticket),
    /// A client does not wait for this answer any more.
    GoesAway(usize, Ticket),
    Fault,
    Starts(usize),
    /// A life of a proxy that was stopped ends.
    Ends(usize, u64),
    Resumes(usize, u64),
    Heals,
    LastRound,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) rng: fastrand::Rng,
    pub(super) now: MonotonicTime,
    queue: EventQueue<MonotonicTime, Event>,
    /// Number of requests that clients have sent.
    tickets: u64,
    pub(super) proxies: Vec<Proxy>,
    clients: Vec<Client>,
    partition: Partition,
    /// Before this time the partition has no leader.
    pub(super) leaderless_until: MonotonicTime,
    /// Error of the wall clock of the partition's leader, in milliseconds.
    pub(super) skew_ms: i64,
    pub(super) judge: Judge,
    pub(super) trace: Trace,
    pub(super) reached: Coverage<CoveragePoint>,
    pub(super) failure: Option<String>,
}

impl VirtualTime for MonotonicTime {
    fn as_us(self) -> u128 {
        u128::from(MonotonicTime::as_us(self))
    }
}

fn at(time: Duration) -> MonotonicTime {
    MonotonicTime::default() + time
}

impl World {
    pub(super) fn new(seed: u64, keep_trace: bool) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let plan = Plan::draw(&mut rng);
        let proxies = (0..plan.proxies).map(|_| Proxy::new(&mut rng)).collect();
        let clients = (0..plan.clients)
            .map(|n| Client::new(n, &mut rng))
            .collect();
        World {
            plan,
            rng,
            now: MonotonicTime::default(),
            queue: EventQueue::new(),
            tickets: 0,
            proxies,
            clients,
            partition: Partition::default(),
            leaderless_until: MonotonicTime::default(),
            skew_ms: 0,
            judge: Judge::default(),
            trace: Trace::new(keep_trace),
            reached: Coverage::default(),
            failure: None,
        }
    }

    pub(super) fn run(&mut self) {
        for proxy in 0..self.proxies.len() {
            self.start(proxy);
        }
        for client in 0..self.clients.len() {
            self.soon(Duration::from_millis(50), Event::Acts(client));
        }
        if self.plan.faults_ms.is_some() {
            self.push(at(Duration::from_millis(100)), Event::Fault);
        }
        self.push(at(FAULTS_END), Event::Heals);
        self.push(at(LAST_ROUND), Event::LastRound);
        while self.failure.is_none()
            && let Some((moment, event)) = self.queue.pop()
        {
            if moment > at(END) {
                break;
            }
            self.now = moment;
            self.happens(event);
        }
        if self.failure.is_none() {
            self.judge_the_end();
        }
    }

    pub(super) fn fail(&mut self, what: String) {
        self.trace.note(self.now, format_args!("FAILED: {what}"));
        self.failure.get_or_insert(what);
    }

    pub(super) fn push(&mut self, moment: MonotonicTime, event: Event) {
        self.queue.push(moment, event);
    }

    /// Schedules an event at a random time within this one.
    pub(super) fn soon(&mut self, within: Duration, event: Event) {
        let us = self.rng.u64(1..=within.as_micros() as u64);
        self.push(self.now + Duration::from_micros(us), event);
    }

    pub(super) fn is_faulty(&self) -> bool {
        self.now < at(FAULTS_END)
    }

    /// Returns the time of a wall clock with an error of `skew_ms`.
    fn wall_ms(&self, skew_ms: i64) -> u64 {
        (EPOCH_MS + self.now.as_us() / 1000).saturating_add_signed(skew_ms)
    }

    /// Returns `true` with a probability of this many thousandths, while there are faults.
    fn chance(&mut self, of_thousand: u64) -> bool {
        self.is_faulty() && self.rng.u64(0..1000) < of_thousand
    }

    /// Sends a message, which may be lost.
    fn send(&mut self, proxy: usize, usual: Duration, event: Event) {
        let is_cut = self.proxies[proxy].cut_until > self.now;
        if is_cut || self.chance(self.plan.lost) {
            return;
        }
        let within = if self.chance(self.plan.slow) {
            Duration::from_millis(self.rng.u64(100..9_000))
        } else {
            usual
        };
        self.soon(within, event);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Mail(proxy, life, mail) => self.mail(proxy, life, mail),
            Event::Execute(proxy, life, number, operations, sent) => {
                self.execute(proxy, life, number, &operations, sent);
            }
            Event::Ledger(proxy, life, ledger, kept) => self.keep(proxy, life, ledger, kept),
            Event::Answer(client, ticket, outcome) => self.answered(client, ticket, &outcome),
            Event::Acts(client) => self.acts(client),
            Event::GivesUp(client, ticket) => self.gives_up(client, ticket),
            Event::GoesAway(client, ticket) => self.goes_away(client, ticket),
            Event::Fault => self.fault(),
            Event::Starts(proxy) => {
                if self.proxies[proxy].table.is_none() {
                    self.start(proxy);
                }
            }
            Event::Ends(proxy, life) => self.ends(proxy, life),
            Event::Resumes(proxy, life) => self.resume(proxy, life),
            Event::Heals => self.heal(),
            Event::LastRound => {
                for number in 0..self.clients.len() {
                    self.clients[number].rename();
                    self.clients[number].stage = Stage::Acquires(self.plan.keys - 1);
                    self.soon(Duration::from_millis(20), Event::Acts(number));
                }
            }
        }
    }

    pub(super) fn start(&mut self, proxy: usize) {
        let wall_ms = self.wall_ms(self.proxies[proxy].skew_ms);
        let incarnation = self.rng.u64(..);
        let doings = self.proxies[proxy].start(&self.plan, incarnation, self.now, wall_ms);
        self.trace
            .note(self.now, format_args!("proxy {proxy} starts"));
        self.does(proxy, doings);
        self.plan_wake(proxy);
    }

    fn mail(&mut self, number: usize, life: u64, mail: Mail) {
        let proxy = &mut self.proxies[number];
        if proxy.life != life || proxy.table.is_none() {
            return;
        }
        if matches!(mail, Mail::Wake) {
            proxy.wake_at = None;
        }
        if proxy.paused {
            proxy.mailbox.push_back(mail);
            return;
        }
        let wall_ms = self.wall_ms(self.proxies[number].skew_ms);
        if !matches!(mail, Mail::Wake) {
            self.trace
                .note(self.now, format_args!("proxy {number} <- {mail:?}"));
        }
        let doings = self.proxies[number].handle(mail, self.now, wall_ms);
        // It may be paused between its decision and its actions.
        if !doings.is_empty() && self.plan.faults_ms.is_some() && self.chance(4) {
            let length = Duration::from_millis(self.rng.u64(1..6_000));
            self.pause(number, length);
            self.proxies[number].held_back = doings;
        } else {
            self.does(number, doings);
        }
        self.plan_wake(number);
    }

    fn plan_wake(&mut self, number: usize) {
        let proxy = &mut self.proxies[number];
        let Some(due) = proxy.next_due() else {
            return;
        };
        let due = due.max(self.now + Duration::from_micros(1));
        if proxy.wake_at.is_none_or(|at| due < at) {
            proxy.wake_at = Some(due);
            let life = proxy.life;
            self.push(due, Event::Mail(number, life, Mail::Wake));
        }
    }

    pub(super) fn does(&mut self, proxy: usize, doings: Vec<Doing>) {
        let life = self.proxies[proxy].life;
        for doing in doings {
            self.trace
                .note(self.now, format_args!("proxy {proxy} -> {doing:?}"));
            match doing {
                Doing::Transact(number, operations) => {
                    let puts = operations.iter();
                    let puts = puts
                        .filter(|one| matches!(one, Operation::Put { .. }))
                        .count();
                    self.reached
                        .add(CoveragePoint::Batched, u64::from(puts > 1));
                    let event = Event::Execute(proxy, life, number, operations, self.now);
                    self.send(proxy, Duration::from_millis(3), event);
                }
                Doing::Keep(ledger) => {
                    let kept = !self.chance(100);
                    let event = Event::Ledger(proxy, life, ledger, kept);
                    self.soon(Duration::from_millis(40), event);
                }
                Doing::Answer(ticket, outcome) => self.reply(proxy, ticket, outcome),
            }
        }
    }

    fn reply(&mut self, number: usize, ticket: Ticket, outcome: Result<Answer, LockError>) {
        let proxy = &mut self.proxies[number];
        let local = proxy.unpaused(self.now);
        let Some((came, wait)) = proxy.open.remove(&ticket) else {
            return self.fail(format!(
                "proxy {number} answers {ticket:?}, which no request waits for"
            ));
        };
        let took = local.since(came);
        let allowed = wait + REQUEST_TIMEOUT + Duration::from_millis(50);
        if took > allowed {
            return self.fail(format!("proxy {number} took {took:?} to answer {ticket:?}"));
        }
        let mut holders = self.clients.iter().enumerate();
        let client = holders.find_map(|(client, one)| {
            let open = one.open.as_ref()?;
            (open.ticket == ticket).then_some(client)
        });
        if let Some(client) = client {
            let event = Event::Answer(client, ticket, outcome);
            self.send(number, Duration::from_millis(3), event);
        }
    }

    /// Executes a transaction in the partition.
    fn execute(
        &mut self,
        proxy: usize,
        life: u64,
        number: TransactionNumber,
        operations: &[Operation],
        sent: MonotonicTime,
    ) {
        let nowhere = self.leaderless_until > self.now;
        let result = if nowhere && self.rng.bool() {
            Err(Abort::Elsewhere { leader: None })
        } else if nowhere || self.chance(self.plan.refused) {
            let what = "the partition is busy".to_owned();
            Err(Abort::Unavailable { what })
        } else {
            let wall_ms = self.wall_ms(self.skew_ms);
            self.partition.execute(operations, wall_ms)
        };
        let is_late = self.now.since(sent) > Duration::from_millis(600);
        if is_late && result.is_ok() {
            let writes = operations.iter();
            let held =
                |one: &&Operation| matches!(one, Operation::Put { value, .. } if !value.is_empty());
            self.reached.add(
                CoveragePoint::Late,
                u64::from(writes.filter(held).count() > 0),
            );
        }
        self.trace.note(
            self.now,
            format_args!("partition: {number:?} of proxy {proxy}: {result:?}"),
        );
        // A leader that is just being replaced cannot tell what it has done.
        let result = match result {
            Ok(_) if self.chance(self.plan.lost / 2) => {
                let what = "the leader has changed".to_owned();
                Err(Abort::Unknown { what })
            }
            result => result,
        };
        let event = Event::Mail(proxy, life, Mail::Result(number, result));
        self.send(proxy, Duration::from_millis(3), event);
    }

    fn keep(&mut self, number: usize, life: u64, ledger: Ledger, kept: bool) {
        let proxy = &mut self.proxies[number];
        if proxy.life != life || proxy.table.is_none() {
            return;
        }
        if kept {
            proxy.ledger = Some(ledger);
        } else {
            self.reached.add(CoveragePoint::LedgerFailed, 1);
        }
        let result = kept.then_some(()).ok_or_else(|| LockError::Unavailable {
            what: "a full disk".to_owned(),
        });
        self.mail(number, life, Mail::LedgerKept(result));
    }

    fn acts(&mut self, number: usize) {
        if self.clients[number].open.is_some() {
            return;
        }
        let is_free = self.clients[number].stage == Stage::Free;
        if is_free && self.now >= at(CLIENTS_END) {
            return;
        }
        let client = &self.clients[number];
        let (key, ask) = if is_free {
            let key = format!("k{}", self.rng.usize(0..self.plan.keys));
            let ask = client.choose(&key, &self.judge, &mut self.rng, self.now);
            (key, ask)
        } else {
            let Some((key, ask)) = client.choose_last() else {
                return;
            };
            (format!("k{key}"), ask)
        };
        let proxy = if self.plan.loyal {
            number % self.proxies.len()
        } else {
            self.rng.usize(0..self.proxies.len())
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let mail = Mail::Request(ticket, key.clone(), ask.clone());
        let client = &mut self.clients[number];
        client.sends(ticket, proxy, &key, ask, &mut self.judge, self.now);
        let gives_up = client.open.as_ref().expect("just sent").gives_up;
        let life = self.proxies[proxy].life;
        self.send(
            proxy,
            Duration::from_millis(3),
            Event::Mail(proxy, life, mail),
        );
        self.push(gives_up, Event::GivesUp(number, ticket));
        if self.chance(10) {
            self.soon(Duration::from_millis(10), Event::GoesAway(number, ticket));
        }
    }

    fn answered(&mut self, number: usize, ticket: Ticket, outcome: &Result<Answer, LockError>) {
        let client = &mut self.clients[number];
        if client
            .open
            .as_ref()
            .is_none_or(|open| open.ticket != ticket)
        {
            return;
        }
        self.trace
            .note(self.now, format_args!("client {number} <- {outcome:?}"));
        let judged = client.receives(outcome, &mut self.judge, &mut self.reached, self.now);
        if let Err(what) = judged {
            return self.fail(what.0);
        }
        // Some clients go on without waiting for the end of what they hold.
        let think = Duration::from_millis(self.plan.think_ms);
        self.soon(think, Event::Acts(number));
    }

    fn gives_up(&mut self, number: usize, ticket: Ticket) {
        let client = &mut self.clients[number];
        let Some(open) = client.open.take_if(|open| open.ticket == ticket) else {
            return;
        };
        if client.stage != Stage::Free {
            return self.fail(format!("in the last round {open:?} was not answered"));
        }
        self.trace.note(
            self.now,
            format_args!("client {number} gives {ticket:?} up"),
        );
        // Its request may still be carried out; it must not meet a lock that counts.
        client.rename();
        self.soon(Duration::from_millis(100), Event::Acts(number));
    }

    /// Lets a client go away while it waits for this answer, and come back with another name.
    fn goes_away(&mut self, number: usize, ticket: Ticket) {
        let client = &mut self.clients[number];
        let Some(open) = client.open.take_if(|open| open.ticket == ticket) else {
            return;
        };
        client.rename();
        self.reached.add(CoveragePoint::Cancelled, 1);
        let life = self.proxies[open.proxy].life;
        let mail = Mail::Cancel(open.ticket, open.key);
        self.send(
            open.proxy,
            Duration::from_millis(3),
            Event::Mail(open.proxy, life, mail),
        );
        self.soon(Duration::from_millis(100), Event::Acts(number));
    }

    /// Checks that nothing is left to do, and that every client has got what it asked for.
    fn judge_the_end(&mut self) {
        for number in 0..self.proxies.len() {
            let proxy = &self.proxies[number];
            let load = proxy.load();
            if load != (0, 0) {
                return self.fail(format!("proxy {number} still has {load:?}"));
            }
            self.count(number);
        }
        let waiting = self
            .clients
            .iter()
            .position(|client| client.stage != Stage::Done);
        if let Some(client) = waiting {
            return self.fail(format!("client {client} was not served in the last round"));
        }
        let held = self.partition.held();
        if held > 0 {
            self.fail(format!(
                "the partition still has {held} records that are not held"
            ));
        }
    }

    /// Adds the counters of a proxy's life.
    pub(super) fn count(&mut self, number: usize) {
        if let Some(Table::Shared(table)) = &self.proxies[number].table {
            let counted = *table.counters();
            for (point, times) in [
                (CoveragePoint::Waited, counted.waited),
                (CoveragePoint::Takeover, counted.takeovers),
                (CoveragePoint::Expired, counted.expired),
                (CoveragePoint::Tombstone, counted.tombstones),
                (CoveragePoint::Found, counted.found),
                (CoveragePoint::Repeated, counted.repeated),
                (CoveragePoint::Overtaken, counted.overtaken),
                (CoveragePoint::EraLost, counted.eras_lost),
                (CoveragePoint::Undone, counted.undone),
                (CoveragePoint::Swept, counted.swept),
            ] {
                self.reached.add(point, times);
            }
        }
    }
}
