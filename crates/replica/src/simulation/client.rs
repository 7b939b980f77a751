//! Clients: each runs one transaction after another at the current leader.
//!
//! Some open a session, number their transactions and send them again until they know the outcome;
//! others do not know the outcome when an answer is lost. Where sessions end soon, some clients
//! miss answers, and sleep for longer than a session lasts before they send again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::participant::Sequenced;
use base::partition::OwnedReply;
use base::{Abort, NodeId};

use super::actors::{ClientTask, ClientTransaction};
use super::call::{Call, CallOutcome, CallValue, Caller};
use super::job::{ACCOUNTS, BEATS, COUNTERS, PlannedStep, PlannedTransaction, TransactionDraw};
use super::reached::Point;
use super::world::{SimulatedEvent, World};

/// The number of tries after which a client gives up a transaction that never began.
const TRIES: u32 = 300;

impl World {
    /// Returns the transaction that pays in money before clients begin.
    pub(super) fn deposit() -> PlannedTransaction {
        PlannedTransaction::new((0..ACCOUNTS).map(PlannedStep::Open).collect())
    }

    /// Begins a client's next transaction.
    pub(super) fn think(&mut self, client: usize) {
        if self.clients[client].transaction.is_some() {
            return self.ask(client);
        }
        let scripted = self.clients[client]
            .script
            .as_mut()
            .map(VecDeque::pop_front);
        let job = match scripted {
            Some(Some(job)) => job,
            Some(None) => return,
            None if !self.run_end.opened => {
                return self.after(
                    Duration::from_millis(5),
                    SimulatedEvent::Think(Caller::Client(client)),
                );
            }
            None if self.run_end.quiet => return,
            None => self.draw_job(client),
        };
        let one = &mut self.clients[client];
        let numbered = one.numbers && !job.is_read_only();
        let reads = job.is_read_only() && one.script.is_none();
        let watches = one.task == ClientTask::Watches;
        let stale = reads && !watches && self.random.u8(..3) == 0;
        self.book.begin(&job, self.now);
        let bound = Duration::from_millis(self.random.u64(5..200));
        self.clients[client].transaction = Some(ClientTransaction {
            job: Arc::new(job),
            numbered,
            once: None,
            stale: stale.then_some(bound),
            begun: self.now,
            tries: 0,
            doubt: false,
        });
        // A node that leads no longer must not answer.
        let task = self.clients[client].task != ClientTask::Any;
        if stale || task || reads && self.random.bool() {
            self.clients[client].node = self.random.usize(..self.nodes.len());
        }
        self.ask(client);
    }

    fn draw_job(&mut self, client: usize) -> PlannedTransaction {
        let counter = self.random.usize(BEATS..COUNTERS);
        let one = &mut self.clients[client];
        match one.task {
            ClientTask::Any => {}
            ClientTask::Sleeps => {
                one.session = None;
                let counter = self.random.usize(..BEATS);
                return PlannedTransaction::new(vec![PlannedStep::Count(counter)]);
            }
            ClientTask::Beats => return PlannedTransaction::new(vec![PlannedStep::Count(counter)]),
            ClientTask::Watches => {
                return PlannedTransaction::new(vec![PlannedStep::Counter(counter)]);
            }
        }
        let mut draw = TransactionDraw {
            random: &mut self.random,
            keys: self.plan.keys,
            value: &mut self.value,
            lent: &mut self.lent,
            certain: one.numbers && !self.plan.forgets_clients(),
            flushes: self.plan.flushes,
        };
        draw.job(&mut one.watched)
    }

