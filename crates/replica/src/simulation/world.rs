//! A partition, its clients and the network in virtual time: decides which event happens next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::simulation::{Coverage, EventQueue, Trace, draw};
use base::NodeId;
use fastrand::Rng;

use super::admin::Admin;
use super::attempt::Coordinator;
use super::book::Book;
use super::client::{Call, Client, Habit, Outcome, Value};
use super::clock::{NodeClock, TrueTime};
use super::finale::Finale;
use super::network::Network;
use super::node::Node;
use super::plan::{Plan, TICK};
use super::reached::Point;

/// The number of a node's life: an event that was scheduled in another life does not count.
pub(super) type Life = u32;

/// The origin of a call: a client, or a coordinator of transactions over several partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    Client(usize),
    Coordinator(usize),
}

/// A call on its way to a node.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) asker: Asker,
    /// The number of the call; the outcome of an earlier one is of no use.
    pub(super) number: u64,
    pub(super) node: usize,
    pub(super) call: Arc<Call>,
}

/// A caller that waits for a ticket, and the outcome that it gets then.
pub(super) struct Waiter {
    pub(super) request: Request,
    pub(super) ticket: base::Epoch,
    pub(super) outcome: Waiting,
}

/// The outcome that a waiting caller gets.
pub(super) enum Waiting {
    Known(Outcome),
    /// The outcome of operations that are executed after consensus.
    Naive(u64),
    /// The id of a session.
    Session(u64),
}

/// The events.
pub(super) enum Event {
    /// A node's thread goes on.
    Turn(usize, Life),
    /// A message arrives.
    Arrive(usize, NodeId, Vec<u8>),
    /// A call arrives.
    Call(Request),
    /// An answer arrives.
    Answer(Asker, u64, Outcome),
    /// A call was not answered for long.
    TimeOut(Asker, u64),
    /// An asker goes on by itself.
    Think(Asker),
    /// Background work of a node is done.
    Job(usize, Life),
    /// A node's janitor works.
    Tidy(usize, Life),
    /// A node that is down starts again.
    Restart(usize, Life),
    /// A node's disk is repaired.
    MendDisk(usize),
    /// The administrator looks at the members, and may change them.
    Admin,
    /// Faults are drawn.
    Tick,
    /// Faults stop.
    Calm,
    /// Checks if everything has come to rest.
    Rest,
}

/// The hashes of a state, and the node that had it first.
pub(super) type Witness = (usize, u64, u64);

/// The whole simulated world.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) random: Rng,
    pub(super) now: Duration,
    pub(super) truth: TrueTime,
    pub(super) network: Network,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) coordinators: Vec<Coordinator>,
    pub(super) admin: Admin,
    /// The numbers of values, and of keys that expire, so far.
    pub(super) value: i64,
    pub(super) lent: usize,
    /// The number of processes of the history, so far.
    pub(super) processes: usize,
    /// Hashes of states, by the index of the last entry.
    pub(super) witnesses: BTreeMap<u64, Witness>,
    pub(super) book: Book,
    pub(super) finale: Finale,
    pub(super) trace: Trace,
    pub(super) reached: Coverage<Point>,
    /// The reason why the run has failed.
    pub(super) failure: Option<String>,
    queue: EventQueue<Duration, Event>,
}

/// More events than any run has: a run that goes on is stuck.
const MOST_EVENTS: u64 = 500_000;

