//! Clients: each runs one transaction after another at the current leader.
//!
//! Some open a session, number their transactions and send them again until they know the outcome;
//! others do not know the outcome when an answer is lost. Where sessions end soon, some clients
//! miss answers, and sleep for longer than a session lasts before they send again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::participant::{
    Leadership, Prepare, Sequenced, State, TransactionExecutor, TwoPhaseCommit,
};
use base::partition::OwnedReply;
use base::transaction::{Holder, Observed};
use base::{Abort, Epoch, NodeId, Op, Reply, TransactionId};

use super::job::{ACCOUNTS, BEATS, COUNTERS, Draw, Job, Step, Watched};
use super::reached::Point;
use super::world::{Asker, Event, Waiting, World};
use crate::worker::Worker;

/// A call to a node.
#[derive(Debug)]
pub(super) enum Call {
    Run(Arc<Job>, Option<Sequenced>),
    /// Opens a session.
    Open,
    /// Reads state that may be this old.
    Stale(Arc<Job>, Duration),
    Prepare(TransactionId, Arc<Job>),
    Commit(TransactionId),
    Abort(TransactionId),
    Refuse(TransactionId),
    Forget(TransactionId),
    State(TransactionId),
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Done(Value),
    Abort(Abort),
    /// The leadership was lost.
    Lost,
    /// The node is gone, or does not answer.
    Broken,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(super) enum Value {
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
    pub(super) fn run(&self, worker: &mut Worker, now: Duration) -> (Epoch, Waiting) {
        let done = |outcome| Waiting::Known(outcome);
        let outcome = match self {
            Call::Run(job, once) => {
                let ops = job.ops();
                let result = if worker.is_naive() && !job.is_read_only() {
                    match worker.propose(&ops, once.unwrap_or(NO_SESSION)) {
                        Ok(number) => return (worker.observed().epoch, Waiting::Naive(number)),
                        Err(abort) => Err(abort),
                    }
                } else {
                    run(worker, &ops, *once)
                };
                result.map(Value::Replies)
            }
            Call::Open => match worker.open_session() {
                Ok(number) => return (worker.observed().epoch, Waiting::Session(number)),
                Err(abort) => Err(abort),
            },
            Call::Stale(job, bound) => worker
                .read_stale(&job.ops(), *bound, own)
                .map(|replies| Value::Stale(replies, now)),
            Call::Prepare(id, job) => prepare(worker, *id, job).map(Value::Replies),
            Call::Commit(id) => {
                TwoPhaseCommit::commit(worker, *id).map(|(state, _)| Value::State(state))
            }
            Call::Abort(id) => {
                TwoPhaseCommit::abort(worker, *id).map(|(state, _)| Value::State(state))
            }
            Call::Refuse(id) => {
                let until = TransactionExecutor::time_ms(worker) + REFUSED_FOR_MS;
                worker
                    .refuse(*id, until)
                    .map(|(state, _)| Value::State(state))
            }
            Call::Forget(id) => worker.forget(*id).map(|()| Value::State(State::Unknown)),
            Call::State(id) => match Leadership::leads(worker) {
                Ok(()) => Ok(Value::State(TwoPhaseCommit::state(worker, *id).0)),
                Err(leader) => Err(Abort::Elsewhere { leader }),
            },
        };
        match outcome {
            Ok(value) => (worker.observed().epoch, done(Outcome::Done(value))),
            Err(abort) if abort.shows() || abort == Abort::Forgotten => {
                (worker.observed().epoch, done(Outcome::Abort(abort)))
            }
            Err(abort) => (Epoch::ZERO, done(Outcome::Abort(abort))),
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

fn prepare(worker: &mut Worker, id: TransactionId, job: &Job) -> Result<Vec<OwnedReply>, Abort> {
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

/// A transaction whose outcome is not known yet.
pub(super) struct Doing {
    job: Arc<Job>,
    /// `true` if it has a number, or gets one.
    numbered: bool,
    once: Option<Sequenced>,
    stale: Option<Duration>,
    begun: Duration,
    tries: u32,
    /// `true` if it may have taken effect.
    doubt: bool,
}

impl Doing {
    /// Returns `true` if there is no session yet in which it could have a number.
    fn is_opening(&self) -> bool {
        self.numbered && self.once.is_none()
    }
}

/// The task of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
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

/// See the module's description.
pub(super) struct Client {
    process: usize,
    pub(super) habit: Habit,
    number: u64,
    pub(super) doing: Option<Doing>,
    watched: Watched,
    /// `true` if it numbers its transactions.
    numbers: bool,
    /// Its session, if there is one, and its last transaction's number.
    session: Option<Sequenced>,
    node: usize,
    /// The transactions that it runs, if they are decided beforehand.
    pub(super) script: Option<VecDeque<Job>>,
}

/// The number of tries after which a client gives up a transaction that never began.
const TRIES: u32 = 300;

impl Client {
    pub(super) fn new(world: &mut World) -> Client {
        world.processes += 1;
        let numbers = world.random.bool();
        Client {
            process: world.processes,
            habit: Habit::Any,
            number: 0,
            doing: None,
            watched: Watched::new(),
            numbers,
            session: None,
            node: world.random.usize(..world.plan.founders),
            script: None,
        }
    }

    /// Makes a client that runs the transactions of a script, once each.
    pub(super) fn scripted(world: &mut World, script: Vec<Job>) -> Client {
        Client {
            numbers: true,
            script: Some(script.into()),
            ..Client::new(world)
        }
    }

    /// Makes a client that repeats the same task.
    pub(super) fn with_habit(world: &mut World, habit: Habit) -> Client {
        Client {
            numbers: habit == Habit::Sleeps,
            habit,
            ..Client::new(world)
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.doing.is_none() && self.script.as_ref().is_none_or(VecDeque::is_empty)
    }
}

impl World {
    /// Returns the transaction that pays in money before clients begin.
    pub(super) fn deposit() -> Job {
        Job::new((0..ACCOUNTS).map(Step::Open).collect())
    }

    /// Begins a client's next transaction.
    pub(super) fn think(&mut self, client: usize) {
        if self.clients[client].doing.is_some() {
            return self.ask(client);
        }
        let scripted = self.clients[client]
            .script
            .as_mut()
            .map(VecDeque::pop_front);
        let job = match scripted {
            Some(Some(job)) => job,
            Some(None) => return,
            None if !self.finale.opened => {
                return self.after(
                    Duration::from_millis(5),
                    Event::Think(Asker::Client(client)),
                );
            }
            None if self.finale.quiet => return,
            None => self.draw_job(client),
        };
        let one = &mut self.clients[client];
        let numbered = one.numbers && !job.is_read_only();
        let reads = job.is_read_only() && one.script.is_none();
        let watches = one.habit == Habit::Watches;
        let stale = reads && !watches && self.random.u8(..3) == 0;
        self.book.begin(&job, self.now);
        let bound = Duration::from_millis(self.random.u64(5..200));
        self.clients[client].doing = Some(Doing {
            job: Arc::new(job),
            numbered,
            once: None,
            stale: stale.then_some(bound),
            begun: self.now,
            tries: 0,
            doubt: false,
        });
        // A node that leads no longer must not answer.
        let habit = self.clients[client].habit != Habit::Any;
        if stale || habit || reads && self.random.bool() {
            self.clients[client].node = self.random.usize(..self.nodes.len());
        }
        self.ask(client);
    }

    fn draw_job(&mut self, client: usize) -> Job {
        let counter = self.random.usize(BEATS..COUNTERS);
        let one = &mut self.clients[client];
        match one.habit {
            Habit::Any => {}
            Habit::Sleeps => {
                one.session = None;
                let counter = self.random.usize(..BEATS);
                return Job::new(vec![Step::Count(counter)]);
            }
            Habit::Beats => return Job::new(vec![Step::Count(counter)]),
            Habit::Watches => return Job::new(vec![Step::Counter(counter)]),
        }
        let mut draw = Draw {
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
        let Some(doing) = &mut one.doing else { return };
        one.number += 1;
        doing.tries += 1;
        let job = Arc::clone(&doing.job);
        if doing.is_opening()
            && let Some(session) = &mut one.session
        {
            session.sequence += 1;
            doing.once = Some(*session);
        }
        let call = match doing.stale {
            _ if doing.is_opening() => Call::Open,
            Some(bound) => Call::Stale(job, bound),
            None => Call::Run(job, doing.once),
        };
        let (number, node) = (one.number, one.node);
        self.note(format_args!(
            "client {client} asks node {}: {call:?}",
            node + 1
        ));
        self.send_call(Asker::Client(client), number, node, call);
    }

    /// Takes the outcome of a client's call.
    pub(super) fn answered(&mut self, client: usize, number: u64, outcome: Outcome) {
        let one = &mut self.clients[client];
        if one.number != number {
            return;
        }
        let Some(doing) = one.doing.take() else {
            return;
        };
        // Later outcomes of this call are of no use.
        one.number += 1;
        self.note(format_args!("client {client} hears: {outcome:?}"));
        match outcome {
            Outcome::Done(Value::Replies(_))
                if self.clients[client].habit == Habit::Sleeps && self.random.bool() =>
            {
                self.doubt(client, doing);
            }
            Outcome::Done(Value::Replies(replies)) => self.done(client, &doing, &replies),
            Outcome::Done(Value::Stale(replies, at)) => {
                self.done_stale(client, &doing, &replies, at)
            }
            Outcome::Done(Value::Session(session)) => {
                let sequence = 0;
                self.clients[client].session = Some(Sequenced { session, sequence });
                self.clients[client].doing = Some(doing);
                self.ask(client);
            }
            Outcome::Done(Value::State(_)) => unreachable!("no client asks for it"),
            Outcome::Abort(abort) => self.refused(client, doing, abort),
            Outcome::Lost | Outcome::Broken => self.doubt(client, doing),
        }
    }

    fn done(&mut self, client: usize, doing: &Doing, replies: &[OwnedReply]) {
        let seen = doing.job.see(replies);
        if let Some(odd) = &seen.odd {
            self.book.wrong(odd.clone());
        }
        if doing.doubt && doing.once.is_some() {
            self.reached.hit(Point::ToldAgain);
        }
        let process = self.clients[client].process;
        self.book
            .committed(process, &doing.job, &seen, (doing.begun, self.now));
        self.finale.committed(doing.begun, self.now);
        let watches = doing
            .job
            .steps
            .iter()
            .any(|step| matches!(step, Step::Watch(_)));
        if watches {
            self.clients[client].watched = seen.watched;
        }
        self.rethink(client);
    }

    fn done_stale(&mut self, client: usize, doing: &Doing, replies: &[OwnedReply], at: Duration) {
        let seen = doing.job.see(replies);
        if let Some(odd) = &seen.odd {
            self.book.wrong(odd.clone());
        }
        // Clocks differ, and a leader may not know yet that it leads no longer.
        let age =
            doing.stale.expect("it was asked for").mul_f64(1.05) + self.plan.election.mul_f64(1.2);
        self.book.stale(&seen, at.saturating_sub(age), at);
        self.reached.hit(Point::Stale);
        self.rethink(client);
    }

    /// Handles an abort: nothing has happened, or nothing is remembered.
    fn refused(&mut self, client: usize, mut doing: Doing, abort: Abort) {
        match &abort {
            Abort::Unknown { what } if what.contains("ask again") => {
                return self.doubt(client, doing);
            }
            Abort::Forgotten if self.plan.forgets_clients() => {
                return self.forgotten(client, doing);
            }
            Abort::Unavailable { .. } if doing.is_opening() => self.reached.hit(Point::Full),
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
            Abort::Precondition { .. } if doing.doubt => return self.unknown(client, &doing),
            Abort::Precondition { .. } => return self.decline(client),
            // A transaction that was sent before is refused, too, whenever it arrives.
            Abort::Stale { .. } => {
                self.reached.hit(Point::Fenced);
                return self.decline(client);
            }
            other => return self.fail(format!("client {client} was told: {other}")),
        };
        // There are other keys to read.
        let bored = leader.is_none() && self.clients[client].habit != Habit::Any;
        let hopeless = doing.tries > TRIES && self.clients[client].script.is_none();
        if (bored || hopeless) && !doing.doubt {
            return self.decline(client);
        }
        if let Some(leader) = leader {
            self.clients[client].node = self.another(leader);
            if doing.stale.is_some() && doing.tries > 5 {
                doing.stale = None;
            }
        }
        self.clients[client].doing = Some(doing);
        let pause = self.while_up_to(Duration::from_millis(15));
        self.after(pause, Event::Think(Asker::Client(client)));
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
    fn forgotten(&mut self, client: usize, mut doing: Doing) {
        self.reached.hit(Point::Forgotten);
        self.clients[client].session = None;
        // A transaction of a script does no harm a second time.
        if doing.doubt && self.clients[client].script.is_none() {
            return self.unknown(client, &doing);
        }
        doing.once = None;
        self.clients[client].doing = Some(doing);
        self.ask(client);
    }

    /// Notes that the transaction did not take effect.
    fn decline(&mut self, client: usize) {
        self.book.aborted();
        self.rethink(client);
    }

    /// Notes that the transaction may have taken effect.
    fn doubt(&mut self, client: usize, mut doing: Doing) {
        self.clients[client].node = self.another(None);
        if doing.numbered || doing.job.is_read_only() {
            let opening = doing.is_opening();
            doing.doubt |= !opening;
            self.clients[client].doing = Some(doing);
            let sleeps = !opening && self.clients[client].habit == Habit::Sleeps;
            let pause = if sleeps {
                self.plan.session.mul_f64(4.0 * self.random.f64())
            } else {
                self.while_up_to(Duration::from_millis(15))
            };
            return self.after(pause, Event::Think(Asker::Client(client)));
        }
        self.unknown(client, &doing);
    }

    fn unknown(&mut self, client: usize, doing: &Doing) {
        self.reached.hit(Point::Unknown);
        let process = self.clients[client].process;
        self.book
            .unknown(process, &doing.job, (doing.begun, self.now));
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
        self.after(pause, Event::Think(Asker::Client(client)));
    }
}