    fn ask(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let Some(transaction) = &mut one.transaction else {
            return;
        };
        one.number += 1;
        transaction.tries += 1;
        let job = Arc::clone(&transaction.job);
        if transaction.is_opening()
            && let Some(session) = &mut one.session
        {
            session.sequence += 1;
            transaction.once = Some(*session);
        }
        let call = match transaction.stale {
            _ if transaction.is_opening() => Call::Open,
            Some(bound) => Call::Stale(job, bound),
            None => Call::Run(job, transaction.once),
        };
        let (number, node) = (one.number, one.node);
        self.note(format_args!(
            "client {client} asks node {}: {call:?}",
            node + 1
        ));
        self.send_call(Caller::Client(client), number, node, call);
    }

    /// Takes the outcome of a client's call.
    pub(super) fn answered(&mut self, client: usize, number: u64, outcome: CallOutcome) {
        let one = &mut self.clients[client];
        if one.number != number {
            return;
        }
        let Some(transaction) = one.transaction.take() else {
            return;
        };
        // Later outcomes of this call are of no use.
        one.number += 1;
        self.note(format_args!("client {client} hears: {outcome:?}"));
        match outcome {
            CallOutcome::Done(CallValue::Replies(_))
                if self.clients[client].task == ClientTask::Sleeps && self.random.bool() =>
            {
                self.doubt(client, transaction);
            }
            CallOutcome::Done(CallValue::Replies(replies)) => {
                self.done(client, &transaction, &replies)
            }
            CallOutcome::Done(CallValue::Stale(replies, at)) => {
                self.done_stale(client, &transaction, &replies, at)
            }
            CallOutcome::Done(CallValue::Session(session)) => {
                let sequence = 0;
                self.clients[client].session = Some(Sequenced { session, sequence });
                self.clients[client].transaction = Some(transaction);
                self.ask(client);
            }
            CallOutcome::Done(CallValue::State(_)) => unreachable!("no client asks for it"),
            CallOutcome::Abort(abort) => self.refused(client, transaction, abort),
            CallOutcome::Lost | CallOutcome::Broken => self.doubt(client, transaction),
        }
    }

    fn done(&mut self, client: usize, transaction: &ClientTransaction, replies: &[OwnedReply]) {
        let seen = transaction.job.see(replies);
        if let Some(odd) = &seen.odd {
            self.book.wrong(odd.clone());
        }
        if transaction.doubt && transaction.once.is_some() {
            self.reached.hit(Point::ToldAgain);
        }
        if transaction.job.has_extended(&seen) {
            self.reached.hit(Point::Extended);
        }
        let process = self.clients[client].process;
        self.book.committed(
            process,
            &transaction.job,
            &seen,
            (transaction.begun, self.now),
        );
        self.run_end.committed(transaction.begun, self.now);
        let watches = transaction
            .job
            .steps
            .iter()
            .any(|step| matches!(step, PlannedStep::Watch(_)));
        if watches {
            self.clients[client].watched = seen.watched;
        }
        self.rethink(client);
    }

    fn done_stale(
        &mut self,
        client: usize,
        transaction: &ClientTransaction,
        replies: &[OwnedReply],
        at: Duration,
    ) {
        let seen = transaction.job.see(replies);
        if let Some(odd) = &seen.odd {
            self.book.wrong(odd.clone());
        }
        // Clocks differ, and a leader may not know yet that it leads no longer.
        let age = transaction.stale.expect("it was asked for").mul_f64(1.05)
            + self.plan.election.mul_f64(1.2);
        self.book.stale(&seen, at.saturating_sub(age), at);
        self.reached.hit(Point::Stale);
        self.rethink(client);
    }