impl World {
    pub(super) fn new(seed: u64, keep_trace: bool) -> World {
        let mut random = Rng::with_seed(seed);
        let plan = Plan::draw(seed, &mut random);
        let truth = TrueTime::default();
        let founders: Vec<NodeId> = (1..=plan.founders as u16).map(NodeId).collect();
        let nodes = (0..plan.nodes()).map(|at| {
            let ahead = random.i64(-plan.ahead_ms..=plan.ahead_ms);
            let clock = NodeClock::new(&truth, plan.rates[at], ahead);
            let node = NodeId(at as u16 + 1);
            let known = if at < plan.founders {
                founders.clone()
            } else {
                all(&plan)
            };
            Node::new(node, clock, known)
        });
        let mut world = World {
            nodes: nodes.collect(),
            network: Network::new(&plan),
            random,
            now: Duration::ZERO,
            truth,
            clients: Vec::new(),
            coordinators: Vec::new(),
            admin: Admin::default(),
            value: 0,
            lent: 0,
            processes: 0,
            witnesses: BTreeMap::new(),
            book: Book::default(),
            finale: Finale::default(),
            trace: Trace::new(keep_trace),
            reached: Coverage::default(),
            failure: None,
            queue: EventQueue::new(),
            plan,
        };
        world.note(format_args!("seed {seed}"));
        let plan = format!("{:?}", world.plan);
        world.note(format_args!("{plan}"));
        world
    }

    /// Runs until everything has come to rest after the faults, or an error was found.
    pub(super) fn run(&mut self) {
        self.settle();
        let mut events = 0;
        while self.failure.is_none() && !self.finale.is_over() {
            events += 1;
            if events > MOST_EVENTS {
                return self.fail("the partition does not come to rest".to_owned());
            }
            let Some((at, event)) = self.queue.pop() else {
                return self.fail("nothing is left to happen".to_owned());
            };
            self.now = at;
            self.truth.set(self.now);
            self.happen(event);
            if let Some(wrong) = self.book.take_wrong() {
                self.fail(wrong);
            }
        }
        if self.failure.is_none()
            && let Err(why) = self.book.judge(self.skew())
        {
            self.fail(why);
        }
    }

    /// Returns the greatest difference of times that may be seen between two nodes, or on a node
    /// before and after a pause.
    fn skew(&self) -> Duration {
        let steps = if self.plan.faults.clock_step > 0 {
            1000
        } else {
            0
        };
        Duration::from_millis(self.plan.ahead_ms as u64 * 2 + steps + 1500)
    }