    /// Handles an abort: nothing has happened, or nothing is remembered.
    fn refused(&mut self, client: usize, mut transaction: ClientTransaction, abort: Abort) {
        match &abort {
            Abort::Unknown { what } if what.contains("ask again") => {
                return self.doubt(client, transaction);
            }
            Abort::Forgotten if self.plan.forgets_clients() => {
                return self.forgotten(client, transaction);
            }
            Abort::Unavailable { .. } if transaction.is_opening() => self.reached.hit(Point::Full),
            _ => {}
        }
        let leader = match abort {
            Abort::Elsewhere { leader } => {
                self.reached.hit(Point::Redirected);
                Some(leader)
            }
            Abort::Held { .. } => {
                self.reached.hit(Point::Held);
                None
            }
            Abort::Conflict { .. } | Abort::Unavailable { .. } => None,
            // A transaction that was sent before may still arrive.
            Abort::Precondition { .. } if transaction.doubt => {
                return self.unknown(client, &transaction);
            }
            Abort::Precondition { .. } => return self.decline(client),
            // A transaction that was sent before is refused, too, whenever it arrives.
            Abort::Stale { .. } => {
                self.reached.hit(Point::Fenced);
                return self.decline(client);
            }
            other => return self.fail(format!("client {client} was told: {other}")),
        };
        // There are other keys to read.
        let bored = leader.is_none() && self.clients[client].task != ClientTask::Any;
        let hopeless = transaction.tries > TRIES && self.clients[client].script.is_none();
        if (bored || hopeless) && !transaction.doubt {
            return self.decline(client);
        }
        if let Some(leader) = leader {
            self.clients[client].node = self.another(leader);
            if transaction.stale.is_some() && transaction.tries > 5 {
                transaction.stale = None;
            }
        }
        self.clients[client].transaction = Some(transaction);
        let pause = self.while_up_to(Duration::from_millis(15));
        self.after(pause, SimulatedEvent::Think(Caller::Client(client)));
    }

    /// Returns the node to ask next.
    pub(super) fn another(&mut self, leader: Option<NodeId>) -> usize {
        match leader {
            Some(node) if self.random.u8(..8) > 0 => usize::from(node.0) - 1,
            _ => self.random.usize(..self.nodes.len()),
        }
    }

    /// Handles the loss of a session: this transaction was not executed, and the outcome of an
    /// earlier attempt is not known.
    fn forgotten(&mut self, client: usize, mut transaction: ClientTransaction) {
        self.reached.hit(Point::Forgotten);
        self.clients[client].session = None;
        // A transaction of a script does no harm a second time.
        if transaction.doubt && self.clients[client].script.is_none() {
            return self.unknown(client, &transaction);
        }
        transaction.once = None;
        self.clients[client].transaction = Some(transaction);
        self.ask(client);
    }

    /// Notes that the transaction did not take effect.
    fn decline(&mut self, client: usize) {
        self.book.aborted();
        self.rethink(client);
    }

    /// Notes that the transaction may have taken effect.
    fn doubt(&mut self, client: usize, mut transaction: ClientTransaction) {
        self.clients[client].node = self.another(None);
        if transaction.numbered || transaction.job.is_read_only() {
            let opening = transaction.is_opening();
            transaction.doubt |= !opening;
            self.clients[client].transaction = Some(transaction);
            let sleeps = !opening && self.clients[client].task == ClientTask::Sleeps;
            let pause = if sleeps {
                self.plan.session.mul_f64(4.0 * self.random.f64())
            } else {
                self.while_up_to(Duration::from_millis(15))
            };
            return self.after(pause, SimulatedEvent::Think(Caller::Client(client)));
        }
        self.unknown(client, &transaction);
    }

    fn unknown(&mut self, client: usize, transaction: &ClientTransaction) {
        self.reached.hit(Point::Unknown);
        let process = self.clients[client].process;
        self.book
            .unknown(process, &transaction.job, (transaction.begun, self.now));
        // A client whose transaction has an unknown outcome is another process from now on.
        self.processes += 1;
        self.clients[client].process = self.processes;
        self.rethink(client);
    }

    fn rethink(&mut self, client: usize) {
        self.clients[client]
            .watched
            .retain(|(_, version, _)| version.to_bits() != 0);
        let pause = self.while_up_to(self.plan.think);
        self.after(pause, SimulatedEvent::Think(Caller::Client(client)));
    }
}