    fn settle(&mut self) {
        for node in 0..self.nodes.len() {
            self.start(node);
        }
        let teller = Client::scripted(self, vec![World::deposit()]);
        self.clients.push(teller);
        self.after(Duration::from_millis(1), Event::Think(Asker::Client(0)));
        for _ in 0..self.plan.clients {
            let at = self.clients.len();
            let client = Client::new(self);
            self.clients.push(client);
            self.after(
                Duration::from_millis(at as u64 + 1),
                Event::Think(Asker::Client(at)),
            );
        }
        if !self.plan.flushes {
            for habit in [Habit::Beats, Habit::Beats, Habit::Watches, Habit::Watches] {
                let client = Client::with_habit(self, habit);
                self.clients.push(client);
                let asker = Asker::Client(self.clients.len() - 1);
                self.after(Duration::from_millis(5), Event::Think(asker));
            }
        }
        if self.plan.forgets_clients() {
            for _ in 0..3 {
                let client = Client::with_habit(self, Habit::Sleeps);
                self.clients.push(client);
                let asker = Asker::Client(self.clients.len() - 1);
                self.after(Duration::from_millis(5), Event::Think(asker));
            }
        }
        for at in 0..self.plan.coordinators {
            self.processes += 1;
            self.coordinators.push(Coordinator::new(self.processes));
            self.after(
                Duration::from_millis(50),
                Event::Think(Asker::Coordinator(at)),
            );
        }
        if !self.plan.faults.is_none() {
            self.after(TICK, Event::Tick);
        }
        self.after(self.plan.election, Event::Admin);
        self.after(self.plan.calm, Event::Calm);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn(node, life) => self.turn(node, life),
            Event::Arrive(node, from, bytes) => self.arrive(node, from, bytes),
            Event::Call(request) => self.call(request),
            Event::Answer(asker, number, outcome) => self.answer(asker, number, outcome),
            Event::TimeOut(asker, number) => {
                self.answer(asker, number, Outcome::Broken);
            }
            Event::Think(Asker::Client(client)) => self.think(client),
            Event::Think(Asker::Coordinator(at)) => self.coordinate(at),
            Event::Job(node, life) => self.job(node, life),
            Event::Tidy(node, life) => self.tidy(node, life),
            Event::Restart(node, life) => self.restart(node, life),
            Event::MendDisk(node) => self.mend_disk(node),
            Event::Admin => self.administer(),
            Event::Tick => self.draw_faults(),
            Event::Calm => self.calm(),
            Event::Rest => self.rest(),
        }
    }

    fn answer(&mut self, asker: Asker, number: u64, outcome: Outcome) {
        match asker {
            Asker::Client(client) => self.answered(client, number, outcome),
            Asker::Coordinator(at) => self.coordinator_answered(at, number, outcome),
        }
    }

    /// Sends a call to a node, and schedules the time-out.
    pub(super) fn send_call(&mut self, asker: Asker, number: u64, node: usize, call: Call) {
        let request = Request {
            asker,
            number,
            node,
            call: Arc::new(call),
        };
        let delay = self.network.delay(&mut self.random);
        self.after(delay, Event::Call(request));
        let share = self.random.f64();
        let hurries = matches!(asker, Asker::Client(at) if self.clients[at].habit == Habit::Beats);
        let patience = if hurries {
            self.plan.election.mul_f64(0.2 + 0.4 * share)
        } else {
            self.plan.election.mul_f64(1.0 + 11.0 * share * share)
        };
        self.after(patience, Event::TimeOut(asker, number));
    }

    /// Answers a call.
    pub(super) fn reply(&mut self, request: &Request, outcome: Outcome) {
        let delay = self.network.delay(&mut self.random);
        self.after(delay, Event::Answer(request.asker, request.number, outcome));
    }

    /// Schedules an event.
    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    /// Schedules an event at a time.
    pub(super) fn at(&mut self, at: Duration, event: Event) {
        self.queue.push(at.max(self.now), event);
    }

    /// Draws a time up to a limit, more often short than long.
    pub(super) fn while_up_to(&mut self, limit: Duration) -> Duration {
        draw::mostly_short(&mut self.random, limit)
    }

    pub(super) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, what);
    }

    pub(super) fn fail(&mut self, why: String) {
        self.note(format_args!("failure: {why}"));
        self.failure.get_or_insert(why);
    }

    /// Returns `true` if faults have stopped.
    pub(super) fn is_calm(&self) -> bool {
        self.now >= self.plan.calm
    }

    /// Answers every caller whose ticket has resolved or is lost.
    pub(super) fn answer_waiters(&mut self, node: usize) {
        let Some(running) = &mut self.nodes[node].running else {
            return;
        };
        let tickets = &running.shared.tickets;
        let resolved = tickets.resolved();
        let waiters = std::mem::take(&mut running.waiters);
        let mut done = Vec::new();
        for waiter in waiters {
            if tickets.is_lost(waiter.ticket) {
                done.push((waiter.request, Outcome::Lost));
            } else if waiter.ticket <= resolved {
                let outcome = match waiter.outcome {
                    Waiting::Known(outcome) => outcome,
                    Waiting::Naive(number) => match running.worker.outcome(number) {
                        Some(Ok(replies)) => Outcome::Done(Value::Replies(replies)),
                        Some(Err(abort)) => Outcome::Abort(abort),
                        None => Outcome::Lost,
                    },
                    Waiting::Session(number) => match running.worker.opened(number) {
                        Some(Ok(session)) => Outcome::Done(Value::Session(session)),
                        Some(Err(abort)) => Outcome::Abort(abort),
                        None => Outcome::Lost,
                    },
                };
                done.push((waiter.request, outcome));
            } else {
                running.waiters.push(waiter);
            }
        }
        for (request, outcome) in done {
            self.reply(&request, outcome);
        }
    }
}

/// Returns all nodes, once the cluster's file names them.
pub(super) fn all(plan: &Plan) -> Vec<NodeId> {
    (1..=plan.nodes() as u16).map(NodeId).collect()
}
